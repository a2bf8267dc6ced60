# The cells of a cache, in which a decoder keeps keys and values: their sizes, and how tokens are written into them.
# CachedAttention in table.pxd describes their forms.
#
# A cell holds CELL = 16 tokens, for all layers and key heads: a part with keys and a part with values for each head of
# each layer. Each part has room for `run` bytes. The part of a head begins ((layer * heads + head) * 2 + values) * run
# bytes after the address of the cell, where values is 0 for its keys and 1 for its values.

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t engine_bfloat16(float x) {    /* rounds half to even; NaN stays NaN */
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return (uint16_t)(x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40);
    }
    static inline float engine_scale(const float *x, ptrdiff_t n) {  /* the largest magnitude over 127; NaN counts */
        float most = 0;
        for (ptrdiff_t i = 0; i < n; i++) most = fabsf(x[i]) > most || x[i] != x[i] ? fabsf(x[i]) : most;
        return most / 127;
    }
    static inline int8_t engine_int8(float x, float inverse) {
        float y = rintf(x * inverse);       /* NaN, of a row with NaN or infinity, becomes 0: its scale says so */
        return y == y ? (int8_t)(y < -127 ? -127 : y > 127 ? 127 : y) : 0;
    }
    """
    unsigned short engine_bfloat16(float x) nogil       # half to even; NaN stays NaN
    float engine_scale(const float* x, Py_ssize_t n) nogil      # NaN where a number is NaN
    signed char engine_int8(float x, float inverse) nogil       # 0 for NaN, because the scale says it


def cell_bytes(int storage, Py_ssize_t width):
    """Return how many bytes the keys, or the values, of a cell of one head take.

    storage: FLOAT32, INT8 or another of `enum Storage`. width: the columns of a head, a multiple of VL.
    """
    return bytes_of_cell(storage, width)


cdef inline Py_ssize_t bytes_of_cell(int storage, Py_ssize_t width) noexcept nogil:
    # A cell has CELL = 16 tokens. INT8 has a float32 scale for each of them behind its numbers.
    if storage == <int>INT8:
        return CELL * width + CELL * sizeof(float)
    return CELL * width * (4 if storage == <int>FLOAT32 else 2)


cdef void write_token(int storage, Py_ssize_t d, Py_ssize_t width, char* keys, char* values, Py_ssize_t place,
                      const float* key, const float* value) noexcept nogil:
    # Write the key [d] and the value [width] of a token to its place in a cell. The keys of all tokens lie number by
    # number, [d][CELL] (bfloat16: in pairs of numbers), and the values token by token, [CELL][width].
    cdef Py_ssize_t i
    cdef float scale, inverse
    cdef float* floats = <float*>keys + place
    cdef unsigned short* bfloats = <unsigned short*>keys + 2 * place
    cdef signed char* codes = <signed char*>keys + place
    if storage == <int>FLOAT32:
        for i in range(d):
            floats[i * CELL] = key[i]
        memcpy(values + place * width * sizeof(float), value, width * sizeof(float))
    elif storage == <int>BFLOAT16:
        for i in range(d):
            bfloats[i // 2 * 2 * CELL + i % 2] = engine_bfloat16(key[i])
        bfloats = <unsigned short*>values + place * width
        for i in range(width):
            bfloats[i] = engine_bfloat16(value[i])
    else:
        scale = engine_scale(key, d)
        inverse = 1 / scale if scale != 0 else 0
        for i in range(d):
            codes[i * CELL] = engine_int8(key[i], inverse)
        (<float*>(keys + CELL * d))[place] = scale
        codes, scale = <signed char*>values + place * width, engine_scale(value, width)
        inverse = 1 / scale if scale != 0 else 0
        for i in range(width):
            codes[i] = engine_int8(value[i], inverse)
        (<float*>(values + CELL * width))[place] = scale


cdef void copy_tokens(int storage, Py_ssize_t d, Py_ssize_t width, const char* source, char* keys, Py_ssize_t values,
                      Py_ssize_t count) noexcept nogil:
    # Copy the first `count` tokens of a cell. Other threads may write others into both cells. values: bytes from the
    # keys of a cell to its values. key_bytes: of a number of a key, in bfloat16 of a pair; value_bytes: of a value's.
    cdef Py_ssize_t lines = (d + 1) // 2 if storage == <int>BFLOAT16 else d, i
    cdef Py_ssize_t key_bytes = 1 if storage == <int>INT8 else 4
    cdef Py_ssize_t value_bytes = 2 if storage == <int>BFLOAT16 else key_bytes
    for i in range(lines):
        memcpy(keys + i * CELL * key_bytes, source + i * CELL * key_bytes, count * key_bytes)
    memcpy(keys + values, source + values, count * width * value_bytes)
    if storage == <int>INT8:
        memcpy(keys + CELL * d, source + CELL * d, count * sizeof(float))
        memcpy(keys + values + CELL * width, source + values + CELL * width, count * sizeof(float))


def write_cells(int storage, const float[:, :, :, ::1] rows, Py_ssize_t d, const size_t[::1] cells, Py_ssize_t run):
    """Write keys and values [2 * layers, heads, S, width] of a source to its cells [S / 16]; d: the width of a key."""
    # rows: the keys of layer l are rows[2 * l], its values rows[2 * l + 1]; a key fills the first d of `width` numbers.
    # cells: addresses, one for CELL = 16 tokens. storage: the form of the numbers in a cell, an enum Storage.
    cdef Py_ssize_t heads = rows.shape[1], S = rows.shape[2], width = rows.shape[3], layer, h, s
    cdef char* cell
    with nogil:
        for layer in range(rows.shape[0] // 2):
            for h in range(heads):
                for s in range(S):
                    cell = <char*>cells[s // CELL] + (layer * heads + h) * 2 * run
                    write_token(storage, d, width, cell, cell + run, s % CELL, &rows[2 * layer, h, s, 0],
                                &rows[2 * layer + 1, h, s, 0])


def read_keys(int storage, const size_t[::1] cells, Py_ssize_t run, Py_ssize_t head, float[:, :] rows):
    """Read the keys [S,d] of a head, counted through all layers, from cells."""
    cdef Py_ssize_t s, i, place, d = rows.shape[1]
    cdef const char* cell
    cdef unsigned int bits
    with nogil:
        for s in range(rows.shape[0]):
            cell, place = <const char*>cells[s // CELL] + head * 2 * run, s % CELL
            for i in range(d):
                if storage == <int>FLOAT32:
                    rows[s, i] = (<const float*>cell)[i * CELL + place]
                elif storage == <int>BFLOAT16:
                    bits = <unsigned int>(<const unsigned short*>cell)[i // 2 * 2 * CELL + 2 * place + i % 2] << 16
                    memcpy(&rows[s, i], &bits, sizeof(bits))
                else:
                    rows[s, i] = (<const signed char*>cell)[i * CELL + place] * (<const float*>(cell + CELL * d))[place]
