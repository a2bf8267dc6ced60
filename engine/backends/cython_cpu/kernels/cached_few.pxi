# Cached attention of few queries (cached_attention.pxi): a tile of queries shares each load of a key and of a value, and
# reads the cells where they lie, as fast as memory delivers them.
#
#   for each FEW queries, and each range that one of them sees
#     for each tile of cells                    P = Q K^T               [FEW][RANGE]
#     for each query                            m, l, P as in ranges.pxi
#     for each cell, each tile of columns       O = O + P V             [FEW][E]
#
# While a cell is multiplied, the one AHEAD_CELLS further is prefetched, in the order in which they are read: keys of the
# range, its values, keys of the next range.

cdef enum:
    MOST_CELLS = 4          # cells of a tile
    AHEAD_CELLS = 6

cdef struct FewQueries:
    Py_ssize_t first        # the first query, and how many there are
    Py_ssize_t n
    Py_ssize_t cell         # the first cell of the range
    Py_ssize_t from_cell    # the cells that one of the queries sees, counted from there
    Py_ssize_t cells
    Py_ssize_t next_cells   # cells of the next range that will be read
    float* queries          # [d][n], with a row of zeros behind an odd d
    float* p                # [FEW][RANGE]
    float* product          # [FEW][E]
    float* context          # [FEW][E + 2]
    Py_ssize_t begin[MR]    # the keys of the range that each query sees
    Py_ssize_t end[MR]


cdef Py_ssize_t few_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    return FEW * (2 * d + 1 + RANGE + 2 * padded(e) + 2)


cdef void attend_few_queries(const CachedAttention* call, float* scratch) noexcept nogil:
    cdef Py_ssize_t E = padded(call.e), count = call.T * call.heads, tiles = (count + FEW - 1) // FEW, i, k
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
        for k in range(call.d * g.n):
            g.queries[k] = rows[k % g.n * call.d + k // g.n]
        attend_few_ranges(call, &g)
        g.first += g.n


cdef void attend_few_ranges(const CachedAttention* call, FewQueries* g) noexcept nogil:
    cdef Py_ssize_t E = padded(call.e), i, first, last, r
    cdef float* own
    for i in range(g.n):
        own = g.context + i * (E + 2)
        memset(own, 0, (E + 2) * sizeof(float))
        own[E] = -3.0e38
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
            own = g.context + i * (E + 2)
            store_context_of(own, own[E + 1], call.e, out_of(call, g.first + i))


cdef void attend_few_in_range(const CachedAttention* call, FewQueries* g, Py_ssize_t r) noexcept nogil:
    # Compute the sums of range r, and fold them.
    cdef Py_ssize_t E = padded(call.e), first = RANGE, last = 0, i, key = r * RANGE
    cdef float maximum[MR]
    cdef float sum[MR]
    cdef float* p
    cdef float* own
    for i in range(g.n):
        seen_in_range(call, g.first + i, key, &g.begin[i], &g.end[i])
        if g.begin[i] < g.end[i]:
            first, last = min(first, g.begin[i]), max(last, g.end[i])
    if first >= last:
        return
    g.cell, g.from_cell, g.cells = r * (RANGE // CELL), first // CELL, (last + CELL - 1) // CELL
    g.next_cells = min((call.S + CELL - 1) // CELL - g.cell - RANGE // CELL, <Py_ssize_t>AHEAD_CELLS)
    score_cells_of(call, g)
    for i in range(g.n):
        p, maximum[i], sum[i] = g.p + i * RANGE, -3.0e38, 0
        if g.begin[i] < g.end[i]:
            if changes_cached_scores(call):
                revise_cached_scores(call, g.first + i, p + g.begin[i], key + g.begin[i], g.end[i] - g.begin[i])
            weigh_range(p, g.begin[i], g.end[i], &maximum[i], &sum[i])
    memset(g.product, 0, g.n * E * sizeof(float))
    add_values_of(call, g)
    for i in range(g.n):
        own = g.context + i * (E + 2)
        fold(own + E, own + E + 1, own, maximum[i], sum[i], g.product + i * E, E)


cdef inline const char* ahead_of(const CachedAttention* call, const FewQueries* g, Py_ssize_t place) noexcept nogil:
    # Return the cell that is read at a place: cells of keys, cells of values, keys of the next range. If there is none, it
    # is one that has been read.
    cdef Py_ssize_t count = g.cells - g.from_cell
    if place < count:
        return keys_of(call, g.cell + g.from_cell + place)
    place -= count
    if place < count:
        return values_of(call, g.cell + g.from_cell + place)
    place -= count
    if place < g.next_cells:
        return keys_of(call, g.cell + RANGE // CELL + place)
    return keys_of(call, g.cell + g.from_cell)


# Scores

cdef inline void add_scores(const int storage, const int mr, const int cells, const char* const* key, const float* q,
                            Py_ssize_t k, vf* acc) noexcept nogil:
    # Add the products of number k of the keys.
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
    cdef int i, j, step, steps = 4 // <int>bytes_of(storage)        # numbers of the keys of a cell that are one line
    for j in range(cells):
        key[j] = keys_of(call, g.cell + cell + j)
        ahead[j] = ahead_of(call, g, cell - g.from_cell + j + AHEAD_CELLS)
    for i in range(mr):
        for j in range(cells * CELL_VECTORS):
            acc[i * cells * CELL_VECTORS + j] = v_set1(0.0)
    k = 0
    while k + steps <= call.d:
        for j in range(cells):
            fetch_far(ahead[j] + k * CELL * bytes_of(storage))
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


cdef inline void score_rows(const int storage, const int mr, const CachedAttention* call, const FewQueries* g) noexcept nogil:
    # A tile has as many cells as there are accumulators for them.
    cdef Py_ssize_t cell = g.from_cell
    cdef int cells = MR * NV // (mr * CELL_VECTORS)
    if mr <= FEW:
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
    if g.n == 6:
        score_rows(storage, 6, call, g)
    elif g.n == 5:
        score_rows(storage, 5, call, g)
    elif g.n == 4:
        score_rows(storage, 4, call, g)
    elif g.n == 3:
        score_rows(storage, 3, call, g)
    elif g.n == 2:
        score_rows(storage, 2, call, g)
    else:
        score_rows(storage, 1, call, g)


cdef void score_cells_of(const CachedAttention* call, const FewQueries* g) noexcept nogil:
    if call.storage == <int>FLOAT32:
        score_any(<int>FLOAT32, call, g)
    elif call.storage == <int>BFLOAT16:
        score_any(<int>BFLOAT16, call, g)
    else:
        score_any(<int>INT8, call, g)


# Values

cdef struct FewValues:
    # Some keys of a cell, and the queries that see them.
    const char* cell
    const char* ahead
    const float* p              # [][RANGE], from the first key of the cell on
    float* product              # [][E]
    Py_ssize_t E
    Py_ssize_t begin            # the keys
    Py_ssize_t end


cdef inline void values_tile(const int storage, const int mr, const int nv, const FewValues* v,
                             Py_ssize_t column) noexcept nogil:
    # O = O + P V of mr queries and nv vectors of columns from `column` on.
    cdef vf acc[MR * 4]
    cdef vf w[4]
    cdef vfactor x[MR]
    cdef Py_ssize_t key
    cdef int i, j
    for i in range(mr):
        for j in range(nv):
            acc[i * nv + j] = v_load(v.product + i * v.E + column + j * VL)
    for key in range(v.begin, v.end):
        for j in range(nv):
            if j * VL * bytes_of(storage) % 64 == 0:
                fetch_far(v.ahead + (key * v.E + column + j * VL) * bytes_of(storage))
        if mr <= 3:         # the weights stay in registers
            for i in range(mr):
                x[i] = v_factor(v.p + i * RANGE + key)
            for j in range(nv):
                w[0] = values_at(storage, v.cell, key * v.E + column + j * VL)
                for i in range(mr):
                    acc[i * nv + j] = v_add_product(acc[i * nv + j], x[i], w[0])
        else:               # the values stay in registers
            for j in range(nv):
                w[j] = values_at(storage, v.cell, key * v.E + column + j * VL)
            for i in range(mr):
                x[0] = v_factor(v.p + i * RANGE + key)
                for j in range(nv):
                    acc[i * nv + j] = v_add_product(acc[i * nv + j], x[0], w[j])
    for i in range(mr):
        for j in range(nv):
            v_store(v.product + i * v.E + column + j * VL, acc[i * nv + j])


cdef inline void values_rows(const int storage, const int mr, const FewValues* v) noexcept nogil:
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
    if mr == 6:
        values_rows(storage, 6, v)
    elif mr == 5:
        values_rows(storage, 5, v)
    elif mr == 4:
        values_rows(storage, 4, v)
    elif mr == 3:
        values_rows(storage, 3, v)
    elif mr == 2:
        values_rows(storage, 2, v)
    else:
        values_rows(storage, 1, v)


cdef void values_of_queries(const CachedAttention* call, const FewQueries* g, FewValues* v, Py_ssize_t query, int mr,
                            Py_ssize_t cell, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    # Add the products of keys [begin, end) of the range that lie in a cell, for mr queries from `query` on.
    v.begin, v.end = max(0, begin - cell * CELL), min(end - cell * CELL, <Py_ssize_t>CELL)
    if v.begin >= v.end:
        return
    v.p, v.product = g.p + query * RANGE + cell * CELL, g.product + query * v.E
    if call.storage == <int>FLOAT32:
        values_any(<int>FLOAT32, mr, v)
    elif call.storage == <int>BFLOAT16:
        values_any(<int>BFLOAT16, mr, v)
    else:
        values_any(<int>INT8, mr, v)


cdef void add_values_of(const CachedAttention* call, const FewQueries* g) noexcept nogil:
    # All queries together add the keys that all of them see. The keys before and after are added for each query alone.
    cdef Py_ssize_t begin = g.begin[0], end = g.end[0], cell, i
    cdef FewValues v
    v.E = padded(call.e)
    for i in range(1, g.n):
        begin, end = max(begin, g.begin[i]), min(end, g.end[i])
    end = max(begin, end)
    for cell in range(g.from_cell, g.cells):
        v.cell = values_of(call, g.cell + cell)
        v.ahead = ahead_of(call, g, g.cells - g.from_cell + cell - g.from_cell + AHEAD_CELLS)
        if call.storage == <int>INT8:
            for i in range(g.n):
                multiply_scores(g.p + i * RANGE, scales_of(v.cell, v.E) - cell * CELL, cell * CELL, cell * CELL + 1)
        for i in range(g.n):
            values_of_queries(call, g, &v, i, 1, cell, g.begin[i], min(begin, g.end[i]))
        values_of_queries(call, g, &v, 0, <int>g.n, cell, begin, end)
        for i in range(g.n):
            values_of_queries(call, g, &v, i, 1, cell, max(end, g.begin[i]), g.end[i])
