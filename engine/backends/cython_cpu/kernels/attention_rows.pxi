# Compute attention of one head of one sequence on tiles, out[T,e] = softmax(scale q[T,d] k[S,d]^T) v[S,e], where q, k
# and v are rows of bfloat16 numbers that the product before has written, and no option of attention is used. Then
# queries can be the rows of both products, and nothing but the keys is transposed:
#
#   for each query group of QUERIES queries               in scratch
#     for each block of MOST_KEYS keys
#       K^T in pairs of depth, V in pairs of keys         [keys/16][d/32][16][16][2], [keys/2][e][2]
#       for each block of 16 or 32 queries
#         S = q K^T                                       [keys/16][16][16] for each 16 queries
#         m' = max(m, S), P = 2^(scale log2 e (S - m'))   in place: P [keys/32][16][32] in bfloat16
#         O = c O + P V, with c = 2^(scale log2 e (m - m'))
#     out = O / l, where l sums the weights before they are rounded
#
# Keys and values pass by the L1 cache, which holds the queries and the scores at hand.
#
# Maxima and sums are kept in 16 lanes for each query; 16 queries are reduced together by a transposition. Blocks of
# keys begin at multiples of MOST_KEYS from the sequence's first key, so the bits of a row depend on its sequence alone.
#
# VL = TILE_ROWS = 16 and SIDE = 32, two tiles, are those of tiles.pxi; STEP = 32, the depth of a tile, and whole_steps,
# which rounds up to it, those of attention_tiles.pxi; QUERIES that of table.pxd.

cdef enum:
    MOST_KEYS = 512

cdef struct RowBlock:
    # The queries and the keys at hand.
    Py_ssize_t group            # the first query of the query group
    Py_ssize_t row              # the first query in the group
    Py_ssize_t n                # queries
    Py_ssize_t key              # the first key
    Py_ssize_t count            # keys
    bint fresh                  # whether these keys are the first ones
    bint final                  # whether they are the last ones

cdef struct RowScratch:
    unsigned short* keys        # K^T of a block of keys
    unsigned short* values      # V
    unsigned short* queries     # a copy of queries that do not fill their tiles, and zeros: [SIDE][d]
    float* scores               # [2][MOST_KEYS/16][16][16]
    float* sums                 # [SIDE][SIDE]
    float* context              # O of a query group before the last block of keys [QUERIES][e]
    float* maximum              # [QUERIES]
    float* total                # [QUERIES], l; after the last block 1 / l
    float* correction           # [QUERIES]
    float* offset               # [16], of the queries at hand: -scale log2 e m


cdef Py_ssize_t attend_rows_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    # Return the floats of scratch, in the order of RowScratch.
    return (MOST_KEYS * (d + e) // 2 + SIDE * d // 2 + 2 * TILE_ROWS * MOST_KEYS + SIDE * SIDE + QUERIES * (e + 3)
            + TILE_ROWS)


cdef inline RowScratch cut_rows(const Attention* call, float* scratch) noexcept nogil:
    # Divide the scratch into the areas of RowScratch.
    cdef RowScratch s
    s.keys = <unsigned short*>scratch
    s.values = s.keys + MOST_KEYS * call.d
    s.queries = s.values + MOST_KEYS * call.e
    s.scores = <float*>(s.queries + SIDE * call.d)
    s.sums = s.scores + 2 * TILE_ROWS * MOST_KEYS
    s.context = s.sums + SIDE * SIDE
    s.maximum = s.context + QUERIES * call.e
    s.total = s.maximum + QUERIES
    s.correction = s.total + QUERIES
    s.offset = s.correction + QUERIES
    return s


cdef void attend_rows(const Attention* call, float* scratch) noexcept nogil:
    # The loops of the head of this file. Keys that fit into one block are prepared once for all query groups.
    cdef RowScratch s = cut_rows(call, scratch)
    cdef RowBlock b
    cdef Py_ssize_t group, keys, row
    for group in range((call.T + QUERIES - 1) // QUERIES):
        b.group = group * QUERIES
        for keys in range((call.S + MOST_KEYS - 1) // MOST_KEYS):
            b.key = keys * MOST_KEYS
            b.count = min(call.S - b.key, <Py_ssize_t>MOST_KEYS)
            b.fresh, b.final = b.key == 0, b.key + b.count == call.S
            if b.group == 0 or call.S > MOST_KEYS:
                prepare_keys(call, &s, b.key, b.count)
            for row in range((min(call.T - b.group, <Py_ssize_t>QUERIES) + SIDE - 1) // SIDE):
                b.row = row * SIDE
                b.n = min(call.T - b.group - b.row, <Py_ssize_t>SIDE)
                if b.n > TILE_ROWS: attend_to_keys(2, call, &s, &b)
                else: attend_to_keys(1, call, &s, &b)


cdef void prepare_keys(const Attention* call, const RowScratch* s, Py_ssize_t first, Py_ssize_t count) noexcept nogil:
    # Bring keys [first, first + count) and their values into the order of the products, with zeros up to whole steps.
    cdef vf tile[VL]
    cdef Py_ssize_t step, key, i, n
    cdef unsigned short* to = s.keys
    cdef const unsigned short* k = <const unsigned short*>call.k
    cdef const unsigned short* v = <const unsigned short*>call.v
    cdef const unsigned short* row
    for n in range(whole_steps(count) // VL):
        key = n * VL
        for step in range(call.d // STEP):
            for i in range(VL):
                row = k + (first + key + i) * call.k_stride + step * STEP
                # As float32, so that a pair of numbers moves as one lane.
                tile[i] = v_load(<const float*>row) if key + i < count else v_set1(0.0)
            v_transpose(tile)
            for i in range(VL):
                v_store(<float*>(to + i * STEP), tile[i])
            to += VL * STEP
    for n in range(whole_steps(count) // 2):
        key = 2 * n
        row = v + (first + key) * call.v_stride
        to = s.values + key * call.e
        if key >= count:
            memset(to, 0, 2 * call.e * sizeof(unsigned short))
        else:
            p_zip(row, row + call.v_stride if key + 1 < count else NULL, to, call.e)        # NULL: zeros


cdef inline void attend_to_keys(const int rows, const Attention* call, const RowScratch* s,
                                const RowBlock* b) noexcept nogil:
    # Process a block of keys for a block of queries, which has `rows` tiles. t_step multiplies P of 32 keys and of 16
    # queries in each tile by V, whose rows of pairs are 4 e bytes apart.
    cdef Py_ssize_t steps = whole_steps(b.count) // STEP, pair, column, i
    score_keys_of_rows(rows, call, s, b, steps)
    for i in range(rows):
        weigh_tile(call, s, s.scores + i * TILE_ROWS * MOST_KEYS, b.row + i * TILE_ROWS, b)
    for pair in range(call.e // SIDE):
        column = pair * SIDE
        t_clear(rows, 2)
        for i in range(steps):
            t_step(OF_BFLOAT16, KEEP_OPERANDS, rows, 2, <const char*>(s.scores + i * SIDE * VL),
                   <const char*>(s.scores + TILE_ROWS * MOST_KEYS + i * SIDE * VL), LINE_BYTES,
                   <const char*>(s.values + i * STEP * call.e + 2 * column), LINE_BYTES, 4 * call.e)
        t_store_sums(rows, 2, s.sums, SIDE * sizeof(float))
        store_rows_of_context(call, s, b, column)


cdef inline void score_keys_of_rows(const int rows, const Attention* call, const RowScratch* s, const RowBlock* b,
                                    Py_ssize_t steps) noexcept nogil:
    # Compute S. A step has 32 keys, whose two tiles lie 2 * tile bytes apart; tile: the numbers of 16 keys.
    # Rows of queries lie `stride` numbers apart.
    cdef const unsigned short* q = <const unsigned short*>call.q + (b.group + b.row) * call.q_stride
    cdef Py_ssize_t stride = call.q_stride, tile = call.d * TILE_ROWS, i, k
    cdef const unsigned short* keys = s.keys
    if b.n < rows * TILE_ROWS:      # they do not fill their tiles: a copy, and zeros
        memset(s.queries, 0, SIDE * call.d * sizeof(unsigned short))
        for i in range(b.n):
            memcpy(s.queries + i * call.d, q + i * stride, call.d * sizeof(unsigned short))
        q, stride = s.queries, call.d
    for i in range(steps):
        t_clear(rows, 2)
        for k in range(call.d // STEP):
            t_step(OF_BFLOAT16, KEEP_OPERANDS, rows, 2, <const char*>(q + k * STEP),
                   <const char*>(q + TILE_ROWS * stride + k * STEP), 2 * stride,
                   <const char*>(keys + k * STEP * TILE_ROWS), 2 * tile, LINE_BYTES)
        t_store_tiles(rows, s.scores + i * SIDE * VL, s.scores + TILE_ROWS * MOST_KEYS + i * SIDE * VL)
        keys += 2 * tile        # numbers: these 32 keys


cdef inline vf lanes_of(vf* rows, const bint largest) noexcept nogil:
    # Return the largest lane, or the sum of the lanes, of each of 16 vectors.
    cdef int half = VL // 2, i
    v_transpose(rows)
    while half > 0:
        for i in range(half):
            rows[i] = v_max(rows[i], rows[i + half]) if largest else v_add(rows[i], rows[i + half])
        half //= 2
    return rows[0]


cdef inline void weigh_tile(const Attention* call, const RowScratch* s, float* scores, Py_ssize_t row,
                            const RowBlock* b) noexcept nogil:
    # Turn scores of 16 queries into weights, and update their maxima and sums; row: the first query in its group.
    cdef vf lanes[VL]
    cdef vf factor = v_set1(call.scale * <float>M_LOG2E), before = v_set1(-3.0e38), total = v_set1(0.0)
    cdef vf maximum, offset, first, second, even, odd, c
    cdef Py_ssize_t tiles = whole_steps(b.count) // VL, i
    cdef int r
    cdef float* at
    hide_rest(scores, b.count, tiles)
    for r in range(VL):
        lanes[r] = v_load(scores + r * VL)
    for i in range(1, tiles):
        for r in range(VL):
            lanes[r] = v_max(lanes[r], v_load(scores + (i * VL + r) * VL))
    if not b.fresh:
        before = v_load(s.maximum + row)
    maximum = v_max(before, lanes_of(lanes, True))
    v_store(s.maximum + row, maximum)
    v_store(s.offset, v_mul(v_sub(v_set1(0.0), maximum), factor))
    if not b.fresh:
        c = correction(v_mul(before, factor), v_mul(maximum, factor))
        v_store(s.correction + row, c)
        total = v_mul(v_load(s.total + row), c)
    for r in range(VL):
        offset, even, odd, at = v_set1(s.offset[r]), v_set1(0.0), v_set1(0.0), scores + r * VL
        for i in range(tiles // 2):
            first = v_exp2_approximate(v_fma(v_load(at), factor, offset))
            second = v_exp2_approximate(v_fma(v_load(at + VL * VL), factor, offset))
            even, odd = v_add(even, first), v_add(odd, second)
            p_store_line(<operand*>at, first, second)
            at += SIDE * VL
        lanes[r] = v_add(even, odd)
    total = v_add(total, lanes_of(lanes, False))
    v_store(s.total + row, v_div(v_set1(1.0), total) if b.final else total)


cdef inline void hide_rest(float* scores, Py_ssize_t count, Py_ssize_t tiles) noexcept nogil:
    # Set the scores behind the last of `count` keys to -inf. Their weights, 2^-125, change no sum; their values are 0.
    cdef Py_ssize_t i, r
    cdef vf seen
    for i in range(count // VL, tiles):
        seen = v_less(v_iota(), v_set1(<float>(count - i * VL)))
        for r in range(VL):
            v_store(scores + (i * VL + r) * VL, v_select(seen, v_load(scores + (i * VL + r) * VL), v_set1(-INFINITY)))


cdef inline void store_rows_of_context(const Attention* call, const RowScratch* s, const RowBlock* b,
                                       Py_ssize_t column) noexcept nogil:
    # Add the sums of a block of queries and 32 columns to the context; after the last keys, store the result.
    cdef Py_ssize_t r
    cdef int j
    cdef float* context
    cdef vf x
    for r in range(b.n):
        for j in range(2):
            x = v_load(s.sums + r * SIDE + j * VL)
            context = s.context + (b.row + r) * call.e + column + j * VL
            if not b.fresh:
                x = v_fma(v_load(context), v_set1(s.correction[b.row + r]), x)
            if b.final:
                v_store(call.out + (b.group + b.row + r) * call.out_stride + column + j * VL,
                        v_mul(x, v_set1(s.total[b.row + r])))
            else:
                v_store(context, x)
