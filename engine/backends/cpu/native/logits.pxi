# LOGITS: the product of the picked rows with the vocabulary. The caller gets all logits of the first `written` rows,
# and of the others the best, and the logarithm of the sum of the exponentials of all.
#
# Threads share the columns, so that one core alone reads each weight, once for rows of both kinds. A thread multiplies
# one part of the vocabulary after the other, a few panels of the weights, by all rows. It chooses from the logits of a
# part while they are in its cache, and keeps a list of its own, which is merged at the end.

cdef enum:
    PART = 128                  # columns of a part, a multiple of every NR
    PART_ROWS = 64              # rows of logits that a thread keeps: 32 KB of its scratch


cdef inline Py_ssize_t parts_of(Py_ssize_t V) noexcept nogil:
    # Return the parts of V columns.
    return (V + PART - 1) // PART


cdef inline void multiply_picked(const Machine* m, const Instruction* op, const Operands* a, Py_ssize_t row,
                                 Py_ssize_t M, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Compute panels [panel, last) for M rows from `row` on, which begins a strip.
    m.product.multiply(&op.linear, a.rows + row * a.stride * m.product.operand_bytes, a.stride,
                       a.ranges + row if a.ranges != NULL else NULL, M, NULL, out, panel, last)


cdef void clear_best(const Best* best, Py_ssize_t M) noexcept nogil:
    # Begin the lists of M rows with empty places, which have -inf and the id -1; see is_better.
    cdef Py_ssize_t i
    for i in range(M * best.k):
        best.values[i], best.ids[i] = -INFINITY, -1


cdef void write_part(const Job* job, const Instruction* op, const float* logits, Py_ssize_t row, Py_ssize_t M,
                     Py_ssize_t part, Py_ssize_t columns) noexcept nogil:
    # Copy a part of the columns of M rows to the caller's array, whose first of these rows is `row`.
    cdef Py_ssize_t i
    for i in range(M):
        memcpy(job.arrays[0] + (row + i) * op.linear.N + part * PART, logits + i * PART, columns * sizeof(float))


cdef void compute_part(const Job* job, const Instruction* op, const Operands* a, const Best* best, float* scratch,
                       Py_ssize_t part) noexcept nogil:
    # Compute one part of the columns for all picked rows: write the logits of those that are written, and update the
    # best with those of the others, the first of which is row 0 of `best`. Only op.width of the N columns are tokens.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t NR = m.kernels.NR, N = op.linear.N, parts = parts_of(op.width), row = 0, rows, written, chosen
    cdef Py_ssize_t columns = min(op.width - part * PART, <Py_ssize_t>PART), panel = part * (PART // NR)
    cdef Py_ssize_t last = panel + (columns + NR - 1) // NR
    cdef Best some = best[0]
    cdef Output out
    memset(&out, 0, sizeof(out))
    while row < job.picked:
        rows = min(job.picked - row, <Py_ssize_t>PART_ROWS)
        written = max(0, min(rows, job.written - row))
        if written == rows:
            out.data, out.stride, out.width = job.arrays[0] + row * N, N, N
            multiply_picked(m, op, a, row, rows, &out, panel, last)
        else:
            out.data, out.stride, out.width = scratch, PART, PART
            multiply_picked(m, op, a, row, rows, &out, panel, last)
            write_part(job, op, scratch, row, written, part, columns)
            chosen = row + written - job.written        # the first of the rows to choose from
            some.values, some.ids = best.values + chosen * best.k, best.ids + chosen * best.k
            m.kernels.choose(&some, scratch + written * PART, PART, rows - written, part * PART, columns,
                             job.choice.maximum + chosen * parts + part, job.choice.sum + chosen * parts + part, parts)
        row += rows


cdef void merge_best(const Best* best, const Best* other, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Update the best of rows [first, last) with the best of another thread.
    cdef Py_ssize_t row, i
    for row in range(first, last):
        for i in range(row * best.k, (row + 1) * best.k):
            if other.ids[i] < 0:
                break
            insert_best(best.values + row * best.k, best.ids + row * best.k, best.k, other.values[i], other.ids[i])


cdef void logits(Job* job, const Instruction* op, const Place* at, Private* private, const Team* team) noexcept nogil:
    # Compute this thread's share of the parts; then, for its share of the rows, merge the lists of all threads into
    # that of the first, and add up the sums. Without rows to choose from, nothing is left to do after the product.
    cdef const Machine* m = job.machine
    cdef const Choice* c = &job.choice
    cdef Py_ssize_t parts = parts_of(op.width), chosen = job.picked - job.written, part
    cdef Py_ssize_t first = chosen * team.rank // team.size, last = chosen * (team.rank + 1) // team.size
    cdef Best none
    cdef const Best* best = &none
    cdef Operands a
    cdef int rank
    memset(&none, 0, sizeof(none))
    if m.buffers[op.x].operands:
        a = operands_at(m, at, op.x)
    else:
        a.rows, a.stride, a.ranges = <char*>row_at(m, at, op.x, 0), m.buffers[op.x].stride, NULL
    if chosen:
        best = &c.best[team.rank]
        clear_best(best, chosen)
    for part in range(parts * team.rank // team.size, parts * (team.rank + 1) // team.size):
        if stopped(job, private):
            break
        compute_part(job, op, &a, best, private.scratch, part)
    if not chosen:
        return
    meet(team)
    if first == last or is_set(&job.stop):
        return
    for rank in range(1, team.size):
        merge_best(&c.best[0], &c.best[rank], first, last)
    m.kernels.log_sum_exp(c.maximum + first * parts, c.sum + first * parts, parts, last - first, parts,
                          c.log_sum_exp + first)
