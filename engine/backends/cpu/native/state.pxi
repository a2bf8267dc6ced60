# Attention over the keys and values that a decoder keeps from pass to pass: a cache of the tokens of earlier passes, and
# memories of sources. machine.pxi describes where they lie.
#
# The bits of a row do not depend on how many rows come with it: the kernels for many and for few queries give the same.
# Attention is in float32 for every precision.

cdef enum KeySource:
    FROM_PASS                   # keys and values are rows of buffers that the pass computes
    FROM_CACHE                  # as FROM_PASS, after the rows of the sequence's earlier passes, in blocks of a cache
    FROM_CROSS                 # keys and values for cross-attention, computed once for each source

cdef enum:
    CACHE_SHIFT = 6             # binary logarithm of CACHE_ROWS
    CACHE_ROWS = 64             # rows of a block of a cache
    FEW_ROWS = 16               # up to this many rows of a sequence go to the kernel for few queries
    ONE_BLOCK = 40              # CachedAttention.shift for keys that lie in one block


cdef inline float* cache_row(const Job* job, const Instruction* op, int values, Py_ssize_t heads, Py_ssize_t h,
                             Py_ssize_t stride, int row) noexcept nogil:
    return (<float*>job.cache[row >> CACHE_SHIFT]
            + (((2 * op.layer + values) * heads + h) * CACHE_ROWS + row % CACHE_ROWS) * stride)


cdef void keep_rows(const Job* job, const Instruction* op, const Group* g, const Sequence* sequence, Py_ssize_t h) noexcept nogil:
    # Copy the keys and values of a sequence's new tokens, of one key head, to the cache.
    cdef const Buffer* k = &job.machine.buffers[op.k]
    cdef const Buffer* v = &job.machine.buffers[op.v]
    cdef const float* key = head_row(g, k, h, sequence.row)
    cdef const float* value = head_row(g, v, h, sequence.row)
    cdef Py_ssize_t t
    cdef int row
    for t in range(sequence.T):
        row = sequence.rows[sequence.past + t]
        memcpy(cache_row(job, op, 0, k.heads, h, k.stride, row), key + t * k.stride, k.stride * sizeof(float))
        memcpy(cache_row(job, op, 1, k.heads, h, v.stride, row), value + t * v.stride, v.stride * sizeof(float))


cdef void gather_rows(const Job* job, const Instruction* op, const Group* g, const Sequence* sequence, Py_ssize_t h,
                      Gathered* own) noexcept nogil:
    # Copy the keys and values of a key head, of the sequence's earlier passes and of this pass, to this thread's arrays
    # [S][stride]. The new ones come from the pass, because another thread may be about to copy them to the cache. Keys
    # that no query sees are left out, and what lies in their place is never used.
    cdef const Buffer* k = &job.machine.buffers[op.k]
    cdef const Buffer* v = &job.machine.buffers[op.v]
    cdef Py_ssize_t e = k.stride, past = sequence.past, S = past + sequence.T, t
    cdef size_t size = e * sizeof(float)
    if own.sequence == sequence and own.op == op and own.head == h:
        return
    own.sequence, own.op, own.head = sequence, op, h
    for t in range(max(0, past + op.low), past):
        memcpy(own.rows + t * e, cache_row(job, op, 0, k.heads, h, e, sequence.rows[t]), size)
        memcpy(own.rows + (S + t) * e, cache_row(job, op, 1, k.heads, h, e, sequence.rows[t]), size)
    memcpy(own.rows + past * e, head_row(g, k, h, sequence.row), sequence.T * size)
    memcpy(own.rows + (S + past) * e, head_row(g, v, h, sequence.row), sequence.T * size)


cdef void attend_many(const Job* job, const Instruction* op, const Group* g, const Sequence* sequence, Py_ssize_t T,
                      Py_ssize_t head, Private* own) noexcept nogil:
    # Compute attention of a query head for T rows of the group, from the sequence's first on.
    cdef const Machine* m = job.machine
    cdef const Buffer* q = &m.buffers[op.x]
    cdef const Buffer* out = &m.buffers[op.out]
    cdef Py_ssize_t h = head // (q.heads // op.key_heads), e = q.stride
    cdef Py_ssize_t past = sequence.past if op.source == FROM_CACHE else 0
    cdef Attention call
    memset(&call, 0, sizeof(call))
    call.q = head_row(g, q, head, sequence.row)
    call.out = g.rows + out.offset * g.N + sequence.row * out.stride + head * e
    call.q_stride, call.k_stride, call.v_stride, call.out_stride = e, e, e, out.stride
    call.T, call.S, call.d, call.e, call.scale = T, keys_of(op, sequence, T), op.d, e, op.scale
    call.low, call.high, call.bias_t, call.bias_s = op.low + past, op.high + past, 1, -1
    if past:
        gather_rows(job, op, g, sequence, h, &own.gathered)
        call.k, call.v = own.gathered.rows, own.gathered.rows + call.S * e
    elif op.source == FROM_CACHE:
        call.k = head_row(g, &m.buffers[op.k], h, sequence.row)
        call.v = head_row(g, &m.buffers[op.v], h, sequence.row)
    else:
        call.k = sequence.cross + (2 * op.layer * op.key_heads + h) * call.S * e
        call.v = call.k + op.key_heads * call.S * e
    if op.bias != NULL:
        call.bias = op.bias + head * op.bias_stride + past
    m.kernels.products[<int>FLOAT32].attention(&call, own.scratch)


cdef void attend_few(const Job* job, const Instruction* op, const Group* g, const Sequence* sequence, Py_ssize_t T,
                     Py_ssize_t h, float* scratch) noexcept nogil:
    # Compute attention of the query heads that share key head h, for T rows of the group from the sequence's first on.
    cdef const Machine* m = job.machine
    cdef const Buffer* q = &m.buffers[op.x]
    cdef const Buffer* out = &m.buffers[op.out]
    cdef Py_ssize_t heads = op.key_heads, shared = q.heads // heads, e = q.stride, S = keys_of(op, sequence, T)
    cdef Py_ssize_t past = sequence.past if op.source == FROM_CACHE else 0
    cdef CachedAttention few
    memset(&few, 0, sizeof(few))
    few.q = head_row(g, q, h * shared, sequence.row)
    few.out = g.rows + out.offset * g.N + sequence.row * out.stride + h * shared * e
    few.q_stride, few.q_head, few.heads, few.out_stride, few.out_head = e, g.N * e, shared, out.stride, e
    few.T, few.S, few.d, few.e, few.scale = T, S, op.d, e, op.scale
    few.low, few.high, few.k_stride, few.v_stride = op.low + past, op.high + past, e, e
    if op.source == FROM_CACHE:
        few.blocks, few.rows, few.shift = job.cache, sequence.rows, CACHE_SHIFT
        few.k = (2 * op.layer * heads + h) * CACHE_ROWS * e
        few.v = few.k + heads * CACHE_ROWS * e
    else:
        few.blocks, few.shift = &sequence.cross, ONE_BLOCK
        few.k = (2 * op.layer * heads + h) * S * e
        few.v = few.k + heads * S * e
    if op.bias != NULL:
        few.bias, few.bias_head, few.bias_t, few.bias_s = op.bias + h * shared * op.bias_stride + past, op.bias_stride, 1, -1
    m.kernels.cached_attention(&few, scratch)


cdef inline Py_ssize_t run_of(const Instruction* op, const Group* g, Py_ssize_t s, Py_ssize_t* T) noexcept nogil:
    # Return the number of consecutive sequences from s on that share one call, and set T to the number of their rows.
    # It is 1 for a cache; for cross-attention, all neighbours with the same source share a call.
    cdef Py_ssize_t next = s + 1
    T[0] = g.sequences[s].T
    while op.source == FROM_CROSS and next < g.count and g.sequences[next].cross == g.sequences[s].cross:
        T[0] += g.sequences[next].T
        next += 1
    return next - s


cdef inline Py_ssize_t keys_of(const Instruction* op, const Sequence* sequence, Py_ssize_t T) noexcept nogil:
    return sequence.S if op.source == FROM_CROSS else sequence.past + T


cdef void attend_state(Job* job, const Instruction* op, const Group* g, Private* own, Py_ssize_t piece,
                       Py_ssize_t pieces) noexcept nogil:
    # Compute one piece of all (run of sequences, head), where a head is one of the queries if there are many rows, and one
    # of the keys otherwise. The pieces have about equal costs.
    cdef const Sequence* sequence
    cdef Py_ssize_t heads = job.machine.buffers[op.x].heads, shared = heads // op.key_heads
    cdef Py_ssize_t total = 0, cost = 0, s = 0, h, T = 0, count, step
    cdef bint many
    while s < g.count:
        count = run_of(op, g, s, &T)
        total += heads * T * keys_of(op, &g.sequences[s], T)
        s += count
    s = 0
    while s < g.count:
        sequence = &g.sequences[s]
        count = run_of(op, g, s, &T)
        many = T > FEW_ROWS
        step = 1 if many else shared
        h = 0
        while h < heads:
            if total * piece // pieces <= cost < total * (piece + 1) // pieces and not stopped(job, own):
                if op.source == FROM_CACHE and h % shared == 0:
                    keep_rows(job, op, g, sequence, h // shared)
                if many:
                    attend_many(job, op, g, sequence, T, h, own)
                else:
                    attend_few(job, op, g, sequence, T, h // shared, own.scratch)
            cost += step * T * keys_of(op, sequence, T)
            h += step
        s += count


cdef void attend(Job* job, const Instruction* op, const Group* g, Private* own, Py_ssize_t piece,
                 Py_ssize_t pieces) noexcept nogil:
    if op.source == FROM_PASS:
        attend_pass(job, op, g, own, piece, pieces)
    else:
        attend_state(job, op, g, own, piece, pieces)
