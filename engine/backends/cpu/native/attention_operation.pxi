# Compute attention over a batch of sequences and their heads. A work item is LARGE_SHARE queries of one head of one
# sequence, because the queries of one call of the kernel share each block of keys. It is SMALL_SHARE queries if larger
# items would be too few to keep all threads busy. Threads fetch items from a queue.

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef enum:
    LARGE_SHARE = 256       # queries of an item; both sizes are multiples of every NR
    SMALL_SHARE = 64
    ITEMS = 8               # least number of large items for each thread, which balances the load

cdef struct Heads:
    const KernelTable* table
    Attention first         # head 0 of sequence 0; all heads have its options
    Py_ssize_t B
    Py_ssize_t H
    Py_ssize_t shared       # query heads that share a key head
    Py_ssize_t T
    Py_ssize_t share        # queries of an item
    Py_ssize_t q[2]         # strides in floats, of sequences and of heads; the same for k to mask
    Py_ssize_t k[2]
    Py_ssize_t v[2]
    Py_ssize_t out[2]
    Py_ssize_t bias[2]
    Py_ssize_t mask[2]
    const long long* low    # [B], like high and lengths: see AttentionCall
    const long long* high
    const long long* lengths
    float* scratch
    Py_ssize_t scratch_size
    Py_ssize_t next         # atomic: the next item of the queue


cdef void attend_item(const Heads* a, Py_ssize_t b, Py_ssize_t h, Py_ssize_t t, float* scratch) noexcept nogil:
    # Compute queries [t, t + share) of head h of sequence b; their band and their options move along.
    cdef Attention call = a.first
    call.q += b * a.q[0] + h * a.q[1] + t * call.q_stride
    call.k += b * a.k[0] + h // a.shared * a.k[1]
    call.v += b * a.v[0] + h // a.shared * a.v[1]
    call.out += b * a.out[0] + h * a.out[1] + t * call.out_stride
    call.T, call.S = min(a.T - t, a.share), a.lengths[b]
    call.low, call.high = a.low[b] + t, a.high[b] + t
    if call.bias != NULL:
        call.bias += b * a.bias[0] + h * a.bias[1] + t * call.bias_t
    if call.mask != NULL:
        call.mask += b * a.mask[0] + h * a.mask[1] + t * call.mask_t
    call.b, call.h, call.query = b, h, t
    a.table.products[<int>FLOAT32_PRODUCT].attention(&call, scratch)


cdef void attend_work(void* arg, int rank, int size) noexcept nogil:
    # The last queries of a head come first. In causal attention they see the most keys, and if they were started last,
    # the other threads would wait for them.
    cdef Heads* a = <Heads*>arg
    cdef Py_ssize_t shares = (a.T + a.share - 1) // a.share, items = a.B * a.H * shares, item = take_next(&a.next), head
    while item < items:
        head = item // shares
        attend_item(a, head // a.H, head % a.H, (shares - 1 - item % shares) * a.share,
                    a.scratch + rank * a.scratch_size)
        item = take_next(&a.next)


def attention(Kernels kernels, const float[:, :, :, :] q, const float[:, :, :, :] k, const float[:, :, :, :] v,
              float[:, :, :, :] out, float scale, float softcap, const long long[::1] low, const long long[::1] high,
              const long long[::1] lengths, const float[:, :, :, :] bias, const unsigned char[:, :, :, :] mask,
              size_t score_mod, size_t captured, int threads):
    """out [B,H,T,e] of an `AttentionCall`. Last strides of q, k, v and out are one float; nothing is empty but S."""
    cdef Heads a
    memset(&a, 0, sizeof(a))
    a.table, a.low, a.high, a.lengths = kernels.table, &low[0], &high[0], &lengths[0]
    a.B, a.H, a.T, a.shared = q.shape[0], q.shape[1], q.shape[2], q.shape[1] // k.shape[1]
    a.first.d, a.first.e, a.first.scale, a.first.softcap = q.shape[3], v.shape[3], scale, softcap
    a.first.score_mod, a.first.captured = <ScoreMod>score_mod, <const void*>captured
    a.first.q, a.first.k, a.first.v, a.first.out = &q[0, 0, 0, 0], &k[0, 0, 0, 0], &v[0, 0, 0, 0], &out[0, 0, 0, 0]
    a.first.q_stride, a.first.k_stride = q.strides[2] // 4, k.strides[2] // 4
    a.first.v_stride, a.first.out_stride = v.strides[2] // 4, out.strides[2] // 4
    cdef int i
    for i in range(2):
        a.q[i], a.k[i], a.v[i], a.out[i] = q.strides[i] // 4, k.strides[i] // 4, v.strides[i] // 4, out.strides[i] // 4
    if bias is not None:
        a.first.bias, a.first.bias_t, a.first.bias_s = &bias[0, 0, 0, 0], bias.strides[2] // 4, bias.strides[3] // 4
        a.bias[0], a.bias[1] = bias.strides[0] // 4, bias.strides[1] // 4
    if mask is not None:
        a.first.mask, a.first.mask_t, a.first.mask_s = &mask[0, 0, 0, 0], mask.strides[2], mask.strides[3]
        a.mask[0], a.mask[1] = mask.strides[0], mask.strides[1]
    cdef Py_ssize_t heads = a.B * a.H, small = (a.T + SMALL_SHARE - 1) // SMALL_SHARE
    cdef int team = team_of(threads, heads * small, heads * a.T * (k.shape[2] + 1) * (a.first.d + a.first.e) // FMAS)
    a.share = LARGE_SHARE if heads * (a.T // LARGE_SHARE) >= ITEMS * team or team == 1 else SMALL_SHARE
    a.scratch_size = row_stride(kernels.table.products[<int>FLOAT32_PRODUCT].attention_scratch(a.first.d, a.first.e, 0))
    a.scratch = <float*>aligned_alloc(64, team * a.scratch_size * sizeof(float))
    if a.scratch == NULL:
        raise MemoryError(f"no memory for the scratch of {team} threads, {a.scratch_size * 4} bytes each")
    try:
        run_team(team, attend_work, &a)
    finally:
        free(a.scratch)
