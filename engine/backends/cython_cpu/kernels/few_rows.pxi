# Products of few rows by vectors, over the operands and the panels of tiles (tiles.pxi). Such a product is the reading
# of its weights, and loads of vectors keep more reads in flight than loads of tiles. A row of a tile of weights is a
# vector of 16 columns with four steps of depth each. Sums are exact, so their order changes no bit.

cdef enum:
    FEW_CODE_ROWS = 2       # the most rows of int8 that go through vectors
    FEW_INTEGER_ROWS = 4    # and of 16-bit integers
    FETCHED_LINES = 8       # lines of depth that are prefetched ahead
    ADDED = -0x7f7f7f80     # 128 in each byte


cdef struct FewRows:
    const char* a           # the operands; 16-bit integers as `gather_bytes` has written them
    const char* b           # the weights
    Py_ssize_t lines        # of depth


cdef inline void gather_bytes(const char* a, Py_ssize_t rows, Py_ssize_t lines, char* to) noexcept nogil:
    # Write the bytes of 16-bit integers side by side, to [lines][rows][2][64], the upper ones first. Vectors multiply
    # bytes from 0 to 255 by weights. So 128 is added to the upper bytes, which are signed, and 128 times the sum of the
    # weights is subtracted from their sums.
    cdef Py_ssize_t k, i, at
    cdef const char* line
    cdef int word
    for k in range(lines):
        for i in range(rows):
            line, at = a + k * line_of_tiles(OF_INT16) + i * LINE_BYTES, 0
            while at < LINE_BYTES:
                word = load_32(line + at) ^ ADDED
                memcpy(to + at, &word, sizeof(word))
                at += sizeof(word)
            memcpy(to + LINE_BYTES, line + TILE_BYTES, LINE_BYTES)
            to += 2 * LINE_BYTES


cdef inline void sum_few_rows(const int numbers, const int rows, const int columns, const FewRows* f,
                              tile_sums* block) noexcept nogil:
    # block.sums = the sums of `rows` rows and `columns` vectors of 16 columns, over f.lines lines of 64 steps of depth,
    # four steps (g) at a time. in_halves: these are 16-bit integers, and the sums of lower bytes go to the lower tile.
    cdef vx acc[2 * FEW_INTEGER_ROWS]       # [rows][columns]; of 16-bit integers, of the lower bytes
    cdef vx upper[2 * FEW_INTEGER_ROWS]
    cdef vx added[2]
    cdef vx w[2]
    cdef vx x
    cdef const char* a = f.a
    cdef const char* b = f.b
    cdef Py_ssize_t k
    cdef int* sums
    cdef int g, i, j
    for i in range(rows * columns):
        acc[i] = upper[i] = x_set1(0)
    for j in range(columns):
        added[j] = x_set1(0)
    for k in range(f.lines):
        for g in range(TILE_ROWS):
            # A line for each vector: a burst of prefetches would fill the buffers that the loads of these weights need.
            fetch_lines(b + (FETCHED_LINES * TILE_ROWS + g) * columns * LINE_BYTES, columns * LINE_BYTES)
            for j in range(columns):
                w[j] = x_load(b + j * TILE_BYTES + g * LINE_BYTES)
                if in_halves(numbers):
                    added[j] = n_dot(added[j], x_set1(ADDED), w[j])
            for i in range(rows):
                if in_halves(numbers):
                    x = x_set1(load_32(a + 2 * i * LINE_BYTES + 4 * g))
                    for j in range(columns):
                        upper[i * columns + j] = n_dot(upper[i * columns + j], x, w[j])
                    x = x_set1(load_32(a + (2 * i + 1) * LINE_BYTES + 4 * g))
                else:
                    x = x_set1(load_32(a + i * LINE_BYTES + 4 * g))
                for j in range(columns):
                    acc[i * columns + j] = n_dot(acc[i * columns + j], x, w[j])
        a += 2 * rows * LINE_BYTES if in_halves(numbers) else TILE_BYTES        # gathered bytes, or tiles
        b += columns * TILE_BYTES
    for i in range(rows):
        for j in range(columns):
            sums = <int*>block.sums + i * SIDE + j * VL
            x_store(sums + (TILE_ROWS * SIDE if in_halves(numbers) else 0), acc[i * columns + j])
            if in_halves(numbers):
                x_store(sums, t_minus(upper[i * columns + j], added[j]))


cdef inline void sum_any_few_rows(const int numbers, int rows, const int columns, const FewRows* f,
                                  tile_sums* block) noexcept nogil:
    # Map the number of rows to a function that is compiled for it.
    if in_halves(numbers) and rows == 4: sum_few_rows(numbers, 4, columns, f, block)
    elif in_halves(numbers) and rows == 3: sum_few_rows(numbers, 3, columns, f, block)
    elif rows == 2: sum_few_rows(numbers, 2, columns, f, block)
    else: sum_few_rows(numbers, 1, columns, f, block)


cdef inline void few_rows(const int numbers, TileWork* w) noexcept nogil:
    # Compute a call of `multiply` for rows that are few enough, 32 columns after the other.
    cdef Py_ssize_t column = w.column, width
    cdef char gathered[2 * FEW_INTEGER_ROWS * DEEPEST]
    cdef tile_sums block
    cdef FewRows f
    f.a, f.lines = w.operands, steps_of(w)
    if in_halves(numbers):
        gather_bytes(f.a, w.M, f.lines, gathered)
        f.a = gathered
    while column < w.last_column:
        width = min(w.y.N - column, <Py_ssize_t>SIDE)
        f.b = <const char*>w.y.panels + (column * w.lines + w.out.first_line * width) * LINE_BYTES
        place_block(w, &block, 0, w.M, column, width)
        block.first, block.final = w.out.first_line == 0, w.out.first_line + f.lines == w.lines
        if width == SIDE: sum_any_few_rows(numbers, <int>w.M, 2, &f, &block)
        else: sum_any_few_rows(numbers, <int>w.M, 1, &f, &block)
        finish_rows(numbers, w, &block, w.M)
        column += SIDE
