# Functions of one vector: exp2 and the activations. Polynomials are evaluated in x^2 over pairs of coefficients
# (c0 + c1 x). The chain of dependent operations then has half the length, and its latency limits the speed.


cdef inline vf pair(float c0, float c1, vf x) noexcept nogil:
    # Return c0 + c1 x.
    return v_fma(v_set1(c1), x, v_set1(c0))


cdef inline vf v_exp2_bounded(vf x) noexcept nogil:
    # 2^x = 2^n 2^r with n = round(x), |r| <= 1/2, and a degree-5 minimax polynomial for 2^r: within 2.6 ulp.
    # This is valid for -126 <= x <= 127.
    cdef v_parts x_parts = v_split(x)
    cdef vf r = x_parts.rest
    cdef vf r2 = v_mul(r, r)
    cdef vf p = pair(<float>9.6755413e-3, <float>1.3276408e-3, r)
    p = v_fma(p, r2, pair(<float>2.4022120e-1, <float>5.5507135e-2, r))
    p = v_fma(p, r2, pair(<float>1.0000001, <float>6.9314694e-1, r))
    return v_scale(p, x_parts.n)


cdef inline vf v_exp2(vf x) noexcept nogil:
    # This is valid for x <= 127; below -126 the result is 2^-126. NaN passes through v_max as its second operand.
    return v_exp2_bounded(v_max(v_set1(-126.0), x))


cdef inline vf v_exp2_approximate(vf x) noexcept nogil:
    # 2^x as v_exp2 computes it, but with a polynomial of degree 3, for results that are rounded to bfloat16: within
    # 7.5e-5 of the value, where the rounding may change it by 3.9e-3. Below -125 the result is about 2^-125: 2^-126
    # less the error would be a denormal number, and a vector of them costs about 300 cycles.
    cdef v_parts parts = v_split(v_max(v_set1(-125.0), x))
    cdef vf p = v_fma(v_set1(<float>5.517169e-2), parts.rest, v_set1(<float>2.4261117e-1))
    p = v_fma(p, parts.rest, v_set1(<float>6.9326097e-1))
    return v_scale(v_fma(p, parts.rest, v_set1(<float>9.9992806e-1)), parts.n)


cdef inline vf v_gelu(vf x) noexcept nogil:
    # x Phi(x) = max(x, 0) - a Phi(-a), a = |x|, with Phi the normal distribution function (Hendrycks and Gimpel,
    # arXiv 1606.08415, eq. 1). log2 Phi(-a) is smooth: a degree-9 polynomial on [0, 8], fitted with the weight
    # a Phi(-a), leaves an absolute error below 2.1e-9; the other errors are float32's roundings.
    cdef vf t = v_min(v_set1(8.0), v_abs(x))
    cdef vf t2 = v_mul(t, t)
    cdef vf p = pair(<float>-7.6134697e-6, <float>3.8151214e-7, t)
    p = v_fma(p, t2, pair(<float>-2.4583828e-4, <float>6.311736e-5, t))
    p = v_fma(p, t2, pair(<float>7.0112413e-3, <float>-5.743285e-5, t))
    p = v_fma(p, t2, pair(<float>-4.5920473e-1, <float>-5.2485343e-2, t))
    p = v_fma(p, t2, pair(<float>-9.9999994e-1, <float>-1.1511066, t))
    return v_fnma(t, v_exp2_bounded(p), v_max(v_set1(0.0), x))


cdef inline vf v_gelu_approximate(vf x) noexcept nogil:
    # x Phi(x) for results that are rounded to bfloat16: x (1/2 + t P(t^2)) with t = x cut to [-4, 4]. P has degree 7.
    # The greatest error is 1.3e-4, at the cuts, where t P(t^2) is exactly 1/2 or -1/2.
    cdef vf t = v_min(v_set1(4.0), v_max(v_set1(-4.0), x))
    cdef vf u = v_mul(t, t)
    cdef vf u2 = v_mul(u, u)
    cdef vf p = pair(<float>9.2697896e-8, <float>-1.1119773e-9, u)
    p = v_fma(p, u2, pair(<float>7.126377e-5, <float>-3.3746855e-6, u))
    p = v_fma(p, u2, pair(<float>9.411766e-3, <float>-9.8141714e-4, u))
    p = v_fma(p, u2, pair(<float>3.985722e-1, <float>-6.572166e-2, u))
    return v_mul(x, v_fma(t, p, v_set1(0.5)))


cdef inline vf v_swish(vf x, vf y) noexcept nogil:
    # x / (1 + 2^y), where y grows as x falls. From y = 126 on, the exact value is below |x| 2^-126, and this returns 0.
    return v_select(v_less(v_set1(126.0), y), v_set1(0.0), v_div(x, v_add(v_set1(1.0), v_exp2(y))))


cdef inline vf v_gelu_tanh(vf x) noexcept nogil:
    # x (1 + tanh u) / 2 = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3) (arXiv 1606.08415, section 2).
    cdef vf cubic = v_fma(v_mul(v_mul(x, x), x), v_set1(<float>0.044715), x)
    return v_swish(x, v_mul(cubic, v_set1(<float>-2.3022082)))      # -2 sqrt(2/pi) log2 e


cdef inline vf v_silu(vf x) noexcept nogil:
    # x / (1 + e^-x) (arXiv 1606.08415, section 2; Elfwing et al., arXiv 1702.03118, eq. 3)
    return v_swish(x, v_mul(x, v_set1(<float>-1.4426950408889634)))     # -log2 e


cdef inline float natural_logarithm(float x) noexcept nogil:
    # ln x, within 0.501 ulp, by e ln 2 + 2 (s + s^3/3 + ... s^15/15) with s = (m - 1) / (m + 1) for x = m 2^e, m around
    # 1, in float64. libm's has other bits in other versions and on other CPUs. No FMAs, because not all sets have them.
    cdef int exponent, i
    cdef double m, s, s2, series
    if not 0 < x < INFINITY:
        return x if x > 0 else -INFINITY if x == 0 else NAN
    m = frexp(x, &exponent)
    if m < M_SQRT1_2:
        m *= 2
        exponent -= 1
    s = (m - 1) / (m + 1)
    s2, series, i = s * s, 0, 15
    while i > 0:
        series = series * s2 + 1.0 / i
        i -= 2
    return <float>(exponent * M_LN2 + 2 * s * series)


cdef enum:
    GELU_APPROXIMATE = 100      # one more Activation: GELU for results that are rounded to bfloat16 or int8 at once


cdef inline int approximation_of(const int activation) noexcept nogil:
    # Return the activation to compute if its results are rounded at once.
    return GELU_APPROXIMATE if activation == GELU else activation


cdef inline vf v_activate(const int activation, vf x) noexcept nogil:
    # Return the activation of a vector; `activation` is a constant, also GELU_APPROXIMATE.
    if activation == GELU_APPROXIMATE:
        return v_gelu_approximate(x)
    if activation == GELU:
        return v_gelu(x)
    if activation == GELU_TANH:
        return v_gelu_tanh(x)
    if activation == RELU:
        return v_max(v_set1(0.0), x)
    if activation == SILU:
        return v_silu(x)
    return x


cdef inline void activate_as(const int activation, float* x, Py_ssize_t stride, Py_ssize_t M,
                             Py_ssize_t N) noexcept nogil:
    # x [M,N] = activation(x); no column behind these N is read or written.
    cdef Py_ssize_t row, i
    cdef int tail = <int>(N % VL)
    for row in range(M):
        for i in range(N // VL):
            v_store(x + i * VL, v_activate(activation, v_load(x + i * VL)))
        if tail:
            v_storen(x + N - tail, v_activate(activation, v_loadn(x + N - tail, tail)), tail)
        x += stride


cdef void activate(int activation, float* x, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t N) noexcept nogil:
    # x[M,N] = activation(x[M,N]), in place
    if activation == GELU: activate_as(GELU, x, stride, M, N)
    elif activation == GELU_TANH: activate_as(GELU_TANH, x, stride, M, N)
    elif activation == RELU: activate_as(RELU, x, stride, M, N)
    elif activation == SILU: activate_as(SILU, x, stride, M, N)


cdef inline void gate_as(const int activation, const float* x, Py_ssize_t x_stride, const float* y, Py_ssize_t y_stride,
                         float* out, Py_ssize_t out_stride, Py_ssize_t M, Py_ssize_t N) noexcept nogil:
    # out [M,N] = activation(x) y; no column behind these N is read or written.
    cdef Py_ssize_t row, i
    cdef int tail = <int>(N % VL)
    for row in range(M):
        for i in range(N // VL):
            v_store(out + i * VL, v_mul(v_activate(activation, v_load(x + i * VL)), v_load(y + i * VL)))
        if tail:
            i = N - tail
            v_storen(out + i, v_mul(v_activate(activation, v_loadn(x + i, tail)), v_loadn(y + i, tail)), tail)
        x += x_stride
        y += y_stride
        out += out_stride


cdef void gate(int activation, const float* x, Py_ssize_t x_stride, const float* y, Py_ssize_t y_stride, float* out,
               Py_ssize_t out_stride, Py_ssize_t M, Py_ssize_t N) noexcept nogil:
    # out[M,N] = activation(x[M,N]) y[M,N] (Shazeer, arXiv 2002.05202, eqs. 4-5); out may be x
    if activation == GELU: gate_as(GELU, x, x_stride, y, y_stride, out, out_stride, M, N)
    elif activation == GELU_TANH: gate_as(GELU_TANH, x, x_stride, y, y_stride, out, out_stride, M, N)
    elif activation == RELU: gate_as(RELU, x, x_stride, y, y_stride, out, out_stride, M, N)
    elif activation == SILU: gate_as(SILU, x, x_stride, y, y_stride, out, out_stride, M, N)
    else: gate_as(IDENTITY, x, x_stride, y, y_stride, out, out_stride, M, N)
