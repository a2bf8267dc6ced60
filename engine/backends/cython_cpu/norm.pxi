# Row-wise kernels: LayerNorm, RMSNorm, and the sum of the embeddings.

cdef void layer_norm(const Norm* norm, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                     Py_ssize_t M) noexcept nogil:
    # out = (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al., arXiv 1607.06450, eqs. 3-4). The variance is
    # taken about the mean in a second pass: E[x^2] - E[x]^2 loses all its digits where |mean| is large. May be in place.
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
    # out = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, arXiv 1910.07467, eq. 4). May be in place.
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


cdef inline vf embedding_at(const float* word, const float* position, const float* type, Py_ssize_t i,
                            int n) noexcept nogil:
    cdef vf x = v_loadn(word + i, n)
    if position != NULL:
        x = v_add(x, v_loadn(position + i, n))
    if type != NULL:
        x = v_add(x, v_loadn(type + i, n))
    return x


cdef void embed(const Embedding* call, Py_ssize_t first, Py_ssize_t M, Py_ssize_t D, float* out,
                Py_ssize_t out_stride) noexcept nogil:
    # Rows [first, first + M) of the embedding's sum, before its norm.
    cdef Py_ssize_t row, i
    cdef const float* word
    cdef const float* position
    cdef const float* type
    for row in range(first, first + M):
        word = call.table + (row if call.ids == NULL else <Py_ssize_t>call.ids[row]) * D
        position = call.positions + <Py_ssize_t>call.position_ids[row] * D if call.positions != NULL else NULL
        type = call.types + <Py_ssize_t>call.type_ids[row] * D if call.types != NULL else NULL
        for i in range(D // VL):
            v_store(out + i * VL, embedding_at(word, position, type, i * VL, VL))
        if D % VL:
            i = D - D % VL
            v_storen(out + i, embedding_at(word, position, type, i, <int>(D % VL)), <int>(D % VL))
        out += out_stride
