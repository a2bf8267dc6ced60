# Products of few rows of int8 by vectors, over the operands and the panels of tiles (tiles.pxi). Such a product is the
# reading of its weights, and loads of vectors keep more reads in flight than loads of tiles. A row of a tile of weights is a
# vector of 16 columns with four steps of depth each. Sums are exact, so their order changes no bit.

cdef enum:
    FEW_ROWS = 2            # the most rows that go through vectors
    FETCHED_LINES = 4       # lines of depth that are prefetched ahead


cdef inline void sum_few_rows(const int rows, const int columns, Py_ssize_t lines, const char* a, const char* b,
                              tile_sums* block) noexcept nogil:
    # block.sums = the sums of rows of codes and 16 columns or 32, over lines of 64 steps of depth.
    cdef vx acc[2 * FEW_ROWS]
    cdef vx w[2]
    cdef vx x
    cdef Py_ssize_t k
    cdef int g, i, j
    for i in range(rows * columns):
        acc[i] = x_set1(0)
    for k in range(lines):
        fetch_lines(b + FETCHED_LINES * columns * TILE_BYTES, columns * TILE_BYTES)
        for g in range(TILE_ROWS):
            for j in range(columns):
                w[j] = x_load(b + j * TILE_BYTES + g * LINE_BYTES)
            for i in range(rows):
                x = x_set1(load_32(a + i * LINE_BYTES + 4 * g))
                for j in range(columns):
                    acc[i * columns + j] = n_dot(acc[i * columns + j], x, w[j])
        a += TILE_BYTES
        b += columns * TILE_BYTES
    for i in range(rows):
        for j in range(columns):
            x_store(<int*>block.sums + i * SIDE + j * VL, acc[i * columns + j])


cdef inline void sum_any_few_rows(int rows, const int columns, Py_ssize_t lines, const char* a, const char* b,
                                  tile_sums* block) noexcept nogil:
    # Map the number of rows to a function that is compiled for it.
    if rows == 2:
        sum_few_rows(2, columns, lines, a, b, block)
    else:
        sum_few_rows(1, columns, lines, a, b, block)


cdef void few_rows_int8(const Linear* y, const char* a, const RowRange* ranges, int M, const float* residual,
                        const Output* out, Py_ssize_t panel, Py_ssize_t last_panel) noexcept nogil:
    cdef Py_ssize_t last = min(y.N, last_panel * NR), lines = (y.K + LINE_BYTES - 1) // LINE_BYTES
    cdef Py_ssize_t column = panel * NR, width
    cdef const char* b
    cdef tile_sums block
    cdef TileWork w
    w.y, w.ranges, w.residual, w.out = y, ranges, residual, out
    while column < last:
        width = min(y.N - column, <Py_ssize_t>SIDE)
        b = <const char*>y.panels + column * lines * LINE_BYTES
        place_block(&w, &block, 0, M, column, width)
        if width == SIDE:
            sum_any_few_rows(M, 2, lines, a, b, &block)
        else:
            sum_any_few_rows(M, 1, lines, a, b, &block)
        finish_rows(OF_INT8, &w, &block, M)
        column += SIDE
