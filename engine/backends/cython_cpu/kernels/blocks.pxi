# Compute the same GEMM as integers.pxi does, with weights in the blocks Q8_0 of GGUF files (engine/weights/blocks.py):
# 32 successive weights of a column have a scale of their own,
#   w[j,k] = scale[j,b] * integer[j,k],   b = k // 32,   so
#   y[i,j] = step_i * sum_b scale[j,b] * sum_k integer code + bias[j].
# The sum of a block is an integer below 128 * 2047 * 32 < 2^24, which a float holds exactly, so its order does not
# matter. Sums of blocks are added in float32 in the order of b, for one row as for many.
#
# A panel is a run of blocks for nv*VL columns: the integers [16][nv*VL][2], then the scales in float16 [nv*VL].
#
# A panel has NR = NV*VL columns, its last one may have fewer; a tile has mr <= MR rows (simd.pxi).

cdef enum:
    BLOCK_DEPTH = 32    # the successive weights of a column that share a scale
    FETCHED = 2048      # bytes of a panel that are prefetched ahead
    SCALE_BYTES = 2     # of a float16
    Q8_0_BYTES = SCALE_BYTES + BLOCK_DEPTH      # of a block of one column


cdef inline Py_ssize_t blocks_of(Py_ssize_t K) noexcept nogil:
    # Return the blocks of a row of K weights, of which zeros complete the last.
    return (K + BLOCK_DEPTH - 1) // BLOCK_DEPTH


cdef inline void block_tile(const int mr, const int nv, Py_ssize_t blocks, const short* codes, Py_ssize_t stride,
                            const char* b, float* results) noexcept nogil:
    # results[mr][NR] = the products of mr rows of codes, `stride` numbers apart, without the step of the row.
    cdef vx s[MR * NV]
    cdef vx w[NV]
    cdef vx x
    cdef vf scale
    cdef float* to
    cdef Py_ssize_t k
    cdef int i, j, n
    for i in range(mr):
        for j in range(nv):
            v_store(results + i * NR + j * VL, v_set1(0.0))
    for k in range(blocks):
        fetch_lines(b + FETCHED, Q8_0_BYTES * nv * VL)
        for i in range(mr):
            for j in range(nv):
                s[i * NV + j] = x_set1(0)
        for n in range(BLOCK_DEPTH // 2):
            for j in range(nv):
                w[j] = x_load_int8(<const signed char*>b + (n * nv + j) * 2 * VL)
            for i in range(mr):
                x = x_set1(load_32(codes + i * stride + 2 * n))
                for j in range(nv):
                    s[i * NV + j] = x_dot(s[i * NV + j], x, w[j])
        for j in range(nv):
            scale = v_load_float16(<const unsigned short*>(b + BLOCK_DEPTH * nv * VL) + j * VL)
            for i in range(mr):
                to = results + i * NR + j * VL
                v_store(to, v_fma(x_float(s[i * NV + j]), scale, v_load(to)))
        codes += BLOCK_DEPTH
        b += Q8_0_BYTES * nv * VL


# The functions below map sizes known at run time to functions compiled for those sizes.

cdef inline void block_rows(int mr, const int nv, Py_ssize_t blocks, const short* codes, Py_ssize_t stride,
                            const char* b, float* results) noexcept nogil:
    # Store results [mr][nv * VL]. mr, from 1 to 6, becomes a constant, so that the loops over rows are unrolled.
    if mr == 6: block_tile(6, nv, blocks, codes, stride, b, results)
    elif mr == 5: block_tile(5, nv, blocks, codes, stride, b, results)
    elif mr == 4: block_tile(4, nv, blocks, codes, stride, b, results)
    elif mr == 3: block_tile(3, nv, blocks, codes, stride, b, results)
    elif mr == 2: block_tile(2, nv, blocks, codes, stride, b, results)
    else: block_tile(1, nv, blocks, codes, stride, b, results)


cdef void block_sums(int mr, int nv, Py_ssize_t blocks, const short* codes, Py_ssize_t stride, const char* b,
                     float* results) noexcept nogil:
    # Store results [mr][nv * VL]; nv is below NV in the last panel alone.
    if nv == NV: block_rows(mr, NV, blocks, codes, stride, b, results)
    elif nv == 1: block_rows(mr, 1, blocks, codes, stride, b, results)
    elif NV > 2 and nv == 2: block_rows(mr, 2, blocks, codes, stride, b, results)
    elif NV > 3: block_rows(mr, 3, blocks, codes, stride, b, results)


cdef void block_results(const Linear* y, const short* codes, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t p, int nv,
                        float* results) noexcept nogil:
    # results[M][NR] = the products of M rows and panel p, without the rows' steps, in tiles of nearly equal height.
    cdef Py_ssize_t blocks = blocks_of(y.K), tiles = (M + MR - 1) // MR, row = 0, next_row, i
    cdef const char* b = <const char*>y.panels + p * NR * blocks * Q8_0_BYTES
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        block_sums(<int>(next_row - row), nv, blocks, codes + row * stride, stride, b, results + row * NR)
        row = next_row


cdef void pack_row_of_blocks(const Linear* y, char* panel, Py_ssize_t width, Py_ssize_t c,
                             const char* row) noexcept nogil:
    # Put a stored row of blocks into column c of a panel of this width.
    cdef Py_ssize_t k
    cdef int i
    for k in range(blocks_of(y.K)):
        memcpy(panel + BLOCK_DEPTH * width + SCALE_BYTES * c, row, SCALE_BYTES)
        for i in range(BLOCK_DEPTH // 2):
            memcpy(panel + (i * width + c) * 2, row + SCALE_BYTES + 2 * i, 2)
        row += Q8_0_BYTES
        panel += Q8_0_BYTES * width
