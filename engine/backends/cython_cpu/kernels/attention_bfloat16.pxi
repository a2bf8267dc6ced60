# Compute attention as attention.pxi does, but with the operands of both GEMMs rounded to bfloat16, on CPUs that have an
# instruction for bfloat16 products. Scores, softmax and sums are float32, and the options are the same.
#
#   for each query group of QUERIES queries          in scratch
#     for each block of W queries in the group
#       Q^T = (q scale log2 e)^T, in pairs           [d'/2][W][2]    d' = d padded to VL
#     for each block of KEYS keys that the group sees
#       K, and V in pairs                            [KEYS][d'], [KEYS/2][e][2]
#       for each block of queries
#         P^T = K Q^T, changed by scores.pxi         [KEYS][W]
#         P^T = 2^(P^T - m'), in pairs               [KEYS/2][W][2], in place
#         O = c O + P V                              [W][e]
#     out = O / l
#
# Terms of relative positions stay float32.
#
# Pairs are counted from the sequence's first key, so the part of a key block that queries see begins at an even key. If
# this includes a hidden key, its weight is 0.

cdef struct HalfScratch:
    Scratch floats
    operand* keys           # [KEYS][d'], beginning with the first key of the key block
    unsigned short* values  # [KEYS/2][e][2]


cdef Py_ssize_t attention_bfloat16_scratch(Py_ssize_t d, Py_ssize_t e, Py_ssize_t columns) noexcept nogil:
    # Return the floats of scratch: that of float32 for padded heads, then K and V of a block as bfloat16.
    return attention_scratch(padded(d), e, columns) + KEYS * (padded(d) + padded(e)) // 2


cdef void attention_bfloat16(const Attention* call, float* scratch) noexcept nogil:
    # The loops of the head of this file over query groups, blocks of keys and blocks of queries.
    cdef Attention wide = call[0]
    cdef Block blocks[MOST_BLOCKS]
    cdef HalfScratch s
    cdef Keys* keys = &s.floats.keys
    cdef Keys seen
    cdef Py_ssize_t group, count, last, i
    wide.d = padded(call.d)         # for cut and cut_blocks, which divide the scratch
    s.floats = cut(&wide, scratch)
    s.keys = <operand*>(scratch + attention_scratch(wide.d, call.e,
                                                    call.relative.columns if call.relative != NULL else 0))
    s.values = <unsigned short*>(s.keys + KEYS * wide.d)
    for group in range((call.T + QUERIES - 1) // QUERIES):
        count = cut_blocks(&wide, group * QUERIES, scratch, blocks)
        for i in range(count):
            load_query_pairs(call, &blocks[i])
        keys.first = max(0, group * QUERIES + call.low) // KEYS * KEYS
        last = min(call.S, blocks[count - 1].t + blocks[count - 1].n - 1 + call.high)
        while keys.first < last:
            keys.last = min(call.S, keys.first + KEYS)
            keys.v = call.v + keys.first * call.v_stride
            keys.tail, s.floats.finite = NULL, -1
            # The keys of this block that any query of the query group sees, beginning with an even key.
            seen.first = max(keys.first, (group * QUERIES + call.low) & ~1)
            seen.last = min(keys.last, last)
            to_operands(call.k + seen.first * call.k_stride, call.k_stride, seen.last - seen.first, call.d,
                        s.keys, wide.d, seen.first - keys.first, NULL)
            pair_values(call, &seen, s.values + (seen.first - keys.first) * padded(call.e))
            if call.relative != NULL:
                multiply_terms(call, &s.floats, blocks[0].t, min(call.T - blocks[0].t, <Py_ssize_t>QUERIES))
            for i in range(count):
                attend_pairs(call, &wide, &s, &blocks[i])
            keys.first = keys.last
        for i in range(count):
            store_context(call, &blocks[i])


cdef void load_query_pairs(const Attention* call, Block* b) noexcept nogil:
    # Transpose a block of queries and round it: [d'/2][W][2]. The scale is that of load_queries in attention.pxi.
    cdef vf scale = v_set1(call.scale if changes_scores(call) else call.scale * <float>M_LOG2E)
    cdef vf tile[VL]
    cdef unsigned short* queries = <unsigned short*>b.queries
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
            for i in range(VL // 2):
                p_store_pairs(queries + ((k // 2 + i) * b.nv + j) * VL * 2, v_mul(tile[2 * i], scale),
                              v_mul(tile[2 * i + 1], scale))
            k += VL


cdef void pair_values(const Attention* call, const Keys* keys, unsigned short* values) noexcept nogil:
    # Interleave the values of each pair of keys. If the number of keys is odd, zeros complete the last pair.
    cdef Py_ssize_t e = padded(call.e), key = keys.first, i, n
    cdef const float* v
    while key < keys.last:
        v = call.v + key * call.v_stride
        i = 0
        while i < e:
            n = min(call.e - i, <Py_ssize_t>VL)
            p_store_pairs(values + i * 2, v_loadn(v + i, <int>n),
                          v_loadn(v + call.v_stride + i, <int>n) if key + 1 < keys.last else v_set1(0.0))
            i += VL
        values += e * 2
        key += 2


cdef void attend_pairs(const Attention* call, const Attention* wide, HalfScratch* s, Block* b) noexcept nogil:
    # Process the keys of the current key block that these queries see. wide: the call, with d padded to vectors.
    cdef Py_ssize_t e = padded(call.e), W = b.nv * VL, row = 0, column = 0, next_row, tiles, count, skipped, i, j
    cdef Keys seen = s.floats.keys
    cdef bint edge, plain
    cdef Tile t
    seen.first = max(seen.first, (b.t + call.low) & ~1)     # an even key
    seen.last = min(seen.last, b.t + b.n - 1 + call.high)
    count, skipped = seen.last - seen.first, seen.first - s.floats.keys.first
    if count <= 0:
        return
    seen.v += skipped * call.v_stride       # for add_seen_values, which reads the values as floats
    # If the number of keys is odd, the last pair also has the value of an unseen key, unless the key block ends there:
    # its weight is 0, but the value may be NaN or infinite, so the scores do not count as plain.
    edge = (seen.first < b.t + b.n - 1 + call.low or seen.last > b.t + call.high
            or (count % 2 == 1 and seen.last < s.floats.keys.last))
    plain = not (edge or call.mask != NULL or changes_scores(call))
    for j in range(b.nv):       # the maxima before these keys, from which exponentiate computes c
        v_store(s.floats.correction + j * VL, v_load(b.maximum + j * VL))
    t.depth, t.a_stride, t.b, t.out_stride = wide.d, wide.d, b.queries, W
    t.maximum = b.maximum if plain else s.floats.unused
    tiles = (count + MR - 1) // MR
    for i in range(tiles):
        next_row = count * (i + 1) // tiles
        t.a, t.out = s.keys + (skipped + row) * wide.d, s.floats.p + row * W
        scores_of_pairs_any(<int>(next_row - row), b.nv, &t)
        row = next_row
    if not plain:
        revise_scores(call, &s.floats.terms, b, &seen, s.floats.p, edge)
    if plain:       # each call is compiled for its constants: `plain`, and whether weights become pairs of bfloat16
        exponentiate(&s.floats, b, count, True, True)
    elif values_are_finite(call, &s.floats):
        exponentiate(&s.floats, b, count, False, True)
    else:
        exponentiate(&s.floats, b, count, False, False)
        add_seen_values(call, &s.floats, b, &seen)      # without rounding values and weights
        b.fresh = False
        return
    t.depth, t.a_stride, t.b_stride, t.out_stride = (count + 1) // 2 * 2, 2 * W, 2 * e, e
    tiles = (b.n + MR - 1) // MR
    while column < e:
        t.b = s.values + skipped * e + column * 2
        row = 0
        for i in range(tiles):
            next_row = b.n * (i + 1) // tiles
            t.a, t.out = <operand*>s.floats.p + row * 2, b.context + row * e + column
            t.correction = NULL if b.fresh else s.floats.correction + row
            context_of_pairs_any(<int>(next_row - row), <int>(min(e - column, <Py_ssize_t>NR) // VL), &t)
            row = next_row
        column += NR
    b.fresh = False
