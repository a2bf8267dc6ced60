# Compute the GEMM of rows in 16-bit integers and weights of 8 bits:
#   y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]).
#
# Rows of a are rounded during the pass to integers of 12 bits: a[i,k] = step_i * code[i,k]. Weights have a scale for
# each column of the result, w[j,k] = scale[j] * integer, so
#   y[i,j] = step_i * scale[j] * sum_k integer code + bias[j].
# Sums of integers are exact in int32 over a depth of DEEPEST, 127 * 2047 * 4096 < 2^31: bits depend on the row alone.
#
# AMX's tiles multiply the same integers with the same results (tiles.pxi). Weights of 8 bits in blocks that have float
# scales are in blocks.pxi, those of 4 bits in nibbles.pxi.
#
# A panel has NR = NV*VL columns, its last one nv*VL; a tile has mr <= MR rows (simd.pxi). Weights lie in panels
# [K/2][columns][2], two steps of depth side by side, K padded to blocks of BLOCK_DEPTH = 32 (blocks.pxi).

cdef enum:
    DEEPEST = 4096          # the depth over which sums are exact
    INTEGER_ROWS = 64       # rows whose sums are kept at a time
    LARGEST_CODE = 2047     # of a row: 12 bits with the sign


cdef inline vf inverse_step(const float* x, Py_ssize_t K, RowRange* range) noexcept nogil:
    # Store the step of a row's integers, and return its inverse (0 where that could overflow). The step of a row that
    # holds NaN or infinity is NaN, which makes all its results NaN: `probe` adds up 0 x, which is NaN for such an x.
    cdef vf value, largest = v_set1(0.0), probe = v_set1(0.0)
    cdef Py_ssize_t i = 0
    cdef float step
    while i < K:
        value = v_load(x + i) if i + VL <= K else v_loadn(x + i, <int>(K - i))
        largest = v_max(v_abs(value), largest)
        probe = v_fma(value, v_set1(0.0), probe)
        i += VL
    step = v_largest(largest) / LARGEST_CODE
    range.low, range.step = 0, step + v_sum(probe)
    return v_set1(1 / step if step > <float>1e-30 else 0)


cdef void to_integers(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                      Py_ssize_t stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Round M rows of x, each by its own step, to integers, which end in zeros.
    cdef Py_ssize_t whole = K // VL * VL, padded = blocks_of(K) * BLOCK_DEPTH, row, i
    cdef int tail = <int>(K % VL)
    cdef vf value, inverse
    cdef short* codes
    for row in range(M):
        codes = <short*>operands + (first + row) * stride
        inverse, i = inverse_step(x, K, &ranges[row]), 0
        while i < padded:
            value = v_load(x + i) if i < whole else v_loadn(x + i, tail if i < K else 0)
            x_store_int16(codes + i, v_mul(value, inverse))
            i += VL
        x += x_stride


cdef inline void add_pairs(const int mr, const int nv, const char* low, const char* high, Py_ssize_t a_stride,
                           const char* b, vx* acc) noexcept nogil:
    # Add the products of a pair of steps of depth to acc [mr][NV]. low, high: rows 0 and 3, from which row_of
    # (depth.pxi) computes the address of each row.
    cdef vx w[NV]
    cdef vx x
    cdef int i, j
    for j in range(nv):
        w[j] = x_load_int8(<const signed char*>b + j * 2 * VL)
    for i in range(mr):
        x = x_set1(load_32(row_of(i, low, high, a_stride)))
        for j in range(nv):
            acc[i * NV + j] = x_dot(acc[i * NV + j], x, w[j])


cdef inline void sum_tile(const int mr, const int nv, Py_ssize_t pairs, const short* codes, Py_ssize_t stride,
                          const char* b, int* totals) noexcept nogil:
    # totals[mr][NR] = codes w, over this number of pairs of depth; b: [pairs][nv*VL][2] int8. STEPS, FETCHED: how many
    # pairs are unrolled, and how many bytes of weights are prefetched ahead. a, high: the codes of rows 0 and 3, from
    # which the other rows are addressed; without `opaque`, gcc keeps a register or a stack slot for each row and step.
    cdef vx acc[MR * NV]
    cdef Py_ssize_t a_stride = stride * sizeof(short), b_step = nv * VL * 2, k
    cdef const char* a = <const char*>codes
    cdef const char* high = a + 3 * a_stride
    cdef int i, j, step
    for i in range(mr):
        for j in range(nv):
            acc[i * NV + j] = x_set1(0)
    for k in range(pairs // STEPS):
        fetch_lines(b + FETCHED, STEPS * b_step)
        for step in range(STEPS):
            a_stride = opaque(a_stride)
            add_pairs(mr, nv, a + step * 4, high + step * 4, a_stride, b + step * b_step, acc)
        a += STEPS * 4          # 4 bytes: a pair of codes
        high += STEPS * 4
        b += STEPS * b_step
    for k in range(pairs % STEPS):
        add_pairs(mr, nv, a, high, a_stride, b, acc)
        a += 4
        high += 4
        b += b_step
    for i in range(mr):
        for j in range(nv):
            x_store(totals + i * NR + j * VL, acc[i * NV + j])


# The functions below map sizes known at run time to functions compiled for those sizes.

cdef inline void sum_rows(int mr, const int nv, Py_ssize_t pairs, const short* codes, Py_ssize_t stride, const char* b,
                          int* totals) noexcept nogil:
    # mr is from 1 to MR, which is 6 at most.
    if mr == 6: sum_tile(6, nv, pairs, codes, stride, b, totals)
    elif mr == 5: sum_tile(5, nv, pairs, codes, stride, b, totals)
    elif mr == 4: sum_tile(4, nv, pairs, codes, stride, b, totals)
    elif mr == 3: sum_tile(3, nv, pairs, codes, stride, b, totals)
    elif mr == 2: sum_tile(2, nv, pairs, codes, stride, b, totals)
    else: sum_tile(1, nv, pairs, codes, stride, b, totals)


cdef void sum_any(int mr, int nv, Py_ssize_t pairs, const short* codes, Py_ssize_t stride, const char* b,
                  int* totals) noexcept nogil:
    # nv is below NV in the last panel alone.
    if nv == NV: sum_rows(mr, NV, pairs, codes, stride, b, totals)
    elif nv == 1: sum_rows(mr, 1, pairs, codes, stride, b, totals)
    elif NV > 2 and nv == 2: sum_rows(mr, 2, pairs, codes, stride, b, totals)
    elif NV > 3: sum_rows(mr, 3, pairs, codes, stride, b, totals)


cdef void sum_in_tiles(Py_ssize_t M, int nv, Py_ssize_t pairs, const short* codes, Py_ssize_t stride, const char* b,
                       int* totals) noexcept nogil:
    # totals[M][NR] = codes w over this number of pairs of depth, in tiles of rows of nearly equal height.
    cdef Py_ssize_t tiles = (M + MR - 1) // MR, i, row = 0, next_row
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        sum_any(<int>(next_row - row), nv, pairs, codes + row * stride, stride, b, totals + row * NR)
        row = next_row


cdef void integer_results(const Linear* y, const short* codes, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t p, int nv,
                          float* results) noexcept nogil:
    # results[M][NR] = the products of M rows, at most INTEGER_ROWS, and panel p, without the steps of the rows.
    cdef int totals[INTEGER_ROWS * NR]
    cdef Py_ssize_t padded = blocks_of(y.K) * BLOCK_DEPTH, k = 0, i
    cdef const char* b = <const char*>y.panels + p * NR * padded
    cdef int j
    cdef vf x
    while k < padded:
        sum_in_tiles(M, nv, min(padded - k, <Py_ssize_t>DEEPEST) // 2, codes + k, stride, b + k * nv * VL, totals)
        for i in range(M):
            for j in range(nv):
                x = v_fma(x_float(x_load(totals + i * NR + j * VL)), v_load(y.scale + p * NR + j * VL),
                          v_load(results + i * NR + j * VL) if k else v_set1(0.0))
                v_store(results + i * NR + j * VL, x)
        k += DEEPEST


cdef void linear_integers(const Linear* y, const void* a, Py_ssize_t stride, const RowRange* ranges, Py_ssize_t M,
                          const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # y of the formulas of this file, of blocks.pxi or of nibbles.pxi, as the storage of the weights says: for panels p
    # from `panel` to `last` - 1, INTEGER_ROWS rows at a time, products first and then the epilogue.
    cdef float results[INTEGER_ROWS * NR]
    cdef Py_ssize_t column[NV]
    cdef Py_ssize_t p, first, rows, i
    cdef int j, nv
    cdef bint of_8_bits = y.storage == <int>INT8 or y.storage == <int>Q8_0
    cdef float* to
    cdef vf x, step
    for p in range(panel, last):
        nv = <int>(min(y.N - p * NR, <Py_ssize_t>NR) // VL)
        for j in range(nv):
            column[j] = place_of(p * NR + j * VL, out)
        first = 0
        while first < M:
            rows = min(M - first, <Py_ssize_t>INTEGER_ROWS)
            if y.storage == <int>INT8:
                integer_results(y, <const short*>a + first * stride, stride, rows, p, nv, results)
            elif y.storage == <int>Q8_0:
                block_results(y, <const short*>a + first * stride, stride, rows, p, nv, results)
            else:
                nibble_results(y, <const short*>a + first * stride, stride, ranges + first, rows, p, nv, results)
            for i in range(first, first + rows):
                to = out.data + i * out.stride
                step = v_set1(ranges[i].step if of_8_bits else 1)       # nibble_results includes the steps
                for j in range(nv):
                    x = v_fma(step, v_load(results + (i - first) * NR + j * VL), v_load(y.bias + p * NR + j * VL))
                    if residual != NULL:
                        x = v_add(x, v_load(residual + i * out.stride + column[j]))
                    v_store(to + column[j], x)
            if y.activation != IDENTITY:        # only if the columns of a row lie side by side
                activate(y.activation, out.data + first * out.stride + column[0], out.stride, rows, nv * VL)
            first += INTEGER_ROWS


cdef void pack_integers(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
                        Py_ssize_t n) noexcept nogil:
    # weight: [n,K] int8, or [n, column_bytes] blocks as engine/weights/blocks.py and int4.py describe them.
    cdef Py_ssize_t blocks = blocks_of(y.K), column_bytes = blocks * BLOCK_DEPTH, i, k, c, first, width
    cdef const signed char* w = <const signed char*>weight
    cdef signed char* to
    if y.storage == <int>Q8_0:
        column_bytes = blocks * Q8_0_BYTES
    elif y.storage != <int>INT8:
        column_bytes = blocks * stored_bytes(y.storage)
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, <Py_ssize_t>NR)
        to = <signed char*>panels + first * column_bytes
        if y.storage == <int>Q8_0:
            pack_row_of_blocks(y, <char*>to, width, c - first, <const char*>w + i * column_bytes)
        elif y.storage != <int>INT8:
            pack_nibbles(y, <char*>to, width, c - first, <const unsigned char*>w + i * column_bytes)
        else:
            for k in range(y.K):
                to[k // 2 * 2 * width + 2 * (c - first) + k % 2] = w[i * y.K + k]


cdef short ZERO_CODES[2 * MR + 8]
cdef double integer_rounds(Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds as dot_rounds does, with two products in each lane, and return their integer operations. Codes are
    # read from changing addresses (k & 3), so that the compiler cannot merge products.
    cdef vx acc[MR * NV]
    cdef vx w[NV]
    cdef vx x
    cdef int i, j
    cdef Py_ssize_t k
    for j in range(NV):
        w[j] = x_set1(0x10001)      # a pair of ones
    for i in range(MR * NV):
        acc[i] = x_set1(i)
    for k in range(n):
        for i in range(MR):
            x = x_set1(load_32(ZERO_CODES + 2 * i + (k & 3)))
            for j in range(NV):
                acc[i * NV + j] = x_dot(acc[i * NV + j], x, w[j])
    sink[0] = 0
    for i in range(MR * NV):
        sink[0] += v_sum(x_float(acc[i]))
    return 2.0 * 2 * VL * MR * NV * n
