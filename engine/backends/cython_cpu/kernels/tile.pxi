# Compute tiles of a GEMM: mr rows by nv vectors of columns, summed in registers over the depth, then an epilogue.
#
# Each accumulator adds its products in order of depth. Therefore the bits of a result depend neither on the tile's
# height nor on how rows are assigned to tiles and threads.
#
# simd.pxi: VL floats of a vector; NV vectors, NR = NV*VL columns, of a panel; MR rows of a tile; mr <= MR, nv <= NV.

cdef enum TileKind:
    LINEAR      # out = activation(a b + bias + residual)       a [mr][depth] tokens,   b [depth][nv*VL] a K block
    SCORES      # out = a b, and the running maximum            a [mr][depth] keys,     b [depth][nv*VL] queries
    CONTEXT     # out = correction out + a b                    a [depth][mr] P^T,      b [depth][...] values
    MAXIMA      # the running maximum of a b + bias             a [mr][depth] tokens,   b [depth][nv*VL] a K block
    PAIRS               # LINEAR in bfloat16: steps of depth lie side by side, b [depth/2][nv*VL][2], or
                        # QUADS [depth/4][nv*VL][4]
    WIDENED             # LINEAR with weights in bfloat16, b [depth/2][nv*VL][2], and operands in float32; only where
                        # PAIRS is not that
    SCORES_OF_PAIRS     # SCORES in bfloat16, with the same layout of b
    CONTEXT_OF_PAIRS    # CONTEXT in bfloat16, with a [depth/2][mr][2]

cdef struct Tile:
    const void* a
    const void* b
    float* out
    Py_ssize_t depth
    Py_ssize_t a_stride             # elements between rows of a; CONTEXT: between steps of depth, or pairs of them
    Py_ssize_t b_stride             # CONTEXT: elements of b between steps of depth, or pairs of them
    Py_ssize_t out_stride
    Py_ssize_t column[NV]           # LINEAR: offset in out of each vector of columns, in floats
    const float* bias               # LINEAR, MAXIMA: added in the first K block; NULL in later ones, which add out
    const float* residual           # LINEAR: added in the last K block; NULL in earlier ones
    const char* ahead               # LINEAR: this tile's part of the panel's next K block, which the loop prefetches;
                                    # MAXIMA: its part of the next rows
    Py_ssize_t ahead_step           # LINEAR, MAXIMA: bytes to prefetch in each step of depth
    int activation                  # LINEAR: IDENTITY before the last K block; others need contiguous columns
    void* operands                  # PAIRS: where the results go as operands; NULL if they go to out
    Py_ssize_t operands_stride      # numbers from one row of operands to the next
    float* maximum                  # SCORES, MAXIMA: [nv*VL]
    const float* correction         # CONTEXT: [mr]; NULL if out is not initialized yet


cdef inline void multiply_tile(const int kind, const int mr, const int nv, const Tile* t, vf* acc) noexcept nogil:
    # acc [mr][nv] = a b, without an epilogue. `multiply` (depth.pxi) takes strides in bytes. A step has 4 bytes of each
    # column of b: a float, or a pair of bfloat16 numbers, two of depth, of which an odd last one is half a pair.
    cdef bint pairs = kind == PAIRS or kind == SCORES_OF_PAIRS or kind == CONTEXT_OF_PAIRS
    cdef int weights = EACH_STEP if kind == WIDENED else TWO_STEPS if pairs else FLOATS
    cdef Py_ssize_t a_size = sizeof(operand) if pairs else sizeof(float), b_size = 2 if pairs else sizeof(float)
    cdef Py_ssize_t a_stride = t.a_stride * a_size, step = a_size if weights == FLOATS else 2 * a_size
    cdef Py_ssize_t steps = t.depth if weights == FLOATS else t.depth // 2
    cdef const char* a = <const char*>t.a
    cdef const char* b = <const char*>t.b
    if QUADS and kind == PAIRS:
        multiply_quads(mr, nv, (t.depth + 3) // 4, a, a_stride, b, t.ahead, t.ahead_step, acc)
    elif kind == CONTEXT or kind == CONTEXT_OF_PAIRS:
        # Rows of P^T are steps of depth, so the two strides of a change places; nothing is prefetched.
        multiply(weights, mr, nv, steps, a, step, a_stride, b, t.b_stride * b_size, False, NULL, 0, acc)
    else:
        multiply(weights, mr, nv, steps, a, a_stride, step, b, nv * VL * sizeof(float),
                 kind == LINEAR or kind == PAIRS or kind == WIDENED or kind == MAXIMA, t.ahead, t.ahead_step, acc)
        if weights != FLOATS and t.depth % 2:
            a += steps * step
            b += steps * nv * VL * sizeof(float)
            if weights == EACH_STEP:
                add_widened(mr, nv, a, a + 3 * a_stride, a_stride, b, 0, acc)
            else:
                add_half(mr, nv, a, a + 3 * a_stride, a_stride, b, 0, acc)


cdef inline void linear_tile(const int kind, const int mr, const int nv, const Tile* t) noexcept nogil:
    # The epilogue of LINEAR, PAIRS and WIDENED: bias or the sums so far, residual, activation.
    cdef vf acc[MR * NV]
    cdef bint rounds = kind == PAIRS and t.operands != NULL
    cdef int i, j
    for i in range(mr):
        for j in range(nv):
            if j * VL % LINE == 0 and not rounds:
                fetch_near(<const char*>(t.out + t.column[j] + i * t.out_stride))
    multiply_tile(kind, mr, nv, t, acc)
    if rounds:
        store_operands(mr, nv, t, acc)
        return
    if t.bias != NULL:
        for i in range(mr):
            for j in range(nv):
                acc[i * NV + j] = v_add(acc[i * NV + j], v_load(t.bias + j * VL))
    else:
        for i in range(mr):
            for j in range(nv):
                acc[i * NV + j] = v_add(acc[i * NV + j], v_load(t.out + t.column[j] + i * t.out_stride))
    if t.residual != NULL:
        for i in range(mr):
            for j in range(nv):
                acc[i * NV + j] = v_add(acc[i * NV + j], v_load(t.residual + t.column[j] + i * t.out_stride))
    for i in range(mr):
        for j in range(nv):
            v_store(t.out + t.column[j] + i * t.out_stride, acc[i * NV + j])
    if t.activation != IDENTITY:
        activate(t.activation, t.out + t.column[0], t.out_stride, mr, nv * VL)


cdef inline void store_operands(const int mr, const int nv, const Tile* t, const vf* acc) noexcept nogil:
    # Add the bias, and round the activation of the results, which pass through memory: an activation needs registers.
    cdef float results[MR * NV * VL]
    cdef int i, j
    for i in range(mr):
        for j in range(nv):
            v_store(results + (i * nv + j) * VL, v_add(acc[i * NV + j], v_load(t.bias + j * VL)))
    round_results(t.activation, results, mr, nv, <operand*>t.operands, t.operands_stride)


cdef inline void scores_tile(const int kind, const int mr, const int nv, const Tile* t) noexcept nogil:
    # Store the scores, and update the maximum of each column.
    cdef vf acc[MR * NV]
    cdef vf maximum
    cdef int i, j
    multiply_tile(kind, mr, nv, t, acc)
    for j in range(nv):
        maximum = v_load(t.maximum + j * VL)
        for i in range(mr):
            v_store(t.out + i * t.out_stride + j * VL, acc[i * NV + j])
            maximum = v_max(maximum, acc[i * NV + j])
        v_store(t.maximum + j * VL, maximum)


cdef inline void maxima_tile(const int mr, const int nv, const Tile* t) noexcept nogil:
    # Update the maximum of each column, and store nothing else.
    cdef vf acc[MR * NV]
    cdef vf maximum, x
    cdef int i, j
    multiply_tile(MAXIMA, mr, nv, t, acc)
    for j in range(nv):
        maximum = v_load(t.maximum + j * VL)
        for i in range(mr):
            x = v_add(acc[i * NV + j], v_load(t.bias + j * VL if t.bias != NULL else t.out + i * t.out_stride + j * VL))
            # NaN must not get lost: v_max keeps a maximum that is NaN, and here x becomes the maximum if it is NaN.
            maximum = v_select(v_equal(x, x), v_max(x, maximum), x)
        v_store(t.maximum + j * VL, maximum)


cdef inline void context_tile(const int kind, const int mr, const int nv, const Tile* t) noexcept nogil:
    # Store correction out + a b.
    cdef vf acc[MR * NV]
    cdef int i, j
    cdef float* out
    multiply_tile(kind, mr, nv, t, acc)
    for i in range(mr):
        for j in range(nv):
            out = t.out + i * t.out_stride + j * VL
            if t.correction != NULL:
                acc[i * NV + j] = v_fma(v_load(out), v_set1(t.correction[i]), acc[i * NV + j])
            v_store(out, acc[i * NV + j])


# The functions below map sizes known at run time to functions compiled for those sizes.

cdef inline void tile_exact(const int kind, const int mr, const int nv, const Tile* t) noexcept nogil:
    # Choose the epilogue.
    if kind == LINEAR or kind == PAIRS or kind == WIDENED: linear_tile(kind, mr, nv, t)
    elif kind == SCORES or kind == SCORES_OF_PAIRS: scores_tile(kind, mr, nv, t)
    elif kind == MAXIMA: maxima_tile(mr, nv, t)
    else: context_tile(kind, mr, nv, t)


cdef inline void tile_rows(const int kind, int mr, const int nv, const Tile* t) noexcept nogil:
    # mr is from 1 to MR, which is 6 at most.
    if mr == 6: tile_exact(kind, 6, nv, t)
    elif mr == 5: tile_exact(kind, 5, nv, t)
    elif mr == 4: tile_exact(kind, 4, nv, t)
    elif mr == 3: tile_exact(kind, 3, nv, t)
    elif mr == 2: tile_exact(kind, 2, nv, t)
    else: tile_exact(kind, 1, nv, t)


cdef inline void tile_any(const int kind, int mr, int nv, const Tile* t) noexcept nogil:
    # nv is below NV in the last panel, or the last block of queries, alone.
    if nv == NV: tile_rows(kind, mr, NV, t)
    elif nv == 1: tile_rows(kind, mr, 1, t)
    elif NV > 2 and nv == 2: tile_rows(kind, mr, 2, t)
    elif NV > 3: tile_rows(kind, mr, 3, t)


cdef void linear_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For products of weights in float32.
    tile_any(LINEAR, mr, nv, t)


cdef void scores_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For attention in float32, relative positions and cached attention.
    tile_any(SCORES, mr, nv, t)


cdef void context_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For attention in float32.
    tile_any(CONTEXT, mr, nv, t)


cdef void maxima_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For column_maxima.
    tile_any(MAXIMA, mr, nv, t)


cdef void pairs_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For products of weights in bfloat16.
    tile_any(PAIRS, mr, nv, t)


cdef void widened_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For products of weights in bfloat16 where they are widened although there is an instruction for pairs.
    if PAIR_STEPS == 1:     # elsewhere pairs_any is the same function
        tile_any(WIDENED, mr, nv, t)


cdef void scores_of_pairs_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For attention in bfloat16.
    tile_any(SCORES_OF_PAIRS, mr, nv, t)


cdef void context_of_pairs_any(int mr, int nv, const Tile* t) noexcept nogil:
    # For attention in bfloat16.
    tile_any(CONTEXT_OF_PAIRS, mr, nv, t)
