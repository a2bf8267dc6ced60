# Compute the GEMM in 8-bit integers: y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]).
#
# Weights have a quantization scale for each column of the result, w = scale[j] * integer (Jacob et al., arXiv
# 1712.05877). Rows of a are quantized in the pass to codes from 0 to 255, each over its own range (arXiv 2206.01861):
#   a[i,k] = low_i + step_i * code[i,k],   so   y[i,j] = scale[j] * (step_i * sum_k code w + low_i * sum_k w) + bias[j].
# Sums of integers are exact, so the bits of a result depend on its row alone.
#
# simd.pxi: one instruction takes DOT steps of depth. A tile has mr <= DOT_MR rows and nv <= NV vectors of VL columns, a
# panel NR = NV*VL columns. row_of, `low`, `high`, opaque: depth.pxi; start_of_row, place_in_row, strip: operands.pxi.


cdef inline vf code_of(vf x, vf low, vf inverse) noexcept nogil:
    # Return the code before it is rounded: (x - low) / step.
    return v_mul(v_sub(x, low), inverse)


cdef inline void quantize_rows(const Py_ssize_t strip, const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K,
                               unsigned char* operands, Py_ssize_t codes_stride, Py_ssize_t first,
                               RowRange* ranges) noexcept nogil:
    # Convert M rows of x to codes. A row that holds NaN or infinity gets the step NaN, which makes all its results NaN:
    # `probe` adds up 0 x, which is 0 if x is finite and NaN if not. Lanes beyond the row repeat `least`.
    cdef Py_ssize_t whole = K // VL * VL, row, i
    cdef int tail = <int>(K % VL)
    cdef vf least, most, probe, value, low, inverse
    cdef float step
    cdef unsigned char* codes
    for row in range(M):
        codes = operands + start_of_row(first + row, strip, codes_stride, 64)
        least = most = v_set1(x[0])
        probe = v_set1(0.0)
        i = 0
        while i < K:
            if i < whole:
                value = v_load(x + i)
            else:
                value = v_select(v_less(v_iota(), v_set1(tail)), v_loadn(x + i, tail), least)
            least, most = v_min(value, least), v_max(value, most)
            probe = v_fma(value, v_set1(0.0), probe)
            i += VL
        ranges[row].low = -v_largest(v_sub(v_set1(0.0), least))
        step = (v_largest(most) - ranges[row].low) / 255
        ranges[row].step = step + v_sum(probe)
        low, inverse = v_set1(ranges[row].low), v_set1(1 / step if step > <float>1e-30 else 0)
        i = 0
        while i + 4 * VL <= whole:
            d_store_line(codes + place_in_row(i, strip, 64), code_of(v_load(x + i), low, inverse),
                         code_of(v_load(x + i + VL), low, inverse), code_of(v_load(x + i + 2 * VL), low, inverse),
                         code_of(v_load(x + i + 3 * VL), low, inverse))
            i += 4 * VL
        while i < K:
            value = code_of(v_load(x + i) if i < whole else v_loadn(x + i, tail), low, inverse)
            d_store(codes + place_in_row(i, strip, 64), value)
            i += VL
        x += x_stride


cdef void quantize(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                   Py_ssize_t codes_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Convert M rows of x to codes, one row after the other.
    quantize_rows(1, x, x_stride, M, K, <unsigned char*>operands, codes_stride, first, ranges)


cdef inline vf result_of(vf total, const RowRange* row, vf sums, vf scale, vf bias) noexcept nogil:
    # Return y of the formula above for the integer sums `total` of one row.
    return v_fma(v_fma(v_set1(row.step), total, v_mul(v_set1(row.low), sums)), scale, bias)


cdef struct DotTile:
    const unsigned char* a          # codes [mr][a_stride]
    const signed char* b            # [depth][nv][DOT/DOT_GROUP][VL][DOT_GROUP]
    float* out
    Py_ssize_t depth                # in steps of DOT
    Py_ssize_t a_stride
    Py_ssize_t out_stride
    Py_ssize_t column[NV]           # the offset in `out` of each vector of columns, in floats
    const float* scale              # [nv*VL], like sums and bias
    const float* sums               # of the integers of each column
    const float* bias
    const float* residual           # with the geometry of `out`; NULL: none
    const RowRange* ranges          # [mr]
    const char* ahead               # this tile's part of the next panel, which the loop prefetches
    Py_ssize_t ahead_step           # bytes of it in each step
    int activation


cdef inline void add_dots(const int mr, const int nv, const char* low, const char* high, Py_ssize_t a_stride,
                          const signed char* b, vd* acc) noexcept nogil:
    # Add the products of DOT steps of depth; see add_products in depth.pxi. acc: [rows/DOT_ROWS][NV], because a sum may
    # hold two rows; then an odd last row is computed twice.
    cdef vweights w[NV]
    cdef vcodes x[MR]
    cdef int i, j
    if DOT_ROWS == 2:       # 24 registers of sums leave room for all codes, but not for all weights
        for i in range((mr + 1) // 2):
            x[i] = d_codes(<const unsigned char*>row_of(2 * i, low, high, a_stride),
                           <const unsigned char*>row_of(min(2 * i + 1, mr - 1), low, high, a_stride))
        for j in range(nv):
            w[0] = d_weights(b + j * VL * DOT)
            for i in range((mr + 1) // 2):
                acc[i * NV + j] = d_dot(acc[i * NV + j], x[i], w[0])
        return
    for j in range(nv):
        w[j] = d_weights(b + j * VL * DOT)
    for i in range(mr):
        x[0] = d_codes(<const unsigned char*>row_of(i, low, high, a_stride), NULL)
        for j in range(nv):
            acc[i * NV + j] = d_dot(acc[i * NV + j], x[0], w[j])


cdef inline void dot_tile(const int mr, const int nv, const DotTile* t) noexcept nogil:
    # Compute y of the formula above for mr rows and nv vectors of columns: sums in registers, then the epilogue.
    cdef vd acc[DOT_MR * NV]
    cdef vf y, sums, scale, bias
    cdef const signed char* b = t.b
    cdef const char* a = <const char*>t.a
    cdef const char* high = a + 3 * t.a_stride
    cdef const char* ahead = t.ahead
    cdef Py_ssize_t a_stride = t.a_stride, ahead_step = t.ahead_step * DOT_STEPS, k
    cdef float* out
    cdef int i, j, step
    for i in range(mr):
        for j in range(nv):
            acc[i // DOT_ROWS * NV + j] = d_start(t.sums + j * VL)
            if j * VL % LINE == 0:
                fetch_near(<const char*>(t.out + t.column[j] + i * t.out_stride))
    for k in range(t.depth // DOT_STEPS):
        fetch_lines(ahead, ahead_step)
        ahead += ahead_step
        for step in range(DOT_STEPS):
            a_stride = opaque(a_stride)
            add_dots(mr, nv, a + step * DOT, high + step * DOT, a_stride, b + step * nv * VL * DOT, acc)
        a += DOT_STEPS * DOT
        high += DOT_STEPS * DOT
        b += DOT_STEPS * nv * VL * DOT
    for k in range(t.depth % DOT_STEPS):
        add_dots(mr, nv, a, high, a_stride, b, acc)
        a += DOT
        high += DOT
        b += nv * VL * DOT
    for j in range(nv):
        sums, scale, bias = v_load(t.sums + j * VL), v_load(t.scale + j * VL), v_load(t.bias + j * VL)
        for i in range(mr):
            out = t.out + t.column[j] + i * t.out_stride
            y = result_of(d_float(acc[i // DOT_ROWS * NV + j], i % DOT_ROWS), &t.ranges[i], sums, scale, bias)
            if t.residual != NULL:
                y = v_add(y, v_load(t.residual + t.column[j] + i * t.out_stride))
            v_store(out, y)
    if t.activation != IDENTITY:
        activate(t.activation, t.out + t.column[0], t.out_stride, mr, nv * VL)


cdef inline void dot_rows(int mr, const int nv, const DotTile* t) noexcept nogil:
    # An instruction set whose tiles have fewer rows (DOT_MR) does not compile the taller ones.
    if DOT_MR > 5 and mr == 6: dot_tile(6, nv, t)
    elif DOT_MR > 4 and mr == 5: dot_tile(5, nv, t)
    elif DOT_MR > 3 and mr == 4: dot_tile(4, nv, t)
    elif DOT_MR > 2 and mr == 3: dot_tile(3, nv, t)
    elif mr == 2: dot_tile(2, nv, t)
    else: dot_tile(1, nv, t)


cdef void dot_any(int mr, int nv, const DotTile* t) noexcept nogil:
    # nv is below NV in the last panel alone.
    if nv == NV: dot_rows(mr, NV, t)
    elif nv == 1: dot_rows(mr, 1, t)
    elif NV > 2 and nv == 2: dot_rows(mr, 2, t)
    elif NV > 3: dot_rows(mr, 3, t)


cdef void linear_int8(const Linear* y, const void* a, Py_ssize_t codes_stride, const RowRange* ranges, Py_ssize_t M,
                      const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # The depth is not divided into K blocks: an int8 panel of K = 4096 is as large as a float32 K block of KC = 1024.
    cdef Py_ssize_t tiles = (M + DOT_MR - 1) // DOT_MR, depth = (y.K + DOT - 1) // DOT, p, i, row, next_row
    cdef int j, nv
    cdef DotTile t
    t.depth, t.a_stride, t.out_stride, t.activation = depth, codes_stride, out.stride, y.activation
    t.ahead_step = (NR * DOT + tiles - 1) // max(tiles, 1)
    for p in range(panel, last):
        nv = <int>(min(y.N - p * NR, <Py_ssize_t>NR) // VL)
        for j in range(nv):
            t.column[j] = place_of(p * NR + j * VL, out)
        t.b = <const signed char*>y.panels + p * NR * depth * DOT
        t.scale, t.sums, t.bias = y.scale + p * NR, y.sums + p * NR, y.bias + p * NR
        row = 0
        for i in range(tiles):
            next_row = M * (i + 1) // tiles
            t.a = <const unsigned char*>a + row * codes_stride
            t.ranges = ranges + row
            t.ahead = <const char*>t.b + depth * NR * DOT + depth * NR * DOT * i // tiles
            t.out = out.data + row * out.stride
            t.residual = residual + row * out.stride if residual != NULL else NULL
            dot_any(<int>(next_row - row), nv, &t)
            row = next_row


cdef inline float sum_of_row(const signed char* w, Py_ssize_t K) noexcept nogil:
    # Return sum_k w, which a float holds exactly for K up to 2^24 / 127.
    cdef long long total = 0
    cdef Py_ssize_t k
    for k in range(K):
        total += w[k]
    return <float>total


cdef void pack_int8(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
                    Py_ssize_t n) noexcept nogil:
    # weight: [n,K]; panels [depth][nv][DOT/DOT_GROUP][VL][DOT_GROUP]. Store sums of columns, too: codes begin at `low`.
    cdef const signed char* w = <const signed char*>weight
    cdef Py_ssize_t depth = (y.K + DOT - 1) // DOT, i, k, c, first, width
    cdef signed char* lane
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, <Py_ssize_t>NR)
        lane = <signed char*>panels + first * depth * DOT + (c - first) // VL * VL * DOT + c % VL * DOT_GROUP
        for k in range(y.K):
            lane[k // DOT * width * DOT + k % DOT // DOT_GROUP * VL * DOT_GROUP + k % DOT_GROUP] = w[i * y.K + k]
        sums[c] = sum_of_row(w + i * y.K, y.K)


cdef signed char ONES[NV * VL * DOT]
memset(ONES, 1, sizeof(ONES))
cdef float NO_SUMS[VL]


cdef double dot_rounds(Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds as fma_rounds does, with DOT products in each lane, and return their integer operations. Codes are
    # read from changing addresses, so that the compiler cannot merge products.
    cdef vd acc[DOT_MR * NV]
    cdef vweights w[NV]
    cdef vcodes x
    cdef int i, j
    cdef Py_ssize_t k
    for j in range(NV):
        w[j] = d_weights(ONES + j * VL * DOT)
    for i in range(DOT_MR // DOT_ROWS * NV):
        acc[i] = d_start(NO_SUMS)
    for k in range(n):
        for i in range(DOT_MR // DOT_ROWS):
            x = d_codes(<const unsigned char*>ONES + DOT * i + (k & 3), <const unsigned char*>ONES + DOT * i)
            for j in range(NV):
                acc[i * NV + j] = d_dot(acc[i * NV + j], x, w[j])
    sink[0] = 0
    for i in range(DOT_MR // DOT_ROWS * NV):
        sink[0] += v_sum(d_float(acc[i], 0))
    return 2.0 * DOT * VL * DOT_MR * NV * n
