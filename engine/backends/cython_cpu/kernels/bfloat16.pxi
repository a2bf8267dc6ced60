# The parts of the bfloat16 GEMM: a tile's loop takes two steps of depth (a pair) at a time, rows are converted to
# operands, and weights are packed. linear.pxi contains the loops over tiles.
#
# simd.pxi: a tile has mr <= MR rows and nv <= NV vectors of VL columns, a panel NR = NV*VL columns; PAIR_STEPS: calls
# for a pair; QUADS: whether an instruction multiplies 2 rows by 2 columns. row_of, `low`, `high`, opaque: depth.pxi.


cdef inline void add_half(const int mr, const int nv, const char* low, const char* high, Py_ssize_t a_stride,
                          const char* b, const int half, vf* acc) noexcept nogil:
    # Add the products of the first or of the second step of a pair. If PAIR_STEPS is 1, one call adds both steps, and
    # operands are padded to whole pairs.
    cdef vp w[NV]
    cdef vpair x
    cdef int i, j
    for j in range(nv):
        w[j] = p_weights(<const unsigned short*>b + j * VL * 2, half)
    for i in range(mr):
        x = p_operand(<const operand*>row_of(i, low, high, a_stride) + half)
        for j in range(nv):
            acc[i * NV + j] = p_dot(acc[i * NV + j], x, w[j])


cdef inline void add_widened(const int mr, const int nv, const char* low, const char* high, Py_ssize_t a_stride,
                             const char* b, const int half, vf* acc) noexcept nogil:
    # Add the products of float32 operands and widened weights, of the first or of the second step of a pair.
    cdef vf w[NV]
    cdef vfactor x
    cdef int i, j
    for j in range(nv):
        w[j] = v_load_half(<const unsigned short*>b + j * VL * 2, half)
    for i in range(mr):
        x = v_factor(<const float*>row_of(i, low, high, a_stride) + half)
        for j in range(nv):
            acc[i * NV + j] = v_add_product(acc[i * NV + j], x, w[j])


cdef inline void add_quads(const int mr, const int nv, const char* low, const char* high, Py_ssize_t a_stride,
                           const char* b, vq* sums) noexcept nogil:
    # Add the products of four steps of depth. sums: [rows/2][NV]; an odd last row is computed twice.
    cdef vquad x[MR]
    cdef vquads w
    cdef int i, j
    for i in range((mr + 1) // 2):
        x[i] = q_operands(<const operand*>row_of(2 * i, low, high, a_stride),
                          <const operand*>row_of(min(2 * i + 1, mr - 1), low, high, a_stride))
    for j in range(nv):
        w = q_weights(<const unsigned short*>b + j * VL * 4)
        for i in range((mr + 1) // 2):
            sums[i * NV + j] = q_dot(sums[i * NV + j], x[i], w)


cdef inline void multiply_quads(const int mr, const int nv, Py_ssize_t steps, const char* a, Py_ssize_t a_stride,
                                const char* b, const char* ahead, Py_ssize_t ahead_step, vf* acc) noexcept nogil:
    # The same as `multiply` in depth.pxi for steps of four; operands and weights are padded to whole steps.
    cdef vq sums[MR * NV]
    cdef const char* high = a + 3 * a_stride
    cdef Py_ssize_t a_step = 4 * sizeof(operand), b_step = nv * VL * 4 * sizeof(operand), k
    cdef int i, j, step
    for i in range((mr + 1) // 2):
        for j in range(nv):
            sums[i * NV + j] = q_zero()
    for k in range(steps // 2):
        fetch_lines(ahead, 2 * ahead_step)
        ahead += 2 * ahead_step
        for step in range(2):
            a_stride = opaque(a_stride)
            add_quads(mr, nv, a + step * a_step, high + step * a_step, a_stride, b + step * b_step, sums)
        a += 2 * a_step
        high += 2 * a_step
        b += 2 * b_step
    if steps % 2:
        add_quads(mr, nv, a, high, a_stride, b, sums)
    for i in range((mr + 1) // 2):      # over pairs of rows: gcc unrolls this loop, and the sums stay in registers
        for j in range(nv):
            acc[2 * i * NV + j] = q_row(sums[i * NV + j], 0)
            if 2 * i + 1 < mr:
                acc[(2 * i + 1) * NV + j] = q_row(sums[i * NV + j], 1)


cdef inline void round_rows(const Py_ssize_t strip, const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K,
                            operand* operands, Py_ssize_t operands_stride, Py_ssize_t first) noexcept nogil:
    # Round M rows of x to bfloat16, and pad them to VL with zeros, or to whole lines of 64 bytes if they lie in strips
    # of several rows; operands.pxi says where a row and its numbers lie.
    cdef Py_ssize_t line = 64 // sizeof(operand), whole = K // VL * VL, row, i
    cdef operand* out
    for row in range(first, first + M):
        out = operands + start_of_row(row, strip, operands_stride, line)
        for i in range(K // VL):
            p_store(out + place_in_row(i * VL, strip, line), v_load(x + i * VL))
        if whole < K:
            p_store(out + place_in_row(whole, strip, line), v_loadn(x + whole, <int>(K - whole)))
        if strip > 1:
            i = (K + VL - 1) // VL * VL
            while i % line != 0:
                p_store(out + place_in_row(i, strip, line), v_set1(0.0))
                i += VL
        x += x_stride


cdef inline void round_results_as(const int activation, const float* x, int M, int nv, operand* operands,
                                  Py_ssize_t operands_stride) noexcept nogil:
    # Write lines of operands, two vectors at a time; see round_results.
    cdef int row, j
    for row in range(M):
        for j in range(nv // 2):
            p_store_line(operands + 2 * j * VL, v_activate(activation, v_load(x + 2 * j * VL)),
                         v_activate(activation, v_load(x + (2 * j + 1) * VL)))
        if nv % 2:
            p_store(operands + (nv - 1) * VL, v_activate(activation, v_load(x + (nv - 1) * VL)))
        x += nv * VL
        operands += operands_stride


cdef void round_results(int activation, const float* x, int M, int nv, operand* operands,
                        Py_ssize_t operands_stride) noexcept nogil:
    # Round activation(x [M][nv*VL]) to rows of operands.
    if activation == GELU: round_results_as(GELU_APPROXIMATE, x, M, nv, operands, operands_stride)
    elif activation == GELU_TANH: round_results_as(GELU_TANH, x, M, nv, operands, operands_stride)
    elif activation == RELU: round_results_as(RELU, x, M, nv, operands, operands_stride)
    elif activation == SILU: round_results_as(SILU, x, M, nv, operands, operands_stride)
    else: round_results_as(IDENTITY, x, M, nv, operands, operands_stride)


cdef void to_operands(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                      Py_ssize_t operands_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Round M rows of x to bfloat16, one row after the other.
    round_rows(1, x, x_stride, M, K, <operand*>operands, operands_stride, first)


cdef inline void pack_together(const Py_ssize_t step, const Linear* y, void* panels, Py_ssize_t column,
                               const void* weight, Py_ssize_t n) noexcept nogil:
    # Pack weights [n,K] so that `step` successive ones of a column lie together: panels [K/step][columns][step].
    cdef const unsigned short* w = <const unsigned short*>weight
    cdef Py_ssize_t K = (y.K + step - 1) // step * step, i, k, c, first, width
    cdef unsigned short* panel
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, <Py_ssize_t>NR)
        panel = <unsigned short*>panels + first * K + (c - first) * step
        for k in range(y.K):
            panel[k // step * width * step + k % step] = w[i * y.K + k]


cdef void pack_bfloat16(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
                        Py_ssize_t n) noexcept nogil:
    # Weights as `multiply` reads them: two or four successive k of a column together.
    pack_together(WEIGHTS_TOGETHER, y, panels, column, weight, n)


cdef void pack_widened(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
                       Py_ssize_t n) noexcept nogil:
    # Weights in pairs, for the product that widens them.
    pack_together(2, y, panels, column, weight, n)


cdef double quad_rounds(Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds as pair_rounds does, with products of two rows by two columns. Rows are read from changing addresses,
    # so that the compiler cannot merge products.
    cdef vq sums[MR * NV]
    cdef operand rows[MR * 4]
    cdef unsigned short weights[VL * 4]
    cdef vquads w
    cdef int i, j
    cdef Py_ssize_t k
    memset(rows, 0, sizeof(rows))
    memset(weights, 0, sizeof(weights))
    w = q_weights(weights)
    for i in range(MR // 2 * NV):
        sums[i] = q_zero()
    for k in range(n):
        for i in range(MR // 2):
            for j in range(NV):
                sums[i * NV + j] = q_dot(sums[i * NV + j], q_operands(rows + 4 * i + (k & 3), rows), w)
    sink[0] = 0
    for i in range(MR // 2 * NV):
        sink[0] += v_sum(q_row(sums[i], 0))
    return 8.0 * VL * MR * NV * n       # MR / 2 * NV products of 2 rows, VL columns and 4 steps, two operations each


cdef double pair_rounds(Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds as fma_rounds does, with bfloat16 products if the CPU has an instruction for them. Sums serve as
    # weights, so that the compiler cannot merge products. The loop over the sums is two loops, as in fma_rounds: gcc
    # does not unroll one loop of 24, and keeps the sums in memory.
    cdef vf acc[MR * NV]
    cdef operand ones[2]
    cdef vpair x
    cdef int i, j
    cdef Py_ssize_t k
    if PAIR_STEPS == 2:
        return fma_rounds(n, sink)
    if QUADS:
        return quad_rounds(n, sink)
    memset(ones, 0, sizeof(ones))
    x = p_operand(ones)
    for i in range(MR * NV):
        acc[i] = v_set1(<float>i)
    for k in range(n):
        for i in range(MR):
            for j in range(NV):
                acc[i * NV + j] = p_dot(acc[i * NV + j], x, p_lanes(acc[i * NV + j]))
    sink[0] = 0
    for i in range(MR * NV):
        sink[0] += v_sum(acc[i])
    return 4.0 * VL * MR * NV * n
