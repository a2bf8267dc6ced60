# Apply the rotary embedding (Su et al., arXiv 2104.09864, eq. 34): rotate pairs of a row's first columns by its angles.

cdef inline vf turned_x(vf x, vf y, vf cos, vf sin) noexcept nogil:
    # Return x cos - y sin, the first number of a pair.
    return v_fnma(y, sin, v_mul(x, cos))


cdef inline vf turned_y(vf x, vf y, vf cos, vf sin) noexcept nogil:
    # Return x sin + y cos, the second number of a pair.
    return v_fma(y, cos, v_mul(x, sin))


cdef inline void rotate_halves(const float* x, const float* cos, const float* sin, float* out, Py_ssize_t half,
                               const int n) noexcept nogil:
    # Rotate n <= VL pairs, x[i] with x[half + i].
    cdef vf a = v_loadn(x, n), b = v_loadn(x + half, n), c = v_loadn(cos, n), s = v_loadn(sin, n)
    v_storen(out, turned_x(a, b, c, s), n)
    v_storen(out + half, turned_y(a, b, c, s), n)


cdef inline void rotate_neighbours(const float* x, const float* cos, const float* sin, float* out,
                                   const int n) noexcept nogil:
    # Rotate n <= VL pairs, x[2i] with x[2i + 1].
    cdef int low = min(2 * n, <int>VL), high = 2 * n - low
    cdef vf left = v_loadn(x, low), right = v_loadn(x + VL, high)
    cdef vf a = v_even(left, right), b = v_odd(left, right), c = v_loadn(cos, n), s = v_loadn(sin, n)
    left, right = turned_x(a, b, c, s), turned_y(a, b, c, s)
    v_storen(out, v_zip_low(left, right), low)
    v_storen(out + VL, v_zip_high(left, right), high)


cdef inline void rotate_as(const bint interleaved, const Rotary* rotary, const float* x, Py_ssize_t x_stride,
                           float* out, Py_ssize_t out_stride, Py_ssize_t M) noexcept nogil:
    # Rotate M rows, whole vectors of pairs first; columns from `width` on are copied unless out is x.
    cdef Py_ssize_t half = rotary.width // 2, whole = half // VL * VL, row, i
    cdef int tail = <int>(half % VL)
    cdef const float* cos = rotary.cos
    cdef const float* sin = rotary.sin
    for row in range(M):
        for i in range(half // VL):
            if interleaved:
                rotate_neighbours(x + 2 * i * VL, cos + i * VL, sin + i * VL, out + 2 * i * VL, VL)
            else:
                rotate_halves(x + i * VL, cos + i * VL, sin + i * VL, out + i * VL, half, VL)
        if tail and interleaved:
            rotate_neighbours(x + 2 * whole, cos + whole, sin + whole, out + 2 * whole, tail)
        elif tail:
            rotate_halves(x + whole, cos + whole, sin + whole, out + whole, half, tail)
        if out != x:
            memcpy(out + rotary.width, x + rotary.width, (rotary.d - rotary.width) * sizeof(float))
        x += x_stride
        out += out_stride
        cos += rotary.stride
        sin += rotary.stride


cdef void rotate(const Rotary* rotary, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                 Py_ssize_t M) noexcept nogil:
    # Rotate row m of x[M,d] by the m-th angles. out may equal x.
    if rotary.interleaved: rotate_as(True, rotary, x, x_stride, out, out_stride, M)
    else: rotate_as(False, rotary, x, x_stride, out, out_stride, M)
