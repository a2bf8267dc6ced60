# LOGITS: the product of the picked rows with the vocabulary. The caller gets all logits, or the best of each row and the
# logarithm of the sum of all their exponentials.
#
# Threads share the columns, so that one core alone reads each weight. The best are chosen from parts of the vocabulary,
# a few panels of the weights: each thread multiplies a part by all rows, chooses from the logits while they are in its
# cache, and keeps a list of its own, which is merged at the end. No row of all logits is written then.

cdef enum:
    PART = 128                  # columns of a part, a multiple of every NR
    PART_ROWS = 64              # rows of logits that a thread keeps: 32 KB of its scratch


cdef inline Py_ssize_t parts_of(Py_ssize_t V) noexcept nogil:
    return (V + PART - 1) // PART


cdef inline void multiply_picked(const Machine* m, const Instruction* op, const Operands* a, Py_ssize_t row, Py_ssize_t M,
                                 const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Compute panels [panel, last) for M rows from `row` on, which begins a strip.
    m.product.multiply(&op.linear, a.rows + row * a.stride * m.product.operand_bytes, a.stride,
                       a.ranges + row if a.ranges != NULL else NULL, M, NULL, out, panel, last)


cdef void write_logits(Job* job, const Instruction* op, const Operands* a, Private* own, const Team* team) noexcept nogil:
    # Write this thread's share of the columns of all logits, block by block of the rows.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t N = op.linear.N, panels = (N + m.kernels.NR - 1) // m.kernels.NR, row = 0
    cdef Output out
    memset(&out, 0, sizeof(out))
    out.stride = out.width = N
    while row < job.picked and not stopped(job, own):
        out.data = job.arrays[0] + row * N
        multiply_picked(m, op, a, row, min(job.picked - row, <Py_ssize_t>m.product.block), &out,
                        panels * team.rank // team.size, panels * (team.rank + 1) // team.size)
        row += m.product.block


cdef void clear_best(const Best* best, Py_ssize_t M) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(M * best.k):
        best.values[i], best.ids[i] = -INFINITY, -1


cdef void choose_part(const Job* job, const Instruction* op, const Operands* a, const Best* best, float* scratch,
                      Py_ssize_t part) noexcept nogil:
    # Update the best of all picked rows with the logits of one part.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t NR = m.kernels.NR, parts = parts_of(op.width), row = 0, rows
    cdef Py_ssize_t columns = min(op.width - part * PART, <Py_ssize_t>PART), panel = part * (PART // NR)
    cdef Best some = best[0]
    cdef Output out
    memset(&out, 0, sizeof(out))
    out.data, out.stride, out.width = scratch, PART, PART
    while row < job.picked:
        rows = min(job.picked - row, <Py_ssize_t>PART_ROWS)
        multiply_picked(m, op, a, row, rows, &out, panel, panel + (columns + NR - 1) // NR)
        some.values, some.ids = best.values + row * best.k, best.ids + row * best.k
        m.kernels.choose(&some, scratch, PART, rows, part * PART, columns, job.choice.maximum + row * parts + part,
                         job.choice.sum + row * parts + part, parts)
        row += rows


cdef void merge_best(const Best* best, const Best* other, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Update the best of rows [first, last) with the best of another thread.
    cdef Py_ssize_t row, i
    for row in range(first, last):
        for i in range(row * best.k, (row + 1) * best.k):
            if other.ids[i] < 0:
                break
            insert_best(best.values + row * best.k, best.ids + row * best.k, best.k, other.values[i], other.ids[i])


cdef void choose_logits(Job* job, const Instruction* op, const Operands* a, Private* own, const Team* team) noexcept nogil:
    # Choose from this thread's share of the parts; then, for its share of the rows, merge the lists and add up the sums.
    cdef const Choice* c = &job.choice
    cdef Py_ssize_t parts = parts_of(op.width), part
    cdef Py_ssize_t first = job.picked * team.rank // team.size, last = job.picked * (team.rank + 1) // team.size
    cdef int rank
    clear_best(&c.best[team.rank], job.picked)
    for part in range(parts * team.rank // team.size, parts * (team.rank + 1) // team.size):
        if stopped(job, own):
            break
        choose_part(job, op, a, &c.best[team.rank], own.scratch, part)
    meet(team)
    if first == last or is_set(&job.stop):
        return
    for rank in range(1, team.size):
        merge_best(&c.best[0], &c.best[rank], first, last)
    job.machine.kernels.log_sum_exp(c.maximum + first * parts, c.sum + first * parts, parts, last - first, parts,
                                    c.log_sum_exp + first)


cdef void logits(Job* job, const Instruction* op, const Place* at, Private* own, const Team* team) noexcept nogil:
    cdef const Machine* m = job.machine
    cdef Operands a
    if m.buffers[op.x].operands:
        a = operands_at(m, at, op.x)
    else:
        a.rows, a.stride, a.ranges = <char*>row_at(m, at, op.x, 0), m.buffers[op.x].stride, NULL
    if job.choice.k:
        choose_logits(job, op, &a, own, team)
    else:
        write_logits(job, op, &a, own, team)
