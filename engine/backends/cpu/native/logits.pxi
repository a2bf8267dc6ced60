# LOGITS: the product of the picked rows with the vocabulary. The caller gets all logits of the first `written` rows,
# and of the others what is chosen from them (RowChoice in table.pxd), and log_sum_exp.
#
# Threads share the columns, so that one core alone reads each weight, once for rows of both kinds. A thread multiplies
# one part of the vocabulary after the other, a few panels of the weights, by all rows. It chooses from the logits of a
# part while they are in its cache, and keeps lists of its own, which are merged at the end. A word that is drawn from
# all words lies in one part, which is multiplied once more for its row.

cdef enum:
    PART_ROWS = 64              # rows of logits that a thread keeps: 32 KB of its scratch
    SUMMED_ROWS = 512           # picked rows that have sums of their parts at a time, a multiple of PART_ROWS
    MANY_WORDS = 128            # likely words that a thread collects of a row before it looks at the sum of all powers
    SHARE_OF_WORDS = 6          # top_p first collects the words with more than 6 / V of what it may leave out


cdef inline Py_ssize_t parts_of(Py_ssize_t V) noexcept nogil:
    # Return the parts of V columns.
    return (V + PART - 1) // PART


cdef inline Py_ssize_t stride_of(Py_ssize_t V) noexcept nogil:
    # Return the floats from the sums of one row to those of the next: an odd number of lines, because a part of all
    # rows is written at once, and lines that are a power of two apart would take each other's places in the cache.
    return ((parts_of(V) + 15) // 16 | 1) * 16


cdef inline Py_ssize_t columns_of(const Instruction* op, Py_ssize_t part) noexcept nogil:
    # Return the columns of a part; only op.width of the N columns are tokens.
    return min(op.width - part * PART, <Py_ssize_t>PART)


cdef inline void multiply_picked(const Machine* m, const Instruction* op, const Operands* a, Py_ssize_t row,
                                 Py_ssize_t M, const Output* out, Py_ssize_t part) noexcept nogil:
    # Compute the panels of a part for M rows from `row` on, which begins a strip.
    cdef Py_ssize_t NR = m.kernels.NR, panel = part * (PART // NR)
    m.product.multiply(&op.linear, a.rows + row * a.stride * m.product.operand_bytes, a.stride,
                       a.ranges + row if a.ranges != NULL else NULL, M, NULL, out, panel,
                       panel + (columns_of(op, part) + NR - 1) // NR)


cdef void write_part(const Job* job, const Instruction* op, const float* logits, Py_ssize_t row, Py_ssize_t M,
                     Py_ssize_t part, Py_ssize_t columns) noexcept nogil:
    # Copy a part of the columns of M rows to the caller's array, whose first of these rows is `row`.
    cdef Py_ssize_t i
    for i in range(M):
        memcpy(job.arrays[0] + (row + i) * op.linear.N + part * PART, logits + i * PART, columns * sizeof(float))


cdef void choose_likely(const Job* job, const float* logits, Py_ssize_t M, Py_ssize_t first, int rank, Py_ssize_t part,
                        Py_ssize_t columns) noexcept nogil:
    # Choose the likely words of M of the rows to choose from, before their logits are changed.
    cdef RowChoice* c = job.choice.likely + rank * (job.picked - job.written) + first
    cdef float maximum, sum
    cdef Py_ssize_t row
    for row in range(M):
        if c[row].k:
            job.machine.kernels.choose(&c[row], <float*>logits + row * PART, PART, 1, part * PART, columns, &maximum,
                                       &sum, 1)


cdef void compute_part(const Job* job, const Instruction* op, const Operands* a, RowChoice* choices, int rank,
                       float* scratch, Py_ssize_t part, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Compute one part of the columns for picked rows [first, last): write the logits of those that are written, and
    # choose from those of the others, the first of which, of all picked rows, is the first of `choices`.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t N = op.linear.N, stride = job.choice.stride, columns = columns_of(op, part), row = first, rows
    cdef Py_ssize_t written, chosen, place
    cdef Output out
    memset(&out, 0, sizeof(out))
    while row < last:
        rows = min(last - row, <Py_ssize_t>PART_ROWS)
        written = max(0, min(rows, job.written - row))
        if written == rows:
            out.data, out.stride, out.width = job.arrays[0] + row * N, N, N
            multiply_picked(m, op, a, row, rows, &out, part)
        else:
            out.data, out.stride, out.width = scratch, PART, PART
            multiply_picked(m, op, a, row, rows, &out, part)
            write_part(job, op, scratch, row, written, part, columns)
            chosen = row + written - job.written        # the first of the rows to choose from
            if job.choice.likely != NULL:
                choose_likely(job, scratch + written * PART, rows - written, chosen, rank, part, columns)
            place = (row + written) % SUMMED_ROWS * stride + part
            m.kernels.choose(choices + chosen, scratch + written * PART, PART, rows - written, part * PART, columns,
                             job.choice.maximum + place, job.choice.sum + place, stride)
        row += rows


cdef inline void collect_again(const Job* job, const Instruction* op, const Operands* a, RowChoice* c, float* scratch,
                               Py_ssize_t chosen, Py_ssize_t part) noexcept nogil:
    # Compute one part for one of the rows to choose from, and collect its words. Rows are multiplied in strips.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t row = job.written + chosen, first = row // m.product.strip * m.product.strip
    cdef float maximum, sum
    cdef Output out
    memset(&out, 0, sizeof(out))
    out.data, out.stride, out.width = scratch, PART, PART
    multiply_picked(m, op, a, first, min(<Py_ssize_t>m.product.strip, job.picked - first), &out, part)
    m.kernels.choose(c, scratch + (row - first) * PART, PART, 1, part * PART, columns_of(op, part), &maximum, &sum, 1)


cdef inline Py_ssize_t append_words(const WordList* to, Py_ssize_t n, const int* ids, const float* values,
                                    const float* own, Py_ssize_t count) noexcept nogil:
    # Append words to n others; return how many there are.
    memcpy(to.ids + n, ids, count * sizeof(int))
    memcpy(to.values + n, values, count * sizeof(float))
    if to.own != to.values:
        memcpy(to.own + n, own, count * sizeof(float))
    return n + count


cdef Py_ssize_t merge_best(const Job* job, const RowChoice* choices, Py_ssize_t row, Py_ssize_t k, int threads,
                           const WordList* to) noexcept nogil:
    # Merge the candidates of all threads for the k best of a row, in the order of ids; return how many there are.
    # choices: [threads][rows].
    cdef const RowChoice* c
    cdef Py_ssize_t n = 0
    cdef int rank
    for rank in range(threads):
        c = &choices[rank * (job.picked - job.written) + row]
        n = append_words(to, n, c.ids, c.values, c.own, c.count)
    if n > k:
        keep_best(to.values, to.own, to.ids, n, k)
    return min(n, k)


cdef Py_ssize_t merge_collected(const Job* job, Py_ssize_t row, int threads, const WordList* to,
                                float* above) noexcept nogil:
    # Merge the words of a row that are above the highest bar of all threads, which `above` is set to. Return how many
    # there are, or -1 if a thread had no room for them.
    cdef const RowChoice* c
    cdef Py_ssize_t n = 0, rows = job.picked - job.written
    cdef float* own
    cdef int rank
    above[0] = -INFINITY
    for rank in range(threads):
        c = &job.choice.rows[rank * rows + row]
        if c.collected < 0:
            return -1
        above[0] = max(above[0], c.collected_bar)
    for rank in range(threads):
        c = &job.choice.rows[rank * rows + row]
        own = to.own + n if to.own != to.values else to.values + n
        n += job.machine.kernels.keep_above(c.collected_values, c.collected_own, c.collected_ids, c.collected, above[0],
                                            to.values + n, own, to.ids + n)
    return n


cdef void collect_all(const RowChoice* row, const WordList* to, RowChoice* c) noexcept nogil:
    # Make a choice that changes the logits as another one does, and collects all words but those with -inf.
    c[0] = row[0]
    c.plain, c.k, c.givens, c.next_added = False, 0, 0, 0
    c.most, c.many, c.collected, c.collected_bar, c.highest = 1, 0x7fffffff, 0, -INFINITY, INFINITY
    c.collected_ids, c.collected_values, c.collected_own = to.ids, to.values, to.own
    c.shared_bar = &c.collected_bar     # no other thread has one


cdef void draw_from(const Job* job, const Line* line, const WordList* words, Py_ssize_t n,
                    const float* powers, double grid) noexcept nogil:
    # Draw a word by each number of a row from n words, whose powers are added up on a grid.
    cdef Py_ssize_t i
    for i in range(line.drawn_at, line.drawn_at + line.drawn):
        put_word(&job.choice.drawn, i, words, draw(powers, n, job.choice.numbers[i], grid))


cdef void draw_of_best(const Job* job, const Line* line, const WordList* words, Py_ssize_t n,
                       float* powers) noexcept nogil:
    # Draw from the top_k words.
    cdef float highest = largest_of(words.values, n)
    cdef double total = 0, grid
    cdef Py_ssize_t i
    if highest == INFINITY:
        n = 0
    job.machine.kernels.powers(words.values, n, highest, line.scale, powers)
    for i in range(n):
        total += powers[i]
    grid = grid_of(total)
    n = keep_likely(job.machine.kernels, words, n, highest, line.scale, line.top_p * total if line.top_p < 1 else -1,
                    -INFINITY, True, highest + line.depth_of_min_p, grid, powers)
    draw_from(job, line, words, n, powers, grid)


cdef void draw_of_likely(const Job* job, const Instruction* op, const Operands* a, const Line* line, Py_ssize_t row,
                         int threads, const WordList* words, float* powers, float* scratch) noexcept nogil:
    # Draw from the words that top_p and min_p keep. If these were not all collected, all parts are computed once more.
    cdef const KernelTable* kernels = job.machine.kernels
    cdef const RowChoice* c = &job.choice.rows[row]
    cdef RowChoice again
    cdef Py_ssize_t parts = parts_of(op.width), n, part
    cdef float highest = largest_of(c.maximum, parts), least = highest + line.depth_of_min_p, above = 0
    cdef double before, limit = -1, total = add_parts(kernels, c.maximum, c.sum, parts, c.scale, highest, INFINITY,
                                                      &part, &before), grid
    if not 0 < total < INFINITY:
        draw_from(job, line, words, 0, powers, 0)
        return
    if line.top_p < 1:
        limit = line.top_p * total
    grid = grid_of(total)
    n = merge_collected(job, row, threads, words, &above)
    # Where min_p keeps no words but those that were collected, it does not matter whether these reach the limit.
    if n >= 0:
        kernels.powers(words.values, n, highest, c.scale, powers)
        n = keep_likely(kernels, words, n, highest, c.scale, limit, above, above < least, least, grid, powers)
    if n < 0:
        collect_all(c, words, &again)
        for part in range(parts):
            collect_again(job, op, a, &again, scratch, row, part)
        kernels.powers(words.values, again.collected, highest, c.scale, powers)
        n = keep_likely(kernels, words, again.collected, highest, c.scale, limit, -INFINITY, True, least, grid, powers)
    draw_from(job, line, words, n, powers, grid)


cdef void draw_of_all(const Job* job, const Instruction* op, const Operands* a, const Line* line, Py_ssize_t row,
                      const WordList* words, float* powers, float* scratch) noexcept nogil:
    # Draw from all words: find the part of each, and compute it once more.
    cdef const KernelTable* kernels = job.machine.kernels
    cdef const RowChoice* c = &job.choice.rows[row]
    cdef RowChoice again
    cdef Py_ssize_t parts = parts_of(op.width), i, part
    cdef double share = 0, total = 0
    for i in range(line.drawn_at, line.drawn_at + line.drawn):
        part = draw_part(kernels, c.maximum, c.sum, parts, c.scale, job.choice.numbers[i], &share, &total)
        if part < 0:
            put_word(&job.choice.drawn, i, words, -1)
            continue
        collect_all(c, words, &again)
        collect_again(job, op, a, &again, scratch, row, part)
        kernels.powers(words.values, again.collected, c.maximum[part], c.scale, powers)
        put_word(&job.choice.drawn, i, words, draw(powers, again.collected, share, grid_of(c.sum[part])))


cdef void finish_row(const Job* job, const Instruction* op, const Operands* a, Py_ssize_t row, const Team* team,
                     float* scratch) noexcept nogil:
    # Write what one row wants, from the lists and the sums of all threads.
    cdef const Choice* choice = &job.choice
    cdef const Line* line = &choice.lines[row]
    cdef const RowChoice* c = &choice.rows[row]
    cdef Py_ssize_t place = team.rank * choice.room, i, n
    cdef float* powers = choice.powers + place
    cdef WordList words
    words.ids, words.values = choice.merged.ids + place, choice.merged.values + place
    words.own = words.values if c.own == c.values else choice.merged.own + place
    if line.best:
        n = merge_best(job, choice.rows, row, line.best, team.size, &words)
        sort_best(words.values, words.own, words.ids, n)
        for i in range(line.best):
            put_word(&choice.best, line.best_at + i, &words, i if i < n else -1)
    if line.likely:
        n = merge_best(job, choice.likely, row, line.likely, team.size, &words)
        sort_best(words.values, words.own, words.ids, n)
        for i in range(line.likely):
            put_word(&choice.likely_words, line.likely_at + i, &words, i if i < n else -1)
    if not line.drawn:
        return
    if not isfinite(choice.log_sum_exp[row]):       # NaN and infinity have no probabilities
        draw_from(job, line, &words, 0, powers, 0)
    elif line.top_k:
        n = merge_best(job, choice.rows, row, line.top_k, team.size, &words)
        draw_of_best(job, line, &words, n, powers)
    elif c.most:
        draw_of_likely(job, op, a, line, row, team.size, &words, powers, scratch)
    else:
        draw_of_all(job, op, a, line, row, &words, powers, scratch)


cdef void finish_rows(const Job* job, const Instruction* op, const Operands* a, Py_ssize_t first, Py_ssize_t last,
                      Private* private, const Team* team) noexcept nogil:
    # For this thread's share of picked rows [first, last), add up the sums of all parts, and merge the lists of all
    # threads.
    cdef const Choice* c = &job.choice
    cdef Py_ssize_t rows = last - first, row = first + rows * team.rank // team.size
    cdef Py_ssize_t end = first + rows * (team.rank + 1) // team.size, place = row % SUMMED_ROWS * c.stride
    if row == end or is_set(&job.stop):
        return
    job.machine.kernels.log_sum_exp(c.maximum + place, c.sum + place, c.stride, end - row, parts_of(op.width),
                                    c.log_sum_exp + row - job.written)
    while row < end and not stopped(job, private):
        finish_row(job, op, a, row - job.written, team, private.scratch)
        row += 1


cdef void logits(Job* job, const Instruction* op, const Place* at, Private* private, const Team* team) noexcept nogil:
    # Compute this thread's share of the parts; then, for its share of the rows, choose from all of them. More rows than
    # have sums at a time come one after the other. After a stop, too, all threads meet as often.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t parts = parts_of(op.width), chosen = job.picked - job.written, part, row, first = 0, last
    cdef RowChoice* choices = job.choice.rows + team.rank * chosen
    cdef Operands a
    if m.buffers[op.x].operands:
        a = operands_at(m, at, op.x)
    else:
        a.rows, a.stride, a.ranges = <char*>row_at(m, at, op.x, 0), m.buffers[op.x].stride, NULL
    for row in range(chosen):
        choices[row].first_part = parts * team.rank // team.size
    while first < job.picked:
        last = min(job.picked, first + SUMMED_ROWS)
        for part in range(parts * team.rank // team.size, parts * (team.rank + 1) // team.size):
            if stopped(job, private):
                break
            compute_part(job, op, &a, choices, team.rank, private.scratch, part, first, last)
        if last > job.written:
            meet(team)
            finish_rows(job, op, &a, max(first, job.written), last, private, team)
            if last < job.picked:
                meet(team)      # before the next rows take the place of these sums
        first = last
