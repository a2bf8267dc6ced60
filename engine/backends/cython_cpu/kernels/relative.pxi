# Terms of the scores that depend on the distance of a query and a key, q[t] K[r] + k[s] Q[r] with the row r of distance
# t - s (see Relative in table.pxd; He et al., "DeBERTa", arXiv 2006.03654, equation 4).
#
# For each query group and key block, two products compute q K^T and k Q^T, only for the rows that their distances have:
# at most DISTANCES. Then each score picks two numbers. Where distances have rows of their own, a step to the next key,
# or to the next query, is a step to the next number: K lies in reverse for that reason. So VL x VL scores take VL
# vectors of each product, of which those of the queries are transposed. Far distances share rows: their numbers are
# picked one by one.

cdef enum:
    SHARE = 64      # queries, or keys, that are multiplied at a time


cdef inline Py_ssize_t terms_stride(Py_ssize_t columns) noexcept nogil:
    # Return the floats from one row of a product to the next, an odd number of cache lines.
    return (columns + LINE - 1) // LINE * LINE | LINE if columns else 0


cdef inline Py_ssize_t row_for(const Relative* relative, Py_ssize_t distance) noexcept nogil:
    # Return the row of the table for t - s; beyond the limit, all distances have the row of the limit.
    return relative.row[relative.limit + max(-relative.limit, min(relative.limit, distance))]


cdef void multiply_table(const float* a, Py_ssize_t a_stride, Py_ssize_t M, Py_ssize_t d, const float* panels,
                         Py_ssize_t panel, Py_ssize_t last, float* out, Py_ssize_t stride,
                         float* unused) noexcept nogil:
    # Compute columns [panel*NR, last*NR) of the product of M rows; the first of them is column 0 of out.
    cdef Py_ssize_t tiles = (M + MR - 1) // MR, p, i, row, next_row
    cdef Tile t
    t.depth, t.a_stride, t.out_stride, t.maximum = d, a_stride, stride, unused
    for p in range(panel, last):
        t.b = panels + p * NR * d
        row = 0
        for i in range(tiles):
            next_row = M * (i + 1) // tiles
            t.a, t.out = a + row * a_stride, out + row * stride + (p - panel) * NR
            scores_any(<int>(next_row - row), NV, &t)
            row = next_row


cdef void multiply_terms(const Attention* call, Scratch* s, Py_ssize_t t, Py_ssize_t n) noexcept nogil:
    # Compute the products of queries [t, t + n) and of the current key block. SHARE queries or keys have fewer
    # distances than all of them, and so need fewer panels. Row r of K is column end - r, so its first panel has the
    # largest distance, that of the last query and the first key. Row r of Q is column r: the smallest comes first.
    cdef const Relative* relative = call.relative
    cdef Terms* terms = &s.terms
    cdef Py_ssize_t key = s.keys.first, keys = s.keys.last - key, i, m, first, panel, last
    cdef Py_ssize_t distance = call.query + t - key         # of the first query and the first key
    cdef Py_ssize_t end = relative.rows - 1     # the row of K in column 0
    terms.t, terms.key = t, key
    if relative.keys != NULL:
        first = (end - row_for(relative, distance + n - 1)) // NR
        terms.first_key_row = first * NR
        i = 0
        while i < n:
            m = min(n - i, <Py_ssize_t>SHARE)
            panel = (end - row_for(relative, distance + i + m - 1)) // NR
            last = (end - row_for(relative, distance + i - (keys - 1))) // NR + 1
            multiply_table(call.q + (t + i) * call.q_stride, call.q_stride, m, call.d, relative.keys, panel, last,
                           terms.queries + i * terms.stride + (panel - first) * NR, terms.stride, s.unused)
            i += m
    if relative.queries != NULL:
        first = row_for(relative, distance - (keys - 1)) // NR
        terms.first_query_row = first * NR
        i = 0
        while i < keys:
            m = min(keys - i, <Py_ssize_t>SHARE)
            panel = row_for(relative, distance - (i + m - 1)) // NR
            last = row_for(relative, distance + n - 1 - i) // NR + 1
            multiply_table(call.k + (key + i) * call.k_stride, call.k_stride, m, call.d, relative.queries, panel, last,
                           terms.keys + i * terms.stride + (panel - first) * NR, terms.stride, s.unused)
            i += m


cdef void load_terms(const Attention* call, const Terms* terms, Py_ssize_t t, Py_ssize_t n, Py_ssize_t key,
                     Py_ssize_t keys, vf* tile) noexcept nogil:
    # Set lane i of tile[r] to the terms of query t + i and key + r, for n <= VL queries and keys <= VL.
    cdef const Relative* relative = call.relative
    cdef Py_ssize_t distance = call.query + t - key, stride = terms.stride, i, r, row
    # The numbers of query t with row 0 of K, and of this key with row 0 of Q; row r: of_query[-r] and of_key[r].
    cdef const float* of_query = terms.queries + (t - terms.t) * stride + relative.rows - 1 - terms.first_key_row
    cdef const float* of_key = terms.keys + (key - terms.key) * stride - terms.first_query_row
    cdef Py_ssize_t rows[2 * VL]
    cdef float lanes[VL]
    if distance - (keys - 1) >= -relative.near and distance + n - 1 <= relative.near:      # no two share a row
        row = row_for(relative, distance)
        for i in range(VL):
            tile[i] = v_set1(0.0)
        if relative.keys != NULL:
            for i in range(n):
                tile[i] = v_loadn(of_query + i * stride - (row + i), <int>keys)
            v_transpose(tile)
        if relative.queries != NULL:
            for r in range(keys):
                tile[r] = v_add(tile[r], v_loadn(of_key + r * stride + (row - r), <int>n))
        return
    for i in range(n + keys - 1):
        rows[i] = row_for(relative, distance - (keys - 1) + i)
    v_store(lanes, v_set1(0.0))
    for r in range(keys):
        for i in range(n):
            row = rows[keys - 1 + i - r]
            lanes[i] = of_query[i * stride - row] if relative.keys != NULL else 0
            if relative.queries != NULL:
                lanes[i] += of_key[r * stride + row]
        tile[r] = v_load(lanes)
