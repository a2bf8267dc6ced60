# Compute the GEMM of rows in 16-bit integers and weights of 8 or 4 bits:
#   y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]).
#
# Rows of a are rounded during the pass to integers of 12 bits: a[i,k] = step_i * code[i,k]. Weights of 8 bits have a scale
# for each column of the result, w[j,k] = scale[j] * integer. Weights of 4 bits have two, and in every group of 16 along the
# depth a multiplier m, 1 to 15, and an offset o, -127 to 127 (engine/weights/int4.py):
#   w[j,k] = scale[j] * m[j,g] * q[j,k] + offset_scale[j] * o[j,g],   q from 0 to 15 and g = k // 16,   so
#   y[i,j] = step_i * (scale[j] * sum_k m q code + offset_scale[j] * sum_g o * (sum of the group's codes)) + bias[j].
# Sums of integers are exact in int32 over a depth of DEEPEST: 225 * 2047 * 4096 < 2^31. So the bits of a result depend on
# its row alone, and are the same for few rows, whose weights are multiplied as they are unpacked, and for many rows, for
# which a slice of a panel is widened to int16 first.
#
# Weights in blocks that have float scales are in blocks.pxi.
#
# A panel of 4 bits is a run of blocks of 32 steps of depth, and then the offsets. A block is [4][nv*VL] words of 32 bits
# and [nv*VL] bytes. Word h of a column holds the steps 8h to 8h + 7 of the block: its lower half has the even steps, its
# upper half the odd ones, four bits each. The byte of a column holds the multipliers of the block's two groups. The
# offsets are [K/32][nv*VL][2]; they are multiplied as weights of 8 bits are.

cdef enum IntegerWeights:
    BYTES       # [K/2][nv*VL][2] int8
    WORDS       # the same in int16

cdef enum:
    DEEPEST = 4096      # a multiple of WIDENED
    WIDENED = 256         # the depth that is widened at a time: 256 * NR int16 stay in the L1 cache
    INTEGER_ROWS = 64   # rows whose sums are kept at a time
    NIBBLE_ROWS = 4     # rows of a tile of 4 bits
    UNPACKED_ROWS = 8   # the most rows for which a panel is unpacked anew in every tile, not widened once for all
    GROUP = 16
    LARGEST_CODE = 2047


cdef void to_integers(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands, Py_ssize_t stride,
                      Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Round M rows of x, each by its own step, and put the sum of every group behind the integers, which end in zeros. A
    # row that holds NaN or infinity gets the step NaN, which makes all its results NaN.
    cdef Py_ssize_t whole = K // VL * VL, padded = (K + GROUPED - 1) // GROUPED * GROUPED, row, i
    cdef int tail = <int>(K % VL), total, j
    cdef vf largest, probe, value, inverse
    cdef float step
    cdef short* codes
    for row in range(M):
        codes = <short*>operands + (first + row) * stride
        largest = probe = v_set1(0.0)
        i = 0
        while i < K:
            value = v_load(x + i) if i < whole else v_loadn(x + i, tail)
            largest = v_max(v_abs(value), largest)
            probe = v_fma(value, v_set1(0.0), probe)
            i += VL
        step = v_largest(largest) / LARGEST_CODE
        ranges[row].low, ranges[row].step = 0, step + v_sum(probe)
        inverse = v_set1(1 / step if step > <float>1e-30 else 0)
        i = 0
        while i < padded:
            value = v_load(x + i) if i < whole else v_loadn(x + i, tail if i < K else 0)
            x_store_int16(codes + i, v_mul(value, inverse))
            i += VL
        for i in range(padded // GROUP):
            total = 0
            for j in range(GROUP):
                total += codes[i * GROUP + j]
            codes[padded + i] = <short>total
        x += x_stride


cdef inline void add_pairs(const int kind, const int mr, const int nv, const char* low, const char* high,
                           Py_ssize_t a_stride, const char* b, vx* acc) noexcept nogil:
    # Add the products of two steps of depth; see add_products in depth.pxi.
    cdef vx w[NV]
    cdef vx x
    cdef int i, j
    for j in range(nv):
        w[j] = x_load_int8(<const signed char*>b + j * 2 * VL) if kind == BYTES else x_load(b + j * 4 * VL)
    for i in range(mr):
        x = x_set1(load_32(row_of(i, low, high, a_stride)))
        for j in range(nv):
            acc[i * NV + j] = x_dot(acc[i * NV + j], x, w[j])


cdef inline void sum_tile(const int kind, const int mr, const int nv, Py_ssize_t steps, const short* codes,
                          Py_ssize_t stride, const char* b, int* totals, bint adds) noexcept nogil:
    # totals[mr][NR] (+)= codes w, over 2 * steps of depth.
    cdef vx acc[MR * NV]
    cdef Py_ssize_t a_stride = stride * sizeof(short), b_step = nv * VL * (2 if kind == BYTES else 4), k
    cdef const char* a = <const char*>codes
    cdef const char* high = a + 3 * a_stride
    cdef int i, j, step
    for i in range(mr):
        for j in range(nv):
            acc[i * NV + j] = x_load(totals + i * NR + j * VL) if adds else x_set1(0)
    for k in range(steps // STEPS):
        fetch_lines(b + FETCHED, STEPS * b_step)
        for step in range(STEPS):
            a_stride = opaque(a_stride)
            add_pairs(kind, mr, nv, a + step * 4, high + step * 4, a_stride, b + step * b_step, acc)
        a += STEPS * 4
        high += STEPS * 4
        b += STEPS * b_step
    for k in range(steps % STEPS):
        add_pairs(kind, mr, nv, a, high, a_stride, b, acc)
        a += 4
        high += 4
        b += b_step
    for i in range(mr):
        for j in range(nv):
            x_store(totals + i * NR + j * VL, acc[i * NV + j])


cdef inline void nibble_tile(const int mr, const int nv, Py_ssize_t blocks, const short* codes, Py_ssize_t stride,
                             const char* b, int* totals) noexcept nogil:
    # totals[mr][NR] = sum over k of m q codes, over whole blocks. The sums of a group stay in registers, those of all
    # groups do not.
    cdef vx acc[NIBBLE_ROWS * NV]
    cdef Py_ssize_t k
    cdef int i, j
    for i in range(mr):
        for j in range(nv):
            acc[i * NV + j] = x_set1(0)
    for k in range(blocks):
        fetch_lines(b + FETCHED, 17 * nv * VL)
        add_group(mr, nv, 0, codes, stride, b, acc)
        add_group(mr, nv, 1, codes + GROUP, stride, b, acc)
        codes += GROUPED
        b += 17 * nv * VL
    for i in range(mr):
        for j in range(nv):
            x_store(totals + i * NR + j * VL, acc[i * NV + j])


cdef inline void add_group(const int mr, const int nv, const int g, const short* codes, Py_ssize_t stride, const char* b,
                           vx* acc) noexcept nogil:
    # Add m * sum over k of q codes, for group g of a block.
    cdef vx s[NIBBLE_ROWS * NV]
    cdef vx word[NV]
    cdef vx w[NV]
    cdef vx x
    cdef int i, j, h, n
    for i in range(mr):
        for j in range(nv):
            s[i * NV + j] = x_set1(0)
    for h in range(2):
        for j in range(nv):
            word[j] = x_load(b + ((2 * g + h) * nv + j) * 4 * VL)
        for n in range(4):
            for j in range(nv):
                w[j] = x_nibble(word[j], n)
            for i in range(mr):
                x = x_set1(load_32(codes + i * stride + h * 8 + 2 * n))
                for j in range(nv):
                    s[i * NV + j] = x_dot(s[i * NV + j], x, w[j])
    for j in range(nv):
        w[0] = x_nibble(x_load_uint8(<const unsigned char*>b + 16 * nv * VL + j * VL), g)
        for i in range(mr):
            acc[i * NV + j] = x_add(acc[i * NV + j], x_mul(s[i * NV + j], w[0]))


cdef inline void widen_blocks(const int nv, Py_ssize_t blocks, const char* b, short* to) noexcept nogil:
    # to[16 * blocks][nv*VL][2] = m q
    cdef vx word, both
    cdef Py_ssize_t k
    cdef int j, g, h, n
    for k in range(blocks):
        for j in range(nv):
            for g in range(2):
                both = x_nibble(x_load_uint8(<const unsigned char*>b + 16 * nv * VL + j * VL), g)
                both = x_mul(both, x_set1(0x10001))
                for h in range(2):
                    word = x_load(b + ((2 * g + h) * nv + j) * 4 * VL)
                    for n in range(4):
                        x_store(<int*>to + ((8 * g + 4 * h + n) * nv + j) * VL, x_mul16(x_nibble(word, n), both))
        b += 17 * nv * VL
        to += GROUPED * nv * VL


# The functions below map sizes known at run time to functions compiled for those sizes.

cdef inline void sum_rows(const int kind, int mr, const int nv, Py_ssize_t steps, const short* codes, Py_ssize_t stride,
                          const char* b, int* totals, bint adds) noexcept nogil:
    if mr == 6:
        sum_tile(kind, 6, nv, steps, codes, stride, b, totals, adds)
    elif mr == 5:
        sum_tile(kind, 5, nv, steps, codes, stride, b, totals, adds)
    elif mr == 4:
        sum_tile(kind, 4, nv, steps, codes, stride, b, totals, adds)
    elif mr == 3:
        sum_tile(kind, 3, nv, steps, codes, stride, b, totals, adds)
    elif mr == 2:
        sum_tile(kind, 2, nv, steps, codes, stride, b, totals, adds)
    else:
        sum_tile(kind, 1, nv, steps, codes, stride, b, totals, adds)


cdef inline void sum_any(const int kind, int mr, int nv, Py_ssize_t steps, const short* codes, Py_ssize_t stride,
                         const char* b, int* totals, bint adds) noexcept nogil:
    if nv == NV:
        sum_rows(kind, mr, NV, steps, codes, stride, b, totals, adds)
    elif nv == 1:
        sum_rows(kind, mr, 1, steps, codes, stride, b, totals, adds)
    elif NV > 2 and nv == 2:
        sum_rows(kind, mr, 2, steps, codes, stride, b, totals, adds)
    elif NV > 3:
        sum_rows(kind, mr, 3, steps, codes, stride, b, totals, adds)


cdef void sum_bytes(int mr, int nv, Py_ssize_t steps, const short* codes, Py_ssize_t stride, const char* b, int* totals,
                    bint adds) noexcept nogil:
    sum_any(BYTES, mr, nv, steps, codes, stride, b, totals, adds)


cdef void sum_words(int mr, int nv, Py_ssize_t steps, const short* codes, Py_ssize_t stride, const char* b, int* totals,
                    bint adds) noexcept nogil:
    sum_any(WORDS, mr, nv, steps, codes, stride, b, totals, adds)


cdef inline void nibble_rows(int mr, const int nv, Py_ssize_t blocks, const short* codes, Py_ssize_t stride,
                             const char* b, int* totals) noexcept nogil:
    if mr == 4:
        nibble_tile(4, nv, blocks, codes, stride, b, totals)
    elif mr == 3:
        nibble_tile(3, nv, blocks, codes, stride, b, totals)
    elif mr == 2:
        nibble_tile(2, nv, blocks, codes, stride, b, totals)
    else:
        nibble_tile(1, nv, blocks, codes, stride, b, totals)


cdef void sum_nibbles(int mr, int nv, Py_ssize_t blocks, const short* codes, Py_ssize_t stride, const char* b,
                      int* totals) noexcept nogil:
    if nv == NV:
        nibble_rows(mr, NV, blocks, codes, stride, b, totals)
    elif nv == 1:
        nibble_rows(mr, 1, blocks, codes, stride, b, totals)
    elif NV > 2 and nv == 2:
        nibble_rows(mr, 2, blocks, codes, stride, b, totals)
    elif NV > 3:
        nibble_rows(mr, 3, blocks, codes, stride, b, totals)


cdef void widen_any(int nv, Py_ssize_t blocks, const char* b, short* to) noexcept nogil:
    if nv == NV:
        widen_blocks(NV, blocks, b, to)
    else:
        widen_blocks(nv, blocks, b, to)


cdef void sum_in_tiles(bint words, Py_ssize_t M, int nv, Py_ssize_t steps, const short* codes, Py_ssize_t stride,
                       const char* b, int* totals, bint adds) noexcept nogil:
    # totals[M][NR] (+)= codes w, in tiles of rows of nearly equal height.
    cdef Py_ssize_t tiles = (M + MR - 1) // MR, i, row = 0, next_row
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        if words:
            sum_words(<int>(next_row - row), nv, steps, codes + row * stride, stride, b, totals + row * NR, adds)
        else:
            sum_bytes(<int>(next_row - row), nv, steps, codes + row * stride, stride, b, totals + row * NR, adds)
        row = next_row


cdef void sum_unpacked(Py_ssize_t M, int nv, Py_ssize_t blocks, const short* codes, Py_ssize_t stride, const char* b,
                       int* totals) noexcept nogil:
    # totals[M][NR] = sum over k of m q codes, in tiles of rows of nearly equal height, each of which unpacks the panel.
    cdef Py_ssize_t tiles = (M + NIBBLE_ROWS - 1) // NIBBLE_ROWS, i, row = 0, next_row
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        sum_nibbles(<int>(next_row - row), nv, blocks, codes + row * stride, stride, b, totals + row * NR)
        row = next_row


cdef void sum_widened(Py_ssize_t M, int nv, Py_ssize_t depth, const short* codes, Py_ssize_t stride, const char* b,
                      int* totals) noexcept nogil:
    # totals[M][NR] = sum over k of m q codes, slice by slice.
    cdef short wide[WIDENED * NR]
    cdef Py_ssize_t k = 0, part
    while k < depth:
        part = min(depth - k, <Py_ssize_t>WIDENED)
        widen_any(nv, part // GROUPED, b + k // GROUPED * 17 * nv * VL, wide)
        sum_in_tiles(True, M, nv, part // 2, codes + k, stride, <const char*>wide, totals, k > 0)
        k += WIDENED


cdef inline void add_scaled(Py_ssize_t M, int nv, const int* totals, const float* scale, float* results,
                            bint adds) noexcept nogil:
    # results[M][NR] (+)= totals * scale
    cdef Py_ssize_t i
    cdef int j
    cdef vf x
    for i in range(M):
        for j in range(nv):
            x = x_float(x_load(totals + i * NR + j * VL))
            x = v_fma(x, v_load(scale + j * VL), v_load(results + i * NR + j * VL) if adds else v_set1(0.0))
            v_store(results + i * NR + j * VL, x)


cdef void integer_results(const Linear* y, const short* codes, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t p, int nv,
                          float* results) noexcept nogil:
    # results[M][NR] = the products of M rows, at most INTEGER_ROWS, and panel p, without the steps of the rows.
    cdef int totals[INTEGER_ROWS * NR]
    cdef Py_ssize_t padded = (y.K + GROUPED - 1) // GROUPED * GROUPED, width = nv * VL, k = 0, depth
    cdef bint narrow = y.storage == <int>INT4
    cdef const char* b = <const char*>y.panels + p * NR * (padded // GROUPED * 19 if narrow else padded)
    cdef const char* offsets = b + padded // GROUPED * 17 * width
    while k < padded:
        depth = min(padded - k, <Py_ssize_t>DEEPEST)
        if not narrow:
            sum_in_tiles(False, M, nv, depth // 2, codes + k, stride, b + k * width, totals, False)
        elif M <= UNPACKED_ROWS:
            sum_unpacked(M, nv, depth // GROUPED, codes + k, stride, b + k // GROUPED * 17 * width, totals)
        else:
            sum_widened(M, nv, depth, codes + k, stride, b + k // GROUPED * 17 * width, totals)
        add_scaled(M, nv, totals, y.scale + p * NR, results, k > 0)
        if narrow:
            sum_in_tiles(False, M, nv, depth // GROUPED, codes + padded + k // GROUP, stride,
                         offsets + k // GROUPED * 2 * width, totals, False)
            add_scaled(M, nv, totals, y.offset_scale + p * NR, results, True)
        k += DEEPEST


cdef void linear_integers(const Linear* y, const void* a, Py_ssize_t stride, const RowRange* ranges, Py_ssize_t M,
                          const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    cdef float results[INTEGER_ROWS * NR]
    cdef Py_ssize_t column[NV]
    cdef Py_ssize_t p, first, rows, i
    cdef int j, nv
    cdef float* to
    cdef vf x
    for p in range(panel, last):
        nv = <int>(min(y.N - p * NR, <Py_ssize_t>NR) // VL)
        for j in range(nv):
            column[j] = (p * NR + j * VL) // out.width * out.block + (p * NR + j * VL) % out.width
        first = 0
        while first < M:
            rows = min(M - first, <Py_ssize_t>INTEGER_ROWS)
            if y.storage == <int>INT8 or y.storage == <int>INT4:
                integer_results(y, <const short*>a + first * stride, stride, rows, p, nv, results)
            else:
                block_results(y, <const short*>a + first * stride, stride, rows, p, nv, results)
            for i in range(first, first + rows):
                to = out.data + i * out.stride
                for j in range(nv):
                    x = v_fma(v_set1(ranges[i].step), v_load(results + (i - first) * NR + j * VL),
                              v_load(y.bias + p * NR + j * VL))
                    if residual != NULL:
                        x = v_add(x, v_load(residual + i * out.stride + column[j]))
                    v_store(to + column[j], x)
            if y.activation != IDENTITY:
                activate(y.activation, out.data + first * out.stride + column[0], out.stride, rows, nv * VL)
            first += INTEGER_ROWS


cdef void pack_integers(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
                        Py_ssize_t n) noexcept nogil:
    # weight: [n,K] int8, or [n,19*K/32] blocks of 4 bits as engine/weights/int4.py describes them, or those of blocks.pxi.
    cdef Py_ssize_t padded = (y.K + GROUPED - 1) // GROUPED * GROUPED, of_column, i, k, c, first, width
    cdef const signed char* w = <const signed char*>weight
    cdef signed char* to
    if y.storage == <int>INT8:
        of_column = padded
    else:
        of_column = padded // GROUPED * (19 if y.storage == <int>INT4 else block_bytes(y.storage))
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, <Py_ssize_t>NR)
        to = <signed char*>panels + first * of_column
        if y.storage == <int>INT4:
            for k in range(padded // GROUPED):
                pack_block(<const unsigned char*>w + i * of_column + k * 19, <unsigned char*>to + k * 17 * width,
                           to + padded // GROUPED * 17 * width + k * 2 * width, width, c - first)
        elif y.storage != <int>INT8:
            pack_row_of_blocks(y, <unsigned char*>to, width, c - first, <const unsigned char*>w + i * of_column)
        else:
            for k in range(y.K):
                to[k // 2 * 2 * width + 2 * (c - first) + k % 2] = w[i * y.K + k]


cdef inline void pack_block(const unsigned char* block, unsigned char* to, signed char* offsets, Py_ssize_t width,
                            Py_ssize_t c) noexcept nogil:
    # A stored block has the steps in their order, two in a byte, the lower half first; then a byte of multipliers and the
    # two offsets.
    cdef unsigned char steps[8]
    cdef unsigned int word
    cdef int h, i
    for h in range(4):
        for i in range(8):
            steps[i] = block[4 * h + i // 2] >> 4 * (i % 2) & 15
        word = word_of(steps)
        memcpy(to + (h * width + c) * 4, &word, 4)
    to[16 * width + c] = block[16]
    offsets[2 * c], offsets[2 * c + 1] = <signed char>block[17], <signed char>block[18]


cdef short PAIRS_OF_ONES[2 * MR + 8]
cdef double integer_rounds(Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds as dot_rounds does, with two products in each lane, and return their integer operations.
    cdef vx acc[MR * NV]
    cdef vx w[NV]
    cdef vx x
    cdef int i, j
    cdef Py_ssize_t k
    for j in range(NV):
        w[j] = x_set1(0x10001)
    for i in range(MR * NV):
        acc[i] = x_set1(i)
    for k in range(n):
        for i in range(MR):
            x = x_set1(load_32(PAIRS_OF_ONES + 2 * i + (k & 3)))
            for j in range(NV):
                acc[i * NV + j] = x_dot(acc[i * NV + j], x, w[j])
    sink[0] = 0
    for i in range(MR * NV):
        sink[0] += v_sum(x_float(acc[i]))
    return 2.0 * 2 * VL * MR * NV * n
