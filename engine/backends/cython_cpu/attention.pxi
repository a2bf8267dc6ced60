# Attention of one head of one sequence, blocked, with a streaming softmax (Milakov and Gimelshein, arXiv 1805.02867;
# Dao et al., arXiv 2205.14135): out[T,e] = softmax(q[T,d] k[S,d]^T * scale) v[S,e].
#
# Queries lie across the lanes: a block of W = nv*VL <= NR queries is transposed and scaled once, then scores come out
# as tiles of keys by queries, P^T. The softmax is thus free of horizontal sums, rows of K and V are read as they lie,
# and P^T is what the second product wants to broadcast from. Nothing is padded but the lanes of the last query block.
#
#   for each block of W queries                      in scratch
#     Q^T = (q scale log2 e)^T                       [d][W]
#     m = -max, l = 0                                [W], [W]
#     for each block of KEYS keys
#       P^T = K Q^T, m' = max(m, P^T)                [KEYS][W], [W]
#       P^T = 2^(P^T - m'), c = 2^(m - m')           [W]
#       l = c l + sum of P^T
#       O = c O + P V                                [W][e]
#     out = O / l
#
# Blocks of keys are counted from the sequence's first key, so the bits of a row depend on its sequence alone.

cdef enum:
    KEYS = 256

cdef struct Scratch:
    float* queries      # [d][W]
    float* p            # [KEYS][W]
    float* context      # [W][e]
    float* maximum      # [W]
    float* sum          # [W]
    float* correction   # [W]


cdef Py_ssize_t attention_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    return NR * (d + KEYS + e + 3)


cdef inline Scratch cut(float* scratch, Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    cdef Scratch s
    s.queries = scratch
    s.p = s.queries + NR * d
    s.context = s.p + NR * KEYS
    s.maximum = s.context + NR * e
    s.sum = s.maximum + NR
    s.correction = s.sum + NR
    return s


cdef void attention(const Attention* call, float* scratch) noexcept nogil:
    cdef Scratch s = cut(scratch, call.d, call.e)
    cdef Py_ssize_t query_block, key_block, t, key, n, keys
    cdef int j, nv
    for query_block in range((call.T + NR - 1) // NR):
        t = query_block * NR
        n = min(call.T - t, <Py_ssize_t>NR)
        nv = <int>((n + VL - 1) // VL)
        load_queries(call, &s, t, n, nv)
        for j in range(nv):
            v_store(s.maximum + j * VL, v_set1(-3.0e38))
            v_store(s.sum + j * VL, v_set1(0.0))
        for key_block in range((call.S + KEYS - 1) // KEYS):
            key = key_block * KEYS
            keys = min(call.S - key, <Py_ssize_t>KEYS)
            for j in range(nv):
                v_store(s.correction + j * VL, v_load(s.maximum + j * VL))
            score_keys(call, &s, key, keys, nv)
            exponentiate(&s, keys, nv)
            add_values(call, &s, key, keys, n, nv)
        store_context(call, &s, t, n)


cdef void load_queries(const Attention* call, Scratch* s, Py_ssize_t t, Py_ssize_t n, int nv) noexcept nogil:
    cdef float scale = call.scale * <float>1.4426950408889634       # log2 e: the softmax is taken in powers of two
    cdef Py_ssize_t i, k, W = nv * VL
    cdef const float* q
    for i in range(n):
        q = call.q + (t + i) * call.q_stride
        for k in range(call.d):
            s.queries[k * W + i] = q[k] * scale
    for i in range(n, W):
        for k in range(call.d):
            s.queries[k * W + i] = 0.0


cdef void score_keys(const Attention* call, Scratch* s, Py_ssize_t key, Py_ssize_t keys, int nv) noexcept nogil:
    cdef Py_ssize_t tiles = (keys + MR - 1) // MR, i, row = 0, next_row
    cdef Tile t
    t.depth = call.d
    t.a_stride = call.k_stride
    t.b = s.queries
    t.out_stride = nv * VL
    t.maximum = s.maximum
    for i in range(tiles):
        next_row = keys * (i + 1) // tiles
        t.a = call.k + (key + row) * call.k_stride
        t.out = s.p + row * t.out_stride
        scores_any(<int>(next_row - row), nv, &t)
        row = next_row


cdef inline void exponentiate_lanes(Scratch* s, Py_ssize_t keys, const int nv) noexcept nogil:
    # On entry s.correction holds the maximum before this block of keys, s.maximum the one after it.
    cdef vf maximum[NV]
    cdef vf sum[NV]
    cdef vf p
    cdef Py_ssize_t key
    cdef int j
    for j in range(nv):
        maximum[j] = v_load(s.maximum + j * VL)
        p = v_exp2(v_sub(v_load(s.correction + j * VL), maximum[j]))
        v_store(s.correction + j * VL, p)
        sum[j] = v_mul(v_load(s.sum + j * VL), p)
    for key in range(keys):
        for j in range(nv):
            p = v_exp2(v_sub(v_load(s.p + (key * nv + j) * VL), maximum[j]))
            v_store(s.p + (key * nv + j) * VL, p)
            sum[j] = v_add(sum[j], p)
    for j in range(nv):
        v_store(s.sum + j * VL, sum[j])


cdef void exponentiate(Scratch* s, Py_ssize_t keys, int nv) noexcept nogil:
    if nv == NV:
        exponentiate_lanes(s, keys, NV)
    elif nv == 1:
        exponentiate_lanes(s, keys, 1)
    elif NV > 2 and nv == 2:
        exponentiate_lanes(s, keys, 2)
    elif NV > 3:
        exponentiate_lanes(s, keys, 3)


cdef void add_values(const Attention* call, Scratch* s, Py_ssize_t key, Py_ssize_t keys, Py_ssize_t n,
                     int nv) noexcept nogil:
    cdef Py_ssize_t tiles = (n + MR - 1) // MR, i, row, next_row, panel, column
    cdef Tile t
    t.depth = keys
    t.a_stride = nv * VL
    t.b_stride = call.v_stride
    t.out_stride = call.e
    for panel in range((call.e + NR - 1) // NR):
        column = panel * NR
        t.b = call.v + key * call.v_stride + column
        row = 0
        for i in range(tiles):
            next_row = n * (i + 1) // tiles
            t.a = s.p + row
            t.out = s.context + row * call.e + column
            t.correction = s.correction + row if key else NULL
            context_any(<int>(next_row - row), <int>(min(call.e - column, <Py_ssize_t>NR) // VL), &t)
            row = next_row


cdef void store_context(const Attention* call, Scratch* s, Py_ssize_t t, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef vf scale
    cdef float* out
    for i in range(n):
        scale = v_div(v_set1(1.0), v_set1(s.sum[i]))
        out = call.out + (t + i) * call.out_stride
        for j in range(call.e // VL):
            v_store(out + j * VL, v_mul(v_load(s.context + i * call.e + j * VL), scale))
