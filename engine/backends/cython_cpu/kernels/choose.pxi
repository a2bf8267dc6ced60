# The epilogue of the vocabulary product: choose the best of a few columns of logits, and sum up their powers.
#
# No row of all logits is kept. Which logits are chosen does not depend on the order of columns. The maximum and the sum
# of each part of a row wait for log_sum_exp, which adds them up in a fixed order: the bits do not depend on threads.

cdef void choose(const Best* best, const float* logits, Py_ssize_t logits_stride, Py_ssize_t M, Py_ssize_t id,
                 Py_ssize_t n, float* maximum, float* sum, Py_ssize_t stride) noexcept nogil:
    # Update the best of M rows with logits [n] each, of tokens id, id + 1, ... Store each row's maximum and its sum of
    # e^(x - maximum), `stride` floats apart, unless NULL; for a row of -inf, the lowest finite number and 0.
    cdef Py_ssize_t row, i
    cdef const float* x = logits
    cdef float highest
    cdef float* values
    cdef int* ids
    for row in range(M):
        highest = largest(x, n, -FLT_MAX)
        if maximum != NULL:
            maximum[row * stride], sum[row * stride] = highest, powers_of_row(x, n, highest, NULL)
        values, ids = best.values + row * best.k, best.ids + row * best.k
        if is_better(highest, <int>id, values[best.k - 1], ids[best.k - 1]):    # usually none of them is
            for i in range(n):
                insert_best(values, ids, best.k, x[i], <int>(id + i))
        x += logits_stride


cdef void log_sum_exp(const float* maximum, const float* sum, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t parts,
                      float* out) noexcept nogil:
    # out = m + ln sum_p e^(m_p - m) s_p, with m_p and s_p of part p of a row, and m the largest m_p.
    cdef Py_ssize_t row, i
    cdef int n, j
    cdef float highest
    cdef v_lanes total
    for row in range(M):
        highest, total, i = largest(maximum, parts, -FLT_MAX), l_zero(), 0
        while i < parts:
            for j in range(LANE_VECTORS):
                n = l_count(<int>min(parts - i, <Py_ssize_t>LANES), j)
                if n:
                    total.v[j] = v_fma(power(row_tail(maximum + i + j * VL, n), v_set1(highest)),
                                       v_loadn(sum + i + j * VL, n), total.v[j])
            i += LANES
        out[row] = highest + natural_logarithm(l_sum(total))
        maximum += stride
        sum += stride
