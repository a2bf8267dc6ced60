# Where rows of operands lie: `strip` rows at a time, line by line, [rows/strip][K/line][strip][line], a line being 64
# bytes. With a strip of one row, rows lie one after another; with 16, each line of them is a tile of 1 KB (tiles.pxi).

cdef inline Py_ssize_t start_of_row(Py_ssize_t row, const Py_ssize_t strip, Py_ssize_t stride,
                                    const Py_ssize_t line) noexcept nogil:
    # Return the place of a row's first number; stride: numbers from one row to the next when strip is 1.
    return row // strip * strip * stride + row % strip * line


cdef inline Py_ssize_t place_in_row(Py_ssize_t i, const Py_ssize_t strip, const Py_ssize_t line) noexcept nogil:
    # Return the place of number i of a row, counted from its first number.
    return i // line * line * strip + i % line
