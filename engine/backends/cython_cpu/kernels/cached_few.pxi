# Cached attention of few queries (cached_attention.pxi): a tile of queries shares each load of a key and of a value,
# and reads the cells where they lie, as fast as memory delivers them.
#
#   for each FEW queries, and each range that one of them sees
#     for each tile of cells                    P = Q K^T               [FEW][RANGE]
#     for each query                            m, l, P as in ranges.pxi
#     for each cell, each tile of columns       O = O + P V             [FEW][E]
#
# Memory delivers cells all the time: scoring a cell of keys fetches half of the values with its place, the weights of
# each query fetch a part of the other half, and adding a cell of values fetches keys of the next range.
#
# A cell holds CELL = 16 tokens in CELL_VECTORS vectors, a range RANGE = 256 keys. E is e padded to VL. `sums` of a
# query: O [E], the maximum, the sum of weights. keys_at, values_at, bytes_of: cells.pxi.

cdef enum:
    MOST_CELLS = 4          # cells of a tile

cdef struct FewQueries:
    Py_ssize_t first        # the first query
    Py_ssize_t n            # queries
    Py_ssize_t cell         # the first cell of the range
    Py_ssize_t from_cell    # queries see the cells [from_cell, cells) of the range
    Py_ssize_t cells
    float* queries          # [d][n], with a row of zeros behind an odd d
    float* p                # [FEW][RANGE]
    float* product          # [FEW][E]
    float* context          # [FEW][E + 2]
    Py_ssize_t begin[MR]    # the keys of the range that each query sees: [begin, end)
    Py_ssize_t end[MR]


cdef Py_ssize_t few_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    # Return the floats of scratch: queries as rows and transposed, P, O, and the sums of all ranges.
    return FEW * (2 * d + 1 + RANGE + 2 * padded(e) + 2)


cdef void attend_few_queries(const CachedAttention* call, float* scratch) noexcept nogil:
    # Attend for up to FEW queries at a time, in groups of nearly equal size, which are transposed: [d][n].
    cdef Py_ssize_t E = padded(call.e), count = call.T * call.heads, tiles = (count + FEW - 1) // FEW, i, k, q
    cdef float* rows
    cdef FewQueries g
    g.queries = scratch
    rows = g.queries + FEW * (call.d + 1)
    g.p = rows + FEW * call.d
    g.product = g.p + FEW * RANGE
    g.first = 0
    for i in range(tiles):
        g.n = count * (i + 1) // tiles - g.first
        g.context = g.product + FEW * E if call.sums == NULL else call.sums + g.first * (E + 2)
        load_cached_queries(call, g.first, g.n, rows)
        memset(g.queries + call.d * g.n, 0, g.n * sizeof(float))
        for k in range(call.d):
            for q in range(g.n):
                g.queries[k * g.n + q] = rows[q * call.d + k]
        attend_few_ranges(call, &g)
        g.first += g.n


cdef void attend_few_ranges(const CachedAttention* call, FewQueries* g) noexcept nogil:
    # Fold the sums of all ranges, or of the one that the caller names, from O = 0, m = -3e38, l = 0.
    cdef Py_ssize_t E = padded(call.e), i, first, last, r
    cdef float* query_sums
    for i in range(g.n):
        query_sums = g.context + i * (E + 2)
        memset(query_sums, 0, (E + 2) * sizeof(float))
        query_sums[E] = -3.0e38
    if call.sums != NULL:
        first, last = call.range, call.range + 1
    else:
        first = max(0, g.first // call.heads + call.low) // RANGE
        last = min(call.S, (g.first + g.n - 1) // call.heads + call.high)
        last = (last + RANGE - 1) // RANGE if last > 0 else 0
    for r in range(first, last):
        attend_few_in_range(call, g, r)
    if call.sums == NULL:
        for i in range(g.n):
            query_sums = g.context + i * (E + 2)
            store_context_of(query_sums, query_sums[E + 1], call.e, out_of(call, g.first + i))


cdef void attend_few_in_range(const CachedAttention* call, FewQueries* g, Py_ssize_t r) noexcept nogil:
    # Compute the sums of range r, and fold them.
    cdef Py_ssize_t E = padded(call.e), first = RANGE, last = 0, i, key = r * RANGE
    cdef float maximum[MR]
    cdef float sum[MR]
    cdef Py_ssize_t half = CELL * E * bytes_of(call.storage) // 2       # of values; score_tile fetches the first half
    cdef float* p
    cdef float* query_sums
    cdef Ahead ahead
    for i in range(g.n):
        seen_in_range(call, g.first + i, key, &g.begin[i], &g.end[i])
        if g.begin[i] < g.end[i]:
            first, last = min(first, g.begin[i]), max(last, g.end[i])
    if first >= last:
        return
    g.cell, g.from_cell, g.cells = r * (RANGE // CELL), first // CELL, (last + CELL - 1) // CELL
    score_cells_of(call, g)
    ahead.cells = call.cells + g.cell
    for i in range(g.n):
        p, maximum[i], sum[i] = g.p + i * RANGE, -3.0e38, 0
        if g.begin[i] < g.end[i]:
            if changes_cached_scores(call):
                revise_cached_scores(call, g.first + i, p + g.begin[i], key + g.begin[i], g.end[i] - g.begin[i])
            ahead.first = call.values + half + half * i // g.n
            ahead.last = call.values + half + half * (i + 1) // g.n
            weigh_range(p, g.begin[i], g.end[i], &maximum[i], &sum[i], &ahead)
    memset(g.product, 0, g.n * E * sizeof(float))
    add_values_of(call, g)
    for i in range(g.n):
        query_sums = g.context + i * (E + 2)
        fold(query_sums + E, query_sums + E + 1, query_sums, maximum[i], sum[i], g.product + i * E, E)


# Scores

cdef inline void add_scores(const int storage, const int mr, const int cells, const char* const* key, const float* q,
                            Py_ssize_t k, vf* acc) noexcept nogil:
    # Add the products of number k of the keys to acc [mr][cells * CELL_VECTORS]; q: that number of mr queries.
    cdef vfactor x[MR]
    cdef vf w[MOST_CELLS * CELL_VECTORS]
    cdef int i, j
    if mr <= 3:         # the queries stay in registers
        for i in range(mr):
            x[i] = v_factor(q + i)
        for j in range(cells * CELL_VECTORS):
            w[0] = keys_at(storage, key[j // CELL_VECTORS], k, j % CELL_VECTORS * VL)
            for i in range(mr):
                acc[i * cells * CELL_VECTORS + j] = v_add_product(acc[i * cells * CELL_VECTORS + j], x[i], w[0])
    else:               # the keys stay in registers
        for j in range(cells * CELL_VECTORS):
            w[j] = keys_at(storage, key[j // CELL_VECTORS], k, j % CELL_VECTORS * VL)
        for i in range(mr):
            x[0] = v_factor(q + i)
            for j in range(cells * CELL_VECTORS):
                acc[i * cells * CELL_VECTORS + j] = v_add_product(acc[i * cells * CELL_VECTORS + j], x[0], w[j])


cdef inline void score_tile(const int storage, const int mr, const int cells, const CachedAttention* call,
                            const FewQueries* g, Py_ssize_t cell) noexcept nogil:
    # P = Q K^T of mr queries and `cells` cells from `cell` on.
    cdef vf acc[MR * MOST_CELLS * CELL_VECTORS]
    cdef vf x
    cdef const char* key[MOST_CELLS]
    cdef const char* ahead[MOST_CELLS]
    cdef const float* q = g.queries
    cdef Py_ssize_t k
    cdef int i, j, step, steps = 4 // <int>bytes_of(storage)        # of CELL keys, which fill a line together
    for j in range(cells):
        key[j] = keys_of(call, g.cell + cell + j)
        ahead[j] = values_of(call, g.cell + cell + j)
    for i in range(mr):
        for j in range(cells * CELL_VECTORS):
            acc[i * cells * CELL_VECTORS + j] = v_set1(0.0)
    k = 0
    while k + steps <= call.d:
        for j in range(cells):      # half a line of values for each line of keys: two calls fetch the same line
            fetch_far(ahead[j] + k // 2 * CELL * bytes_of(storage))
        for step in range(steps):
            add_scores(storage, mr, cells, key, q + step * mr, k + step, acc)
        q += steps * mr
        k += steps
    while k < call.d:
        add_scores(storage, mr, cells, key, q, k, acc)
        q += mr
        k += 1
    for i in range(mr):
        for j in range(cells * CELL_VECTORS):
            x = acc[i * cells * CELL_VECTORS + j]
            if storage == <int>INT8:
                x = v_mul(x, v_load(scales_of(key[j // CELL_VECTORS], call.d) + j % CELL_VECTORS * VL))
            v_store(g.p + i * RANGE + cell * CELL + j * VL, x)


cdef inline void score_rows(const int storage, const int mr, const CachedAttention* call,
                            const FewQueries* g) noexcept nogil:
    # Score all cells: in tiles whose sums fill MR*NV accumulators, and at the end one by one.
    cdef Py_ssize_t cell = g.from_cell
    cdef int cells = MR * NV // (mr * CELL_VECTORS)
    if mr <= FEW:       # no tile has more queries, and taller ones are not compiled
        if cells >= 4:
            while cell + 4 <= g.cells:
                score_tile(storage, mr, 4, call, g, cell)
                cell += 4
        elif cells == 3:
            while cell + 3 <= g.cells:
                score_tile(storage, mr, 3, call, g, cell)
                cell += 3
        elif cells == 2:
            while cell + 2 <= g.cells:
                score_tile(storage, mr, 2, call, g, cell)
                cell += 2
        while cell < g.cells:
            score_tile(storage, mr, 1, call, g, cell)
            cell += 1


cdef inline void score_any(const int storage, const CachedAttention* call, const FewQueries* g) noexcept nogil:
    # Map the number of queries to a function that is compiled for it.
    if g.n == 6: score_rows(storage, 6, call, g)
    elif g.n == 5: score_rows(storage, 5, call, g)
    elif g.n == 4: score_rows(storage, 4, call, g)
    elif g.n == 3: score_rows(storage, 3, call, g)
    elif g.n == 2: score_rows(storage, 2, call, g)
    else: score_rows(storage, 1, call, g)


cdef void score_cells_of(const CachedAttention* call, const FewQueries* g) noexcept nogil:
    # Map the form of the cells to a function that is compiled for it.
    if call.storage == <int>FLOAT32: score_any(<int>FLOAT32, call, g)
    elif call.storage == <int>BFLOAT16: score_any(<int>BFLOAT16, call, g)
    else: score_any(<int>INT8, call, g)


# Values

cdef struct FewValues:
    # Some keys of a range, and the queries that see them.
    const CachedAttention* call
    Py_ssize_t cell             # the first cell of the range
    const float* p              # weights, [queries][RANGE]
    float* product              # O of this range, [queries][E]
    Py_ssize_t E
    Py_ssize_t begin            # the keys: [begin, end)
    Py_ssize_t end


cdef inline const char* next_keys(const FewValues* v, Py_ssize_t cell) noexcept nogil:
    # Return the keys with the place of a cell in the next range; if there are none, those of the range's first cell.
    cdef Py_ssize_t place = v.cell + RANGE // CELL + cell
    return keys_of(v.call, place if place * CELL < v.call.S else v.cell)


cdef inline void add_weighted(const int storage, const int mr, const int nv, const char* values, const float* p,
                              vf* acc) noexcept nogil:
    # Add the products of one key's weights, RANGE floats apart for mr queries, and nv vectors of its values.
    cdef vf w[4]
    cdef vfactor x[MR]
    cdef int i, j
    if mr <= 3:         # the weights stay in registers
        for i in range(mr):
            x[i] = v_factor(p + i * RANGE)
        for j in range(nv):
            w[0] = values_at(storage, values, j * VL)
            for i in range(mr):
                acc[i * nv + j] = v_add_product(acc[i * nv + j], x[i], w[0])
    else:               # the values stay in registers
        for j in range(nv):
            w[j] = values_at(storage, values, j * VL)
        for i in range(mr):
            x[0] = v_factor(p + i * RANGE)
            for j in range(nv):
                acc[i * nv + j] = v_add_product(acc[i * nv + j], x[0], w[j])


cdef inline void values_tile(const int storage, const int mr, const int nv, const FewValues* v,
                             Py_ssize_t column) noexcept nogil:
    # O = O + P V of mr queries and nv vectors of columns from `column` on. For each key, nv vectors of the next range's
    # keys are fetched. values, ahead: addresses for key 0, because `key` counts through the whole range.
    cdef vf acc[MR * 4]
    cdef Py_ssize_t cell = v.begin // CELL, number_bytes = bytes_of(storage), key
    cdef const char* values
    cdef const char* ahead
    cdef int i, j
    for i in range(mr):
        for j in range(nv):
            acc[i * nv + j] = v_load(v.product + i * v.E + column + j * VL)
    while cell * CELL < v.end:
        values = values_of(v.call, v.cell + cell) + (column - cell * CELL * v.E) * number_bytes
        ahead = next_keys(v, cell) + (column - cell * nv * VL) * CELL * number_bytes
        for key in range(max(v.begin, cell * CELL), min(v.end, (cell + 1) * CELL)):
            for j in range(nv):
                if j * VL * number_bytes % 64 == 0:        # once for each line
                    fetch_far(ahead + (key * nv + j) * VL * number_bytes)
            add_weighted(storage, mr, nv, values + key * v.E * number_bytes, v.p + key, acc)
        cell += 1
    for i in range(mr):
        for j in range(nv):
            v_store(v.product + i * v.E + column + j * VL, acc[i * nv + j])


cdef inline void values_rows(const int storage, const int mr, const FewValues* v) noexcept nogil:
    # Compute O = O + P V for all columns, in tiles of 4, 2 and 1 vectors, as many as there are registers for.
    cdef Py_ssize_t column = 0
    while v.E - column >= 4 * VL and mr * 4 <= MR * NV:
        values_tile(storage, mr, 4, v, column)
        column += 4 * VL
    while v.E - column >= 2 * VL:
        values_tile(storage, mr, 2, v, column)
        column += 2 * VL
    if column < v.E:
        values_tile(storage, mr, 1, v, column)


cdef inline void values_any(const int storage, int mr, const FewValues* v) noexcept nogil:
    # Map the number of queries to a function that is compiled for it.
    if mr == 6: values_rows(storage, 6, v)
    elif mr == 5: values_rows(storage, 5, v)
    elif mr == 4: values_rows(storage, 4, v)
    elif mr == 3: values_rows(storage, 3, v)
    elif mr == 2: values_rows(storage, 2, v)
    else: values_rows(storage, 1, v)


cdef void values_of_queries(const FewQueries* g, FewValues* v, Py_ssize_t query, int mr, Py_ssize_t begin,
                            Py_ssize_t end) noexcept nogil:
    # Add the products of keys [begin, end) of the range for mr queries from `query` on.
    if begin >= end:
        return
    v.begin, v.end = begin, end
    v.p, v.product = g.p + query * RANGE, g.product + query * v.E
    if v.call.storage == <int>FLOAT32: values_any(<int>FLOAT32, mr, v)
    elif v.call.storage == <int>BFLOAT16: values_any(<int>BFLOAT16, mr, v)
    else: values_any(<int>INT8, mr, v)


cdef void add_values_of(const CachedAttention* call, const FewQueries* g) noexcept nogil:
    # All queries together add the keys that all of them see. The keys before and after are added for each query alone.
    cdef Py_ssize_t begin = g.begin[0], end = g.end[0], cell, i
    cdef const float* scales
    cdef FewValues v
    v.call, v.cell, v.E = call, g.cell, padded(call.e)
    for i in range(1, g.n):
        begin, end = max(begin, g.begin[i]), min(end, g.end[i])
    end = max(begin, end)       # empty if no key is seen by all
    if call.storage == <int>INT8:
        for cell in range(g.from_cell, g.cells):
            scales = scales_of(values_of(call, g.cell + cell), v.E) - cell * CELL       # to be indexed by keys
            for i in range(g.n):
                multiply_scores(g.p + i * RANGE, scales, cell * CELL, cell * CELL + 1)      # does the whole cell
    for i in range(g.n):
        values_of_queries(g, &v, i, 1, g.begin[i], min(begin, g.end[i]))
    values_of_queries(g, &v, 0, <int>g.n, begin, end)
    for i in range(g.n):
        values_of_queries(g, &v, i, 1, max(end, g.begin[i]), g.end[i])
