# The GEMM of floats on tiles (tiles.h), y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]), nearer to the
# exact result than FMAs come, and faster.
#
# A float is the sum of three bfloat16 numbers, its parts (t_split_operands, t_split_weights), so that
#   a w = a2 w0 + a1 w0 + a1 w1 + a0 w1 + a0 w2 + a0 w0 + what is left out, less than 2^-22 |a w|.
# The precision bfloat16x3 has two parts alone, and products half as expensive, farther from the exact result than FMAs:
#   a w = a1 w0 + a0 w0 + a0 w1 + what is left out, less than 2^-15 |a w|.
# The products of a step of 32 columns of depth are added in this order. Sums begin anew every FRESH steps, and are then
# added in float32, in the order of the depth. Nothing else decides the bits: neither the number of rows, nor how
# threads divide the work, nor the parts of the depth, which end where sums begin anew.
#
#   operands     [rows/16][K/32][part][16][16][2] bfloat16; the parts are made by whoever writes operands
#   weights      [N/32][K/32][2][16][2][16] floats, the tiles of 16 columns beside each other; if N is an odd number of
#                vectors, the last 16 columns are [K/32][16][2][16]. K is padded with zeros.
#
# Numbers i and i + 16 of a step are a pair, because it takes two instructions to make pairs of two vectors.
#
# Weights stay floats in memory. The vector units are free while the tiles multiply: they split the weights that are
# multiplied next, and finish the block before. With more than one block of rows, a panel is 32 columns and FRESH steps,
# and one is split while another one is multiplied by all blocks. A single block uses a panel only once; then the next
# step alone is split ahead, and both stay in the L1 cache.
#
# parts, 2 or 3, is a constant in every function that is inlined.

cdef enum:
    AHEAD_OF_SPLIT = 2048           # how many bytes ahead weights are prefetched, into the L1 cache
    FAR_AHEAD_OF_SPLIT = 16384      # and into the L2 cache

cdef struct Job:
    # Columns and a slice of the depth: what all blocks are multiplied by before the next job.
    Py_ssize_t column       # the first column
    Py_ssize_t first        # the first step of depth
    Py_ssize_t steps
    int columns             # tiles of columns, 1 or 2
    const char* source      # the weights, as floats

cdef struct Jobs:
    # All jobs of a call: the columns of one slice after another, then those of the next slice.
    const Linear* y
    Py_ssize_t column       # columns [column, last_column)
    Py_ssize_t last_column
    Py_ssize_t first        # the steps of depth of the call, [first, last)
    Py_ssize_t last
    Py_ssize_t depth_steps  # steps of the whole depth
    Py_ssize_t count        # jobs

cdef struct Split:
    # Weights that are split next, in lines of 32 floats: those of a whole job, or of one step of it.
    const char* source      # the next line
    char* to                # where its parts go: [step][part][column of tiles][16][64 bytes]
    Py_ssize_t left         # lines that are left to be split
    Py_ssize_t left_in_step # of those, lines of the step at hand
    Py_ssize_t each         # lines that are split at a time
    int columns             # tiles of columns of the job at hand
    Py_ssize_t steps        # of the job at hand that have not been begun
    Py_ssize_t next_job     # the number of the job that is begun after this one


cdef inline Job job_of(const Jobs* jobs, Py_ssize_t i) noexcept nogil:
    # Return job i: up to SIDE columns and FRESH steps of depth, which are a slice. Jobs count through all columns of a
    # slice, then through those of the next one. A step of depth has two lines of LINE_BYTES for each column.
    cdef Job job
    cdef Py_ssize_t jobs_per_slice = (jobs.last_column - jobs.column + SIDE - 1) // SIDE, width
    job.column = jobs.column + i % jobs_per_slice * SIDE
    job.first = jobs.first + i // jobs_per_slice * FRESH
    job.steps = min(jobs.last - job.first, <Py_ssize_t>FRESH)
    width = min(jobs.last_column - job.column, <Py_ssize_t>SIDE)
    job.columns = <int>(width // VL)
    job.source = <const char*>jobs.y.panels + (job.column * jobs.depth_steps + job.first * width) * 2 * LINE_BYTES
    return job


cdef inline int places_of(const int parts) noexcept nogil:
    # Return how many products of parts a step has; behind each of them, some lines of weights are split.
    return 6 if parts == 3 else 3


cdef inline void split_lines(const int parts, Split* s, Py_ssize_t n) noexcept nogil:
    # Split the next n lines, or those that are left. A line has pairs of numbers of 16 columns.
    cdef Py_ssize_t next = s.columns * TILE_BYTES, left_in_step = s.left_in_step, i
    cdef const char* source = s.source
    cdef char* to = s.to
    n = min(n, s.left)
    s.left -= n
    for i in range(n):
        fetch_near(source + AHEAD_OF_SPLIT)
        fetch_near(source + AHEAD_OF_SPLIT + LINE_BYTES)
        fetch_far(source + FAR_AHEAD_OF_SPLIT)
        fetch_far(source + FAR_AHEAD_OF_SPLIT + LINE_BYTES)
        t_split_weights(parts, to, next, v_load(<const float*>source), v_load(<const float*>source + VL))
        source += 2 * LINE_BYTES
        to += LINE_BYTES
        left_in_step -= 1
        if left_in_step == 0:
            to += (parts - 1) * next        # behind the other parts of this step
            left_in_step = s.columns * TILE_ROWS
    s.source, s.to, s.left_in_step = source, to, left_in_step


cdef inline void begin_job(Split* s, const Jobs* jobs) noexcept nogil:
    # Turn to the next job, if there is one.
    cdef Job job
    s.left = s.steps = 0
    if s.next_job < jobs.count:
        job = job_of(jobs, s.next_job)
        s.source, s.columns, s.steps = job.source, job.columns, job.steps
        s.left_in_step = s.columns * TILE_ROWS
        s.next_job += 1


cdef inline void split_job(Split* s, const Jobs* jobs, Py_ssize_t times) noexcept nogil:
    # Say that the next job, if there is one, is split as a whole, in up to `times` calls of `split_lines`.
    s.to = t_weight_parts(s.next_job & 1)
    begin_job(s, jobs)
    s.left = s.steps * s.left_in_step
    s.each = (s.left + times - 1) // times


cdef inline void split_step(const int parts, Split* s, const Jobs* jobs, Py_ssize_t slot) noexcept nogil:
    # Say that the next step, if there is one, is split into slot 0 or 1 during the products of the step at hand.
    if s.steps == 0:
        begin_job(s, jobs)
    if s.steps > 0:
        s.steps -= 1
        s.left = s.left_in_step
        s.to = t_weight_parts(0) + slot * STEP_BYTES
        s.each = (s.left + places_of(parts) - 1) // places_of(parts)


cdef inline int numbers_of(const int parts) noexcept nogil:
    # Return the format of tiles.pxi; the inverse of parts_of.
    return OF_THREE_PARTS if parts == 3 else OF_TWO_PARTS


cdef void work_between_three(const TileWork* w, const tile_sums* block, tile_sums* before, Py_ssize_t first,
                             Py_ssize_t last) noexcept nogil:
    # Not inlined into the loop, for the reason that tiles.pxi gives.
    work_between(OF_THREE_PARTS, w, block, before, first, last)


cdef void work_between_two(const TileWork* w, const tile_sums* block, tile_sums* before, Py_ssize_t first,
                           Py_ssize_t last) noexcept nogil:
    # The same for bfloat16x3.
    work_between(OF_TWO_PARTS, w, block, before, first, last)


cdef inline void multiply_step_of_two(const bint few, const int rows, const int columns, const char* a,
                                      const char* lower, const char* b, Split* s) noexcept nogil:
    # Add the products of a step in two parts to the sums of a block, in the order of the head of this file; split
    # weights behind them. few: a single block of rows; then no load keeps a tile in the L1 cache for another one.
    t_load_operands(not few, rows, a + TILE_BYTES, lower + TILE_BYTES)
    t_load_weights(not few, columns, b)
    t_multiply(rows, columns)
    split_lines(2, s, s.each)
    t_load_operands(not few, rows, a, lower)
    t_multiply(rows, columns)
    split_lines(2, s, s.each)
    t_load_weights(not few, columns, b + columns * TILE_BYTES)
    t_multiply(rows, columns)
    split_lines(2, s, s.each)


cdef inline void multiply_step_of_three(const bint few, const int rows, const int columns, const char* a,
                                        const char* lower, const char* b, Split* s) noexcept nogil:
    # The same in three parts: a2 w0, a1 w0, a1 w1, a0 w1, a0 w2, a0 w0. Successive products share a loaded tile.
    t_load_operands(not few, rows, a + 2 * TILE_BYTES, lower + 2 * TILE_BYTES)
    t_load_weights(not few, columns, b)
    t_multiply(rows, columns)
    split_lines(3, s, s.each)
    t_load_operands(not few, rows, a + TILE_BYTES, lower + TILE_BYTES)
    t_multiply(rows, columns)
    split_lines(3, s, s.each)
    t_load_weights(not few, columns, b + columns * TILE_BYTES)
    t_multiply(rows, columns)
    split_lines(3, s, s.each)
    t_load_operands(not few, rows, a, lower)
    t_multiply(rows, columns)
    split_lines(3, s, s.each)
    t_load_weights(not few, columns, b + 2 * columns * TILE_BYTES)
    t_multiply(rows, columns)
    split_lines(3, s, s.each)
    t_load_weights(not few, columns, b)
    t_multiply(rows, columns)
    split_lines(3, s, s.each)


cdef inline void multiply_step_of_few(const int parts, const int columns, const char* a, const char* b,
                                      Split* s) noexcept nogil:
    # The same for one tile of rows. Its sums leave room for all parts of the operands and of 16 columns of weights, so
    # that no tile is loaded twice, and products with the same weights follow each other, which is faster.
    # t_multiply_part(parts, column, part, b) loads this part of the weights of a column of tiles, and adds the products
    # in the list at the head of this file for which all parts are loaded now, in the order of the list.
    cdef Py_ssize_t each = (s.left + parts * columns - 1) // (parts * columns), next = columns * TILE_BYTES
    t_load_parts(parts, a)
    t_multiply_part(parts, 0, 0, b)
    split_lines(parts, s, each)
    t_multiply_part(parts, 0, 1, b + next)
    split_lines(parts, s, each)
    if parts == 3:
        t_multiply_part(parts, 0, 2, b + 2 * next)
        split_lines(parts, s, each)
    if columns == 2:
        t_multiply_part(parts, 1, 0, b + TILE_BYTES)
        split_lines(parts, s, each)
        t_multiply_part(parts, 1, 1, b + TILE_BYTES + next)
        split_lines(parts, s, each)
        if parts == 3:
            t_multiply_part(parts, 1, 2, b + TILE_BYTES + 2 * next)
            split_lines(parts, s, each)


cdef inline void multiply_parts(const int parts, const bint few, const int rows, const int columns, const TileWork* w,
                                const Jobs* jobs, Split* s, Py_ssize_t* slot, tile_sums* block,
                                tile_sums* before) noexcept nogil:
    # Compute the sums of a block of 1 or 2 tiles of rows and of columns over a slice of the depth; meanwhile split
    # weights, and finish the block before, its rows spread over the steps: due / steps rows are due. few: whether the
    # rows are a single block, so that only one step is split ahead.
    cdef Py_ssize_t steps = w.steps, rows_between = max(block.rows, before.rows), row = 0, last, due = 0, k
    cdef const char* a = w.a
    cdef const char* lower = w.lower
    cdef const char* b = w.b
    t_clear(rows, columns)
    for k in range(steps):
        if few:
            t_barrier()     # before tiles load what vectors have written
            b = t_weight_parts(0) + slot[0] * STEP_BYTES
            slot[0] = 1 - slot[0]       # one is multiplied while the other is filled
            split_step(parts, s, jobs, slot[0])
        if few and rows == 1: multiply_step_of_few(parts, columns, a, b, s)
        elif parts == 3: multiply_step_of_three(few, rows, columns, a, lower, b, s)
        else: multiply_step_of_two(few, rows, columns, a, lower, b, s)
        a += parts * TILE_BYTES
        lower += parts * TILE_BYTES
        b += parts * columns * TILE_BYTES
        last = row
        due += rows_between
        while due >= steps:
            due -= steps
            last += 1
        if row < last:
            if parts == 3:
                work_between_three(w, block, before, row, last)
            else:
                work_between_two(w, block, before, row, last)
            row = last
    t_store_sums(rows, columns, block.sums, SIDE * sizeof(float))


cdef inline void multiply_any_parts(const int parts, const bint few, const TileWork* w, const Jobs* jobs, Split* s,
                                    Py_ssize_t* slot, tile_sums* block, tile_sums* before) noexcept nogil:
    # Map the tiles of a block to a function that is compiled for them.
    if block.rows > TILE_ROWS:
        if block.columns == 2: multiply_parts(parts, few, 2, 2, w, jobs, s, slot, block, before)
        else: multiply_parts(parts, few, 2, 1, w, jobs, s, slot, block, before)
    elif block.columns == 2:
        multiply_parts(parts, few, 1, 2, w, jobs, s, slot, block, before)
    else:
        multiply_parts(parts, few, 1, 1, w, jobs, s, slot, block, before)


cdef inline void multiply_jobs(const int parts, const bint few, const Jobs* jobs, TileWork* w) noexcept nogil:
    # Multiply all blocks of rows by one job after the other. few: see multiply_parts.
    cdef Py_ssize_t blocks = (w.M + SIDE - 1) // SIDE, complete = 0, slot = 0, i, j
    cdef tile_sums buffers[2]
    cdef tile_sums* block
    cdef tile_sums* before
    cdef Split s
    cdef Job job
    s.next_job = s.steps = 0
    if few:
        split_step(parts, &s, jobs, slot)
    else:
        split_job(&s, jobs, 1)
    split_lines(parts, &s, s.left)
    buffers[1].rows = buffers[1].next = 0       # nothing is there to finish during the first block
    for j in range(jobs.count):
        job = job_of(jobs, j)
        if not few:     # spread the next job over the calls of split_lines during this one
            split_job(&s, jobs, blocks * job.steps * places_of(parts))
            w.b = t_weight_parts(j & 1)
        w.steps = job.steps
        for i in range(blocks):
            block, before = &buffers[complete & 1], &buffers[1 - (complete & 1)]        # in turns
            place_block(w, block, i * SIDE, min(w.M - i * SIDE, <Py_ssize_t>SIDE), job.column, job.columns * VL)
            block.first, block.final = job.first == 0, job.first + job.steps == jobs.depth_steps
            w.a = w.operands + i * SIDE // TILE_ROWS * w.strip + (job.first - jobs.first) * parts * TILE_BYTES
            w.lower = w.a + w.strip
            multiply_any_parts(parts, few, w, jobs, &s, &slot, block, before)
            complete += 1
        if not few:
            split_lines(parts, &s, s.left)
    if complete > 0:
        block = &buffers[1 - (complete & 1)]
        finish_rows(numbers_of(parts), w, block, block.rows)


cdef inline void multiply_floats(const int parts, TileWork* w) noexcept nogil:
    # Compute a call of `multiply`: divide its columns and its depth into jobs.
    cdef Py_ssize_t jobs_per_slice = (w.last_column - w.column + SIDE - 1) // SIDE
    cdef Jobs jobs
    jobs.y, jobs.depth_steps, jobs.column, jobs.last_column = w.y, w.lines, w.column, w.last_column
    jobs.first, jobs.last = w.out.first_line, w.out.first_line + steps_of(w)
    jobs.count = jobs_per_slice * ((jobs.last - jobs.first + FRESH - 1) // FRESH) if w.M > 0 else 0
    if w.M <= SIDE: multiply_jobs(parts, True, &jobs, w)
    else: multiply_jobs(parts, False, &jobs, w)


cdef void tiles_float32(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                        const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Six products of parts for each product of floats.
    cdef TileWork w = tile_work(OF_THREE_PARTS, y, a, a_stride, ranges, M, residual, out, panel, last)
    multiply_floats(3, &w)


cdef void tiles_two_parts(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                          const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # The precision bfloat16x3: three products of parts.
    cdef TileWork w = tile_work(OF_TWO_PARTS, y, a, a_stride, ranges, M, residual, out, panel, last)
    multiply_floats(2, &w)


cdef inline void split_rows(const int parts, const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K,
                            void* operands, Py_ssize_t operands_stride, Py_ssize_t first) noexcept nogil:
    # Split M rows of x into the parts of operands; zeros complete a line.
    cdef Py_ssize_t row, i, left
    cdef char* to
    for row in range(first, first + M):
        to = <char*>operands + (row // TILE_ROWS * TILE_ROWS * operands_stride * parts * sizeof(operand)
                                + row % TILE_ROWS * LINE_BYTES)
        for i in range((K + SIDE - 1) // SIDE):
            left = K - i * SIDE
            if left >= SIDE:
                t_split_operands(parts, to, TILE_BYTES, v_load(x + i * SIDE), v_load(x + i * SIDE + VL))
            else:
                t_split_operands(parts, to, TILE_BYTES, v_loadn(x + i * SIDE, <int>min(left, <Py_ssize_t>VL)),
                        v_loadn(x + i * SIDE + VL, <int>(left - VL)) if left > VL else v_set1(0.0))
            to += parts * TILE_BYTES
        x += x_stride


cdef void to_parts(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                   Py_ssize_t operands_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # The operands of float32.
    split_rows(3, x, x_stride, M, K, operands, operands_stride, first)


cdef void to_two_parts(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                       Py_ssize_t operands_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # The operands of bfloat16x3.
    split_rows(2, x, x_stride, M, K, operands, operands_stride, first)


cdef void pack_parts(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
                     Py_ssize_t n) noexcept nogil:
    # Weights [n,K] stay floats, in the order that the head of this file states: k % VL is the pair of a step, and
    # k % SIDE // VL the place in the pair.
    cdef Py_ssize_t lines = (y.K + SIDE - 1) // SIDE, first, width, i, k
    cdef const float* w = <const float*>weight
    cdef float* start
    for i in range(column, column + n):
        first = i // SIDE * SIDE
        width = min(y.N - first, <Py_ssize_t>SIDE)
        start = <float*>panels + first * lines * SIDE + (i - first) // VL * VL * SIDE + i % VL
        for k in range(y.K):
            start[k // SIDE * width * SIDE + (k % VL * 2 + k % SIDE // VL) * VL] = w[k]
        w += y.K


cdef double tile_rounds_float32(Py_ssize_t n, float* sink) noexcept nogil:
    # Six products of parts are one product of floats.
    return tile_rounds(OF_BFLOAT16, n, sink) / 6


cdef double tile_rounds_two_parts(Py_ssize_t n, float* sink) noexcept nogil:
    # Three products of parts are one product of floats.
    return tile_rounds(OF_BFLOAT16, n, sink) / 3
