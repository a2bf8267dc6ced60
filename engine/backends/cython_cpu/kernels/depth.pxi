# The loop over the depth, in which all tiles of a GEMM spend nearly all of their time.
#
# The loop has few instructions beside its multiply-adds. The core's other hardware thread may take half of the
# instructions that the core can start, and on a shared machine it may belong to another user; then each one costs time.

cdef enum:
    STEPS = 4       # unrolled steps of the loop

cdef enum Weights:
    FLOATS
    TWO_STEPS       # a pair in bfloat16, as p_dot multiplies it
    EACH_STEP       # a pair in bfloat16, of which each number is widened to float32

cdef inline const char* row_of(const int i, const char* low, const char* high, Py_ssize_t stride) noexcept nogil:
    # Return the address of row i. Rows lie `stride` bytes apart; `low` is row 0 and `high` is row 3. An x86 address can
    # multiply a register by 1, 2, 4 or 8, so that six rows need three registers.
    return low + i * stride if i < 3 else high + (i - 3) * stride


cdef inline void add_products(const int weights, const int mr, const int nv, const char* low, const char* high,
                              Py_ssize_t a_stride, const char* b, vf* acc) noexcept nogil:
    # Add the products of one step to acc [mr][NV], the sums of a tile. low, high: rows 0 and 3 of a, see row_of.
    cdef vf w[NV]
    cdef vfactor x
    cdef int i, j
    if weights == TWO_STEPS:    # PAIR_STEPS of simd/*.h: the calls that a pair takes; where it is 1, one adds both
        add_half(mr, nv, low, high, a_stride, b, 0, acc)
        if PAIR_STEPS == 2:
            add_half(mr, nv, low, high, a_stride, b, 1, acc)
        return
    if weights == EACH_STEP:
        add_widened(mr, nv, low, high, a_stride, b, 0, acc)
        add_widened(mr, nv, low, high, a_stride, b, 1, acc)
        return
    for j in range(nv):
        w[j] = v_load(<const float*>b + j * VL)
    for i in range(mr):
        x = v_factor(<const float*>row_of(i, low, high, a_stride))
        for j in range(nv):
            acc[i * NV + j] = v_add_product(acc[i * NV + j], x, w[j])


cdef inline void multiply(const int weights, const int mr, const int nv, Py_ssize_t steps, const char* a,
                          Py_ssize_t a_stride, Py_ssize_t a_step, const char* b, Py_ssize_t b_step, const bint fetch,
                          const char* ahead, Py_ssize_t ahead_step, vf* acc) noexcept nogil:
    # Compute acc[i][j] = sum over k < steps of a[i*a_stride + k*a_step] b[k*b_step + j*VL*4 ...], with strides in
    # bytes, and prefetch `ahead` meanwhile. A step is one step of depth in float32, or a pair of them in bfloat16.
    cdef const char* high = a + 3 * a_stride
    cdef int i, j, step
    cdef Py_ssize_t k
    for i in range(mr):
        for j in range(nv):
            acc[i * NV + j] = v_set1(0.0)
    for k in range(steps // STEPS):
        if fetch:
            fetch_lines(ahead, STEPS * ahead_step)
            ahead += STEPS * ahead_step
        for step in range(STEPS):
            a_stride = opaque(a_stride)      # without this, gcc keeps a register or a stack slot for each row and step
            add_products(weights, mr, nv, a + step * a_step, high + step * a_step, a_stride, b + step * b_step, acc)
        a += STEPS * a_step
        high += STEPS * a_step
        b += STEPS * b_step
    for k in range(steps % STEPS):
        add_products(weights, mr, nv, a, high, a_stride, b, acc)
        a += a_step
        high += a_step
        b += b_step
