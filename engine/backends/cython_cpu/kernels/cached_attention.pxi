# Compute attention over the cells of a cache: see CachedAttention in table.pxd.
#
#   q' = q scale log2 e, or q scale if the scores are changed; then log2 e follows the change
#   for each range r of RANGE keys, at multiples of RANGE from the first key on, that the query sees
#     s_k = sum of q'_i k_i                           one chain of multiply-adds, in order of i; then its scale
#     s_k changed by soft cap and bias
#     m_r = max s_k                                   of the keys that the query sees
#     w_k = 2^(s_k - m_r)                             0 for a hidden key
#     l_r = sum of w_k                                16 parts, those of keys with one k mod 16, added half to half
#     O_r = sum of w_k v_k                            one chain, in order of k; the value's scale multiplies w_k first
#   fold, in order of r, from M = -3e38, L = 0, O = 0
#     M' = max(M, m_r), a = 2^(M - M'), b = 2^(m_r - M')
#     L = l_r b + L a, O = O_r b + O a
#   out = O / L
#
# These are functions of the query and its keys alone, so a query has the same bits in any company, in any part of a
# prompt, and whoever computes which range. They do not depend on VL, so all instruction sets with fused multiply-adds
# agree. (The softmax of a range is that of Milakov and Gimelshein, arXiv 1805.02867; ranges as work items are those of
# Flash-Decoding, Dao et al., 2023.)
#
# Few queries read the cells where they lie; many unpack each range first. Both give the same bits.

cdef enum:
    MANY = 13       # queries from which on unpacking is faster


cdef Py_ssize_t cached_attention_scratch(Py_ssize_t d, Py_ssize_t e) noexcept nogil:
    # Return the floats of scratch for any number of queries.
    return max(few_scratch(d, e), many_scratch(d, e))


cdef void cached_attention(const CachedAttention* call, float* scratch) noexcept nogil:
    # Choose by the number of queries, which changes no bit.
    if call.T * call.heads < MANY:
        attend_few_queries(call, scratch)
    else:
        attend_many_queries(call, scratch)
