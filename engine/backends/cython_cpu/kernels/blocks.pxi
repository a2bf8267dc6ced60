# Compute the same GEMM as integers.pxi does, with weights in the blocks of GGUF files (engine/weights/blocks.py): 32 successive
# weights of a column have a scale of their own, and in Q4_1 a minimum,
#   w[j,k] = scale[j,b] * code[j,k] + minimum[j,b],   b = k // 32,   so
#   y[i,j] = step_i * sum_b (scale[j,b] * sum_k code a[i,k] + minimum[j,b] * (sum of the block's a[i,k])) + bias[j].
# The codes of Q4_0 count from 8; its sums begin with -8 times the sum of the a. The sum of a block is an integer below
# 128 * 2047 * 32 < 2^24, which a float holds exactly, so its order does not matter. Sums of blocks are added in float32 in
# the order of b, for one row as for many.
#
# A panel is a run of blocks for nv*VL columns: the codes, then the scales in float16, then the minima. Codes of 8 bits are
# [16][nv*VL][2]; those of 4 bits are words as integers.pxi has them.

cdef enum Codes:
    OF_8_BITS
    OF_4_BITS

cdef enum:
    GROUPED = 32        # depth of a block
    FETCHED = 2048      # bytes of a panel that are prefetched ahead
    BLOCK_ROWS = 4      # rows of a tile whose codes have 4 bits


cdef inline Py_ssize_t block_bytes(int storage) noexcept nogil:
    # The bytes of a block of one column.
    return 34 if storage == <int>Q8_0 else 18 if storage == <int>Q4_0 else 20


cdef inline void block_tile(const int kind, const int mr, const int nv, int storage, Py_ssize_t blocks, const short* codes,
                            Py_ssize_t stride, const short* sums, const char* b, float* results) noexcept nogil:
    # results[mr][NR] = the products of mr rows. sums: two for each block of a row, see to_integers.
    cdef vx s[MR * NV]
    cdef vx word[NV]
    cdef vx w[NV]
    cdef vx x
    cdef vf scale
    cdef const char* scales
    cdef Py_ssize_t step = block_bytes(storage) * nv * VL, k
    cdef int i, j, h, n, zero = 8 if storage == <int>Q4_0 else 0
    for i in range(mr):
        for j in range(nv):
            v_store(results + i * NR + j * VL, v_set1(0.0))
    for k in range(blocks):
        fetch_lines(b + FETCHED, step)
        for i in range(mr):
            x = x_set1(-zero * (sums[i * stride] + sums[i * stride + 1]))
            for j in range(nv):
                s[i * NV + j] = x
        for h in range(4):
            if kind == OF_4_BITS:
                for j in range(nv):
                    word[j] = x_load(b + (h * nv + j) * 4 * VL)
            for n in range(4):
                for j in range(nv):
                    if kind == OF_8_BITS:
                        w[j] = x_load_int8(<const signed char*>b + ((4 * h + n) * nv + j) * 2 * VL)
                    else:
                        w[j] = x_nibble(word[j], n)
                for i in range(mr):
                    x = x_set1(load_32(codes + i * stride + 8 * h + 2 * n))
                    for j in range(nv):
                        s[i * NV + j] = x_dot(s[i * NV + j], x, w[j])
        scales = b + (32 if kind == OF_8_BITS else 16) * nv * VL
        for j in range(nv):
            scale = v_load_float16(<const unsigned short*>scales + j * VL)
            for i in range(mr):
                add_to(results + i * NR + j * VL, x_float(s[i * NV + j]), scale)
            if storage == <int>Q4_1:
                scale = v_load_float16(<const unsigned short*>scales + (nv + j) * VL)
                for i in range(mr):
                    add_to(results + i * NR + j * VL, v_set1(<float>(sums[i * stride] + sums[i * stride + 1])), scale)
        codes += GROUPED
        sums += 2
        b += step


cdef inline void add_to(float* result, vf x, vf y) noexcept nogil:
    v_store(result, v_fma(x, y, v_load(result)))


# The functions below map sizes known at run time to functions compiled for those sizes.

cdef inline void block_rows_of(const int kind, int mr, const int nv, int storage, Py_ssize_t blocks, const short* codes,
                               Py_ssize_t stride, const short* sums, const char* b, float* results) noexcept nogil:
    if kind == OF_8_BITS and mr == 6:
        block_tile(kind, 6, nv, storage, blocks, codes, stride, sums, b, results)
    elif kind == OF_8_BITS and mr == 5:
        block_tile(kind, 5, nv, storage, blocks, codes, stride, sums, b, results)
    elif mr == 4:
        block_tile(kind, 4, nv, storage, blocks, codes, stride, sums, b, results)
    elif mr == 3:
        block_tile(kind, 3, nv, storage, blocks, codes, stride, sums, b, results)
    elif mr == 2:
        block_tile(kind, 2, nv, storage, blocks, codes, stride, sums, b, results)
    else:
        block_tile(kind, 1, nv, storage, blocks, codes, stride, sums, b, results)


cdef inline void block_panel_of(const int kind, int mr, int nv, int storage, Py_ssize_t blocks, const short* codes,
                                Py_ssize_t stride, const short* sums, const char* b, float* results) noexcept nogil:
    if nv == NV:
        block_rows_of(kind, mr, NV, storage, blocks, codes, stride, sums, b, results)
    elif nv == 1:
        block_rows_of(kind, mr, 1, storage, blocks, codes, stride, sums, b, results)
    elif NV > 2 and nv == 2:
        block_rows_of(kind, mr, 2, storage, blocks, codes, stride, sums, b, results)
    elif NV > 3:
        block_rows_of(kind, mr, 3, storage, blocks, codes, stride, sums, b, results)


cdef void block_sums_8(int mr, int nv, int storage, Py_ssize_t blocks, const short* codes, Py_ssize_t stride,
                       const short* sums, const char* b, float* results) noexcept nogil:
    block_panel_of(OF_8_BITS, mr, nv, storage, blocks, codes, stride, sums, b, results)


cdef void block_sums_4(int mr, int nv, int storage, Py_ssize_t blocks, const short* codes, Py_ssize_t stride,
                       const short* sums, const char* b, float* results) noexcept nogil:
    block_panel_of(OF_4_BITS, mr, nv, storage, blocks, codes, stride, sums, b, results)


cdef void block_results(const Linear* y, const short* codes, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t p, int nv,
                        float* results) noexcept nogil:
    # results[M][NR] = the products of M rows and panel p, without the steps of the rows, in tiles of nearly equal height.
    cdef Py_ssize_t blocks = (y.K + GROUPED - 1) // GROUPED, row = 0, next_row, i
    cdef bint narrow = y.storage != <int>Q8_0
    cdef Py_ssize_t highest = BLOCK_ROWS if narrow else MR, tiles = (M + highest - 1) // highest
    cdef const char* b = <const char*>y.panels + p * NR * blocks * block_bytes(y.storage)
    cdef const short* sums = codes + blocks * GROUPED
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        if narrow:
            block_sums_4(<int>(next_row - row), nv, y.storage, blocks, codes + row * stride, stride, sums + row * stride, b,
                         results + row * NR)
        else:
            block_sums_8(<int>(next_row - row), nv, y.storage, blocks, codes + row * stride, stride, sums + row * stride, b,
                         results + row * NR)
        row = next_row


cdef void pack_row_of_blocks(const Linear* y, unsigned char* panel, Py_ssize_t width, Py_ssize_t c,
                             const unsigned char* row) noexcept nogil:
    # Put a stored row of blocks into column c of a panel of this width.
    cdef Py_ssize_t size = block_bytes(y.storage), blocks = (y.K + GROUPED - 1) // GROUPED, k
    cdef Py_ssize_t codes = 32 if y.storage == <int>Q8_0 else 16, halves = size - codes
    cdef unsigned char steps[GROUPED]
    cdef unsigned char* scales
    cdef unsigned int word
    cdef int h, i
    for k in range(blocks):
        scales = panel + codes * width
        memcpy(scales + 2 * c, row, 2)
        if halves == 4:
            memcpy(scales + 2 * (width + c), row + 2, 2)
        if codes == 32:
            for i in range(16):
                memcpy(panel + (i * width + c) * 2, row + halves + 2 * i, 2)
        else:
            for i in range(16):
                steps[i], steps[i + 16] = row[halves + i] & 15, row[halves + i] >> 4
            for h in range(4):
                word = word_of(steps + 8 * h)
                memcpy(panel + (h * width + c) * 4, &word, 4)
        row += size
        panel += size * width


cdef inline unsigned int word_of(const unsigned char* steps) noexcept nogil:
    # Return eight numbers of 4 bits in a word as x_nibble takes them: the even ones in the lower half.
    cdef unsigned int word = 0
    cdef int i
    for i in range(8):
        word |= <unsigned int>steps[i] << (16 * (i % 2) + 4 * (i // 2))
    return word
