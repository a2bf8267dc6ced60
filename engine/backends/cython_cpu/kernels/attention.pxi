# Compute attention of one head of one sequence, out[T,e] = softmax(scores) v[S,e] (see Attention in table.pxd), in
# blocks with a streaming softmax (Milakov and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135).
#
# Queries lie across the lanes of the vectors. A block of W = nv*VL <= NR queries is transposed and scaled once, and
# then tiles of scores have a row for each key and a column for each query: P^T. For this reason the softmax needs no
# sum over lanes, rows of K and V are read without a copy, and the second GEMM can broadcast its operand directly from
# P^T. The only padding is in the lanes of the last query block.
#
#   for each query group of QUERIES queries          in scratch
#     for each block of W queries in the group
#       Q^T = (q scale log2 e)^T                     [d][W]
#       m = -max, l = 0                              [W], [W]
#     for each block of KEYS keys that the group sees, and each block of queries
#       P^T = K Q^T, changed by scores.pxi           [KEYS][W]    with terms of relative.pxi for the whole group
#       m' = max(m, P^T)
#       P^T = 2^(P^T - m'), c = 2^(m - m')           [W]
#       l = c l + sum of P^T
#       O = c O + P V                                [W][e]
#     out = O / l
#
# A block of K and V stays in the L2 cache while all query blocks of the query group use it. Key blocks start at
# multiples of KEYS from the sequence's first key, and a key that is hidden from a query adds exact zeros to its sums.
# Therefore the bits of a row of the result depend on its sequence alone.

cdef enum:
    MOST_BLOCKS = 32        # largest number of query blocks in a query group: QUERIES / NR, and NR is at least 8

cdef struct Block:
    # Up to NR queries, and what is known of them after some blocks of keys. W = nv*VL.
    Py_ssize_t t            # index of the block's first query
    Py_ssize_t n            # queries
    int nv                  # vectors of VL queries, the last one padded
    bint fresh              # True until the block has been given its first key
    float* queries          # [d][W]
    float* context          # [W][e], e padded to VL
    float* maximum          # [W]
    float* sum              # [W]

cdef struct Keys:
    # A block of keys, or the part of it that a block of queries sees.
    Py_ssize_t first
    Py_ssize_t last
    const float* v          # value vectors, beginning with the one of key `first`
    const float* tail       # copy of columns e // NR * NR and later, padded to VL; NULL if e is a multiple of VL

cdef struct Terms:
    # Terms of relative positions for a query group and a key block: the products with rows of a table (relative.pxi).
    float* queries          # q K^T [QUERIES][stride], the row of the largest distance first
    float* keys             # k Q^T [KEYS][stride], the row of the smallest distance first
    Py_ssize_t stride
    Py_ssize_t t            # first query
    Py_ssize_t key          # first key
    Py_ssize_t first_key_row    # row of K in the first column of `queries`, counted from the last row
    Py_ssize_t first_query_row  # row of Q in the first column of `keys`

cdef struct Scratch:
    float* p                # [KEYS][W]
    float* correction       # [W], the maxima before a key block, and then the factor c
    float* unused           # [W], scratch space for a maximum that is not used
    float* tail             # [KEYS][NR]
    Keys keys               # the key block being processed
    int finite              # 1 if all values of `keys` are finite, 0 if not, -1 if not checked yet
    Terms terms


cdef inline Py_ssize_t padded(Py_ssize_t e) noexcept nogil:
    # Return e rounded up to whole vectors.
    return (e + VL - 1) // VL * VL


cdef inline Py_ssize_t plain_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    # Return the floats of scratch without those of relative positions: a query group, P^T, tail, correction, unused.
    return QUERIES * (d + padded(e) + 2) + NR * (2 * KEYS + 2)


cdef Py_ssize_t attention_scratch(Py_ssize_t d, Py_ssize_t e, Py_ssize_t columns) noexcept nogil:
    # Return the floats of scratch; columns: those of Relative, or 0.
    return plain_scratch(d, e) + (QUERIES + KEYS) * terms_stride(columns)


cdef inline Scratch cut(const Attention* call, float* scratch) noexcept nogil:
    # Return the scratch areas that follow the query blocks.
    cdef Scratch s
    memset(&s, 0, sizeof(s))
    s.p = scratch + QUERIES * (call.d + padded(call.e) + 2)
    s.tail = s.p + NR * KEYS
    s.correction = s.tail + NR * KEYS
    s.unused = s.correction + NR
    if call.relative != NULL:
        s.terms.stride = terms_stride(call.relative.columns)
        s.terms.queries = scratch + plain_scratch(call.d, call.e)
        s.terms.keys = s.terms.queries + QUERIES * s.terms.stride
    return s


cdef inline Py_ssize_t cut_blocks(const Attention* call, Py_ssize_t t, float* scratch, Block* blocks) noexcept nogil:
    # Set up the query blocks of the query group that starts at query t, and return their number.
    cdef Py_ssize_t count = (min(call.T - t, <Py_ssize_t>QUERIES) + NR - 1) // NR, i
    for i in range(count):
        blocks[i].t = t + i * NR
        blocks[i].n = min(call.T - blocks[i].t, <Py_ssize_t>NR)
        blocks[i].nv = <int>((blocks[i].n + VL - 1) // VL)
        blocks[i].fresh = True
        blocks[i].queries = scratch + i * NR * (call.d + padded(call.e) + 2)
        blocks[i].context = blocks[i].queries + NR * call.d
        blocks[i].maximum = blocks[i].context + NR * padded(call.e)
        blocks[i].sum = blocks[i].maximum + NR
    return count


cdef void attention(const Attention* call, float* scratch) noexcept nogil:
    # The loops of the head of this file over query groups, blocks of keys and blocks of queries.
    cdef Block blocks[MOST_BLOCKS]
    cdef Scratch s = cut(call, scratch)
    cdef Keys* keys = &s.keys
    cdef Py_ssize_t group, count, last, i
    for group in range((call.T + QUERIES - 1) // QUERIES):
        count = cut_blocks(call, group * QUERIES, scratch, blocks)
        for i in range(count):
            load_queries(call, &blocks[i])
        keys.first = max(0, group * QUERIES + call.low) // KEYS * KEYS
        last = min(call.S, blocks[count - 1].t + blocks[count - 1].n - 1 + call.high)    # of the last query's keys
        while keys.first < last:
            keys.last = min(call.S, keys.first + KEYS)
            keys.v = call.v + keys.first * call.v_stride
            keys.tail = copy_tail(call, keys, s.tail) if call.e % VL else NULL
            s.finite = -1
            if call.relative != NULL:
                multiply_terms(call, &s, blocks[0].t, min(call.T - blocks[0].t, <Py_ssize_t>QUERIES))
            for i in range(count):
                attend_keys(call, &s, &blocks[i])
            keys.first = keys.last
        for i in range(count):
            store_context(call, &blocks[i])


cdef inline Keys seen_keys(const Attention* call, const Keys* keys, const Block* b) noexcept nogil:
    # Return the part of a key block that lies in the band of at least one query of the block.
    cdef Keys seen = keys[0]
    seen.first = max(keys.first, b.t + call.low)
    seen.last = min(keys.last, b.t + b.n - 1 + call.high)
    seen.v += (seen.first - keys.first) * call.v_stride
    if seen.tail != NULL:
        seen.tail += (seen.first - keys.first) * (padded(call.e) - call.e // NR * NR)
    return seen


cdef inline bint changes_scores(const Attention* call) noexcept nogil:
    # Return whether scores are anything but q k^T scale before keys are hidden.
    return call.softcap != 0 or call.bias != NULL or call.score_mod != NULL or call.relative != NULL


cdef inline bint compute_scores(const Attention* call, Scratch* s, Block* b, const Keys* keys) noexcept nogil:
    # Compute the scores P^T, with -inf for hidden keys, and update the maximum. Return whether they are plain: none of
    # them was changed or hidden. The first block of a query group prefetches K and V.
    cdef bint edge = keys.first < b.t + b.n - 1 + call.low or keys.last > b.t + call.high       # of the band
    cdef bint plain = not (edge or call.mask != NULL or changes_scores(call))
    score_keys(call, b, keys, s.p, b.maximum if plain else s.unused, b.t % QUERIES == 0)
    if not plain:
        revise_scores(call, &s.terms, b, keys, s.p, edge)
    return plain


cdef void attend_keys(const Attention* call, Scratch* s, Block* b) noexcept nogil:
    # Process the part of the key block at hand that a block of queries sees. A hidden key has the weight 0, but 0 times
    # NaN or infinity is NaN: if there are such values, hidden keys are left out of the product.
    cdef Keys seen = seen_keys(call, &s.keys, b)
    cdef const Keys* keys = &seen
    if keys.first >= keys.last:
        return
    cdef int j
    for j in range(b.nv):       # the maxima before these keys, from which exponentiate computes c
        v_store(s.correction + j * VL, v_load(b.maximum + j * VL))
    cdef bint plain = compute_scores(call, s, b, keys)
    if plain:       # constants, so that each of the two calls is compiled on its own
        exponentiate(s, b, keys.last - keys.first, True, False)
    else:
        exponentiate(s, b, keys.last - keys.first, False, False)
    if plain or values_are_finite(call, s):
        add_values(call, s, b, keys)
    else:
        add_seen_values(call, s, b, keys)
    b.fresh = False


cdef inline bint values_are_finite(const Attention* call, Scratch* s) noexcept nogil:
    # Return whether all values of the key block at hand are finite, which is found out when it is first asked.
    if s.finite < 0:
        s.finite = all_finite(s.keys.v, call.v_stride, s.keys.last - s.keys.first, call.e)
    return s.finite


cdef void load_queries(const Attention* call, Block* b) noexcept nogil:
    # The softmax uses powers of two, so that the scale includes the factor log2 e. If the scores are changed later,
    # that factor is applied after the change.
    cdef vf scale = v_set1(call.scale if changes_scores(call) else call.scale * <float>M_LOG2E)
    cdef vf tile[VL]
    cdef Py_ssize_t k, i, j
    cdef int columns
    cdef const float* q
    for j in range(b.nv):
        v_store(b.maximum + j * VL, v_set1(-3.0e38))      # a finite number, because -inf - -inf is NaN
        v_store(b.sum + j * VL, v_set1(0.0))
        k = 0
        while k < call.d:
            columns = <int>min(call.d - k, <Py_ssize_t>VL)
            q = call.q + (b.t + j * VL) * call.q_stride + k
            for i in range(VL):
                tile[i] = v_loadn(q + i * call.q_stride, columns) if j * VL + i < b.n else v_set1(0.0)
            v_transpose(tile)
            for i in range(columns):
                v_store(b.queries + ((k + i) * b.nv + j) * VL, v_mul(tile[i], scale))
            k += VL


cdef void score_keys(const Attention* call, const Block* b, const Keys* keys, float* p, float* maximum,
                     bint fetch) noexcept nogil:
    # Compute P^T = K Q^T, and update the maxima, in tiles of keys of nearly equal height. fetch: prefetch K and V.
    cdef Py_ssize_t count = keys.last - keys.first, tiles = (count + MR - 1) // MR, i, row = 0, next_row
    cdef Tile t
    t.depth = call.d
    t.a_stride = call.k_stride
    t.b = b.queries
    t.out_stride = b.nv * VL
    t.maximum = maximum
    for i in range(tiles):
        next_row = count * (i + 1) // tiles
        t.a = call.k + (keys.first + row) * call.k_stride
        t.out = p + row * t.out_stride
        if fetch:
            fetch_rows(call.k, call.k_stride, call.d, keys.first + next_row, min(keys.first + next_row + MR, call.S))
            fetch_rows(call.v, call.v_stride, call.e, keys.first + row, keys.first + next_row)
        scores_any(<int>(next_row - row), b.nv, &t)
        row = next_row


cdef inline void fetch_rows(const float* x, Py_ssize_t stride, Py_ssize_t width, Py_ssize_t row,
                            Py_ssize_t last) noexcept nogil:
    # Prefetch the rows of x from `row` to `last` - 1. The first query block of a query group prefetches the next keys,
    # and the values that it needs soon.
    cdef Py_ssize_t i
    while row < last:
        i = 0
        while i < width:
            fetch_far(<const char*>(x + row * stride + i))
            i += LINE
        row += 1


cdef inline vf correction(vf before, vf maximum) noexcept nogil:
    # Return 2^(before - maximum), the factor of sums whose maximum was `before`. It is exactly 1 if the maximum is the
    # same, which v_exp2 does not return: key blocks that a query does not see leave its sums as they are.
    return v_select(v_equal(before, maximum), v_set1(1.0), v_exp2(v_sub(before, maximum)))


cdef inline vf weight_of(vf score, vf maximum, const bint plain) noexcept nogil:
    # Return 2^(score - maximum). Only a hidden key, of score -inf, gets the weight 0: v_exp2 returns at least 2^-126.
    cdef vf p = v_exp2(v_sub(score, maximum))
    return p if plain else v_select(v_equal(score, v_set1(-INFINITY)), v_set1(0.0), p)


cdef inline void exponentiate_lanes(Scratch* s, Block* b, Py_ssize_t keys, const bint plain, const bint pairs,
                                    const int nv) noexcept nogil:
    # On entry s.correction holds the maximum before these keys, and b.maximum the maximum that includes them. Scores
    # [keys][W] become weights in place, or with `pairs` bfloat16 weights of two keys [keys/2][W][2], of which zeros
    # complete the last. The sums add the weights before they are rounded.
    cdef vf maximum[NV]
    cdef vf sum[NV]
    cdef vf p, second
    cdef Py_ssize_t key, i
    cdef int j
    for j in range(nv):
        maximum[j] = v_load(b.maximum + j * VL)
        p = correction(v_load(s.correction + j * VL), maximum[j])
        v_store(s.correction + j * VL, p)
        sum[j] = v_mul(v_load(b.sum + j * VL), p)
    if pairs:
        for i in range((keys + 1) // 2):
            for j in range(nv):
                p, second = weight_of(v_load(s.p + (2 * i * nv + j) * VL), maximum[j], plain), v_set1(0.0)
                sum[j] = v_add(sum[j], p)
                if 2 * i + 1 < keys:
                    second = weight_of(v_load(s.p + ((2 * i + 1) * nv + j) * VL), maximum[j], plain)
                    sum[j] = v_add(sum[j], second)
                p_store_pairs(<unsigned short*>(s.p + (i * nv + j) * VL), p, second)
    else:
        for key in range(keys):
            for j in range(nv):
                p = weight_of(v_load(s.p + (key * nv + j) * VL), maximum[j], plain)
                v_store(s.p + (key * nv + j) * VL, p)
                sum[j] = v_add(sum[j], p)
    for j in range(nv):
        v_store(b.sum + j * VL, sum[j])


cdef inline void exponentiate(Scratch* s, Block* b, Py_ssize_t keys, const bint plain, const bint pairs) noexcept nogil:
    # Map the vectors of a block of queries to a function that is compiled for them. plain: no score was changed or
    # hidden. pairs: weights become pairs of bfloat16 numbers.
    if b.nv == NV: exponentiate_lanes(s, b, keys, plain, pairs, NV)
    elif b.nv == 1: exponentiate_lanes(s, b, keys, plain, pairs, 1)
    elif NV > 2 and b.nv == 2: exponentiate_lanes(s, b, keys, plain, pairs, 2)
    elif NV > 3: exponentiate_lanes(s, b, keys, plain, pairs, 3)


cdef const float* copy_tail(const Attention* call, const Keys* keys, float* tail) noexcept nogil:
    # Copy the last, narrower panel of columns of the values, padded with zeros to whole vectors: tail [keys][width].
    cdef Py_ssize_t column = call.e // NR * NR, width = padded(call.e) - column, row, i
    cdef int rest = <int>(call.e % VL)
    cdef const float* v = keys.v + column
    for row in range(keys.last - keys.first):
        for i in range(width // VL - 1):
            v_store(tail + row * width + i * VL, v_load(v + i * VL))
        v_store(tail + (row + 1) * width - VL, v_loadn(v + width - VL, rest))
        v += call.v_stride
    return tail


cdef void add_values(const Attention* call, const Scratch* s, Block* b, const Keys* keys) noexcept nogil:
    # Compute O = c O + P V; in the first block of keys O = P V.
    cdef Py_ssize_t e = padded(call.e), column = 0, tiles = (b.n + MR - 1) // MR, i, row, next_row
    cdef Tile t
    t.depth = keys.last - keys.first
    t.a_stride = b.nv * VL
    t.out_stride = e
    while column < e:
        t.b = keys.v + column
        t.b_stride = call.v_stride
        if keys.tail != NULL and column + NR > call.e:      # the last panel, from its padded copy
            t.b = keys.tail
            t.b_stride = e - column
        row = 0
        for i in range(tiles):
            next_row = b.n * (i + 1) // tiles
            t.a = s.p + row
            t.out = b.context + row * e + column
            t.correction = NULL if b.fresh else s.correction + row
            context_any(<int>(next_row - row), <int>(min(e - column, <Py_ssize_t>NR) // VL), &t)
            row = next_row
        column += NR


cdef void add_seen_values(const Attention* call, const Scratch* s, Block* b, const Keys* keys) noexcept nogil:
    # Compute the same bits as add_values, but skip keys of weight 0, whose values may be NaN or infinite.
    cdef Py_ssize_t e = padded(call.e), column = 0, i, key
    cdef int width
    cdef vf sum
    cdef float weight
    cdef float* out
    while column < call.e:
        width = <int>min(call.e - column, <Py_ssize_t>VL)
        for i in range(b.n):
            sum = v_set1(0.0)
            for key in range(keys.last - keys.first):
                weight = s.p[key * b.nv * VL + i]
                if weight != 0:
                    sum = v_fma(v_set1(weight), v_loadn(keys.v + key * call.v_stride + column, width), sum)
            out = b.context + i * e + column
            if not b.fresh:
                sum = v_fma(v_load(out), v_set1(s.correction[i]), sum)
            v_store(out, sum)
        column += VL


cdef void store_context(const Attention* call, const Block* b) noexcept nogil:
    # Store O / l. A query that saw no key has the sum 0; its result is zeros.
    cdef Py_ssize_t e = padded(call.e), i, j
    cdef int tail = <int>(call.e % VL)
    cdef vf scale
    cdef const float* context
    cdef float* out
    for i in range(b.n):
        scale = v_div(v_set1(1.0), v_set1(b.sum[i]))
        context = b.context + i * e
        out = call.out + (b.t + i) * call.out_stride
        if b.sum[i] == 0:
            memset(out, 0, call.e * sizeof(float))
            continue
        for j in range(call.e // VL):
            v_store(out + j * VL, v_mul(v_load(context + j * VL), scale))
        if tail:
            v_storen(out + call.e - tail, v_mul(v_load(context + e - VL), scale), tail)
