# The softmax of the keys of one range of RANGE = 256 keys, and the fold of the ranges: see cached_attention.pxi. The
# sums of a query are O [E], E being e padded to VL, the maximum M of its scores, and the sum L of its weights.

cdef inline bint changes_cached_scores(const CachedAttention* call) noexcept nogil:
    # Return whether scores are anything but q k^T scale, so that log2 e comes after the change.
    return call.softcap != 0 or call.bias != NULL


cdef inline void revise_cached_scores(const CachedAttention* call, Py_ssize_t query, float* p, Py_ssize_t key,
                                      Py_ssize_t n) noexcept nogil:
    # Compute (c tanh(score / c) + bias) log2 e for a query's scores of keys [key, key + n). query: row * heads + head.
    cdef vf cap = v_set1(call.softcap), inverse = v_set1(1 / call.softcap if call.softcap != 0 else 0), x
    cdef const float* bias = NULL
    cdef float lanes[VL]
    cdef Py_ssize_t s = 0
    cdef int width, r
    if call.bias != NULL:
        bias = (call.bias + query % call.heads * call.bias_head + query // call.heads * call.bias_t + key * call.bias_s)
    v_store(lanes, v_set1(0.0))
    while s < n:
        width = <int>min(n - s, <Py_ssize_t>VL)
        x = v_loadn(p + s, width)
        if call.softcap != 0:
            x = v_mul(cap, v_tanh(v_mul(x, inverse)))
        if bias != NULL:
            for r in range(width):
                lanes[r] = bias[(s + r) * call.bias_s]
            x = v_add(x, v_load(lanes))
        v_storen(p + s, v_mul(v_set1(<float>M_LOG2E), x), width)
        s += VL


cdef inline void multiply_scores(float* p, const float* scales, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Multiply the scores or the weights of the cells of keys [first, last) by their scales.
    cdef Py_ssize_t i
    for i in range(first // CELL * CELL_VECTORS, (last + CELL - 1) // CELL * CELL_VECTORS):
        v_store(p + i * VL, v_mul(v_load(p + i * VL), v_load(scales + i * VL)))


cdef inline vf seen_lanes(Py_ssize_t i, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    # Return a mask of the lanes i, i + 1, ... that are at least `begin` and less than `end`.
    cdef vf lane = v_iota()
    cdef vf mask = v_less(lane, v_set1(<float>(end - i)))
    return v_select(v_less(lane, v_set1(<float>(begin - i))), v_set1(0.0), mask)


cdef struct Ahead:
    # While a cell of a range is weighed, bytes [first, last) of another one are prefetched, which is read later.
    const size_t* cells     # the address of that other one, for each cell of the range
    Py_ssize_t first
    Py_ssize_t last


cdef inline void weigh_range(float* p, Py_ssize_t begin, Py_ssize_t end, float* maximum, float* sum,
                             const Ahead* ahead) noexcept nogil:
    # Turn scores of keys [begin, end) of a range, at least one, into powers of two. Other keys of their cells get the
    # weight 0, and so does a score of -inf. The sum is in lanes (simd/common.h), one for each place of a cell.
    cdef v_lanes sums = l_zero()
    cdef vf hidden = v_set1(-INFINITY), zero = v_set1(0.0), highest = v_set1(-3.0e38), x
    cdef Py_ssize_t first = begin // CELL * CELL, last = (end + CELL - 1) // CELL * CELL, i = first, byte
    cdef int j
    while i < last:
        x = v_load(p + i)
        if i < begin or i + VL > end:
            x = v_select(seen_lanes(i, begin, end), x, hidden)
            v_store(p + i, x)
        highest = v_max(x, highest)
        i += VL
    maximum[0] = v_largest(highest)
    highest = v_set1(maximum[0])
    i = first
    while i < last:
        if ahead != NULL:
            byte = ahead.first
            while byte < ahead.last:
                fetch_far(<const char*>ahead.cells[i // CELL] + byte)
                byte += 64
        for j in range(CELL_VECTORS):
            x = v_load(p + i + j * VL)
            x = v_select(v_equal(x, hidden), zero, v_exp2(v_sub(x, highest)))
            v_store(p + i + j * VL, x)
            sums.v[j] = v_add(sums.v[j], x)
        i += CELL
    sum[0] = l_sum(sums)


cdef inline void fold(float* maximum, float* sum, float* context, float range_maximum, float range_sum,
                      const float* range_context, Py_ssize_t E) noexcept nogil:
    # Add the sums of a range to those of the ranges before it: each is multiplied by 2^(its maximum - the larger one).
    cdef float most = max(maximum[0], range_maximum), a = 0, b = 0
    cdef vf old, new
    cdef Py_ssize_t k = 0
    v_storen(&a, correction(v_set1(maximum[0]), v_set1(most)), 1)
    v_storen(&b, correction(v_set1(range_maximum), v_set1(most)), 1)
    old, new = v_set1(a), v_set1(b)
    v_storen(sum, v_fma(v_set1(range_sum), new, v_mul(v_set1(sum[0]), old)), 1)
    maximum[0] = most
    while k < E:
        v_store(context + k, v_fma(v_load(range_context + k), new, v_mul(v_load(context + k), old)))
        k += VL


cdef inline void store_context_of(const float* context, float sum, Py_ssize_t e, float* out) noexcept nogil:
    # A query that saw no key has the sum 0; its result is zeros.
    cdef Py_ssize_t k = 0
    cdef int width
    cdef vf divisor = v_set1(sum if sum != 0 else 1)
    while k < e:
        width = <int>min(e - k, <Py_ssize_t>VL)
        v_storen(out + k, v_div(v_load(context + k), divisor), width)
        k += VL


cdef void fold_ranges(float* sums, Py_ssize_t stride, Py_ssize_t ranges, Py_ssize_t e, float* out) noexcept nogil:
    # Fold the sums of successive ranges of a query into the first, and store out = O / L.
    cdef Py_ssize_t E = padded(e), i
    cdef float* range_sums
    for i in range(1, ranges):
        range_sums = sums + i * stride
        fold(sums + E, sums + E + 1, sums, range_sums[E], range_sums[E + 1], range_sums, E)
    store_context_of(sums, sums[E + 1], e, out)
