# Compute LayerNorm and RMSNorm of rows.

cdef void layer_norm(const Norm* norm, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                     Py_ssize_t M) noexcept nogil:
    # Compute out = (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al., arXiv 1607.06450, eqs. 3-4). A second
    # pass computes the variance from x - mean: E[x^2] - E[x]^2 loses all its digits where |mean| is large. out may
    # equal x.
    cdef Py_ssize_t vectors = norm.D // VL, whole = vectors * VL, row, i
    cdef int tail = <int>(norm.D % VL)
    cdef vf total, squares, mean, centred, scale
    for row in range(M):
        total = v_set1(0.0)
        for i in range(vectors):
            total = v_add(total, v_load(x + i * VL))
        if tail:
            total = v_add(total, v_loadn(x + whole, tail))
        mean = v_set1(v_sum(total) / norm.D)
        squares = v_set1(0.0)
        for i in range(vectors):
            centred = v_sub(v_load(x + i * VL), mean)
            squares = v_fma(centred, centred, squares)
        if tail:
            centred = v_keep(v_sub(v_loadn(x + whole, tail), mean), tail)
            squares = v_fma(centred, centred, squares)
        scale = v_set1(1.0 / sqrtf(v_sum(squares) / norm.D + norm.eps))
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
    cdef vf squares, scale, value
    for row in range(M):
        squares = v_set1(0.0)
        for i in range(vectors):
            value = v_load(x + i * VL)
            squares = v_fma(value, value, squares)
        if tail:
            value = v_loadn(x + whole, tail)
            squares = v_fma(value, value, squares)
        scale = v_set1(1.0 / sqrtf(v_sum(squares) / norm.D + norm.eps))
        for i in range(vectors):
            v_store(out + i * VL, v_mul(v_mul(v_load(x + i * VL), scale), v_load(norm.weight + i * VL)))
        if tail:
            value = v_mul(v_loadn(x + whole, tail), scale)
            v_storen(out + whole, v_mul(value, v_loadn(norm.weight + whole, tail)), tail)
        x += x_stride
        out += out_stride
