# Compute the attention weights of one head, and their entropy: see `weigh` in table.pxd. The scores are those of
# attention.pxi. They are computed twice, first for the maximum of each query, so that no row of scores is kept:
#
#   for each block of W queries                      in scratch
#     Q^T = (q scale log2 e)^T                       [d][W]
#     for each block of KEYS keys that it sees
#       m = max(m, K Q^T)                            [W]
#     for each block of KEYS keys that it sees
#       P^T = 2^(K Q^T - m)                          [KEYS][W]
#       l = l + sum of P^T                           [W]
#       a = a + sum of P^T (K Q^T - m)               [W]
#     weights = P / l, entropy = ln l - a ln 2 / l

cdef void weigh(const Attention* call, float* weights, Py_ssize_t stride, float* entropy,
                float* scratch) noexcept nogil:
    # The loops of the head of this file, for one block of queries after the other.
    cdef Block blocks[MOST_BLOCKS]
    cdef Scratch s = cut(call, scratch)
    cdef Py_ssize_t group, count, i
    for group in range((call.T + QUERIES - 1) // QUERIES):
        count = cut_blocks(call, group * QUERIES, scratch, blocks)
        for i in range(count):
            load_queries(call, &blocks[i])
            weigh_block(call, &s, &blocks[i], weights, stride, entropy)


cdef void weigh_block(const Attention* call, Scratch* s, Block* b, float* weights, Py_ssize_t stride,
                      float* entropy) noexcept nogil:
    # Compute the weights of a block of queries: one pass over the keys for the maxima, and a second one for the rest.
    # The block needs no room for its context, and keeps the sum `a` of the head of this file there.
    cdef Py_ssize_t first = max(0, b.t + call.low), last = min(call.S, b.t + b.n - 1 + call.high), i
    cdef float* row
    cdef float total, nats
    cdef Keys keys
    cdef int second, j
    keys.v, keys.tail = call.v, NULL
    for j in range(b.nv):
        v_store(b.context + j * VL, v_set1(0.0))
    for second in range(2):
        keys.first = first
        while keys.first < last:
            keys.last = min(last, keys.first + KEYS)
            if call.relative != NULL:
                s.keys = keys
                multiply_terms(call, s, b.t, b.n)
            compute_scores(call, s, b, &keys)
            if second:
                weigh_keys(s, b, &keys, weights, stride)
            keys.first = keys.last
    for i in range(b.n):
        total = b.sum[i]
        if entropy != NULL:
            nats = natural_logarithm(total) - b.context[i] * <float>M_LN2 / total if total != 0 else 0
            entropy[b.t + i] = 0 if nats < 0 else nats      # rounding can leave a number below 0; NaN stays NaN
        if weights != NULL:
            row = weights + (b.t + i) * stride
            memset(row, 0, min(first, call.S) * sizeof(float))      # keys before and behind the band have the weight 0
            if first < last:
                scale_row(row + first, last - first, 1 / total if total != 0 else 0)
            last = max(first, last)
            memset(row + last, 0, max(0, call.S - last) * sizeof(float))


cdef inline void weigh_keys(const Scratch* s, Block* b, const Keys* keys, float* weights,
                            Py_ssize_t stride) noexcept nogil:
    # Turn scores P^T into powers of two, add them to the sums, and store a row for each query where weights are wanted.
    # A hidden key, whose score is -inf, gets the weight 0.
    cdef Py_ssize_t count = keys.last - keys.first, row = 0, rows, lanes, r, i
    cdef vf tile[VL]
    cdef vf maximum, sum, product, p, x, hidden, zero = v_set1(0.0)
    cdef int j
    while row < count:
        rows = min(count - row, <Py_ssize_t>VL)
        for j in range(b.nv):
            lanes = min(b.n - j * VL, <Py_ssize_t>VL)
            maximum, sum, product = v_load(b.maximum + j * VL), v_load(b.sum + j * VL), v_load(b.context + j * VL)
            for r in range(VL):
                tile[r] = zero
            for r in range(rows):
                x = v_load(s.p + ((row + r) * b.nv + j) * VL)
                hidden = v_equal(x, v_set1(-INFINITY))
                x = v_select(hidden, zero, v_sub(x, maximum))
                p = v_select(hidden, zero, v_exp2(x))
                sum = v_add(sum, p)
                product = v_fma(p, x, product)
                tile[r] = p
            v_store(b.sum + j * VL, sum)
            v_store(b.context + j * VL, product)
            if weights != NULL:
                v_transpose(tile)
                for i in range(lanes):
                    v_storen(weights + (b.t + j * VL + i) * stride + keys.first + row, tile[i], <int>rows)
        row += VL


cdef inline void scale_row(float* row, Py_ssize_t n, float scale) noexcept nogil:
    # Multiply n floats by `scale`, in place.
    cdef Py_ssize_t i = 0
    cdef int width
    while i < n:
        width = <int>min(n - i, <Py_ssize_t>VL)
        v_storen(row + i, v_mul(v_loadn(row + i, width), v_set1(scale)), width)
        i += VL
