# The interpreter of a model's program: one native call per forward pass.
#
# lowering.py turns a program into instructions over buffers. A team of threads runs all instructions for a batch group,
# which is one or more whole sequences; the tokens of a group lie end to end. Attention reads results of other rows, so
# each ATTEND ends a segment of instructions that work row by row. schedule.pxi divides the work between threads.
#
# machine.pxi has the structs: Job, a pass; Machine m, what all passes share; Instruction op; Buffer; Group g with its
# sequences and the rows of all its tokens; Place at, where the rows of a block lie; Private, the memory of a thread.

cdef extern from *:
    """
    static inline Py_ssize_t take_next(Py_ssize_t *next) { return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED); }
    """
    Py_ssize_t take_next(Py_ssize_t* next) noexcept nogil       # the number before, which no other thread gets


cdef extern from *:
    """
    #include <time.h>
    static inline double monotonic_seconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec + 1e-9 * now.tv_nsec;
    }
    static inline int is_set(const int *flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
    static inline void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELAXED); }
    """
    double monotonic_seconds() noexcept nogil
    bint is_set(const int* flag) noexcept nogil     # any thread may set a flag; nothing else is ordered by it
    void set(int* flag) noexcept nogil


cdef inline bint stopped(Job* job, const Private* private) noexcept nogil:
    # Return whether to skip work; threads still go to every barrier. Every 50 ms the caller's thread looks at the
    # clock, and lets Python run signal handlers.
    cdef double now
    if private == job.privates and not is_set(&job.stop):    # the first reason to stop is the one that is raised
        now = monotonic_seconds()
        if now - job.looked >= 0.05:
            job.looked = now
            end_work(job.machine.product)       # Python's code may use tiles of its own
            look_for_a_reason_to_stop(job)
            begin_work(job.machine.product)
    return is_set(&job.stop)


cdef inline void meet(const Team* team) noexcept nogil:
    # Wait for all threads of a team; a team of one has no barrier.
    if team.size > 1:
        pool_barrier_wait(team.barrier, team.size)


cdef inline float* head_row(const Group* g, const Buffer* b, Py_ssize_t h, Py_ssize_t row) noexcept nogil:
    # Return the address of a row of head h, in a buffer that is kept for all tokens of the group.
    return g.rows + b.offset * g.N + (h * g.N + row) * b.stride // (2 if b.bfloat16 else 1)


cdef inline float* row_at(const Machine* m, const Place* at, int buffer, Py_ssize_t row) noexcept nogil:
    # Return the address of a row of a buffer, or of the row of its first head if it has heads.
    cdef const Buffer* b = &m.buffers[buffer]
    if b.in_pass:
        return head_row(at.group, b, 0, row)
    return at.block.rows + b.offset * m.product.block + (row - at.origin) * b.stride


cdef inline Operands operands_at(const Machine* m, const Place* at, int buffer) noexcept nogil:
    # Return the operands of a block of rows, or of all picked rows.
    cdef const Buffer* b = &m.buffers[buffer]
    cdef Operands operands
    cdef Py_ssize_t rows = at.group.N if b.in_pass else m.product.block
    operands.rows = <char*>((at.group.rows if b.in_pass else at.block.rows) + b.offset * rows)
    operands.stride = b.operands
    operands.ranges = <RowRange*>(operands.rows + rows * b.operands * m.product.operand_bytes)
    return operands


# Instructions that work row by row, on rows [first, last) of a group.

cdef inline bint rows_of(const Sequence* sequence, Py_ssize_t first, Py_ssize_t last, Py_ssize_t* begin,
                         Py_ssize_t* end) noexcept nogil:
    # Find the rows [begin, end) of a sequence that lie in [first, last); return False when there are none.
    begin[0], end[0] = max(first, sequence.row), min(last, sequence.row + sequence.T)
    return begin[0] < end[0]


cdef void embed_rows(const Job* job, const Instruction* op, const Place* at, Py_ssize_t first,
                     Py_ssize_t last) noexcept nogil:
    # EMBED for rows [first, last), sequence by sequence, because ids and positions lie in the order of the batch.
    cdef Embedding call = op.embedding
    cdef const Sequence* sequence
    cdef Py_ssize_t s, begin = 0, end = 0, stride = job.machine.buffers[op.out].stride
    call.ids, call.position_ids, call.type_ids = job.ids, job.position_ids, job.type_ids
    if job.given != NULL:
        call.word, call.ids = job.given, NULL       # row i of the caller's embeddings for token i
    for s in range(at.group.count):
        sequence = &at.group.sequences[s]
        if rows_of(sequence, first, last, &begin, &end):
            job.machine.kernels.embed(&call, sequence.source + begin - sequence.row, end - begin, op.width,
                                      row_at(job.machine, at, op.out, begin), stride)


cdef inline void norm_into(const KernelTable* kernels, const Instruction* op, const float* x, Py_ssize_t x_stride,
                           float* out, Py_ssize_t out_stride, Py_ssize_t M) noexcept nogil:
    # Norm M rows by the kind of norm that the instruction names.
    if op.rms:
        kernels.rms_norm(&op.norm, x, x_stride, out, out_stride, M)
    else:
        kernels.layer_norm(&op.norm, x, x_stride, out, out_stride, M)


cdef void add_rows(const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride, Py_ssize_t M,
                   Py_ssize_t D) noexcept nogil:
    # out [M,D] += x [M,D].
    cdef Py_ssize_t row, i
    for row in range(M):
        for i in range(D):
            out[row * out_stride + i] += x[row * x_stride + i]


cdef void norm_block(const Machine* m, const Instruction* op, const Place* at, Py_ssize_t first,
                     Py_ssize_t last) noexcept nogil:
    # NORM for rows [first, last) between two buffers, with the residual.
    norm_into(m.kernels, op, row_at(m, at, op.x, first), m.buffers[op.x].stride, row_at(m, at, op.out, first),
              m.buffers[op.out].stride, last - first)
    if op.residual >= 0:
        add_rows(row_at(m, at, op.residual, first), m.buffers[op.residual].stride, row_at(m, at, op.out, first),
                 m.buffers[op.out].stride, last - first, op.norm.D)


cdef void norm_joint(const Machine* m, const Instruction* op, const Place* at, float* scratch, Py_ssize_t first,
                     Py_ssize_t last) noexcept nogil:
    # Norm all heads of each row together, in place: they are gathered to one row, and go back to their places.
    cdef const Buffer* b = &m.buffers[op.x]
    cdef Py_ssize_t d = op.norm.D // b.heads, head = at.group.N * b.stride, row, h      # head: floats to the next
    cdef float* x
    for row in range(first, last):
        x = row_at(m, at, op.x, row)
        for h in range(b.heads):
            memcpy(scratch + h * d, x + h * head, d * sizeof(float))
        m.kernels.rms_norm(&op.norm, scratch, op.norm.D, scratch, op.norm.D, 1)
        for h in range(b.heads):
            memcpy(x + h * head, scratch + h * d, d * sizeof(float))


cdef void norm_rows(const Job* job, const Instruction* op, const Place* at, const Private* private, Py_ssize_t first,
                    Py_ssize_t last) noexcept nogil:
    # NORM for rows [first, last): in place for heads, to operands, to a buffer, or to the caller's array.
    cdef const Machine* m = job.machine
    cdef const Sequence* sequence
    cdef Py_ssize_t s, begin = 0, end = 0, stride = m.buffers[op.x].stride, next_row
    if m.buffers[op.x].heads:
        norm_joint(m, op, at, private.scratch, first, last)
        return
    if op.operands >= 0:
        while first < last:             # rows are converted while they are in the L1 cache
            next_row = min(last, first + NORM_ROWS)
            norm_block(m, op, at, first, next_row)
            convert_rows(m, op, op.out, at, first, next_row)
            first = next_row
        return
    if not op.stored:
        norm_block(m, op, at, first, last)
        return
    for s in range(at.group.count):
        sequence = &at.group.sequences[s]
        if rows_of(sequence, first, last, &begin, &end):
            norm_into(m.kernels, op, row_at(m, at, op.x, begin), stride,
                      job.arrays[0] + (sequence.source + begin - sequence.row) * op.norm.D, op.norm.D, end - begin)


cdef void store_rows(const Job* job, const Instruction* op, const Place* at, Py_ssize_t first,
                     Py_ssize_t last) noexcept nogil:
    # STORE for rows [first, last): copy them to the caller's array, in the order of the batch; heads become columns.
    cdef const Buffer* b = &job.machine.buffers[op.x]
    cdef Py_ssize_t heads = max(1, b.heads), width = op.width // heads
    cdef const Sequence* sequence
    cdef Py_ssize_t s, row, h, begin = 0, end = 0
    for s in range(at.group.count):
        sequence = &at.group.sequences[s]
        if rows_of(sequence, first, last, &begin, &end):
            for row in range(begin, end):
                for h in range(heads):
                    memcpy(job.arrays[op.array] + (sequence.source + row - sequence.row) * op.width + h * width,
                           row_at(job.machine, at, op.x, row) + h * at.group.N * b.stride, width * sizeof(float))


cdef void pick_rows(const Job* job, const Instruction* op, const Place* at, Py_ssize_t first,
                    Py_ssize_t last) noexcept nogil:
    # PICK for rows [first, last): copy the picked ones, the last rows of each sequence, to the buffer of picked rows.
    cdef const Buffer* to = &job.machine.buffers[op.out]
    cdef const Sequence* sequence
    cdef Py_ssize_t s, row, unpicked, begin = 0, end = 0
    for s in range(at.group.count):
        sequence = &at.group.sequences[s]
        if not rows_of(sequence, first, last, &begin, &end):
            continue
        unpicked = sequence.row + sequence.T - sequence.picked      # the sequence's first picked row
        for row in range(max(begin, unpicked), end):
            memcpy(head_row(&job.head, to, 0, sequence.first_picked + row - unpicked),
                   row_at(job.machine, at, op.x, row), op.width * sizeof(float))


cdef void scale_rows(const Machine* m, const Instruction* op, const Place* at, Py_ssize_t first,
                     Py_ssize_t last) noexcept nogil:
    # SCALE for rows [first, last).
    cdef const float* x
    cdef float* out
    cdef Py_ssize_t row, i
    for row in range(first, last):
        x, out = row_at(m, at, op.x, row), row_at(m, at, op.out, row)
        for i in range(op.width):
            out[i] = x[i] * op.scale


cdef void convert_rows(const Machine* m, const Instruction* op, int buffer, const Place* at, Py_ssize_t first,
                       Py_ssize_t last) noexcept nogil:
    # Convert rows of a buffer to operands.
    cdef Operands to = operands_at(m, at, op.operands)
    cdef Py_ssize_t row = first - at.origin
    m.product.convert(row_at(m, at, buffer, first), m.buffers[buffer].stride, last - first, op.width, to.rows,
                      to.stride, row, to.ranges + row)


# Instructions that can also be split by panels, by heads or by pieces.

cdef void multiply_panels(const Machine* m, const Instruction* op, const Place* at, Py_ssize_t first, Py_ssize_t last,
                          const Private* private, int rank, int size) noexcept nogil:
    # Compute this thread's share, rank of size, of the panels of NR columns, for rows [first, last).
    cdef const ProductRow* product = m.product
    cdef Py_ssize_t NR = m.kernels.NR, panels = (op.linear.N + NR - 1) // NR, M = last - first, width, panel
    cdef const float* residual = row_at(m, at, op.residual, first) if op.residual >= 0 else NULL
    cdef Py_ssize_t begin = panels * rank // size, end = panels * (rank + 1) // size
    cdef Py_ssize_t panel_columns = NR // 2 if op.gated else NR     # of the result: a gated panel has two parts
    cdef const Buffer* target
    cdef float* scratch = private.panel
    cdef Operands a, to
    cdef Output out
    memset(&out, 0, sizeof(out))
    # Two GEMMs in a row may run in parts of the columns between them (Instruction.first_hidden). Where threads divide
    # the columns, the first part has run the whole GEMM.
    if op.last_hidden and size > 1 and op.first_hidden > 0:
        return
    out.width = op.linear.N
    if m.buffers[op.x].operands:        # those of a block begin with row `first`
        a = operands_at(m, at, op.x)
    else:
        a.rows, a.stride, a.ranges = <char*>row_at(m, at, op.x, first), m.buffers[op.x].stride, NULL
    if op.operands >= 0:
        to = operands_at(m, at, op.operands)
        # The first GEMM: one thread alone computes the columns of this part. The buffer holds one part at a time, which
        # begins with column first_hidden; `multiply` wants the address of column 0.
        if op.last_hidden and size == 1:
            begin, end = op.first_hidden // panel_columns, (op.last_hidden + panel_columns - 1) // panel_columns
            to.rows -= op.first_hidden * product.strip * product.operand_bytes
        out.operands, out.operands_stride = to.rows, to.stride
    else:
        target = &m.buffers[op.out]
        out.data, out.stride, out.approximate = row_at(m, at, op.out, first), target.stride, op.approximate
        if target.heads:
            out.width, out.block, out.bfloat16 = target.stride, at.group.N * target.stride, target.bfloat16
        if op.last_hidden and size == 1:        # the second GEMM: these columns are a part of its depth
            out.sums, out.first_line = private.sums, op.first_hidden // LINE_OF_HALVES
            out.last_line = (op.last_hidden + LINE_OF_HALVES - 1) // LINE_OF_HALVES
    if not op.gated:
        product.multiply(&op.linear, a.rows, a.stride, a.ranges, M, residual, &out, begin, end)
        return
    # Compute one panel at a time: the activation of its first half multiplies its second half.
    cdef Output one_panel
    memset(&one_panel, 0, sizeof(one_panel))
    one_panel.data, one_panel.stride, one_panel.width = scratch, NR, NR
    for panel in range(begin, end):
        width = min(op.linear.N - panel * NR, NR) // 2
        product.multiply(&op.linear, a.rows, a.stride, a.ranges, M, NULL, &one_panel, panel, panel + 1)
        if op.operands < 0:
            m.kernels.gate(op.activation, scratch, NR, scratch + width, NR, out.data + panel * (NR // 2), out.stride, M,
                           width)
        else:                           # half a panel is a line of operands
            m.kernels.gate(op.activation, scratch, NR, scratch + width, NR, scratch, NR, M, width)
            product.convert(scratch, NR, M, width, to.rows + panel * (NR // 2) * product.strip * product.operand_bytes,
                            to.stride, 0, NULL)


cdef void norm_heads(const Job* job, const Instruction* op, const Place* at, Py_ssize_t first, Py_ssize_t last,
                     int rank, int size) noexcept nogil:
    # The norms of this thread's share of the heads, for rows [first, last).
    cdef const Buffer* b = &job.machine.buffers[op.x]
    cdef Py_ssize_t h
    cdef float* x
    for h in range(b.heads * rank // size, b.heads * (rank + 1) // size):
        x = row_at(job.machine, at, op.x, first) + h * at.group.N * b.stride
        job.machine.kernels.rms_norm(&op.norm, x, b.stride, x, b.stride, last - first)


cdef void rotate_heads(const Job* job, const Instruction* op, const Place* at, Py_ssize_t first, Py_ssize_t last,
                       int rank, int size) noexcept nogil:
    # Rotate this thread's share of the heads, for rows [first, last), in runs of successive positions.
    cdef const Buffer* b = &job.machine.buffers[op.x]
    cdef const Sequence* sequence
    cdef const int* positions
    cdef Rotary rotary = op.rotary
    cdef Py_ssize_t s, h, begin = 0, end = 0, run
    cdef float* x
    for s in range(at.group.count):
        sequence = &at.group.sequences[s]
        if not rows_of(sequence, first, last, &begin, &end):
            continue
        while begin < end:
            positions = job.position_ids + sequence.source + begin - sequence.row
            run = 1
            while begin + run < end and positions[run] == positions[0] + run:
                run += 1
            rotary.cos, rotary.sin = (op.rotary.cos + positions[0] * rotary.stride,
                                      op.rotary.sin + positions[0] * rotary.stride)
            for h in range(b.heads * rank // size, b.heads * (rank + 1) // size):
                x = row_at(job.machine, at, op.x, begin) + h * at.group.N * b.stride
                job.machine.kernels.rotate(&rotary, x, b.stride, x, b.stride, run)
            begin += run


cdef inline Py_ssize_t keys_seen(const Instruction* op, Py_ssize_t keys, Py_ssize_t NR) noexcept nogil:
    # Return about how many keys the queries of one block see in a sequence of so many keys: the cost of the block.
    return min(keys, op.high - op.low + NR - 1)


cdef void observe(const Job* job, const Instruction* op, const Attention* call, const Sequence* sequence, Py_ssize_t h,
                  Py_ssize_t first, float* scratch) noexcept nogil:
    # Write what the caller asked for of head h: the attention weights of the call's queries, of which the first is
    # query `first` of its sequence, and their entropy.
    cdef const ObservedHead* asked
    cdef float* weights
    cdef float* entropy
    cdef Py_ssize_t i
    for i in range(op.observed_count):
        asked = &op.observed[i]
        if asked.head == h:
            weights = entropy = NULL
            if asked.weights >= 0:
                weights = job.arrays[asked.weights] + sequence.weight_offset + first * sequence.T
            if asked.entropy >= 0:
                entropy = job.arrays[asked.entropy] + sequence.source + first
            job.machine.kernels.weigh(call, weights, sequence.T, entropy, scratch)


cdef void widen_rows(const float* x, Py_ssize_t n, float* out) noexcept nogil:
    # Convert n bfloat16 numbers to floats. x points to floats only by its type: an Attention has one type of rows.
    cdef const unsigned short* numbers = <const unsigned short*>x
    cdef unsigned int* bits = <unsigned int*>out
    cdef Py_ssize_t i
    for i in range(n):
        bits[i] = <unsigned int>numbers[i] << 16


cdef void observe_bfloat16(const Job* job, const Instruction* op, const Attention* call, const Sequence* sequence,
                           Py_ssize_t h, Py_ssize_t first, float* scratch) noexcept nogil:
    # Do the work of `observe` for queries and keys in bfloat16, whose rows lie one after another.
    cdef Attention wide = call[0]
    cdef float* rows = scratch + op.wide_scratch
    wide.q, wide.k = rows, rows + call.T * call.d
    widen_rows(call.q, call.T * call.d, rows)
    widen_rows(call.k, call.S * call.d, rows + call.T * call.d)
    observe(job, op, &wide, sequence, h, first, scratch)


cdef void attend_pass(Job* job, const Instruction* op, const Group* g, const Private* private, Py_ssize_t piece,
                      Py_ssize_t pieces) noexcept nogil:
    # Compute one piece of all (sequence, head, block of NR queries). The pieces have about equal costs: this piece has
    # the blocks whose costs (each), added up in order from 0, begin in [low, high) of the total.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t NR = m.kernels.NR, total = 0, cost = 0, each, s, h, blocks, begin, end, first, last, low, high
    cdef const Buffer* q = &m.buffers[op.x]
    cdef const Buffer* k = &m.buffers[op.k]
    cdef const Buffer* v = &m.buffers[op.v]
    cdef const Buffer* out = &m.buffers[op.out]
    cdef Py_ssize_t shared = q.heads // k.heads         # query heads of a key head
    cdef const Sequence* sequence
    cdef Attention call
    cdef Relative relative = op.relative
    memset(&call, 0, sizeof(call))
    call.relative = &relative if relative.row != NULL else NULL
    call.q_stride, call.k_stride, call.v_stride, call.out_stride = q.stride, k.stride, v.stride, out.stride
    call.d, call.e, call.scale, call.softcap = op.d, v.stride, op.scale, op.softcap
    call.bias_t, call.bias_s = 1, -1        # a bias by distance: that of query t and key s is number t - s
    for s in range(g.count):
        sequence = &g.sequences[s]
        total += q.heads * ((sequence.T + NR - 1) // NR) * keys_seen(op, sequence.keys, NR)
    low, high = total * piece // pieces, total * (piece + 1) // pieces
    for s in range(g.count):
        sequence = &g.sequences[s]
        blocks, each = (sequence.T + NR - 1) // NR, keys_seen(op, sequence.keys, NR)
        for h in range(q.heads):
            begin = min(blocks, max(0, (low - cost + each - 1) // each)) if low > cost else 0
            end = min(blocks, (high - cost + each - 1) // each) if high > cost else 0
            cost += blocks * each
            call.S = sequence.keys
            call.k = head_row(g, k, h // shared, sequence.row)
            call.v = head_row(g, v, h // shared, sequence.row)
            if relative.keys != NULL:
                relative.keys = op.relative.keys + h // shared * op.relative_head
            if relative.queries != NULL:
                relative.queries = op.relative.queries + h * op.relative_head
            first, last = begin * NR, min(end * NR, sequence.T)
            while first < last:
                if sequence.T > CALL_QUERIES and stopped(job, private):     # a shorter one is a single short call
                    return
                call.T = min(last - first, <Py_ssize_t>CALL_QUERIES)
                call.query, call.low, call.high = first, first + op.low, first + op.high
                if op.bias != NULL:
                    call.bias = op.bias + h * op.bias_stride + first
                call.q = head_row(g, q, h, sequence.row + first)
                call.out = g.rows + out.offset * g.N + (sequence.row + first) * out.stride + h * v.stride
                if q.bfloat16:
                    m.product.attend_rows(&call, private.scratch)
                else:
                    m.product.attention(&call, private.scratch)
                if op.observed_count:
                    if q.bfloat16:
                        observe_bfloat16(job, op, &call, sequence, h, first, private.scratch)
                    else:
                        observe(job, op, &call, sequence, h, first, private.scratch)
                first += call.T
