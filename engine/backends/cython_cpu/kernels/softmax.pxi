# Compute the softmax of rows: out[M,N] = 2^((x - max) log2 e), divided by its sum. An input of -inf gives exactly 0.

cdef inline vf row_tail(const float* x, int n) noexcept nogil:
    # Load a row's last n < VL entries, and -inf in the other lanes.
    return v_select(v_less(v_iota(), v_set1(<float>n)), v_loadn(x, n), v_set1(-INFINITY))


cdef inline float largest(const float* x, Py_ssize_t n, float least) noexcept nogil:
    # Return the largest of n numbers and `least`. NaN is ignored.
    cdef vf highest = v_set1(least)
    cdef Py_ssize_t i = 0
    while i < n:
        highest = v_max(v_load(x + i) if n - i >= VL else row_tail(x + i, <int>(n - i)), highest)
        i += VL
    return v_largest(highest)


cdef inline vf power(vf x, vf maximum) noexcept nogil:
    # Return 2^((x - maximum) log2 e): 0 where that is below 2^-126, and NaN where x - maximum is NaN.
    cdef vf y = v_mul(v_sub(x, maximum), v_set1(<float>1.4426950408889634))     # log2 e
    return v_select(v_less(v_set1(-126.0), y), v_exp2_bounded(y), v_max(v_set1(0.0), y))


cdef inline float powers_of_row(const float* x, Py_ssize_t n, float maximum, float* out) noexcept nogil:
    # Return the sum of the powers of n numbers, in lanes (simd/common.h), and store the powers unless out is NULL.
    cdef v_lanes sums = l_zero()
    cdef vf highest = v_set1(maximum), p
    cdef Py_ssize_t i = 0
    cdef int j, count
    while i < n:
        for j in range(LANE_VECTORS):
            count = l_count(<int>(n - i), j) if n - i < LANES else VL
            if count:
                p = power(v_load(x + i + j * VL) if count == VL else row_tail(x + i + j * VL, count), highest)
                if out != NULL:
                    v_storen(out + i + j * VL, p, count)
                sums.v[j] = v_add(sums.v[j], p)
        i += LANES
    return l_sum(sums)


cdef void softmax(const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride, Py_ssize_t M,
                  Py_ssize_t N) noexcept nogil:
    # The maximum starts at the most negative finite number, so that all powers of a row of -inf are 0 and its sum 0
    # marks an empty row. The maximum may ignore NaN, but the sum does not: the whole row becomes NaN. out may be x.
    cdef Py_ssize_t vectors = N // VL, whole = vectors * VL, row, i
    cdef int tail = <int>(N % VL)
    cdef vf scale
    cdef float total
    for row in range(M):
        total = powers_of_row(x, N, largest(x, N, -FLT_MAX), out)
        scale = v_set1(1.0 / total if total != 0.0 else 0.0)
        for i in range(vectors):
            v_store(out + i * VL, v_mul(v_load(out + i * VL), scale))
        if tail:
            v_storen(out + whole, v_mul(v_loadn(out + whole, tail), scale), tail)
        x += x_stride
        out += out_stride
