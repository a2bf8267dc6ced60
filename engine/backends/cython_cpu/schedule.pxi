# The encoder's schedule: one native call per forward pass.
#
# A group is some whole sequences, worked on by a team of threads through all layers; its tokens lie end to end. Per
# token it keeps x [D] (the residual stream), q, k and v head by head, and the context [H*d].
#
#   many tokens  each thread takes bundles of whole sequences from a queue, longest first, as a team of one: no barrier
#   few tokens   all threads form one team and split the columns of every product, so each weight is read by one core
#   else         all threads form one team and split the rows; two barriers a layer. Who is done with its own blocks of rows
#                takes blocks of others, as cores of shared machines are seldom equally fast
#
# No schedule splits a sum, so which one ran, and on how many threads, cannot be told from the bits of the result.

cdef enum:
    BLOCK = 64                  # rows that go through a layer's products together, their hidden rows in L2
    PIECES = 4                  # of a layer's attention, for each thread of a team
    COLUMN_TOKENS = BLOCK       # up to so many tokens a team splits columns, in the first thread's block of rows

cdef struct Map:
    # A linear map in the model's precision: one of the two is set.
    Linear floats               # float32 or bfloat16
    LinearInt8 integers
    Py_ssize_t N
    Py_ssize_t K

cdef struct Layer:
    Map qkv                     # [3*H*dp, D]: heads of q, then of k, then of v, each padded to dp
    Map output                  # [D, H*dp]
    Norm attention_norm
    Map up                      # [F, D], with the activation
    Map down                    # [D, F]
    Norm ffn_norm

cdef struct Model:
    const KernelTable* kernels
    Layer* layers
    Embedding embedding         # tables; ids and embeds belong to a call
    Norm embedding_norm         # weight NULL: there is none
    Storage precision           # of the linear maps
    int operand_bytes           # of an element of the rows that they take; 0: they take the rows as they are
    float scale
    Py_ssize_t L
    Py_ssize_t D
    Py_ssize_t H
    Py_ssize_t d
    Py_ssize_t dp               # d padded to VL
    Py_ssize_t x_stride         # floats from one row to the next: see row_stride
    Py_ssize_t context_stride
    Py_ssize_t hidden_stride
    Py_ssize_t operands_stride  # elements from one row of operands to the next

cdef struct Sequence:
    Py_ssize_t source           # its first token in the batch
    Py_ssize_t T
    Py_ssize_t row              # its first row in its group

cdef struct Group:
    Sequence* sequences
    Py_ssize_t count
    Py_ssize_t N                # tokens
    float* x                    # [N][x_stride]
    float* qkv                  # [3*H][N][dp]
    float* context              # [N][context_stride]

cdef struct Private:
    # What one thread needs for itself; the first one's rows serve a whole team that splits columns.
    float* y                    # [BLOCK][x_stride]
    float* hidden               # [BLOCK][hidden_stride]
    float* scratch              # attention's
    void* operands              # [BLOCK][operands_stride], of the rows that a product takes
    RowRange* ranges            # [BLOCK], of codes
    Py_ssize_t taken            # atomic: how many of this thread's blocks of rows are begun

cdef struct Team:
    int rank
    int size
    pool_barrier* barrier

cdef struct Job:
    const Model* model
    Embedding embedding
    float* out                  # [N, D]
    Group* groups
    Py_ssize_t count
    Private* privates
    float* tokens               # arena for the groups' rows: one share per thread, or all of it for a team
    Py_ssize_t share            # floats
    bint bundles
    Py_ssize_t next             # atomic: the next bundle of the queue; of a team, the next piece of a layer's attention
    pool_barrier barrier

cdef extern from *:
    """
    static inline Py_ssize_t take_next(Py_ssize_t *next) { return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED); }
    """
    Py_ssize_t take_next(Py_ssize_t* next) noexcept nogil


cdef Py_ssize_t row_stride(Py_ssize_t width) noexcept nogil:
    # An odd number of cache lines, so that the rows of a tile do not fall into the same sets of a cache.
    return ((width + 15) // 16 | 1) * 16


cdef Py_ssize_t token_floats(const Model* m) noexcept nogil:
    return m.x_stride + 3 * m.H * m.dp + m.context_stride


cdef inline bint attends_in_pairs(const Model* m) noexcept nogil:
    return m.precision != FLOAT32 and m.kernels.attention_bfloat16 != NULL


cdef Py_ssize_t scratch_floats(const Model* m) noexcept nogil:
    if attends_in_pairs(m):
        return m.kernels.attention_bfloat16_scratch(m.d, m.dp)
    return m.kernels.attention_scratch(m.d, m.dp)


cdef Py_ssize_t private_floats(const Model* m) noexcept nogil:
    return (BLOCK * (m.x_stride + m.hidden_stride) + row_stride(scratch_floats(m))
            + BLOCK * (m.operands_stride * m.operand_bytes // 4 + 2))


cdef inline void meet(const Team* team) noexcept nogil:
    if team.size > 1:
        pool_barrier_wait(team.barrier, team.size)


# Rows of a group that go together into one call; the work on them.

cdef void embed_rows(const Job* job, const Group* g, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef const Model* m = job.model
    cdef Py_ssize_t s, a, b
    cdef const Sequence* sequence
    for s in range(g.count):
        sequence = &g.sequences[s]
        a, b = max(first, sequence.row), min(last, sequence.row + sequence.T)
        if a < b:
            m.kernels.embed(&job.embedding, sequence.source + a - sequence.row, b - a, m.D, g.x + a * m.x_stride, m.x_stride)
    if m.embedding_norm.weight != NULL and first < last:
        m.kernels.layer_norm(&m.embedding_norm, g.x + first * m.x_stride, m.x_stride,
                             g.x + first * m.x_stride, m.x_stride, last - first)


cdef void finish_rows(const Job* job, const Group* g, const Norm* norm, const float* y, Py_ssize_t first,
                      Py_ssize_t last) noexcept nogil:
    # The last norm of the stack, from y (whose first row is row `first` of the group) to the caller's array.
    cdef Py_ssize_t s, a, b
    cdef const Sequence* sequence
    for s in range(g.count):
        sequence = &g.sequences[s]
        a, b = max(first, sequence.row), min(last, sequence.row + sequence.T)
        if a < b:
            job.model.kernels.layer_norm(norm, y + (a - first) * job.model.x_stride, job.model.x_stride,
                                         job.out + (sequence.source + a - sequence.row) * norm.D, norm.D, b - a)


cdef inline Output rows_of(float* data, Py_ssize_t stride, const Map* map) noexcept nogil:
    cdef Output out
    out.data, out.stride, out.width, out.block = data, stride, map.N, 0
    return out


cdef inline Output heads_of(const Model* m, const Group* g, Py_ssize_t first) noexcept nogil:
    cdef Output out
    out.data, out.stride, out.width, out.block = g.qkv + first * m.dp, m.dp, m.dp, g.N * m.dp
    return out


cdef inline Py_ssize_t panels_of(const Model* m, const Map* map) noexcept nogil:
    return (map.N + m.kernels.NR - 1) // m.kernels.NR


cdef void take_rows(const Model* m, const Map* map, const float* a, Py_ssize_t a_stride, Py_ssize_t first,
                    Py_ssize_t last, const Private* own) noexcept nogil:
    # Rows [first, last) of a, at most BLOCK in all, as the map's product takes them.
    cdef unsigned char* operands = <unsigned char*>own.operands + first * m.operands_stride * m.operand_bytes
    if m.precision == INT8:
        m.kernels.quantize(a + first * a_stride, a_stride, last - first, map.K, operands, m.operands_stride,
                           own.ranges + first)
    elif m.operand_bytes:
        m.kernels.to_operands(a + first * a_stride, a_stride, last - first, map.K, operands, m.operands_stride)


cdef void multiply(const Model* m, const Map* map, const float* a, Py_ssize_t a_stride, Py_ssize_t M,
                   const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last,
                   const Private* own) noexcept nogil:
    # Panels [panel, last) of the product with rows of a that were taken.
    if m.precision == INT8:
        m.kernels.linear_int8(&map.integers, <const unsigned char*>own.operands, m.operands_stride, own.ranges, M, residual,
                              out, panel, last)
    elif m.precision == FLOAT32:
        m.kernels.linear(&map.floats, a, a_stride, M, residual, out, panel, last)
    elif m.operand_bytes:
        m.kernels.linear_bfloat16(&map.floats, own.operands, m.operands_stride, M, residual, out, panel, last)
    else:
        m.kernels.linear_bfloat16(&map.floats, a, a_stride, M, residual, out, panel, last)


cdef void multiply_rows_by(const Model* m, const Map* map, const float* a, Py_ssize_t a_stride, Py_ssize_t M,
                           const float* residual, const Output* out, const Private* own) noexcept nogil:
    # All columns, of at most BLOCK rows.
    take_rows(m, map, a, a_stride, 0, M, own)
    multiply(m, map, a, a_stride, M, residual, out, 0, panels_of(m, map), own)


cdef void attend(const Model* m, const Group* g, float* scratch, Py_ssize_t piece, Py_ssize_t pieces) noexcept nogil:
    # A piece of all (sequence, head, query block), cut where the cost, which is T for a block, reaches it.
    cdef Py_ssize_t NR = m.kernels.NR, total = 0, cost = 0, s, h, blocks, begin, end, low, high
    cdef const Sequence* sequence
    cdef Attention call
    memset(&call, 0, sizeof(call))
    call.q_stride = call.k_stride = call.v_stride = call.e = m.dp
    call.d, call.scale, call.out_stride = m.d, m.scale, m.context_stride
    for s in range(g.count):
        sequence = &g.sequences[s]
        total += m.H * ((sequence.T + NR - 1) // NR) * sequence.T
    low, high = total * piece // pieces, total * (piece + 1) // pieces
    for s in range(g.count):
        sequence = &g.sequences[s]
        blocks = (sequence.T + NR - 1) // NR
        for h in range(m.H):
            begin = min(blocks, max(0, (low - cost + sequence.T - 1) // sequence.T)) if low > cost else 0
            end = min(blocks, (high - cost + sequence.T - 1) // sequence.T) if high > cost else 0
            cost += blocks * sequence.T
            if begin >= end:
                continue
            call.S = sequence.T
            call.low, call.high = -sequence.T, sequence.T
            call.T = min(end * NR, sequence.T) - begin * NR
            call.q = g.qkv + (h * g.N + sequence.row + begin * NR) * m.dp
            call.k = g.qkv + ((m.H + h) * g.N + sequence.row) * m.dp
            call.v = g.qkv + ((2 * m.H + h) * g.N + sequence.row) * m.dp
            call.out = g.context + (sequence.row + begin * NR) * m.context_stride + h * m.dp
            if attends_in_pairs(m):
                m.kernels.attention_bfloat16(&call, scratch)
            else:
                m.kernels.attention(&call, scratch)


cdef void attend_together(Job* job, const Group* g, float* scratch, const Team* team) noexcept nogil:
    # All pieces, each by the thread that comes first.
    cdef Py_ssize_t pieces = PIECES * team.size, i
    if team.size == 1:
        attend(job.model, g, scratch, 0, 1)
        return
    i = take_next(&job.next)
    while i < pieces:
        attend(job.model, g, scratch, i, pieces)
        i = take_next(&job.next)


cdef void finish_layer(const Job* job, const Group* g, const Private* own, Py_ssize_t l, Py_ssize_t first,
                       Py_ssize_t last) noexcept nogil:
    # From the context of rows [first, last), at most BLOCK of them, to the next layer's queries, keys and values:
    #   x = norm(x + output(context)); x = norm(x + down(activation(up(x))))
    cdef const Model* m = job.model
    cdef const KernelTable* k = m.kernels
    cdef const Layer* layer = &m.layers[l]
    cdef Py_ssize_t M = last - first
    cdef float* x = g.x + first * m.x_stride
    cdef Output y = rows_of(own.y, m.x_stride, &layer.output)
    cdef Output hidden = rows_of(own.hidden, m.hidden_stride, &layer.up), heads
    multiply_rows_by(m, &layer.output, g.context + first * m.context_stride, m.context_stride, M, x, &y, own)
    k.layer_norm(&layer.attention_norm, own.y, m.x_stride, x, m.x_stride, M)
    multiply_rows_by(m, &layer.up, x, m.x_stride, M, NULL, &hidden, own)
    multiply_rows_by(m, &layer.down, own.hidden, m.hidden_stride, M, x, &y, own)
    if l == m.L - 1:
        finish_rows(job, g, &layer.ffn_norm, own.y, first, last)
    else:
        k.layer_norm(&layer.ffn_norm, own.y, m.x_stride, x, m.x_stride, M)
        heads = heads_of(m, g, first)
        multiply_rows_by(m, &m.layers[l + 1].qkv, x, m.x_stride, M, NULL, &heads, own)


cdef inline bint block_of(const Group* g, const Team* team, Py_ssize_t rank, Py_ssize_t i, Py_ssize_t* first,
                          Py_ssize_t* last) noexcept nogil:
    # Rows [first, last) of the i-th block of a thread's share; False where it has not so many.
    cdef Py_ssize_t start = g.N * rank // team.size, M = g.N * (rank + 1) // team.size - start
    cdef Py_ssize_t blocks = (M + BLOCK - 1) // BLOCK
    if i >= blocks:
        return False
    first[0], last[0] = start + M * i // blocks, start + M * (i + 1) // blocks
    return True


cdef void encode_by_rows(Job* job, const Group* g, Private* own, const Team* team) noexcept nogil:
    cdef const Model* m = job.model
    cdef Private* privates = own - team.rank
    cdef Py_ssize_t l, i = 0, first = 0, last = 0, turn, rank
    cdef Output heads
    while block_of(g, team, team.rank, i, &first, &last):
        embed_rows(job, g, first, last)
        heads = heads_of(m, g, first)
        multiply_rows_by(m, &m.layers[0].qkv, g.x + first * m.x_stride, m.x_stride, last - first, NULL, &heads, own)
        i += 1
    for l in range(m.L):
        meet(team)
        own.taken = 0
        attend_together(job, g, own.scratch, team)
        meet(team)
        if team.rank == 0 and team.size > 1:
            job.next = 0
        for turn in range(team.size):
            rank = (team.rank + turn) % team.size
            while block_of(g, team, rank, take_next(&privates[rank].taken), &first, &last):
                finish_layer(job, g, own, l, first, last)


cdef void split_columns(const Model* m, const Map* map, const float* a, Py_ssize_t a_stride, Py_ssize_t M,
                        const float* residual, const Output* out, const Private* shared, const Team* team) noexcept nogil:
    # Each thread its columns of the product, of rows that it has had its share in taking.
    cdef Py_ssize_t panels = panels_of(m, map), rank = team.rank, size = team.size
    if m.operand_bytes:
        take_rows(m, map, a, a_stride, M * rank // size, M * (rank + 1) // size, shared)
        meet(team)
    multiply(m, map, a, a_stride, M, residual, out, panels * rank // size, panels * (rank + 1) // size, shared)
    meet(team)


cdef void encode_by_columns(const Job* job, const Group* g, const Private* own, const Team* team) noexcept nogil:
    cdef const Model* m = job.model
    cdef const Private* shared = &job.privates[0]
    cdef Py_ssize_t first = g.N * team.rank // team.size, last = g.N * (team.rank + 1) // team.size, l
    cdef const Layer* layer
    cdef Output heads = heads_of(m, g, 0), y, hidden
    embed_rows(job, g, first, last)
    meet(team)
    for l in range(m.L):
        layer = &m.layers[l]
        y, hidden = rows_of(shared.y, m.x_stride, &layer.output), rows_of(shared.hidden, m.hidden_stride, &layer.up)
        split_columns(m, &layer.qkv, g.x, m.x_stride, g.N, NULL, &heads, shared, team)
        attend(m, g, own.scratch, team.rank, team.size)
        meet(team)
        split_columns(m, &layer.output, g.context, m.context_stride, g.N, g.x, &y, shared, team)
        m.kernels.layer_norm(&layer.attention_norm, shared.y + first * m.x_stride, m.x_stride,
                             g.x + first * m.x_stride, m.x_stride, last - first)
        meet(team)
        split_columns(m, &layer.up, g.x, m.x_stride, g.N, NULL, &hidden, shared, team)
        split_columns(m, &layer.down, shared.hidden, m.hidden_stride, g.N, g.x, &y, shared, team)
        if l == m.L - 1:
            finish_rows(job, g, &layer.ffn_norm, shared.y + first * m.x_stride, first, last)
        else:
            m.kernels.layer_norm(&layer.ffn_norm, shared.y + first * m.x_stride, m.x_stride,
                                 g.x + first * m.x_stride, m.x_stride, last - first)
            meet(team)


cdef void place(const Model* m, Group* g, float* tokens) noexcept nogil:
    g.x = tokens
    g.qkv = g.x + g.N * m.x_stride
    g.context = g.qkv + 3 * m.H * g.N * m.dp


cdef void work(void* arg, int rank, int size) noexcept nogil:
    # One thread's part of a forward pass.
    cdef Job* job = <Job*>arg
    cdef Team team
    cdef Group group
    cdef Py_ssize_t i
    if job.bundles:
        team.rank, team.size, team.barrier = 0, 1, NULL
        i = take_next(&job.next)
        while i < job.count:
            group = job.groups[i]
            place(job.model, &group, job.tokens + rank * job.share)
            encode_by_rows(job, &group, &job.privates[rank], &team)
            i = take_next(&job.next)
        return
    team.rank, team.size, team.barrier = rank, size, &job.barrier
    for i in range(job.count):
        group = job.groups[i]
        place(job.model, &group, job.tokens)
        if group.N <= COLUMN_TOKENS:
            encode_by_columns(job, &group, &job.privates[rank], &team)
        else:
            encode_by_rows(job, &group, &job.privates[rank], &team)
        meet(&team)
