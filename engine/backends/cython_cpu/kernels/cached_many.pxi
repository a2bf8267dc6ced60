# Cached attention of many queries (cached_attention.pxi): each range is unpacked once, and plain GEMMs multiply it.
#
#   for each QUERIES queries
#     for each range that one of them sees
#       K^T in panels [RANGE / NR][d][NR]
#       for each CHUNK_QUERIES queries
#         P = Q K^T                                    [CHUNK_QUERIES][RANGE]
#         m, l, P as in ranges.pxi
#         V in panels [E / NR][RANGE][NR]              before the first chunk's product
#         O = P V                                      [CHUNK_QUERIES][E]
#         fold m, l and O
#
# A cell of float32 that is as wide as a panel is one: it is multiplied where it lies. Memory delivers cells while the
# first chunk is computed: scoring a panel of keys fetches the values with its place, and the weights of each query
# fetch a part of the next range's keys. A hidden key has the weight 0, and adds an exact zero if its value is finite.
#
# A cell holds CELL = 16 tokens, a range RANGE = 256 keys; QUERIES = 256 (table.pxd). E is e padded to VL.

cdef enum:
    CHUNK_QUERIES = 24  # queries whose scores stay in the L1 cache, a multiple of every MR

cdef struct Unpacked:
    # The range that is being multiplied, and the sums of the queries.
    Py_ssize_t range
    float* keys             # [RANGE / NR][d][NR]
    float* values           # [E / NR][RANGE][NR]
    float* key_scales       # [RANGE]
    float* value_scales     # [RANGE]
    int finite              # 1 if all values of the range are finite, 0 if not, -1 if not checked yet
    Py_ssize_t begin        # the keys of the range that were unpacked: [begin, end)
    Py_ssize_t end
    bint values_unpacked
    float* p                # [CHUNK_QUERIES][RANGE]
    float* product          # [CHUNK_QUERIES][E]
    float* unused           # [NR], for maxima that nobody reads
    float* queries          # [QUERIES][d]
    float* sums             # [QUERIES][E + 2]: the context, the maximum and the sum of each query
    Py_ssize_t first        # the first query
    Py_ssize_t n            # queries


cdef Py_ssize_t many_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    # Return the floats of scratch, in the order of Unpacked.
    cdef Py_ssize_t E = padded(e)
    return RANGE * (d + E + 2) + CHUNK_QUERIES * (RANGE + E) + NR + QUERIES * (d + E + 2)


cdef inline void seen_in_range(const CachedAttention* call, Py_ssize_t query, Py_ssize_t key, Py_ssize_t* begin,
                               Py_ssize_t* end) noexcept nogil:
    # Find the keys [begin, end) that a query sees of the range from `key` on, counted from there; none if begin >= end.
    cdef Py_ssize_t t = query // call.heads
    begin[0] = min(max(0, t + call.low - key), <Py_ssize_t>RANGE)
    end[0] = max(0, min(min(call.S, t + call.high) - key, <Py_ssize_t>RANGE))


cdef void load_cached_queries(const CachedAttention* call, Py_ssize_t first, Py_ssize_t n,
                              float* queries) noexcept nogil:
    # Store q scale log2 e; the factor log2 e is applied later if the scores are changed.
    cdef vf scale = v_set1(call.scale if changes_cached_scores(call) else call.scale * <float>M_LOG2E)
    cdef Py_ssize_t i, k
    cdef int width
    cdef const float* q
    for i in range(first, first + n):
        q = call.q + i // call.heads * call.q_stride + i % call.heads * call.q_head
        k = 0
        while k < call.d:
            width = <int>min(call.d - k, <Py_ssize_t>VL)
            v_storen(queries + k, v_mul(v_loadn(q + k, width), scale), width)
            k += VL
        queries += call.d


cdef void attend_many_queries(const CachedAttention* call, float* scratch) noexcept nogil:
    # Attend for QUERIES queries at a time, and store their results unless the caller wants sums alone.
    cdef Py_ssize_t E = padded(call.e), i
    cdef Unpacked u
    u.keys = scratch
    u.values = u.keys + RANGE * call.d
    u.key_scales = u.values + RANGE * E
    u.value_scales = u.key_scales + RANGE
    u.p = u.value_scales + RANGE
    u.product = u.p + CHUNK_QUERIES * RANGE
    u.unused = u.product + CHUNK_QUERIES * E
    u.queries = u.unused + NR
    u.first = 0
    while u.first < call.T * call.heads:
        u.n = min(call.T * call.heads - u.first, <Py_ssize_t>QUERIES)
        u.sums = u.queries + QUERIES * call.d if call.sums == NULL else call.sums + u.first * (E + 2)
        attend_query_group(call, &u)
        if call.sums == NULL:
            for i in range(u.n):
                store_context_of(u.sums + i * (E + 2), u.sums[i * (E + 2) + E + 1], call.e, out_of(call, u.first + i))
        u.first += u.n


cdef inline float* out_of(const CachedAttention* call, Py_ssize_t query) noexcept nogil:
    # Return the address of the result of a query, which is counted through rows and their heads.
    return call.out + query // call.heads * call.out_stride + query % call.heads * call.out_head


cdef void attend_query_group(const CachedAttention* call, Unpacked* u) noexcept nogil:
    # Fold the sums of all ranges, or of the one that the caller names, from O = 0, m = -3e38, l = 0.
    cdef Py_ssize_t E = padded(call.e), i, begin = 0, end = 0, first, last
    load_cached_queries(call, u.first, u.n, u.queries)
    for i in range(u.n):
        memset(u.sums + i * (E + 2), 0, (E + 2) * sizeof(float))
        u.sums[i * (E + 2) + E] = -3.0e38
    if call.sums != NULL:
        first, last = call.range, call.range + 1
    else:
        first = max(0, u.first // call.heads + call.low) // RANGE
        last = min(call.S, (u.first + u.n - 1) // call.heads + call.high)
        last = (last + RANGE - 1) // RANGE if last > 0 else 0
    for u.range in range(first, last):
        # From the first key that the first query sees to the last one that the last query sees.
        seen_in_range(call, u.first, u.range * RANGE, &u.begin, &end)
        seen_in_range(call, u.first + u.n - 1, u.range * RANGE, &begin, &u.end)
        if u.begin >= u.end:
            continue
        unpack_keys_of(call, u)
        u.finite, u.values_unpacked = -1, False
        i = 0
        while i < u.n:
            attend_chunk(call, u, i, min(u.n - i, <Py_ssize_t>CHUNK_QUERIES))
            i += CHUNK_QUERIES


cdef inline bint in_place(const CachedAttention* call) noexcept nogil:
    # Return whether the keys of a cell are a panel [d][NR].
    return <int>NR == <int>CELL and call.storage == <int>FLOAT32


cdef void unpack_keys_of(const CachedAttention* call, const Unpacked* u) noexcept nogil:
    # Unpack the keys of the range that a query sees, unless they are multiplied where they lie.
    cdef Py_ssize_t cell = u.range * (RANGE // CELL), first = u.begin // CELL, last = (u.end + CELL - 1) // CELL
    if in_place(call):
        return
    if call.storage == <int>FLOAT32: unpack_keys(<int>FLOAT32, call, cell, first, last, u.keys, u.key_scales)
    elif call.storage == <int>BFLOAT16: unpack_keys(<int>BFLOAT16, call, cell, first, last, u.keys, u.key_scales)
    else: unpack_keys(<int>INT8, call, cell, first, last, u.keys, u.key_scales)


cdef void unpack_values_of(const CachedAttention* call, Unpacked* u) noexcept nogil:
    # Unpack the values of the range that a query sees, once.
    cdef Py_ssize_t cell = u.range * (RANGE // CELL), first = u.begin // CELL, last = (u.end + CELL - 1) // CELL
    if u.values_unpacked:
        return
    u.values_unpacked = True
    if call.storage == <int>FLOAT32: unpack_values(<int>FLOAT32, call, cell, first, last, u.values, u.value_scales)
    elif call.storage == <int>BFLOAT16: unpack_values(<int>BFLOAT16, call, cell, first, last, u.values, u.value_scales)
    else: unpack_values(<int>INT8, call, cell, first, last, u.values, u.value_scales)


cdef void attend_chunk(const CachedAttention* call, Unpacked* u, Py_ssize_t row, Py_ssize_t n) noexcept nogil:
    # Compute the sums of the range for queries [row, row + n) of the group, and fold them.
    cdef Py_ssize_t E = padded(call.e), i, begin = 0, end = 0, first = 0, last = 0, key = u.range * RANGE
    cdef bint hides = False
    cdef float maximum[CHUNK_QUERIES]
    cdef float sum[CHUNK_QUERIES]
    cdef float* p
    cdef float* query_sums
    cdef Ahead ahead
    # Keys [first, last) are seen: from the first query's first key to the last query's last one.
    seen_in_range(call, u.first + row, key, &first, &end)
    seen_in_range(call, u.first + row + n - 1, key, &begin, &last)
    if first >= last:
        return
    score_panels(call, u, row, n, first, last)
    for i in range(n):
        p = u.p + i * RANGE
        seen_in_range(call, u.first + row + i, key, &begin, &end)
        hides = hides or begin > first or end < last
        if begin >= end:
            memset(p + first, 0, (last - first) * sizeof(float))
            maximum[i], sum[i] = -3.0e38, 0
            continue
        if call.storage == <int>INT8:
            multiply_scores(p, u.key_scales, begin, end)
        if changes_cached_scores(call):
            revise_cached_scores(call, u.first + row + i, p + begin, key + begin, end - begin)
        weigh_range(p, begin, end, &maximum[i], &sum[i], keys_ahead(call, u, row, i, n, &ahead))
        begin, end = begin // CELL * CELL, (end + CELL - 1) // CELL * CELL      # weigh_range writes whole cells
        memset(p + first, 0, max(0, begin - first) * sizeof(float))
        memset(p + end, 0, max(0, last - end) * sizeof(float))
    unpack_values_of(call, u)
    if call.storage == <int>INT8:
        for i in range(n):
            seen_in_range(call, u.first + row + i, key, &begin, &end)
            if begin < end:
                multiply_scores(u.p + i * RANGE, u.value_scales, begin, end)
    if hides and not range_is_finite(call, u):
        multiply_seen_values(call, u, row, n)
    else:
        multiply_values(call, u, n, first, last)
    for i in range(n):
        query_sums = u.sums + (row + i) * (E + 2)
        fold(query_sums + E, query_sums + E + 1, query_sums, maximum[i], sum[i], u.product + i * E, E)


cdef inline const Ahead* keys_ahead(const CachedAttention* call, const Unpacked* u, Py_ssize_t row, Py_ssize_t i,
                                    Py_ssize_t n, Ahead* ahead) noexcept nogil:
    # Return the keys of the next range that query i of the first chunk's n prefetches, a share of every cell; or NULL.
    cdef Py_ssize_t size = CELL * call.d * bytes_of(call.storage)
    if row > 0 or (u.range + 2) * RANGE > call.S:       # not the first chunk, or the next range is not whole
        return NULL
    ahead.cells = call.cells + (u.range + 1) * (RANGE // CELL)
    ahead.first, ahead.last = call.keys + size * i // n, call.keys + size * (i + 1) // n
    return ahead


cdef void score_panels(const CachedAttention* call, const Unpacked* u, Py_ssize_t row, Py_ssize_t n, Py_ssize_t first,
                       Py_ssize_t last) noexcept nogil:
    # P = Q K^T of n queries from `row` on, for the panels of keys [first, last). Each tile of the first chunk fetches
    # its share of the values of these keys.
    cdef Py_ssize_t tiles = (n + MR - 1) // MR, panel, i, begin, following, cell = u.range * (RANGE // CELL)
    cdef Tile t
    t.depth, t.a_stride, t.out_stride, t.maximum = call.d, call.d, RANGE, u.unused
    for panel in range(first // NR, (last + NR - 1) // NR):
        t.b = keys_of(call, cell + panel) if in_place(call) else <const char*>(u.keys + panel * NR * call.d)
        begin = 0
        for i in range(tiles):
            if row == 0:
                fetch_values(call, cell, max(panel * NR, first), min((panel + 1) * NR, last), i, tiles)
            following = n * (i + 1) // tiles
            t.a, t.out = u.queries + (row + begin) * call.d, u.p + begin * RANGE + panel * NR
            scores_any(<int>(following - begin), NV, &t)
            begin = following


cdef inline void fetch_values(const CachedAttention* call, Py_ssize_t cell, Py_ssize_t first, Py_ssize_t last,
                              Py_ssize_t i, Py_ssize_t tiles) noexcept nogil:
    # Fetch part i of `tiles` of the values of keys [first, last), counted from a cell on.
    cdef Py_ssize_t size = CELL * padded(call.e) * bytes_of(call.storage), c, at
    cdef const char* values
    for c in range(first // CELL, (last + CELL - 1) // CELL):
        values = values_of(call, cell + c)
        at = size * i // tiles // 64 * 64
        while at < size * (i + 1) // tiles:
            fetch_far(values + at)
            at += 64


cdef void multiply_values(const CachedAttention* call, const Unpacked* u, Py_ssize_t n, Py_ssize_t first,
                          Py_ssize_t last) noexcept nogil:
    # O = P V of n queries, for keys [first, last), by the tile of scores, whose maximum is not used.
    cdef Py_ssize_t E = padded(call.e), tiles = (n + MR - 1) // MR, column = 0, width, i, begin, following
    cdef Tile t
    t.depth, t.a_stride, t.out_stride, t.maximum = last - first, RANGE, E, u.unused
    while column < E:
        width = min(E - column, <Py_ssize_t>NR)
        t.b = u.values + column * RANGE + first * width
        begin = 0
        for i in range(tiles):
            following = n * (i + 1) // tiles
            t.a, t.out = u.p + begin * RANGE + first, u.product + begin * E + column
            scores_any(<int>(following - begin), <int>(width // VL), &t)
            begin = following
        column += NR


cdef bint range_is_finite(const CachedAttention* call, Unpacked* u) noexcept nogil:
    # Return whether all unpacked values are finite, which is found out when it is first asked.
    cdef Py_ssize_t E = padded(call.e), column = 0, width
    if u.finite < 0:
        u.finite = 1
        while column < E:
            width = min(E - column, <Py_ssize_t>NR)
            if not all_finite(u.values + column * RANGE + u.begin * width, width, u.end - u.begin, width):
                u.finite = 0
            column += NR
        if call.storage == <int>INT8 and not all_finite(u.value_scales + u.begin, u.end - u.begin, 1, u.end - u.begin):
            u.finite = 0
    return u.finite


cdef void multiply_seen_values(const CachedAttention* call, const Unpacked* u, Py_ssize_t row,
                               Py_ssize_t n) noexcept nogil:
    # Do the work of multiply_values for queries [row, row + n) of the group, with the same bits, but without the hidden
    # keys of each query, whose values may be NaN or infinite.
    cdef Py_ssize_t E = padded(call.e), i, column, width, key, begin = 0, end = 0, j
    cdef const float* v
    cdef vf sum
    for i in range(n):
        seen_in_range(call, u.first + row + i, u.range * RANGE, &begin, &end)
        for j in range(E // VL):
            column = j * VL // NR * NR
            width = min(E - column, <Py_ssize_t>NR)
            v = u.values + column * RANGE + j * VL - column
            sum = v_set1(0.0)
            for key in range(begin, end):
                sum = v_fma(v_set1(u.p[i * RANGE + key]), v_load(v + key * width), sum)
            v_store(u.product + i * E + j * VL, sum)
