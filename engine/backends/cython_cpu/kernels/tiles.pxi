# The GEMM on tiles (tiles.h): y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]), in bfloat16, in int8, and
# of rows in 16-bit integers and weights in int8.
#
# Operands and weights lie in whole tiles of 1 KB, in the order in which the loop reads them:
#   operands     [rows/16][K/line][16][line], a line being 64 bytes: 32 bfloat16 numbers or 64 codes
#   weights      [N/32][K/line][2][16][16][4 bytes], the tiles of 16 columns beside each other, each as tiles.h says;
#                if N is an odd number of vectors, the last 16 columns have tiles [K/line][16][16][4 bytes]
# K is padded to whole lines with zeros. Rows beyond M may hold anything: no row sees another, and their sums are lost.
#
# 16-bit integers are those of integers.pxi, and so are the results, to the last bit. A line of 16 rows is a tile of the
# upper bytes of 64 steps of depth, and behind it one of the lower bytes. In a block of 16 rows they take the places of
# the upper and the lower tiles, so that they share each tile of weights, and their sums meet in the epilogue.
#
# A block of sums has up to 32 rows and 32 columns. The loop over its depth has one load of a tile for each product, and
# the vector units are free in the meantime: they finish the block before, whose sums wait in memory. Sums keep all
# their bits in memory, so it changes no result to compute a product in parts of its depth.
#
# The loops, from the outermost: columns; slices of their depth, whose weights stay in the L1 cache; blocks of rows.
# Operands pass by that cache (t_stream), or else they would drive the weights and the sums out of it.

cdef extern from "simd/tiles.h" nogil:
    enum:
        TILE_ROWS       # 16, which is VL wherever there are tiles
        TILE_BYTES      # 1024
        SIDE            # 2 * TILE_ROWS: rows and columns of a block
        KEEP_OPERANDS   # what stays in the L1 cache; t_step takes a sum of both
        KEEP_WEIGHTS
    enum TileNumbers:   # a constant in every call, like rows, columns and parts, which count tiles
        OF_BFLOAT16
        OF_INT8
        OF_TWO_PARTS
        OF_THREE_PARTS
        OF_INT16
    ctypedef struct tile_sums:
        float* sums         # [SIDE][SIDE] of a block; of integers, the bits of int32
        Py_ssize_t row      # the first row
        Py_ssize_t column   # the first column
        Py_ssize_t rows
        Py_ssize_t next     # the row that the epilogue comes to next
        Py_ssize_t* place   # the offset in the result of each 16 columns of the first row
        int columns         # tiles of columns, 1 or 2
        bint first          # whether the sums are those of the first part of the depth
        bint final          # whether they are those of the last part
    void t_begin()      # before any other of these functions; the tiles are this thread's until t_end
    void t_end()
    void t_clear(const int rows, const int columns)        # the sums of a block of 1 or 2 tiles of rows and of columns
    void t_clear_all()
    void t_load_sums(const int rows, const int columns, const float* sums, Py_ssize_t stride)
    # Add a line of depth. Rows of operands are a_stride bytes apart, those of weights `stride`; the second tile of
    # weights begins `next` bytes behind b.
    void t_step(const int numbers, const int keep, const int rows, const int columns, const char* a, const char* lower,
                Py_ssize_t a_stride, const char* b, Py_ssize_t next, Py_ssize_t stride)
    void t_round(const int numbers)
    void t_store_sums(const int rows, const int columns, float* sums, Py_ssize_t stride)
    void t_store_tiles(const int rows, float* upper, float* lower)
    vf t_integers(const float* sums)        # the floats are the bits of int32
    vf t_joined(const float* upper, const float* lower)      # 256 * upper + lower, of int32
    void t_store_int16(char* p, vf x)       # the lower bytes go into the next tile, TILE_BYTES behind the upper ones
    vx t_minus(vx a, vx b)
    enum:
        PARTS           # the most parts of a float
        FRESH           # steps of 32 columns of depth after which sums begin anew
        STEP_BYTES      # of the parts of the weights of a step
    # Write pairs of numbers of two vectors, as lines of their parts, each `next` bytes behind the one before.
    void t_split_operands(const int parts, char* p, Py_ssize_t next, vf first, vf second)
    void t_split_weights(const int parts, char* p, Py_ssize_t next, vf first, vf second)
    void t_load_operands(const int keep, const int rows, const char* a, const char* lower)
    void t_load_weights(const int keep, const int columns, const char* b)
    void t_multiply(const int rows, const int columns)
    void t_barrier()    # between writes of vectors and loads of tiles from one memory, which compilers may exchange
    void t_load_parts(const int parts, const char* a)      # of the operands of 16 rows, for t_multiply_part
    void t_multiply_part(const int parts, const int column, const int part, const char* b)
    char* t_weight_parts(int i)     # one of two buffers of this thread

cdef enum:
    LINE_BYTES = 64         # bytes of depth of a tile
    SLICE = 12              # lines of depth: their weights take 24 KB of an L1 cache of 48 KB
    SLICED_BLOCKS = 16      # blocks of rows whose sums can wait between slices

cdef struct TileWork:
    # One call of `multiply`, whose depth may be a part of the whole one, and what a block multiplies in a slice of it.
    const Linear* y
    const RowRange* ranges
    const float* residual
    const Output* out
    const char* operands    # the first rows
    Py_ssize_t strip        # bytes from 16 rows of operands to the next 16
    Py_ssize_t M
    Py_ssize_t column       # columns [column, last_column)
    Py_ssize_t last_column
    Py_ssize_t lines        # of the whole depth
    Py_ssize_t steps        # lines of the slice
    const char* a           # the upper tiles of operands
    const char* lower       # the lower ones
    const char* b           # the weights
    const float* sums       # the sums that the block begins with; NULL for zeros
    float* waiting          # where the block's sums wait for the rest of the depth; NULL if they are complete
    const float* sums_ahead # sums that the next block begins with, to be prefetched; or NULL
    const char* ahead       # the part of the next columns' weights that is prefetched in this slice
    Py_ssize_t ahead_step   # bytes that each step prefetches

cdef struct Slices:
    # Columns, and the slice of their depth at hand, which all blocks of rows multiply before the next one.
    Py_ssize_t blocks       # of rows
    Py_ssize_t column       # the first of `width` columns
    Py_ssize_t width
    const char* b           # their weights
    Py_ssize_t steps        # lines of depth that the call multiplies
    Py_ssize_t count        # slices of these lines
    Py_ssize_t turn         # the slice at hand: lines [first, end)
    Py_ssize_t first
    Py_ssize_t end
    bint resumes            # whether sums of an earlier part of the depth wait in Output.sums
    bint pauses             # whether sums have to wait there for the next part, another call
    tile_sums* between      # the sums of each block between slices


# Traits of a format, an enum TileNumbers, which is a constant at each use, so that the traits are constants, too.

cdef inline bint are_integers(const int numbers) noexcept nogil:
    # Return whether sums are int32, so that results need the ranges of rows and the scales of columns.
    return numbers == OF_INT8 or numbers == OF_INT16


cdef inline bint in_halves(const int numbers) noexcept nogil:
    # Return whether the upper and the lower bytes of the same 16 rows are the two tiles of rows of a block.
    return numbers == OF_INT16


cdef inline int parts_of(const int numbers) noexcept nogil:
    # Return how many bfloat16 numbers, each in a tile of its own, stand for a number of a row; see parts.pxi.
    return 3 if numbers == OF_THREE_PARTS else 2 if numbers == OF_TWO_PARTS else 1


cdef inline bint splits(const int numbers) noexcept nogil:
    # Return whether a number of a row is the sum of several parts.
    return parts_of(numbers) > 1


cdef inline bint begins_anew(const int numbers) noexcept nogil:
    # Return whether sums begin anew with each part of the depth, and are added as floats.
    return splits(numbers) or in_halves(numbers)


cdef inline int rows_of_block(const int numbers) noexcept nogil:
    # Return the most rows of a block of sums.
    return TILE_ROWS if in_halves(numbers) else SIDE


cdef inline int bytes_of_number(const int numbers) noexcept nogil:
    # Return the bytes that a number has in one line of operands, and of weights.
    return 1 if are_integers(numbers) else 2


cdef inline Py_ssize_t line_of_tiles(const int numbers) noexcept nogil:
    # Return the bytes of 16 rows of a line of operands: a tile, or one for each half or part of the numbers.
    return TILE_BYTES * (2 if in_halves(numbers) else parts_of(numbers))


cdef inline TileWork tile_work(const int numbers, const Linear* y, const void* a, Py_ssize_t a_stride,
                               const RowRange* ranges, Py_ssize_t M, const float* residual, const Output* out,
                               Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Return the work of a call of `multiply`, whose arguments these are.
    cdef TileWork w
    memset(&w, 0, sizeof(w))
    w.y, w.ranges, w.residual, w.out, w.operands, w.M = y, ranges, residual, out, <const char*>a, M
    w.strip = a_stride * TILE_ROWS * bytes_of_number(numbers) * (line_of_tiles(numbers) // TILE_BYTES)
    w.column, w.last_column = panel * NR, min(y.N, last * NR)
    w.lines = (y.K * bytes_of_number(numbers) + LINE_BYTES - 1) // LINE_BYTES
    return w


cdef inline Py_ssize_t steps_of(const TileWork* w) noexcept nogil:
    # Return the lines of depth that a call multiplies: all of them, or a part.
    return (w.out.last_line if w.out.last_line else w.lines) - w.out.first_line


cdef inline bint writes_operands(const int numbers, const TileWork* w) noexcept nogil:
    # Return whether results become operands of another product, which those of integers never do.
    return not are_integers(numbers) and w.out.operands != NULL


cdef inline char* line_of_operands(const int numbers, const TileWork* w, const tile_sums* block,
                                   Py_ssize_t i) noexcept nogil:
    # Return where 32 results of row i of a block lie as operands [rows/16][N/32][part][16][64 bytes]: the line of their
    # first bfloat16 parts. Those of the other parts (parts.pxi) follow TILE_BYTES apart.
    cdef Py_ssize_t row = block.row + i, rows_before = row // TILE_ROWS * TILE_ROWS
    return <char*>w.out.operands + row % TILE_ROWS * LINE_BYTES + parts_of(numbers) * (
        rows_before * w.out.operands_stride * sizeof(operand) + block.column // SIDE * TILE_BYTES)


cdef inline void write_operands(const int numbers, const int activation, const TileWork* w, const tile_sums* block,
                                Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Apply the epilogue to rows [first, last) of a block, and write lines of operands. Zeros complete a line.
    cdef Py_ssize_t i
    cdef const float* sums
    cdef char* line
    cdef vf first_half, second_half, bias = v_load(w.y.bias + block.column), second_bias = v_set1(0.0)
    if block.columns == 2:
        second_bias = v_load(w.y.bias + block.column + VL)
    for i in range(first, last):
        sums, line = block.sums + i * SIDE, line_of_operands(numbers, w, block, i)
        first_half, second_half = v_activate(activation, v_add(v_load(sums), bias)), v_set1(0.0)
        if block.columns == 2:
            second_half = v_activate(activation, v_add(v_load(sums + VL), second_bias))
        if splits(numbers):
            t_split_operands(parts_of(numbers), line, TILE_BYTES, first_half, second_half)
        else:
            p_store_line(<operand*>line, first_half, second_half)


cdef inline void write_floats(const int numbers, const int activation, const TileWork* w, const tile_sums* block,
                              Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Apply the epilogue to rows [first, last) of a block, and write floats. Before the last part of the depth,
    # those of float32 and of 16-bit integers are partial sums, to which the next part adds.
    cdef Py_ssize_t column, i, at
    cdef int j
    cdef vf bias, scale, totals, x
    for j in range(block.columns):
        column = block.column + j * VL
        bias = scale = totals = v_load(w.y.bias + column)      # only integers need scales, and totals of weights
        if are_integers(numbers):
            scale, totals = v_load(w.y.scale + column), v_load(w.y.sums + column)
        for i in range(first, last):
            at = block.place[j] + i * w.out.stride
            x = v_load(block.sums + i * SIDE + j * VL)
            if numbers == OF_INT8:
                x = result_of(t_integers(block.sums + i * SIDE + j * VL), &w.ranges[block.row + i], totals, scale, bias)
            elif numbers == OF_INT16:
                x = t_joined(block.sums + i * SIDE + j * VL, block.sums + (TILE_ROWS + i) * SIDE + j * VL)
                x = v_fma(x, scale, v_set1(0.0) if block.first else v_load(w.out.data + at))
                if block.final:
                    x = v_fma(v_set1(w.ranges[block.row + i].step), x, bias)
            elif splits(numbers) and not block.first:
                x = v_add(x, v_load(w.out.data + at))
            else:
                x = v_add(x, bias)
            if w.residual != NULL and (block.final or not begins_anew(numbers)):
                x = v_add(x, v_load(w.residual + at))
            x = v_activate(activation, x)
            if w.out.bfloat16:
                p_store(<operand*>w.out.data + at, x)
            else:
                v_store(w.out.data + at, x)


cdef inline void finish_as(const int numbers, const int activation, const TileWork* w, const tile_sums* block,
                           Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Write results where they go; the activation may be approximate where results are rounded to 8 or 16 bits at once.
    if writes_operands(numbers, w):
        write_operands(numbers, activation if splits(numbers) else approximation_of(activation), w, block, first, last)
    elif numbers == OF_INT8 and activation == GELU and w.out.approximate:
        write_floats(numbers, GELU_APPROXIMATE, w, block, first, last)
    else:
        write_floats(numbers, activation, w, block, first, last)


cdef inline void finish_rows(const int numbers, const TileWork* w, tile_sums* block, Py_ssize_t last) noexcept nogil:
    # Apply the epilogue to rows of a block, from the next one to the one before `last`.
    cdef Py_ssize_t first = block.next
    if first >= last:
        return
    block.next = last
    if w.y.activation == IDENTITY or begins_anew(numbers) and not block.final:
        finish_as(numbers, IDENTITY, w, block, first, last)
    elif w.y.activation == GELU:
        finish_as(numbers, GELU, w, block, first, last)
    elif w.y.activation == GELU_TANH:
        finish_as(numbers, GELU_TANH, w, block, first, last)
    elif w.y.activation == RELU:
        finish_as(numbers, RELU, w, block, first, last)
    else:
        finish_as(numbers, SILU, w, block, first, last)


cdef inline void work_between(const int numbers, const TileWork* w, const tile_sums* block, tile_sums* before,
                              Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # For rows [first, last): prefetch sums, and the lines of the result of a block, and finish the block before.
    cdef Py_ssize_t row
    cdef int j
    for row in range(first, last if w.sums_ahead != NULL else 0):
        for j in range(SIDE // VL):
            fetch_far(<const char*>(w.sums_ahead + row * SIDE + j * VL))
    for row in range(first, min(last, block.rows) if w.waiting == NULL else 0):
        if writes_operands(numbers, w):
            fetch_near(line_of_operands(numbers, w, block, row))
            continue
        for j in range(block.columns):
            fetch_near(<const char*>w.out.data + (block.place[j] + row * w.out.stride) * (2 if w.out.bfloat16 else 4))
    finish_rows(numbers, w, before, min(last, before.rows))


# The loop calls these functions, and they are not inlined there, so that it keeps its own addresses in registers.

cdef void work_between_bfloat16(const TileWork* w, const tile_sums* block, tile_sums* before, Py_ssize_t first,
                                Py_ssize_t last) noexcept nogil:
    # Results are floats or operands.
    work_between(OF_BFLOAT16, w, block, before, first, last)


cdef void work_between_int8(const TileWork* w, const tile_sums* block, tile_sums* before, Py_ssize_t first,
                            Py_ssize_t last) noexcept nogil:
    # Results are floats, by result_of in int8.pxi.
    work_between(OF_INT8, w, block, before, first, last)


cdef void work_between_int16(const TileWork* w, const tile_sums* block, tile_sums* before, Py_ssize_t first,
                             Py_ssize_t last) noexcept nogil:
    # Results are floats, whose sums of upper and of lower bytes are joined first.
    work_between(OF_INT16, w, block, before, first, last)


cdef inline void multiply_block(const int numbers, const int rows, const int columns, const TileWork* w,
                                tile_sums* block, tile_sums* before) noexcept nogil:
    # Add a slice of the depth to the sums of a block of 1 or 2 tiles of rows and of columns, and finish the block
    # before, its rows spread over the steps: due / steps rows are due. The calls leave the tiles as they are.
    cdef Py_ssize_t steps = w.steps, ahead_step = w.ahead_step, row = 0, last, due = 0, k
    cdef bint busy = w.waiting == NULL or w.sums_ahead != NULL or before.next < before.rows
    cdef const char* a = w.a
    cdef const char* lower = w.lower
    cdef const char* b = w.b
    cdef const char* ahead = w.ahead
    if w.sums != NULL:
        t_load_sums(rows, columns, w.sums, SIDE * sizeof(float))
    else:
        t_clear(rows, columns)
    for k in range(steps):
        fetch_lines(ahead, ahead_step)
        ahead += ahead_step
        t_step(numbers, KEEP_WEIGHTS, rows, columns, a, lower, LINE_BYTES, b, TILE_BYTES, LINE_BYTES)
        a += line_of_tiles(numbers)
        lower += line_of_tiles(numbers)
        b += columns * TILE_BYTES
        last = row
        due += rows_of_block(numbers) if busy else 0
        while due >= steps:
            due -= steps
            last += 1
        if row < last:
            if numbers == OF_INT8: work_between_int8(w, block, before, row, last)
            elif numbers == OF_INT16: work_between_int16(w, block, before, row, last)
            else: work_between_bfloat16(w, block, before, row, last)
            row = last
    t_store_sums(rows, columns, block.sums if w.waiting == NULL else w.waiting, SIDE * sizeof(float))


cdef inline void multiply_any_block(const int numbers, const TileWork* w, tile_sums* block,
                                    tile_sums* before) noexcept nogil:
    # Map the tiles of a block to a function that is compiled for them.
    if in_halves(numbers) or block.rows > TILE_ROWS:
        if block.columns == 2: multiply_block(numbers, 2, 2, w, block, before)
        else: multiply_block(numbers, 2, 1, w, block, before)
    elif block.columns == 2:
        multiply_block(numbers, 1, 2, w, block, before)
    else:
        multiply_block(numbers, 1, 1, w, block, before)


cdef inline void place_block(const TileWork* w, tile_sums* block, Py_ssize_t row, Py_ssize_t rows, Py_ssize_t column,
                             Py_ssize_t width) noexcept nogil:
    # Say where the results of a block go, of which no row is finished.
    cdef int j
    block.row, block.column, block.next = row, column, 0
    block.rows, block.columns = rows, <int>(width // VL)
    for j in range(block.columns):
        block.place[j] = place_of(column + j * VL, w.out) + row * w.out.stride


cdef inline void place_part(const int numbers, TileWork* w, const Slices* s, Py_ssize_t i) noexcept nogil:
    # Say what block i of rows multiplies in the slice at hand, where its sums come from, where they wait afterwards,
    # and which share of the next columns' weights it prefetches.
    cdef float* outside = NULL      # where its sums lie between two calls, parts of the depth
    w.steps, w.b = s.end - s.first, s.b + s.first * s.width * LINE_BYTES
    w.a = w.operands + i * rows_of_block(numbers) // TILE_ROWS * w.strip + s.first * line_of_tiles(numbers)
    w.lower = w.a + (TILE_BYTES if in_halves(numbers) else w.strip)
    # The next columns' weights follow all lines of these. In each slice, each block prefetches its share of a slice.
    w.ahead = s.b + w.lines * s.width * LINE_BYTES + (s.first * s.blocks + w.steps * i) * w.ahead_step
    if s.resumes or s.pauses:
        outside = w.out.sums + (s.column // SIDE * s.blocks + i) * SIDE * SIDE
    w.sums = s.between[i].sums if s.turn > 0 else outside if s.resumes else NULL
    w.waiting = s.between[i].sums if s.end < s.steps else outside if s.pauses else NULL
    w.sums_ahead = NULL
    # `outside` is followed by the sums of the next block of rows, which loads them in the first slice; behind the last
    # block, by those of the next columns, which come after the last slice.
    if s.resumes and s.turn == (0 if i + 1 < s.blocks else s.count - 1):
        w.sums_ahead = outside + SIDE * SIDE


cdef inline void multiply_tiles(const int numbers, TileWork* w) noexcept nogil:
    # Compute a call of `multiply` in the order of loops that the head of this file states.
    cdef Py_ssize_t height = rows_of_block(numbers), complete = 0, i
    cdef bint first_part = w.out.first_line == 0
    cdef bint last_part = w.out.last_line == 0 or w.out.last_line >= w.lines       # 0: the whole depth
    cdef tile_sums buffers[2]
    cdef tile_sums between[SLICED_BLOCKS]
    cdef tile_sums* block
    cdef tile_sums* before
    cdef Slices s
    s.blocks, s.steps, s.count, s.column = (w.M + height - 1) // height, steps_of(w), 1, w.column
    s.between = between
    s.resumes, s.pauses = not first_part and not begins_anew(numbers), not last_part and not begins_anew(numbers)
    if 1 < s.blocks <= SLICED_BLOCKS:           # a single block uses its weights once
        s.count = (s.steps + SLICE - 1) // SLICE
    buffers[1].rows = buffers[1].next = 0       # nothing is there to finish during the first block
    while s.column < w.last_column:
        s.width = min(w.y.N - s.column, <Py_ssize_t>SIDE)
        s.b = <const char*>w.y.panels + (s.column * w.lines + w.out.first_line * s.width) * LINE_BYTES
        w.ahead_step = (s.width * LINE_BYTES + s.blocks - 1) // s.blocks
        for s.turn in range(s.count):
            s.first, s.end = s.steps * s.turn // s.count, s.steps * (s.turn + 1) // s.count
            for i in range(s.blocks):
                block, before = &buffers[complete & 1], &buffers[1 - (complete & 1)]       # in turns
                place_block(w, block, i * height, min(w.M - i * height, height), s.column, s.width)
                block.first, block.final = first_part, last_part
                place_part(numbers, w, &s, i)
                multiply_any_block(numbers, w, block, before)
                if w.waiting == NULL:       # its sums wait for the epilogue, which runs during the next block
                    complete += 1
        s.column += SIDE
    if complete > 0:
        block = &buffers[1 - (complete & 1)]
        finish_rows(numbers, w, block, block.rows)


include "few_rows.pxi"


cdef void tiles_bfloat16(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                         const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Products of bfloat16 numbers, added in float32.
    cdef TileWork w = tile_work(OF_BFLOAT16, y, a, a_stride, ranges, M, residual, out, panel, last)
    multiply_tiles(OF_BFLOAT16, &w)


cdef void tiles_int8(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                     const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Products of codes; those of few rows by vectors (few_rows.pxi).
    cdef TileWork w = tile_work(OF_INT8, y, a, a_stride, ranges, M, residual, out, panel, last)
    if M <= FEW_CODE_ROWS:
        few_rows(OF_INT8, &w)
    else:
        multiply_tiles(OF_INT8, &w)


cdef void tiles_int16(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                      const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Sums begin anew after each DEEPEST of depth, as those of integers.pxi do: the bits are the same.
    cdef Output part = out[0]
    cdef TileWork w = tile_work(OF_INT16, y, a, a_stride, ranges, M, residual, &part, panel, last)
    while part.last_line < w.lines:
        part.first_line, part.last_line = part.last_line, min(w.lines, part.last_line + DEEPEST // LINE_BYTES)
        if M <= FEW_INTEGER_ROWS:
            few_rows(OF_INT16, &w)
        else:
            multiply_tiles(OF_INT16, &w)
        w.operands += DEEPEST // LINE_BYTES * line_of_tiles(OF_INT16)


cdef void to_tiles(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                   Py_ssize_t operands_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Round M rows of x to bfloat16, in tiles.
    round_rows(TILE_ROWS, x, x_stride, M, K, <operand*>operands, operands_stride, first)


cdef void quantize_to_tiles(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                            Py_ssize_t codes_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Round M rows of x to the codes of int8.pxi, in tiles.
    quantize_rows(TILE_ROWS, x, x_stride, M, K, <unsigned char*>operands, codes_stride, first, ranges)


cdef void integers_to_tiles(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                            Py_ssize_t stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Round M rows of x to the integers of integers.pxi, a byte of each in the upper and in the lower tile.
    cdef Py_ssize_t row, i
    cdef vf inverse, value
    cdef char* to
    for row in range(M):
        to = <char*>operands + start_of_row(first + row, TILE_ROWS, 2 * stride, LINE_BYTES)
        inverse, i = inverse_step(x, K, &ranges[row]), 0
        while i < K:
            value = v_load(x + i) if i + VL <= K else v_loadn(x + i, <int>(K - i))
            t_store_int16(to + i % LINE_BYTES, v_mul(value, inverse))
            i += VL
            if i % LINE_BYTES == 0:
                to += line_of_tiles(OF_INT16)
        x += x_stride


cdef inline void pack_row(const Linear* y, char* panels, Py_ssize_t column, const char* w,
                          Py_ssize_t size) noexcept nogil:
    # Put the weights of a column, a row w of `size` bytes, into the tiles of the head of this file, by four bytes.
    cdef Py_ssize_t steps = (size + LINE_BYTES - 1) // LINE_BYTES, first = column // SIDE * SIDE, i
    cdef Py_ssize_t step = min(y.N - first, <Py_ssize_t>SIDE) * LINE_BYTES      # bytes of all tiles of a step of depth
    cdef char* start = panels + first * steps * LINE_BYTES
    start += column % SIDE // TILE_ROWS * TILE_BYTES + column % TILE_ROWS * 4
    for i in range((size + 3) // 4):
        memcpy(start + i // TILE_ROWS * step + i % TILE_ROWS * LINE_BYTES, w + 4 * i, min(size - 4 * i, <Py_ssize_t>4))


cdef void pack_tiles_bfloat16(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* w,
                              Py_ssize_t n) noexcept nogil:
    # w: [n,K] bfloat16; sums are not there.
    cdef Py_ssize_t i
    for i in range(n):
        pack_row(y, <char*>panels, column + i, <const char*>w + i * y.K * 2, y.K * 2)


cdef void pack_tiles_int8(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* w,
                          Py_ssize_t n) noexcept nogil:
    # w: [n,K] int8. The codes of rows begin at `low`, so results need the sum of each column.
    cdef Py_ssize_t i
    for i in range(n):
        pack_row(y, <char*>panels, column + i, <const char*>w + i * y.K, y.K)
        sums[column + i] = sum_of_row(<const signed char*>w + i * y.K, y.K)


cdef inline double tile_rounds(const int numbers, Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds of independent products in registers and return their operations, to measure the peak (roofline.pxi).
    cdef tile_sums block
    cdef Py_ssize_t k
    t_begin()
    t_clear_all()
    for k in range(n):
        t_round(numbers)
    t_store_sums(2, 2, block.sums, SIDE * sizeof(float))
    t_end()
    sink[0] = block.sums[0]
    return 2.0 * rows_of_block(numbers) * SIDE * (LINE_BYTES // bytes_of_number(numbers)) * n


cdef double tile_rounds_bfloat16(Py_ssize_t n, float* sink) noexcept nogil:
    # 32 rows by 32 columns by 32 steps of depth a round.
    return tile_rounds(OF_BFLOAT16, n, sink)


cdef double tile_rounds_int8(Py_ssize_t n, float* sink) noexcept nogil:
    # 64 steps of depth a round.
    return tile_rounds(OF_INT8, n, sink)


cdef double tile_rounds_int16(Py_ssize_t n, float* sink) noexcept nogil:
    # Half as many rows as in int8, because each takes two tiles.
    return tile_rounds(OF_INT16, n, sink)
