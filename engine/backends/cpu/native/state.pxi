# Attention over the keys and values that a decoder keeps from pass to pass: a cache of the tokens of earlier passes,
# and memories of sources. Both lie in cells (cells.pxi).
#
# New tokens are written to their cells first. Then all queries read cells, also those of a prompt, so that keys that
# the cells round are the same for them as for later steps. If a sequence has few rows, a work item is a range of keys
# of one key head, for all its queries; if it has many, a block of rows. The sums of ranges wait until the last range of
# a head is done; the thread that has computed that range folds them, in the order of the ranges. The kernel gives a
# query the same bits in any division.
#
# CELL = 16 tokens are a cell, RANGE = 256 keys a range. Job, Machine m, Instruction op, Group g, Sequence: machine.pxi.

cdef extern from *:
    """
    static inline Py_ssize_t add_one(Py_ssize_t *count) { return __atomic_add_fetch(count, 1, __ATOMIC_ACQ_REL); }
    """
    Py_ssize_t add_one(Py_ssize_t* count) noexcept nogil

cdef enum KeySource:
    FROM_PASS                   # keys and values are rows of buffers that the pass computes
    FROM_CACHE                  # those of the sequence's earlier passes and of this one, in cells
    FROM_CROSS                  # those for cross-attention, computed once for each source

cdef enum:
    RANGE_ROWS = 16             # up to this many rows of a sequence are always divided by ranges of keys
    SOME_ROWS = 64              # up to this many where the sums of the group's ranges have room
    MOST_SUMS = 1 << 21         # the floats of that room (8 MiB)
    BLOCK_QUERIES = 256         # about how many queries a block of rows has


cdef inline Py_ssize_t ranges_of(Py_ssize_t S) noexcept nogil:
    # Return the ranges of S keys.
    return (S + RANGE - 1) // RANGE


cdef inline char* keys_in_cell(const Instruction* op, size_t cell, Py_ssize_t run, Py_ssize_t h) noexcept nogil:
    # Return the address of the keys of key head h in a cell. run: bytes from there to the head's values (cells.pxi).
    return <char*>cell + (op.layer * op.key_heads + h) * 2 * run


cdef void keep_tokens(const Job* job, const Instruction* op, const Group* g, const Sequence* sequence, Py_ssize_t h,
                      Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Write new tokens [first, last) of a sequence to their cells of one key head. Before its first one, the tokens of a
    # cell that other hypotheses share are copied.
    cdef const Buffer* k = &job.machine.buffers[op.k]
    cdef const Buffer* v = &job.machine.buffers[op.v]
    cdef Py_ssize_t t, place, run = job.run
    cdef char* cell
    if 0 == first < last and sequence.shared_cell:
        copy_tokens(op.storage, op.d, v.stride, keys_in_cell(op, sequence.shared_cell, run, h),
                    keys_in_cell(op, sequence.cells[sequence.past // CELL], run, h), run, sequence.past % CELL)
    for t in range(first, last):
        place = sequence.past + t
        cell = keys_in_cell(op, sequence.cells[place // CELL], run, h)
        write_token(op.storage, op.d, v.stride, cell, cell + run, place % CELL, head_row(g, k, h, sequence.row + t),
                    head_row(g, v, h, sequence.row + t))


cdef void keep_rows(const Job* job, const Instruction* op, const Group* g, Py_ssize_t first, Py_ssize_t last,
                    Py_ssize_t head, Py_ssize_t heads) noexcept nogil:
    # Write the tokens of rows [first, last) of a group to their cells, of key heads [head, heads).
    cdef const Sequence* sequence
    cdef Py_ssize_t s, h, begin = 0, end = 0
    for s in range(g.count):
        sequence = &g.sequences[s]
        if rows_of(sequence, first, last, &begin, &end):
            for h in range(head, heads):
                keep_tokens(job, op, g, sequence, h, begin - sequence.row, end - sequence.row)


cdef bint has_prompts(const Group* g) noexcept nogil:
    # Return whether a sequence has so many rows that several items read the same new tokens.
    cdef Py_ssize_t s
    for s in range(g.count):
        if g.sequences[s].T > RANGE_ROWS:
            return True
    return False


cdef inline Py_ssize_t count_sharing(const Instruction* op, const Group* g, Py_ssize_t s, Py_ssize_t* T) noexcept nogil:
    # Return the number of consecutive sequences from s on that share one call, and set T to the number of their rows.
    # It is 1 for a cache; for cross-attention, all neighbours with the same source share a call.
    cdef Py_ssize_t next = s + 1
    T[0] = g.sequences[s].T
    while op.source == FROM_CROSS and next < g.count and g.sequences[next].cross == g.sequences[s].cross:
        T[0] += g.sequences[next].T
        next += 1
    return next - s


cdef inline Py_ssize_t seen_keys(const Instruction* op, const Sequence* sequence, Py_ssize_t T) noexcept nogil:
    # Return the keys that the last of T rows could see without a band.
    return sequence.S if op.source == FROM_CROSS else sequence.past + T


cdef inline Py_ssize_t block_rows(Py_ssize_t shared) noexcept nogil:
    # Return the rows of a block, of which each has `shared` queries for a key head.
    return max(RANGE_ROWS, BLOCK_QUERIES // shared)


cdef CachedAttention call_of(const Job* job, const Instruction* op, const Group* g, const Sequence* sequence,
                             Py_ssize_t T, Py_ssize_t h, Py_ssize_t row) noexcept nogil:
    # Return the call for the queries of key head h, for all T rows of a sequence from `row` on. Row t sees keys by its
    # distance in the whole sequence, so the band and the bias, [2n - 1] numbers by distance t - s, move on by `past`.
    cdef const Machine* m = job.machine
    cdef const Buffer* q = &m.buffers[op.x]
    cdef const Buffer* out = &m.buffers[op.out]
    cdef Py_ssize_t shared = q.heads // op.key_heads, e = q.stride, run = job.run, past = 0
    cdef CachedAttention call
    memset(&call, 0, sizeof(call))
    if op.source == FROM_CACHE:
        call.cells, past = sequence.cells, sequence.past + row
    else:
        call.cells, run = sequence.cross, sequence.cross_run
    call.q = head_row(g, q, h * shared, sequence.row + row)
    call.out = g.rows + out.offset * g.N + (sequence.row + row) * out.stride + h * shared * e
    call.q_stride, call.q_head, call.heads, call.out_stride, call.out_head = e, g.N * e, shared, out.stride, e
    call.T, call.S, call.d, call.e = T - row, seen_keys(op, sequence, T), op.d, e
    call.scale, call.softcap = op.scale, op.softcap
    call.low, call.high, call.storage = op.low + past, op.high + past, op.storage
    call.keys = (op.layer * op.key_heads + h) * 2 * run     # run: bytes from a head's keys in a cell to its values
    call.values = call.keys + run
    if op.bias != NULL:
        call.bias, call.bias_head = op.bias + h * shared * op.bias_stride + past, op.bias_stride
        call.bias_t, call.bias_s = 1, -1
    return call


cdef void attend_range(const Job* job, const Instruction* op, const Group* g, const Sequence* sequence, Py_ssize_t T,
                       Py_ssize_t h, Py_ssize_t r, Py_ssize_t first, Py_ssize_t last, float* scratch) noexcept nogil:
    # Compute what range r of [first, last) adds to the queries of a key head, for T rows from the sequence's first on.
    # A query's sums of a range are E + 2 floats; those of all queries lie together, range after range, head after head.
    cdef const KernelTable* kernels = job.machine.kernels
    cdef CachedAttention call = call_of(job, op, g, sequence, T, h, 0)
    cdef Py_ssize_t E = job.machine.buffers[op.x].stride, queries = T * call.heads, head_sums, i
    if last - first == 1:
        kernels.cached_attention(&call, scratch)
        return
    head_sums = queries * (last - first) * (E + 2)
    call.sums, call.range = g.sums + sequence.sums + h * head_sums + (r - first) * queries * (E + 2), r
    kernels.cached_attention(&call, scratch)
    cdef Py_ssize_t* done = g.done + sequence.done + h
    if add_one(done) < last - first:        # another thread computes the last range, and folds
        return
    done[0] = 0
    call.sums = g.sums + sequence.sums + h * head_sums
    for i in range(queries):
        kernels.fold_ranges(call.sums + i * (E + 2), queries * (E + 2), last - first, call.e,
                            call.out + i // call.heads * call.out_stride + i % call.heads * call.out_head)


cdef Py_ssize_t attend_by_ranges(Job* job, const Instruction* op, const Group* g, const Sequence* sequence,
                                 Py_ssize_t T, Py_ssize_t cost, Py_ssize_t begin, Py_ssize_t end, bint kept,
                                 Private* private) noexcept nogil:
    # Compute the items, ranges of keys, of a call whose costs, added up from `cost` on, lie in [begin, end); return the
    # sum behind the call. An item's cost is its queries times its keys. Unless all tokens are kept, it writes its own.
    cdef Py_ssize_t heads = op.key_heads, shared = job.machine.buffers[op.x].heads // heads
    cdef Py_ssize_t S = seen_keys(op, sequence, T), past = sequence.past if op.source == FROM_CACHE else 0
    # The ranges [first, last) that a row sees; at least one, so that a row that sees no key gets zeros.
    cdef Py_ssize_t first = max(0, op.low + past) // RANGE, h, r
    cdef Py_ssize_t last = max(ranges_of(max(0, min(S, T - 1 + past + op.high))), first + 1)
    for h in range(heads):
        for r in range(first, last):
            if begin <= cost < end and not stopped(job, private):
                if op.source == FROM_CACHE and not kept:
                    keep_tokens(job, op, g, sequence, h, max(0, r * RANGE - past), min(T, (r + 1) * RANGE - past))
                attend_range(job, op, g, sequence, T, h, r, first, last, private.scratch)
            cost += shared * T * min(RANGE, max(1, S - r * RANGE))
    return cost


cdef Py_ssize_t attend_by_blocks(Job* job, const Instruction* op, const Group* g, const Sequence* sequence,
                                 Py_ssize_t T, Py_ssize_t cost, Py_ssize_t begin, Py_ssize_t end,
                                 Private* private) noexcept nogil:
    # The same for many rows. An item is a block of rows, and its cost is about the keys that its band lets pass.
    cdef Py_ssize_t heads = op.key_heads, shared = job.machine.buffers[op.x].heads // heads, rows = block_rows(shared)
    cdef Py_ssize_t S = seen_keys(op, sequence, T), past = sequence.past if op.source == FROM_CACHE else 0
    cdef Py_ssize_t h, row, count
    cdef CachedAttention call
    for h in range(heads):
        row = 0
        while row < T:
            count = min(rows, T - row)
            if begin <= cost < end and not stopped(job, private):
                call = call_of(job, op, g, sequence, T, h, row)
                call.T = count
                job.machine.kernels.cached_attention(&call, private.scratch)
            cost += shared * count * min(max(1, min(S, row + count + past + op.high)), op.high - op.low + count + RANGE)
            row += count
    return cost


cdef void attend_state(Job* job, const Instruction* op, const Group* g, Private* private, Py_ssize_t piece,
                       Py_ssize_t pieces, bint kept) noexcept nogil:
    # Compute one piece of all items; the pieces have about equal costs. kept: whether new tokens lie in their cells.
    # The costs are added up twice: in the first turn no item begins in [-1, -1), and the second one knows the total.
    cdef Py_ssize_t begin = -1, end = -1, total = 0, cost, s, T = 0, count, turn
    for turn in range(2):
        cost = s = 0
        while s < g.count:
            count = count_sharing(op, g, s, &T)
            if T <= RANGE_ROWS or (op.source == FROM_CACHE and g.sequences[s].by_ranges):
                cost = attend_by_ranges(job, op, g, &g.sequences[s], T, cost, begin, end, kept, private)
            else:
                cost = attend_by_blocks(job, op, g, &g.sequences[s], T, cost, begin, end, private)
            s += count
        total = cost
        begin, end = total * piece // pieces, total * (piece + 1) // pieces


cdef Py_ssize_t place_sums(const Machine* m, Sequence* sequences, Py_ssize_t count, Py_ssize_t* done) noexcept nogil:
    # Find where the sums and the counts of ranges of each sequence of a group lie; return the floats of all sums.
    cdef Py_ssize_t s, sums = 0, ranges, floats
    done[0] = 0
    for s in range(count):
        sequences[s].sums, sequences[s].done = sums, done[0]
        ranges = max(ranges_of(sequences[s].past + sequences[s].T), ranges_of(sequences[s].S))
        done[0] += m.key_heads
        floats = sequences[s].T * ranges * m.sums_floats if ranges > 1 else 0       # sums_floats: of a row and a range
        sequences[s].by_ranges = sequences[s].T <= RANGE_ROWS or (
            sequences[s].T <= SOME_ROWS and sums + floats <= MOST_SUMS)
        if sequences[s].by_ranges:
            sums += floats
    return sums


cdef void attend(Job* job, const Instruction* op, const Group* g, Private* private, Py_ssize_t piece,
                 Py_ssize_t pieces, bint kept) noexcept nogil:
    # Compute one piece of ATTEND, from the buffers of this pass or from cells.
    if op.source == FROM_PASS:
        attend_pass(job, op, g, private, piece, pieces)
    else:
        attend_state(job, op, g, private, piece, pieces, kept)
