# Change a block of scores P^T [keys][W] between the two GEMMs of attention: add the terms of relative positions, apply
# soft-capping, the bias and the user's score function, and set the scores that the mask or the band hides to -inf.

cdef inline vf v_tanh(vf x) noexcept nogil:
    # Return (e^y - 1) / (e^y + 1) with x's sign, y = 2|x|. With e^y = 2^n 2^r the numerator is 2^n (2^r - 1) + (2^n -
    # 1), which loses no digits near 0: 2^r - 1 is r times a minimax polynomial of degree 5, within 1.1e-8.
    cdef vf y = v_mul(v_min(v_set1(10.0), v_abs(x)), v_set1(<float>2.8853901))      # 2|x| log2 e; tanh 10 rounds to 1
    cdef v_parts y_parts = v_split(y)
    cdef vf r = y_parts.rest
    cdef vf r2 = v_mul(r, r), power = v_scale(v_set1(1.0), y_parts.n), q, numerator
    q = v_fma(pair(<float>1.3390735e-3, <float>1.5403512e-4, r), r2, pair(<float>5.5503573e-2, <float>9.618238e-3, r))
    q = v_fma(q, r2, pair(<float>6.931472e-1, <float>2.4022649e-1, r))
    numerator = v_fma(v_mul(q, r), power, v_sub(power, v_set1(1.0)))
    return v_or(v_div(numerator, v_add(numerator, v_set1(2.0))), v_and(x, v_set1(-0.0)))


cdef void load_bias(const Attention* call, Py_ssize_t t, Py_ssize_t n, Py_ssize_t key, Py_ssize_t keys,
                    vf* tile) noexcept nogil:
    # Set lane i of tile[r] to bias[t + i, key + r], for n <= VL queries and keys <= VL; other lanes are zero.
    cdef const float* bias = call.bias + t * call.bias_t + key * call.bias_s
    cdef float lanes[VL]
    cdef Py_ssize_t i, r
    if call.bias_t == 1:        # a bias by distance: its numbers for successive queries lie side by side
        for r in range(keys):
            tile[r] = v_load(bias + r * call.bias_s) if n == VL else v_loadn(bias + r * call.bias_s, <int>n)
    elif call.bias_s == 1:
        if n == VL and keys == VL:
            for i in range(VL):
                tile[i] = v_load(bias + i * call.bias_t)
        else:
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
    # Set lane i of tile[r] to all ones if query t + i may see key + r, otherwise to zeros, for n <= VL and keys <= VL.
    cdef const unsigned char* mask = call.mask + t * call.mask_t + key * call.mask_s
    cdef unsigned char lanes[VL]
    cdef Py_ssize_t i, r
    if call.mask_s == 1:
        if n == VL and keys == VL:
            for i in range(VL):
                tile[i] = v_load_mask(mask + i * call.mask_t, VL)
        else:
            for i in range(VL):
                tile[i] = v_load_mask(mask + i * call.mask_t, <int>keys) if i < n else v_set1(0.0)
        v_transpose(tile)
    else:
        for r in range(keys):
            for i in range(n):
                lanes[i] = mask[i * call.mask_t + r * call.mask_s]
            tile[r] = v_load_mask(lanes, <int>n)


cdef inline void revise(const Attention* call, const Terms* terms, const Block* b, const Keys* keys, float* p,
                        const bint change, const bint hide, bint edge) noexcept nogil:
    # change: compute scores = c tanh((scores + terms) / c) + bias. hide: set scores that the mask hides to -inf, and
    # update the maximum with the others. If `edge` is True, the block lies on the edge of the band, and scores outside
    # the band are hidden too. Scores that were changed are multiplied by log2 e, for the softmax's powers of two.
    cdef Py_ssize_t count = keys.last - keys.first, row = 0, rows, lanes, r, j
    cdef vf cap = v_set1(call.softcap), inverse = v_set1(1 / call.softcap if call.softcap != 0 else 0)
    cdef vf hidden = v_set1(-INFINITY), gain = v_set1(<float>M_LOG2E if changes_scores(call) else 1), x, maximum, query
    cdef vf distance_terms[VL]
    cdef vf bias[VL]
    cdef vf visible[VL]
    cdef float key
    while row < count:
        rows = min(count - row, <Py_ssize_t>VL)
        for j in range(b.nv):
            lanes = min(b.n - j * VL, <Py_ssize_t>VL)
            if change and call.relative != NULL:
                load_terms(call, terms, b.t + j * VL, lanes, keys.first + row, rows, distance_terms)
            if change and call.bias != NULL:
                load_bias(call, b.t + j * VL, lanes, keys.first + row, rows, bias)
            if hide and call.mask != NULL:
                load_mask(call, b.t + j * VL, lanes, keys.first + row, rows, visible)
            maximum = v_load(b.maximum + j * VL)
            query = v_add(v_iota(), v_set1(j * VL))     # counted in the block, as `key` is
            for r in range(rows):
                x = v_load(p + ((row + r) * b.nv + j) * VL)
                if change:
                    if call.relative != NULL:
                        x = v_add(x, distance_terms[r])
                    if call.softcap != 0:
                        x = v_mul(cap, v_tanh(v_mul(x, inverse)))
                    if call.bias != NULL:
                        x = v_add(x, bias[r])
                if hide:
                    x = v_mul(gain, x)
                    if call.mask != NULL:
                        x = v_select(visible[r], x, hidden)
                    if edge:
                        key = keys.first + row + r - b.t
                        x = v_select(v_less(v_set1(key - call.low), query), hidden, x)
                        x = v_select(v_less(v_set1(key - call.high), query), x, hidden)
                    maximum = v_max(maximum, x)
                v_store(p + ((row + r) * b.nv + j) * VL, x)
            if hide:
                v_store(b.maximum + j * VL, maximum)
        row += VL


cdef void revise_scores(const Attention* call, const Terms* terms, const Block* b, const Keys* keys, float* p,
                        bint edge) noexcept nogil:
    # Change and hide scores in one pass, or around the call of a user's function. edge: whether the band hides any key.
    cdef bint change = call.softcap != 0 or call.bias != NULL or call.relative != NULL
    # `change` and `hide` are constants in each call, so that the compiler makes a loop for each case.
    if change and call.score_mod == NULL:
        revise(call, terms, b, keys, p, True, True, edge)
        return
    if change:
        revise(call, terms, b, keys, p, True, False, edge)
    if call.score_mod != NULL:
        call.score_mod(p, b.nv * VL, call.b, call.h, call.query + b.t, b.n, keys.first, keys.last - keys.first,
                       call.captured)
    revise(call, terms, b, keys, p, False, True, edge)


cdef bint all_finite(const float* v, Py_ssize_t v_stride, Py_ssize_t rows, Py_ssize_t e) noexcept nogil:
    # Return whether all numbers v [rows][e] are finite: 0 x is 0 if x is finite and NaN if not. Four rows are added at
    # a time, to hide the latency of the additions.
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
