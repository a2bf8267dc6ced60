# Compute attention for few queries over the rows of a cache: see CachedAttention in table.pxd.
#
# Keys lie across the lanes of the vectors, because the queries would not fill them. VL keys at a time are transposed, and
# then the tiles of attention.pxi compute scores with a row for each query and a column for each key. Values are read
# where they lie.
#
#   for each group of FEW queries                    in scratch
#     Q = q scale log2 e                             [FEW][d]
#     m = -max, l = 0                                [FEW]
#     for each block of KEYS keys that the group sees
#       for each NR keys of the block
#         K^T                                        [d][NR]
#         P = Q K^T                                  [FEW][KEYS]
#       for each query, for the keys that it sees
#         P = P changed as in scores.pxi
#         m' = max(m, P), P = 2^(P - m'), c = 2^(m - m')
#       l = c l + sum of P, O = c O + P V            [FEW][e]
#     out = O / l
#
# Every sum has the order that it has in attention.pxi: a score adds its products in order of d, l adds weights in order of
# keys, and the products of a key block are added up before they are added to O. Therefore the two kernels give a query
# the same bits, however many queries are computed with it.

cdef enum:
    FEW = 16            # most queries that share a transposed key
    VALUES_MR = 4       # queries of a tile of P V: its sums are accumulators and one vector for each query

cdef struct FewQueries:
    # Query i of the group is query first + i of the call: row (first + i) // heads, head (first + i) % heads.
    Py_ssize_t first
    Py_ssize_t n
    float* keys                     # K^T [d][NR]
    float* p                        # [FEW][KEYS], beginning with the first key that any query of the group sees
    float* context                  # [FEW][e], e padded to VL
    float* product                  # [FEW][e], P V of the key block
    float* unused                   # [NR], scratch space for results that are not used
    float* queries                  # [FEW][d]
    float maximum[FEW]
    float sum[FEW]
    float correction[FEW]
    Py_ssize_t begin[FEW]           # the keys of the block that each query sees, counted from the one that p begins with
    Py_ssize_t end[FEW]
    const float* values[KEYS]       # the rows of the values of these keys


cdef Py_ssize_t cached_attention_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    return NR * (d + 1) + FEW * (KEYS + 2 * padded(e) + d)


cdef void cached_attention(const CachedAttention* call, float* scratch) noexcept nogil:
    cdef FewQueries g
    g.keys = scratch
    g.p = g.keys + NR * call.d
    g.context = g.p + FEW * KEYS
    g.product = g.context + FEW * padded(call.e)
    g.unused = g.product + FEW * padded(call.e)
    g.queries = g.unused + NR
    g.first = 0
    while g.first < call.T * call.heads:
        g.n = min(call.T * call.heads - g.first, <Py_ssize_t>FEW)
        attend_cache(call, &g)
        g.first += g.n


cdef void attend_cache(const CachedAttention* call, FewQueries* g) noexcept nogil:
    cdef Py_ssize_t t = g.first // call.heads, key, first, last
    cdef Py_ssize_t end = min(call.S, (g.first + g.n - 1) // call.heads + call.high)
    load_few_queries(call, g)
    key = max(0, t + call.low) // KEYS * KEYS
    while key < end:
        first, last = max(key, t + call.low), min(key + KEYS, end)
        if first < last:
            score_cache(call, g, first, last)
            weigh_cache(call, g, first, last)
            add_cached_values(call, g)
        key += KEYS
    store_few_contexts(call, g)


cdef inline bint changes_cached_scores(const CachedAttention* call) noexcept nogil:
    return call.softcap != 0 or call.bias != NULL


cdef void load_few_queries(const CachedAttention* call, FewQueries* g) noexcept nogil:
    cdef vf scale = v_set1(call.scale if changes_cached_scores(call) else call.scale * <float>M_LOG2E)
    cdef Py_ssize_t i, k
    cdef int width
    cdef const float* q
    memset(g.context, 0, g.n * padded(call.e) * sizeof(float))
    for i in range(g.n):
        g.maximum[i], g.sum[i] = -3.0e38, 0
        q = call.q + (g.first + i) // call.heads * call.q_stride + (g.first + i) % call.heads * call.q_head
        k = 0
        while k < call.d:
            width = <int>min(call.d - k, <Py_ssize_t>VL)
            v_storen(g.queries + i * call.d + k, v_mul(v_loadn(q + k, width), scale), width)
            k += VL


cdef inline const float* cached_row(const CachedAttention* call, Py_ssize_t key, Py_ssize_t start,
                                    Py_ssize_t stride) noexcept nogil:
    cdef Py_ssize_t row = call.rows[key] if call.rows != NULL else key, block = row >> call.shift
    return call.blocks[block] + start + (row - (block << call.shift)) * stride


cdef inline void fetch_keys(const CachedAttention* call, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Prefetch the rows of keys [first, last): a step has read all weights since they were last used.
    cdef Py_ssize_t key
    for key in range(first, last):
        fetch_rows(cached_row(call, key, call.k, call.k_stride), 0, call.d, 0, 1)


cdef void score_cache(const CachedAttention* call, FewQueries* g, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Compute P = Q K^T for keys [first, last), and find the rows of their values.
    cdef Py_ssize_t tiles = (g.n + MR - 1) // MR, key = first, row, next_row, i
    cdef int count, nv
    cdef Tile t
    t.depth, t.a_stride, t.b, t.out_stride, t.maximum = call.d, call.d, g.keys, KEYS, g.unused
    fetch_keys(call, key, min(key + NR, last))
    while key < last:
        count = <int>min(last - key, <Py_ssize_t>NR)
        fetch_keys(call, key + NR, min(key + 2 * NR, last))
        nv = (count + VL - 1) // VL
        for i in range(count):
            g.values[key - first + i] = cached_row(call, key + i, call.v, call.v_stride)
            fetch_rows(g.values[key - first + i], 0, call.e, 0, 1)
        for i in range(nv):
            transpose_keys(call, key + i * VL, <int>min(count - i * VL, <Py_ssize_t>VL), g.keys + i * VL, nv * VL)
        row = 0
        for i in range(tiles):
            next_row = g.n * (i + 1) // tiles
            t.a, t.out = g.queries + row * call.d, g.p + row * KEYS + key - first
            scores_any(<int>(next_row - row), nv, &t)
            row = next_row
        key += NR


cdef inline void transpose_keys(const CachedAttention* call, Py_ssize_t key, int count, float* columns,
                                Py_ssize_t stride) noexcept nogil:
    # Write `count` <= VL keys to the columns of K^T, whose rows are `stride` floats apart, and zeros to the rest of VL
    # columns.
    cdef const float* rows[VL]
    cdef vf tile[VL]
    cdef Py_ssize_t k = 0
    cdef int width, i
    for i in range(VL):
        rows[i] = cached_row(call, key + min(i, count - 1), call.k, call.k_stride)
    while k < call.d:
        width = <int>min(call.d - k, <Py_ssize_t>VL)
        if count == VL and width == VL:
            for i in range(VL):
                tile[i] = v_load(rows[i] + k)
        else:
            for i in range(VL):
                tile[i] = v_loadn(rows[i] + k, width) if i < count else v_set1(0.0)
        v_transpose(tile)
        for i in range(width):
            v_store(columns + (k + i) * stride, tile[i])
        k += VL


cdef void weigh_cache(const CachedAttention* call, FewQueries* g, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Turn the scores of keys [first, last) into powers of two, and correct the sums for the new maximum.
    cdef Py_ssize_t i, t
    cdef float before
    for i in range(g.n):
        t = (g.first + i) // call.heads
        g.begin[i], g.end[i] = max(0, t + call.low - first), min(last, t + call.high) - first
        if g.begin[i] >= g.end[i]:
            continue
        before = g.maximum[i]
        if changes_cached_scores(call):
            revise_cached_scores(call, g, i, first)
        g.maximum[i] = largest(g.p + i * KEYS + g.begin[i], g.end[i] - g.begin[i], before)
        v_storen(g.correction + i, correction(v_set1(before), v_set1(g.maximum[i])), 1)
        g.sum[i] *= g.correction[i]
        exponentiate_row(g.p + i * KEYS + g.begin[i], g.end[i] - g.begin[i], g.maximum[i])


cdef inline void revise_cached_scores(const CachedAttention* call, FewQueries* g, Py_ssize_t i,
                                      Py_ssize_t first) noexcept nogil:
    # Compute (c tanh(score / c) + bias) log2 e for query i of the group.
    cdef vf cap = v_set1(call.softcap), inverse = v_set1(1 / call.softcap if call.softcap != 0 else 0), x
    cdef const float* bias = NULL
    cdef float lanes[VL]
    cdef Py_ssize_t s = g.begin[i]
    cdef int width, r
    if call.bias != NULL:
        bias = (call.bias + (g.first + i) % call.heads * call.bias_head + (g.first + i) // call.heads * call.bias_t
                + first * call.bias_s)
    v_store(lanes, v_set1(0.0))
    while s < g.end[i]:
        width = <int>min(g.end[i] - s, <Py_ssize_t>VL)
        x = v_loadn(g.p + i * KEYS + s, width)
        if call.softcap != 0:
            x = v_mul(cap, v_tanh(v_mul(x, inverse)))
        if bias != NULL:
            for r in range(width):
                lanes[r] = bias[(s + r) * call.bias_s]
            x = v_add(x, v_load(lanes))
        v_storen(g.p + i * KEYS + s, v_mul(v_set1(<float>M_LOG2E), x), width)
        s += VL


cdef inline float largest(const float* x, Py_ssize_t n, float least) noexcept nogil:
    # Return the largest of n numbers and `least`. NaN is ignored.
    cdef vf highest = v_set1(least)
    cdef Py_ssize_t i = 0
    while i < n:
        highest = v_max(v_load(x + i) if n - i >= VL else row_tail(x + i, <int>(n - i)), highest)
        i += VL
    return v_largest(highest)


cdef inline void exponentiate_row(float* p, Py_ssize_t n, float maximum) noexcept nogil:
    cdef vf score
    cdef Py_ssize_t i = 0
    cdef int width
    while i < n:
        width = <int>min(n - i, <Py_ssize_t>VL)
        score = v_loadn(p + i, width)
        score = v_select(v_equal(score, v_set1(-INFINITY)), v_set1(0.0), v_exp2(v_sub(score, v_set1(maximum))))
        v_storen(p + i, score, width)
        i += VL


cdef void add_cached_values(const CachedAttention* call, FewQueries* g) noexcept nogil:
    # Compute O = c O + P V and l = l + sum of P. A tile of queries adds the keys that all of them see together. The keys
    # before and after, that only some of them see, are added for each query alone.
    cdef Py_ssize_t e = padded(call.e), tiles = (g.n + VALUES_MR - 1) // VALUES_MR, row = 0, next_row, begin, end, i, k
    cdef float* context
    memset(g.product, 0, g.n * e * sizeof(float))
    for k in range(tiles):
        next_row = g.n * (k + 1) // tiles
        begin, end = g.begin[row], g.end[row]
        for i in range(row + 1, next_row):
            begin, end = max(begin, g.begin[i]), min(end, g.end[i])
        end = max(begin, end)
        for i in range(row, next_row):
            add_products_of_keys(call, g, i, 1, g.begin[i], min(begin, g.end[i]))
        add_products_of_keys(call, g, row, <int>(next_row - row), begin, end)
        for i in range(row, next_row):
            add_products_of_keys(call, g, i, 1, max(end, g.begin[i]), g.end[i])
        row = next_row
    for i in range(g.n):
        if g.begin[i] < g.end[i]:
            k = 0
            while k < e:
                context = g.context + i * e + k
                v_store(context, v_fma(v_load(context), v_set1(g.correction[i]), v_load(g.product + i * e + k)))
                k += VL


cdef void add_products_of_keys(const CachedAttention* call, FewQueries* g, Py_ssize_t row, int mr, Py_ssize_t begin,
                               Py_ssize_t end) noexcept nogil:
    # Add P V of keys [begin, end) to `product`, and their weights to `sum`, for mr queries.
    cdef Py_ssize_t vectors = call.e // VL, j = 0
    cdef int nv
    cdef float* sum = g.sum + row
    if begin >= end:
        return
    while j < vectors:
        nv = <int>min(vectors - j, <Py_ssize_t>NV)
        values_any(mr, nv, g, row, begin, end, j * VL, padded(call.e), VL, sum)
        sum = g.unused      # weights are added once
        j += NV
    if call.e % VL:
        values_any(mr, 1, g, row, begin, end, vectors * VL, padded(call.e), <int>(call.e % VL), sum)


cdef inline void values_tile(const int mr, const int nv, const FewQueries* g, Py_ssize_t row, Py_ssize_t begin,
                             Py_ssize_t end, Py_ssize_t column, Py_ssize_t e, int width, float* sum) noexcept nogil:
    # width: columns of the last vector, VL unless nv is 1.
    cdef vf acc[VALUES_MR * NV]
    cdef vf total[VALUES_MR]
    cdef vf w[NV]
    cdef vfactor x
    cdef const float* v
    cdef const float* p = g.p + row * KEYS
    cdef float* out = g.product + row * e + column
    cdef Py_ssize_t key
    cdef int i, j
    for i in range(mr):
        total[i] = v_set1(sum[i])
        for j in range(nv):
            acc[i * nv + j] = v_load(out + i * e + j * VL)
    for key in range(begin, end):
        v = g.values[key] + column
        for j in range(nv):
            w[j] = v_loadn(v, width) if nv == 1 else v_load(v + j * VL)
        for i in range(mr):
            x = v_factor(p + i * KEYS + key)
            total[i] = v_add(total[i], v_all(x))
            for j in range(nv):
                acc[i * nv + j] = v_add_product(acc[i * nv + j], x, w[j])
    for i in range(mr):
        v_storen(sum + i, total[i], 1)
        for j in range(nv):
            v_store(out + i * e + j * VL, acc[i * nv + j])


cdef inline void values_rows(int mr, const int nv, const FewQueries* g, Py_ssize_t row, Py_ssize_t begin, Py_ssize_t end,
                             Py_ssize_t column, Py_ssize_t e, int width, float* sum) noexcept nogil:
    if mr == 4:
        values_tile(4, nv, g, row, begin, end, column, e, width, sum)
    elif mr == 3:
        values_tile(3, nv, g, row, begin, end, column, e, width, sum)
    elif mr == 2:
        values_tile(2, nv, g, row, begin, end, column, e, width, sum)
    else:
        values_tile(1, nv, g, row, begin, end, column, e, width, sum)


cdef void values_any(int mr, int nv, const FewQueries* g, Py_ssize_t row, Py_ssize_t begin, Py_ssize_t end,
                     Py_ssize_t column, Py_ssize_t e, int width, float* sum) noexcept nogil:
    if nv == NV:
        values_rows(mr, NV, g, row, begin, end, column, e, width, sum)
    elif nv == 1:
        values_rows(mr, 1, g, row, begin, end, column, e, width, sum)
    elif NV > 2 and nv == 2:
        values_rows(mr, 2, g, row, begin, end, column, e, width, sum)
    elif NV > 3:
        values_rows(mr, 3, g, row, begin, end, column, e, width, sum)


cdef void store_few_contexts(const CachedAttention* call, const FewQueries* g) noexcept nogil:
    # A query that saw no key has the sum 0; its result is zeros.
    cdef vf scale
    cdef Py_ssize_t i, k
    cdef int width
    cdef float* out
    for i in range(g.n):
        out = call.out + (g.first + i) // call.heads * call.out_stride + (g.first + i) % call.heads * call.out_head
        if g.sum[i] == 0:
            memset(out, 0, call.e * sizeof(float))
            continue
        scale = v_div(v_set1(1.0), v_set1(g.sum[i]))
        k = 0
        while k < call.e:
            width = <int>min(call.e - k, <Py_ssize_t>VL)
            v_storen(out + k, v_mul(v_load(g.context + i * padded(call.e) + k), scale), width)
            k += VL
