# The GEMM on tiles (tiles.h), in bfloat16 and in int8: y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]).
#
# Operands and weights lie in whole tiles of 1 KB, in the order in which the loop reads them:
#   operands     [rows/16][K/line][16][line], a line being 64 bytes: 32 bfloat16 numbers or 64 codes
#   weights      [N/32][K/line][2][16][16][4 bytes], the tiles of 16 columns beside each other, each as tiles.h says;
#                if N is an odd number of vectors, the last 16 columns have tiles [K/line][16][16][4 bytes]
# K is padded to whole lines with zeros. Rows beyond M may hold anything: no row of a tile sees another row, and their
# sums are not stored.
#
# A block of sums has up to 32 rows and 32 columns. The loop over its depth has one load of a tile for each product, and
# the vector units are free in the meantime: they finish the block before, whose sums wait in memory. Sums are not cut,
# so that the bits of a result depend on its row alone.

cdef extern from "tiles.h" nogil:
    enum:
        TILE_ROWS
        TILE_BYTES
        SIDE
    ctypedef struct tile_sums:
        float* sums
        Py_ssize_t row
        Py_ssize_t column
        Py_ssize_t rows
        Py_ssize_t next
        Py_ssize_t* place
        int columns
    void t_begin()
    void t_end()
    void t_clear(const int rows, const int columns)
    void t_clear_all()
    void t_load_sums(const int rows, const int columns, const float* sums, Py_ssize_t stride)
    void t_step(const int codes, const int rows, const int columns, const char* a, const char* lower, const char* b,
                Py_ssize_t next, Py_ssize_t stride)
    void t_round(const int codes)
    void t_store_sums(const int rows, const int columns, float* sums, Py_ssize_t stride)
    vf t_integers(const float* sums)

cdef enum:
    LINE_BYTES = 64         # bytes of depth of a tile

cdef struct TileWork:
    # One call of `multiply`, and where its loop over the depth of a block begins.
    const Linear* y
    const RowRange* ranges
    const float* residual
    const Output* out
    Py_ssize_t steps        # lines of depth
    const char* a           # the upper tiles of operands
    const char* lower       # the lower ones
    const char* b
    const char* ahead       # the part of the next columns' weights that this block prefetches
    Py_ssize_t ahead_step   # bytes of it in each step


cdef inline void finish_rows(const bint codes, const TileWork* w, tile_sums* block, Py_ssize_t last) noexcept nogil:
    # Apply the epilogue to rows of a block, from the next one to the one before `last`.
    cdef Py_ssize_t first = block.next, i, at
    cdef const float* sums
    cdef Py_ssize_t column
    cdef int j
    cdef vf x
    for i in range(first, last):
        for j in range(block.columns):
            sums, column = block.sums + i * SIDE + j * VL, block.column + j * VL
            at = block.place[j] + i * w.out.stride
            if codes:
                x = result_of(t_integers(sums), &w.ranges[block.row + i], v_load(w.y.sums + column),
                              v_load(w.y.scale + column), v_load(w.y.bias + column))
            else:
                x = v_add(v_load(sums), v_load(w.y.bias + column))
            if w.residual != NULL:
                x = v_add(x, v_load(w.residual + at))
            v_store(w.out.data + at, x)
    if w.y.activation != IDENTITY and first < last:
        activate(w.y.activation, w.out.data + block.place[0] + first * w.out.stride, w.out.stride, last - first,
                 block.columns * VL)
    block.next = last


cdef inline void work_between(const bint codes, const TileWork* w, const tile_sums* block, tile_sums* before,
                              Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Prefetch the lines of the result for rows [first, last) of a block, and finish these rows of the block before.
    cdef Py_ssize_t row
    cdef int j
    for row in range(first, min(last, block.rows)):
        for j in range(block.columns):
            fetch_near(<const char*>(w.out.data + block.place[j] + row * w.out.stride))
    finish_rows(codes, w, before, min(last, before.rows))


# These are called from the loop, and not inlined there, so that it keeps its own addresses in registers.

cdef void work_between_bfloat16(const TileWork* w, const tile_sums* block, tile_sums* before, Py_ssize_t first,
                                Py_ssize_t last) noexcept nogil:
    work_between(False, w, block, before, first, last)


cdef void work_between_int8(const TileWork* w, const tile_sums* block, tile_sums* before, Py_ssize_t first,
                            Py_ssize_t last) noexcept nogil:
    work_between(True, w, block, before, first, last)


cdef inline void multiply_block(const bint codes, const int rows, const int columns, const TileWork* w,
                                tile_sums* block, tile_sums* before) noexcept nogil:
    # Compute the sums of a block of 1 or 2 tiles of rows and of columns, and finish the block before, its rows spread
    # over the steps. The tiles keep their contents in the calls, because no function that is called uses them.
    cdef Py_ssize_t steps = w.steps, ahead_step = w.ahead_step, row = 0, last, due = 0, k
    cdef const char* a = w.a
    cdef const char* lower = w.lower
    cdef const char* b = w.b
    cdef const char* ahead = w.ahead
    t_clear(rows, columns)
    for k in range(steps):
        fetch_lines(ahead, ahead_step)
        ahead += ahead_step
        t_step(codes, rows, columns, a, lower, b, TILE_BYTES, LINE_BYTES)
        a += TILE_BYTES
        lower += TILE_BYTES
        b += columns * TILE_BYTES
        last = row
        due += SIDE
        while due >= steps:
            due -= steps
            last += 1
        if row < last:
            if codes:
                work_between_int8(w, block, before, row, last)
            else:
                work_between_bfloat16(w, block, before, row, last)
            row = last
    t_store_sums(rows, columns, block.sums, SIDE * sizeof(float))


cdef inline void multiply_any_block(const bint codes, const int columns, const TileWork* w, tile_sums* block,
                                    tile_sums* before) noexcept nogil:
    if block.rows > TILE_ROWS:
        multiply_block(codes, 2, columns, w, block, before)
    else:
        multiply_block(codes, 1, columns, w, block, before)


cdef inline void multiply_tiles(const bint codes, const Linear* y, const char* a, Py_ssize_t strip,
                                const RowRange* ranges, Py_ssize_t M, const float* residual, const Output* out,
                                Py_ssize_t panel, Py_ssize_t last_panel) noexcept nogil:
    # strip: bytes from 16 rows of operands to the next 16. The loops, from the outermost: columns, whose weights stay
    # in cache; rows.
    cdef Py_ssize_t last = min(y.N, last_panel * NR), blocks = (M + SIDE - 1) // SIDE, number = 0
    cdef Py_ssize_t column, row, size, i, c
    cdef tile_sums buffers[2]
    cdef tile_sums* block
    cdef TileWork w
    cdef int j
    w.y, w.ranges, w.residual, w.out = y, ranges, residual, out
    w.steps = (y.K * (1 if codes else 2) + LINE_BYTES - 1) // LINE_BYTES
    buffers[1].rows = buffers[1].next = 0       # nothing is there to finish during the first block
    column = panel * NR
    while column < last:
        w.b = <const char*>y.panels + column * w.steps * LINE_BYTES
        size = min(y.N - column, <Py_ssize_t>SIDE) * w.steps * LINE_BYTES
        w.ahead_step = (size // w.steps + blocks - 1) // blocks
        for i in range(blocks):
            row = i * SIDE
            block = &buffers[number & 1]
            block.row, block.column, block.next = row, column, 0
            block.rows, block.columns = min(M - row, <Py_ssize_t>SIDE), <int>(min(y.N - column, <Py_ssize_t>SIDE) // VL)
            for j in range(block.columns):
                c = column + j * VL
                block.place[j] = c // out.width * out.block + c % out.width + row * out.stride
            w.a = a + row // TILE_ROWS * strip
            w.lower = w.a + strip
            w.ahead = w.b + size + size // blocks * i
            if block.columns == 2:
                multiply_any_block(codes, 2, &w, block, &buffers[1 - (number & 1)])
            else:
                multiply_any_block(codes, 1, &w, block, &buffers[1 - (number & 1)])
            number += 1
        column += SIDE
    if number > 0:
        block = &buffers[1 - (number & 1)]
        finish_rows(codes, &w, block, block.rows)


cdef void tiles_bfloat16(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                         const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    multiply_tiles(False, y, <const char*>a, a_stride * TILE_ROWS * 2, ranges, M, residual, out, panel, last)


cdef void tiles_int8(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                     const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    multiply_tiles(True, y, <const char*>a, a_stride * TILE_ROWS, ranges, M, residual, out, panel, last)


cdef void to_tiles(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                   Py_ssize_t operands_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    round_rows(TILE_ROWS, x, x_stride, M, K, <operand*>operands, operands_stride, first)


cdef void quantize_to_tiles(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                            Py_ssize_t codes_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    quantize_rows(TILE_ROWS, x, x_stride, M, K, <unsigned char*>operands, codes_stride, first, ranges)


cdef inline void pack_row(const Linear* y, char* panels, Py_ssize_t column, const char* w,
                          Py_ssize_t size) noexcept nogil:
    # Put one row of w, the weights of a column, `size` bytes, into its places, four bytes after four bytes.
    cdef Py_ssize_t steps = (size + LINE_BYTES - 1) // LINE_BYTES, first = column // SIDE * SIDE, i
    cdef Py_ssize_t step = min(y.N - first, <Py_ssize_t>SIDE) * LINE_BYTES      # bytes of all tiles of a step of depth
    cdef char* start = panels + first * steps * LINE_BYTES
    start += column % SIDE // TILE_ROWS * TILE_BYTES + column % TILE_ROWS * 4
    for i in range((size + 3) // 4):
        memcpy(start + i // TILE_ROWS * step + i % TILE_ROWS * LINE_BYTES, w + 4 * i, min(size - 4 * i, <Py_ssize_t>4))


cdef void pack_tiles_bfloat16(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* w,
                              Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        pack_row(y, <char*>panels, column + i, <const char*>w + i * y.K * 2, y.K * 2)


cdef void pack_tiles_int8(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* w,
                          Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        pack_row(y, <char*>panels, column + i, <const char*>w + i * y.K, y.K)
        sums[column + i] = sum_of_row(<const signed char*>w + i * y.K, y.K)


cdef inline double tile_rounds(const bint codes, Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds of independent products in registers, and return their operations.
    cdef tile_sums block
    cdef Py_ssize_t k
    t_begin()
    t_clear_all()
    for k in range(n):
        t_round(codes)
    t_store_sums(2, 2, block.sums, SIDE * sizeof(float))
    t_end()
    sink[0] = block.sums[0]
    return 2.0 * SIDE * SIDE * (LINE_BYTES if codes else LINE_BYTES // 2) * n


cdef double tile_rounds_bfloat16(Py_ssize_t n, float* sink) noexcept nogil:
    return tile_rounds(False, n, sink)


cdef double tile_rounds_int8(Py_ssize_t n, float* sink) noexcept nogil:
    return tile_rounds(True, n, sink)
