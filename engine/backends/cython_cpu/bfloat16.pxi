# The parts of the bfloat16 GEMM: a tile's loop takes two steps of depth (a pair) at a time, rows are converted to
# operands, and weights are packed. linear.pxi contains the loops over tiles.

cdef extern from "bfloat16.h" nogil:
    ctypedef struct vp:
        pass
    ctypedef struct vpair:
        pass
    ctypedef int operand
    enum:
        HALVES
    const char* PAIR_INSTRUCTION
    vp p_weights(const unsigned short* p, int half)
    vpair p_operand(const operand* p)
    vf p_dot(vf sum, vpair x, vp weights)
    vp p_lanes(vf x)
    void p_store(operand* p, vf x)
    void p_store_pairs(unsigned short* p, vf first, vf second)
    void p_store_line(operand* p, vf first, vf second)
    void p_zip(const unsigned short* first, const unsigned short* second, unsigned short* to, Py_ssize_t n)


cdef inline void add_half(const int mr, const int nv, const char* low, const char* high, Py_ssize_t a_stride,
                          const char* b, const int half, vf* acc) noexcept nogil:
    # Add the products of the first or of the second step of a pair. If HALVES is 1, one call adds both steps, and
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


cdef inline void round_rows(const Py_ssize_t strip, const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K,
                            operand* operands, Py_ssize_t operands_stride, Py_ssize_t first) noexcept nogil:
    # Round M rows of x to bfloat16, and pad them to VL with zeros, or to whole lines if they lie in strips.
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


cdef void to_operands(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                      Py_ssize_t operands_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil:
    round_rows(1, x, x_stride, M, K, <operand*>operands, operands_stride, first)


cdef void pack_bfloat16(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
                        Py_ssize_t n) noexcept nogil:
    cdef const unsigned short* w = <const unsigned short*>weight
    cdef Py_ssize_t K = (y.K + 1) // 2 * 2, i, k, c, first, width
    cdef unsigned short* panel
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, <Py_ssize_t>NR)
        panel = <unsigned short*>panels + first * K + (c - first) * 2
        for k in range(y.K):
            panel[k // 2 * width * 2 + k % 2] = w[i * y.K + k]


cdef double pair_rounds(Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds as fma_rounds does, with bfloat16 products if the CPU has an instruction for them. Sums serve as
    # weights, so that the compiler cannot merge products. The loop over the sums is two loops, as in fma_rounds: gcc
    # does not unroll one loop of 24, and keeps the sums in memory.
    cdef vf acc[MR * NV]
    cdef operand ones[2]
    cdef vpair x
    cdef int i, j
    cdef Py_ssize_t k
    if HALVES == 2:
        return fma_rounds(n, sink)
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
