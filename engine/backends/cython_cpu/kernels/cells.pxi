# Read the cells of a cache, whose forms CachedAttention in table.pxd lists. All numbers are widened to float32.

cdef inline vf keys_at(const int storage, const char* cell, Py_ssize_t k, int first) noexcept nogil:
    # Return number k of VL keys of a cell, from key `first` on.
    if storage == <int>FLOAT32:
        return v_load(<const float*>cell + k * CELL + first)
    if storage == <int>BFLOAT16:
        return v_load_half(<const unsigned short*>cell + k // 2 * (2 * CELL) + 2 * first, <int>(k % 2))
    return v_load_int8(<const signed char*>cell + k * CELL + first, VL)


cdef inline vf values_at(const int storage, const char* cell, Py_ssize_t i) noexcept nogil:
    # Return VL numbers of the values of a cell, from number i on.
    if storage == <int>FLOAT32:
        return v_load(<const float*>cell + i)
    if storage == <int>BFLOAT16:
        return v_load_bfloat16(<const unsigned short*>cell + i, VL)
    return v_load_int8(<const signed char*>cell + i, VL)


cdef inline const char* keys_of(const CachedAttention* call, Py_ssize_t cell) noexcept nogil:
    # Return the address of the keys of a cell, by its number from the first token on.
    return <const char*>call.cells[cell] + call.keys


cdef inline const char* values_of(const CachedAttention* call, Py_ssize_t cell) noexcept nogil:
    # Return the address of the values of a cell.
    return <const char*>call.cells[cell] + call.values


cdef inline const float* scales_of(const char* cell, Py_ssize_t width) noexcept nogil:
    # Return the scales of the rows of an INT8 cell, which follow CELL * width numbers.
    return <const float*>(cell + CELL * width)


cdef inline Py_ssize_t bytes_of(const int storage) noexcept nogil:
    # Return the bytes of a number of a cell.
    return 4 if storage == <int>FLOAT32 else 2 if storage == <int>BFLOAT16 else 1


cdef inline void unpack_keys(const int storage, const CachedAttention* call, Py_ssize_t range_cell, Py_ssize_t first,
                             Py_ssize_t last, float* panels, float* scales) noexcept nogil:
    # Write the keys of cells [first, last), counted from range_cell, to panels [RANGE / NR][d][NR]; scales [RANGE].
    cdef Py_ssize_t c, k, column
    cdef const char* cell
    cdef float* to
    cdef int j
    for c in range(first, last):
        cell = keys_of(call, range_cell + c)
        for j in range(CELL_VECTORS):
            column = c * CELL + j * VL
            to = panels + column // NR * NR * call.d + column % NR
            for k in range(call.d):
                v_store(to + k * NR, keys_at(storage, cell, k, j * VL))
        if storage == <int>INT8:
            memcpy(scales + c * CELL, scales_of(cell, call.d), CELL * sizeof(float))


cdef inline void unpack_values(const int storage, const CachedAttention* call, Py_ssize_t range_cell, Py_ssize_t first,
                               Py_ssize_t last, float* panels, float* scales) noexcept nogil:
    # Write the values of cells [first, last), counted from range_cell, to panels [E / NR][RANGE][NR], of which the last
    # has the columns that remain; scales [RANGE].
    cdef Py_ssize_t E = padded(call.e), c, i, column, width
    cdef const char* cell
    cdef float* to
    cdef int j
    for c in range(first, last):
        cell = values_of(call, range_cell + c)
        column = 0
        while column < E:
            width = min(E - column, <Py_ssize_t>NR)
            to = panels + column * RANGE + c * CELL * width
            for i in range(CELL):
                for j in range(<int>(width // VL)):
                    v_store(to + i * width + j * VL, values_at(storage, cell, i * E + column + j * VL))
            column += NR
        if storage == <int>INT8:
            memcpy(scales + c * CELL, scales_of(cell, E), CELL * sizeof(float))
