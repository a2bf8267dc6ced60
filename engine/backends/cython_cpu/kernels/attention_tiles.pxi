# Compute attention in bfloat16 as attention_bfloat16.pxi does, with both GEMMs on tiles (tiles.h).
#
# Queries lie across the columns of all tiles of sums, so that maxima and sums over keys need no sum over lanes, as in
# attention.pxi. Keys are the rows of the first product and the depth of the second one:
#
#   P^T = K Q^T        operands K [KEYS/16][d'/32][16][32],     d' = d padded to 32; pairs of depth of Q^T [d'/2][W][2]
#   O^T = V^T P^T      operands V^T [e/16][KEYS/32][16][32],    pairs of keys of P^T [KEYS/2][W][2]
#
# The context is O^T [e][W] in scratch. Once begun, it is multiplied by the correction and loaded as the product's sums.
#
# The part of a key block that queries see begins at a multiple of 32 keys from the sequence's first key. The weights of
# keys that this includes but that are hidden, or that are not there, are 0.
#
# VL = TILE_ROWS = 16, TILE_BYTES = 1024 and LINE_BYTES = 64 are those of tiles.pxi, KEYS and QUERIES those of
# table.pxd, Block (W = nv*VL queries) and Scratch those of attention.pxi.

cdef enum:
    STEP = LINE_BYTES // 2      # numbers of depth of a tile


cdef inline Py_ssize_t whole_steps(Py_ssize_t n) noexcept nogil:
    # Return n rounded up to whole tiles of depth.
    return (n + STEP - 1) // STEP * STEP


cdef inline void multiply_transposed(const bint add, Py_ssize_t tiles, const char* a, Py_ssize_t strip,
                                     Py_ssize_t steps, const void* pairs, const int nv, float* out) noexcept nogil:
    # Compute out [16 tiles][W], or add to it, from `tiles` strips of operands that are `strip` bytes apart and pairs
    # [STEP/2 * steps][W][2], with W = nv*VL.
    cdef Py_ssize_t row = 0
    cdef int j
    cdef const char* b
    cdef float* sums
    while row < tiles:
        for j in range(0, nv, 2):
            b, sums = <const char*>pairs + j * LINE_BYTES, out + row * TILE_ROWS * nv * VL + j * VL
            if row + 1 < tiles and j + 1 < nv: add_transposed(add, 2, 2, a, strip, steps, b, nv * LINE_BYTES, sums)
            elif row + 1 < tiles: add_transposed(add, 2, 1, a, strip, steps, b, nv * LINE_BYTES, sums)
            elif j + 1 < nv: add_transposed(add, 1, 2, a, strip, steps, b, nv * LINE_BYTES, sums)
            else: add_transposed(add, 1, 1, a, strip, steps, b, nv * LINE_BYTES, sums)
        a += 2 * strip
        row += 2


cdef inline void add_transposed(const bint add, const int rows, const int columns, const char* a, Py_ssize_t strip,
                                Py_ssize_t steps, const char* b, Py_ssize_t stride, float* out) noexcept nogil:
    # Compute a block of sums, 1 or 2 tiles by 1 or 2. stride: bytes from one row of pairs, and of out, to the next.
    cdef Py_ssize_t k
    if add:
        t_load_sums(rows, columns, out, stride)
    else:
        t_clear(rows, columns)
    for k in range(steps):
        t_step(OF_BFLOAT16, KEEP_OPERANDS + KEEP_WEIGHTS, rows, columns, a, a + strip, LINE_BYTES, b, LINE_BYTES,
               stride)
        a += TILE_BYTES
        b += TILE_ROWS * stride
    t_store_sums(rows, columns, out, stride)


cdef Py_ssize_t attention_tiles_scratch(Py_ssize_t d, Py_ssize_t e, Py_ssize_t columns) noexcept nogil:
    # Return the floats of scratch: as for attention_bfloat16, with the depth padded to steps.
    return attention_scratch(whole_steps(d), e, columns) + KEYS * (whole_steps(d) + padded(e)) // 2


cdef void attention_tiles(const Attention* call, float* scratch) noexcept nogil:
    # The same loops as in attention_bfloat16; keys and values are brought into tiles once for each query group.
    cdef Attention wide = call[0]
    cdef Block blocks[MOST_BLOCKS]
    cdef HalfScratch s
    cdef Keys* keys = &s.floats.keys
    cdef Keys seen
    cdef Py_ssize_t group, count, last, i
    wide.d = whole_steps(call.d)        # for cut and cut_blocks, which divide the scratch
    s.floats = cut(&wide, scratch)
    cdef Py_ssize_t columns = call.relative.columns if call.relative != NULL else 0
    s.keys = <operand*>(scratch + attention_scratch(wide.d, call.e, columns))
    s.values = <unsigned short*>(s.keys + KEYS * wide.d)
    for group in range((call.T + QUERIES - 1) // QUERIES):
        count = cut_blocks(&wide, group * QUERIES, scratch, blocks)
        for i in range(count):
            load_query_pairs(call, &blocks[i])
            pad_query_pairs(call, &blocks[i])
        keys.first = max(0, group * QUERIES + call.low) // KEYS * KEYS
        last = min(call.S, blocks[count - 1].t + blocks[count - 1].n - 1 + call.high)
        while keys.first < last:
            keys.last = min(call.S, keys.first + KEYS)
            keys.v = call.v + keys.first * call.v_stride
            keys.tail, s.floats.finite = NULL, -1
            # The keys of this block that any query of the query group sees.
            seen.first = max(keys.first, (group * QUERIES + call.low) & ~(STEP - 1))
            seen.last = min(keys.last, last)
            round_rows(TILE_ROWS, call.k + seen.first * call.k_stride, call.k_stride, seen.last - seen.first, call.d,
                       s.keys, wide.d, seen.first - keys.first)
            transpose_values(call, keys.first, &seen, s.values)
            if call.relative != NULL:
                multiply_terms(call, &s.floats, blocks[0].t, min(call.T - blocks[0].t, <Py_ssize_t>QUERIES))
            for i in range(count):
                attend_tiles(call, &wide, &s, &blocks[i])
            keys.first = keys.last
        for i in range(count):
            store_transposed(call, &blocks[i])


cdef inline void pad_query_pairs(const Attention* call, const Block* b) noexcept nogil:
    # Pad the depth of the queries from whole vectors to whole steps with zeros.
    cdef Py_ssize_t W = b.nv * VL, d = padded(call.d)
    memset(<unsigned short*>b.queries + d * W, 0, (whole_steps(d) - d) * W * sizeof(unsigned short))


cdef void transpose_values(const Attention* call, Py_ssize_t origin, const Keys* keys,
                           unsigned short* values) noexcept nogil:
    # Round the values of keys to rows of V^T, from a multiple of STEP keys on; `origin` is the first key of the key
    # block. Zeros complete the last step.
    cdef vf tile[VL]
    cdef Py_ssize_t key = keys.first - origin, last = keys.last - origin, column, i
    cdef const float* v
    cdef operand* step
    cdef int width
    while key < whole_steps(last):
        column = 0
        while column < call.e:
            width = <int>min(call.e - column, <Py_ssize_t>VL)
            v = call.v + (origin + key) * call.v_stride + column
            for i in range(VL):
                tile[i] = v_loadn(v + i * call.v_stride, width) if key + i < last else v_set1(0.0)
            v_transpose(tile)
            step = <operand*>values + column * KEYS + key // STEP * STEP * TILE_ROWS + key % STEP
            for i in range(VL):
                p_store(step + i * STEP, tile[i])
            column += VL
        key += VL


cdef void attend_tiles(const Attention* call, const Attention* wide, HalfScratch* s, Block* b) noexcept nogil:
    # Process the keys of the current key block that these queries see, and zeros up to whole steps. wide: d is padded.
    cdef Py_ssize_t e = padded(call.e), W = b.nv * VL, count, skipped, whole, strip, j
    cdef Keys seen = s.floats.keys
    cdef const char* a
    cdef bint edge, plain
    seen.first = max(seen.first, (b.t + call.low) & ~(STEP - 1))        # a multiple of STEP
    seen.last = min(seen.last, b.t + b.n - 1 + call.high)
    count, skipped = seen.last - seen.first, seen.first - s.floats.keys.first
    if count <= 0:
        return
    seen.v += skipped * call.v_stride       # for add_seen_transposed, which reads the values as floats
    whole = whole_steps(count)
    # The last step also holds values of keys that are not seen, unless the key block ends there: their weights are 0,
    # but the values may be NaN or infinite, so the scores do not count as plain.
    edge = (seen.first < b.t + b.n - 1 + call.low or seen.last > b.t + call.high
            or (count < whole and seen.last < s.floats.keys.last))
    plain = not (edge or call.mask != NULL or changes_scores(call))
    for j in range(b.nv):       # the maxima before these keys, from which exponentiate computes c
        v_store(s.floats.correction + j * VL, v_load(b.maximum + j * VL))
    strip = TILE_ROWS * wide.d * sizeof(operand)
    a = <const char*>s.keys + skipped // TILE_ROWS * strip
    multiply_transposed(False, (count + TILE_ROWS - 1) // TILE_ROWS, a, strip, wide.d // STEP, b.queries, b.nv,
                        s.floats.p)
    if plain:
        find_maxima(b, s.floats.p, count)
    else:
        revise_scores(call, &s.floats.terms, b, &seen, s.floats.p, edge)
    if plain:       # each call is compiled for its constants: `plain`, and whether weights become pairs of bfloat16
        exponentiate(&s.floats, b, count, True, True)
    elif values_are_finite(call, &s.floats):
        exponentiate(&s.floats, b, count, False, True)
    else:
        exponentiate(&s.floats, b, count, False, False)
        if not b.fresh:
            correct_context(b, s.floats.correction, e)
        add_seen_transposed(call, &s.floats, b, &seen)      # without rounding values and weights
        b.fresh = False
        return
    if not b.fresh:
        correct_context(b, s.floats.correction, e)
    memset(s.floats.p + (count + 1) // 2 * W, 0, (whole // 2 - (count + 1) // 2) * W * sizeof(float))
    strip = TILE_ROWS * KEYS * sizeof(operand)
    a = <const char*>s.values + skipped // STEP * TILE_BYTES
    if b.fresh: multiply_transposed(False, e // TILE_ROWS, a, strip, whole // STEP, s.floats.p, b.nv, b.context)
    else: multiply_transposed(True, e // TILE_ROWS, a, strip, whole // STEP, s.floats.p, b.nv, b.context)
    b.fresh = False


cdef inline void find_maxima_lanes(float* maxima, const float* p, Py_ssize_t keys, const int nv) noexcept nogil:
    # maxima [W] = the larger of itself and of each column of p [keys][W], W = nv*VL.
    cdef vf maximum[NV]
    cdef Py_ssize_t key
    cdef int j
    for j in range(nv):
        maximum[j] = v_load(maxima + j * VL)
    for key in range(keys):
        for j in range(nv):
            maximum[j] = v_max(maximum[j], v_load(p + (key * nv + j) * VL))
    for j in range(nv):
        v_store(maxima + j * VL, maximum[j])


cdef inline void find_maxima(Block* b, const float* p, Py_ssize_t keys) noexcept nogil:
    # Update the maximum of each query with its scores p [keys][W]. Only a whole block has its maxima in registers.
    if b.nv == NV: find_maxima_lanes(b.maximum, p, keys, NV)
    else: find_maxima_lanes(b.maximum, p, keys, b.nv)


cdef inline void correct_context(Block* b, const float* correction, Py_ssize_t e) noexcept nogil:
    # Multiply O^T [e][W] by the correction [W] of each query.
    cdef Py_ssize_t row
    cdef int j
    cdef float* context
    for row in range(e):
        for j in range(b.nv):
            context = b.context + (row * b.nv + j) * VL
            v_store(context, v_mul(v_load(context), v_load(correction + j * VL)))


cdef void add_seen_transposed(const Attention* call, const Scratch* s, Block* b, const Keys* keys) noexcept nogil:
    # Add the products of values and weights, but skip keys of weight 0, whose values may be NaN or infinite.
    cdef Py_ssize_t column, key
    cdef vf sum, weight
    cdef float* context
    cdef int j
    for column in range(call.e):
        for j in range(b.nv):
            context = b.context + (column * b.nv + j) * VL
            sum = v_set1(0.0) if b.fresh else v_load(context)
            for key in range(keys.last - keys.first):
                weight = v_load(s.p + (key * b.nv + j) * VL)
                sum = v_select(v_equal(weight, v_set1(0.0)), sum,
                               v_fma(v_set1(keys.v[key * call.v_stride + column]), weight, sum))
            v_store(context, sum)


cdef void store_transposed(const Attention* call, const Block* b) noexcept nogil:
    # Store O = O^T / l in rows. A query that saw no key has the sum 0; its result is zeros.
    cdef vf tile[VL]
    cdef vf sum, scale, empty
    cdef Py_ssize_t column, i, lanes
    cdef int j, width
    for j in range(b.nv):
        lanes = min(b.n - j * VL, <Py_ssize_t>VL)
        sum = v_load(b.sum + j * VL)
        scale, empty = v_div(v_set1(1.0), sum), v_equal(sum, v_set1(0.0))
        column = 0
        while column < call.e:
            width = <int>min(call.e - column, <Py_ssize_t>VL)
            for i in range(VL):
                tile[i] = v_set1(0.0)
            for i in range(width):
                tile[i] = v_select(empty, v_set1(0.0), v_mul(v_load(b.context + ((column + i) * b.nv + j) * VL), scale))
            v_transpose(tile)
            for i in range(lanes):
                v_storen(call.out + (b.t + j * VL + i) * call.out_stride + column, tile[i], width)
            column += VL
