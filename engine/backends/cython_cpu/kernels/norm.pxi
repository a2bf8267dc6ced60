# Compute LayerNorm and RMSNorm of rows.

cdef enum Term:
    NUMBER          # x
    SQUARE          # x^2
    DEVIATION       # (x - mean)^2


cdef inline vf add_term(const Term term, vf x, vf mean, int n, vf sum) noexcept nogil:
    # Add the terms of the first n lanes; the others are zeros, or become zeros.
    if term == NUMBER:
        return v_add(sum, x)
    if term == DEVIATION:
        x = v_sub(x, mean)
        if n < VL:
            x = v_keep(x, n)
    return v_fma(x, x, sum)


cdef inline float sum_of_terms(const Term term, const float* x, Py_ssize_t D, float mean) noexcept nogil:
    # Return the sum of the terms of D numbers, in lanes (simd/common.h).
    cdef v_lanes sums = l_zero()
    cdef vf centre = v_set1(mean)
    cdef Py_ssize_t i
    cdef int j, n, tail = <int>(D % LANES)
    for i in range(D // LANES):
        for j in range(LANE_VECTORS):
            sums.v[j] = add_term(term, v_load(x + j * VL), centre, VL, sums.v[j])
        x += LANES
    if tail:
        for j in range(LANE_VECTORS):
            n = l_count(tail, j)
            if n:
                sums.v[j] = add_term(term, v_loadn(x + j * VL, n), centre, n, sums.v[j])
    return l_sum(sums)


cdef void layer_norm(const Norm* norm, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                     Py_ssize_t M) noexcept nogil:
    # Compute out = (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al., arXiv 1607.06450, eqs. 3-4). A second
    # pass computes the variance from x - mean: E[x^2] - E[x]^2 loses all digits where |mean| is large. out may be x.
    cdef Py_ssize_t vectors = norm.D // VL, whole = vectors * VL, row, i
    cdef int tail = <int>(norm.D % VL)
    cdef float centre
    cdef vf mean, centred, scale
    for row in range(M):
        centre = sum_of_terms(NUMBER, x, norm.D, 0) / norm.D
        scale = v_set1(1.0 / sqrtf(sum_of_terms(DEVIATION, x, norm.D, centre) / norm.D + norm.eps))
        mean = v_set1(centre)
        for i in range(vectors):
            centred = v_mul(v_sub(v_load(x + i * VL), mean), scale)
            v_store(out + i * VL, v_fma(centred, v_load(norm.weight + i * VL), v_load(norm.bias + i * VL)))
        if tail:
            centred = v_mul(v_sub(v_loadn(x + whole, tail), mean), scale)
            v_storen(out + whole, v_fma(centred, v_loadn(norm.weight + whole, tail),
                                        v_loadn(norm.bias + whole, tail)), tail)
        x += x_stride
        out += out_stride


cdef void rms_norm(const Norm* norm, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                   Py_ssize_t M) noexcept nogil:
    # Compute out = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, arXiv 1910.07467, eq. 4). out may equal x.
    cdef Py_ssize_t vectors = norm.D // VL, whole = vectors * VL, row, i
    cdef int tail = <int>(norm.D % VL)
    cdef vf scale, value
    for row in range(M):
        scale = v_set1(1.0 / sqrtf(sum_of_terms(SQUARE, x, norm.D, 0) / norm.D + norm.eps))
        for i in range(vectors):
            v_store(out + i * VL, v_mul(v_mul(v_load(x + i * VL), scale), v_load(norm.weight + i * VL)))
        if tail:
            value = v_mul(v_loadn(x + whole, tail), scale)
            v_storen(out + whole, v_mul(value, v_loadn(norm.weight + whole, tail)), tail)
        x += x_stride
        out += out_stride
