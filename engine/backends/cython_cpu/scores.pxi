# What happens to a block of scores P^T [keys][W] between the two products of attention: soft-capping and bias and the
# user's score function change them; mask and band hide some, which are set to -inf.

cdef inline vf v_tanh(vf x) noexcept nogil:
    # |x| < 0.6: x + x^3 q(x^2), q a minimax polynomial of degree 4, within 2.8e-9; else 1 - 2 / (1 + e^2|x|), signed.
    cdef vf a = v_min(v_set1(10.0), v_abs(x))
    cdef vf x2 = v_mul(x, x)
    cdef vf x4 = v_mul(x2, x2)
    cdef vf q = v_fma(x4, v_set1(<float>-5.895158e-3), pair(<float>-5.378383e-2, <float>2.0795971e-2, x2)), far
    q = v_fma(x4, q, pair(<float>-3.33333e-1, <float>1.3331924e-1, x2))
    far = v_add(v_set1(1.0), v_exp2_bounded(v_mul(a, v_set1(<float>2.8853901))))
    far = v_sub(v_set1(1.0), v_div(v_set1(2.0), far))
    return v_select(v_less(a, v_set1(<float>0.6)), v_fma(v_mul(x, x2), q, x), v_or(far, v_and(x, v_set1(-0.0))))


cdef void load_bias(const Attention* call, Py_ssize_t t, Py_ssize_t n, Py_ssize_t key, Py_ssize_t keys,
                    vf* tile) noexcept nogil:
    # tile[r], lane i = bias[t + i, key + r] for n <= VL queries and keys <= VL; zero in the other lanes
    cdef const float* bias = call.bias + t * call.bias_t + key * call.bias_s
    cdef float lanes[VL]
    cdef Py_ssize_t i, r
    if call.bias_s == 1:
        for i in range(VL):
            tile[i] = v_loadn(bias + i * call.bias_t, <int>keys) if i < n else v_set1(0.0)
        v_transpose(tile)
    else:
        v_store(lanes, v_set1(0.0))
        for r in range(keys):
            for i in range(n):
                lanes[i] = bias[i * call.bias_t + r * call.bias_s]
            tile[r] = v_load(lanes)


cdef void load_mask(const Attention* call, Py_ssize_t t, Py_ssize_t n, Py_ssize_t key, Py_ssize_t keys,
                    vf* tile) noexcept nogil:
    # tile[r], lane i: all ones where query t + i may look at key + r, else zeros
    cdef const unsigned char* mask = call.mask + t * call.mask_t + key * call.mask_s
    cdef unsigned char lanes[VL]
    cdef Py_ssize_t i, r
    if call.mask_s == 1:
        for i in range(VL):
            tile[i] = v_load_mask(mask + i * call.mask_t, <int>keys) if i < n else v_set1(0.0)
        v_transpose(tile)
    else:
        for r in range(keys):
            for i in range(n):
                lanes[i] = mask[i * call.mask_t + r * call.mask_s]
            tile[r] = v_load_mask(lanes, <int>n)


cdef void change_scores(const Attention* call, const Block* b, const Keys* keys, float* p) noexcept nogil:
    # score_mod(c tanh(scores / c) + bias)
    cdef Py_ssize_t count = keys.last - keys.first, row = 0, rows, r, j
    cdef vf cap = v_set1(call.softcap), inverse = v_set1(1 / call.softcap if call.softcap != 0 else 0), x
    cdef vf bias[VL]
    while row < count and (call.softcap != 0 or call.bias != NULL):
        rows = min(count - row, <Py_ssize_t>VL)
        for j in range(b.nv):
            if call.bias != NULL:
                load_bias(call, b.t + j * VL, min(b.n - j * VL, <Py_ssize_t>VL), keys.first + row, rows, bias)
            for r in range(row, row + rows):
                x = v_load(p + (r * b.nv + j) * VL)
                if call.softcap != 0:
                    x = v_mul(cap, v_tanh(v_mul(x, inverse)))
                if call.bias != NULL:
                    x = v_add(x, bias[r - row])
                v_store(p + (r * b.nv + j) * VL, x)
        row += VL
    if call.score_mod != NULL:
        call.score_mod(p, b.nv * VL, call.b, call.h, call.query + b.t, b.n, keys.first, count, call.captured)


cdef void hide_scores(const Attention* call, const Block* b, const Keys* keys, float* p, bint edge) noexcept nogil:
    # -inf where the mask or, if this block lies on its edge, the band hides the key; the maximum of the others. Changed
    # scores are brought to powers of two here.
    cdef Py_ssize_t count = keys.last - keys.first, row = 0, rows, r, j
    cdef vf hidden = v_set1(-INFINITY), gain = v_set1(<float>M_LOG2E if changes_scores(call) else 1), x, maximum, query
    cdef vf visible[VL]
    cdef float key
    while row < count:
        rows = min(count - row, <Py_ssize_t>VL)
        for j in range(b.nv):
            if call.mask != NULL:
                load_mask(call, b.t + j * VL, min(b.n - j * VL, <Py_ssize_t>VL), keys.first + row, rows, visible)
            maximum = v_load(b.maximum + j * VL)
            query = v_add(v_iota(), v_set1(j * VL))
            for r in range(row, row + rows):
                x = v_mul(gain, v_load(p + (r * b.nv + j) * VL))
                if call.mask != NULL:
                    x = v_select(visible[r - row], x, hidden)
                if edge:
                    key = keys.first + r - b.t
                    x = v_select(v_less(v_set1(key - call.low), query), hidden, x)
                    x = v_select(v_less(v_set1(key - call.high), query), x, hidden)
                v_store(p + (r * b.nv + j) * VL, x)
                maximum = v_max(maximum, x)
            v_store(b.maximum + j * VL, maximum)
        row += VL


cdef bint all_finite(const float* v, Py_ssize_t v_stride, Py_ssize_t rows, Py_ssize_t e) noexcept nogil:
    # 0 x is 0 or, for what is not finite, NaN. Four rows at a time, to hide the latency of the sums.
    cdef vf zero = v_set1(0.0)
    cdef vf sum[4]
    cdef Py_ssize_t row = 0, column, i
    cdef int width
    for i in range(4):
        sum[i] = zero
    while row < rows:
        column = 0
        while column < e:
            width = <int>min(e - column, <Py_ssize_t>VL)
            for i in range(4):
                sum[i] = v_fma(v_loadn(v + min(row + i, rows - 1) * v_stride + column, width), zero, sum[i])
            column += VL
        row += 4
    return v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3]))) == 0
