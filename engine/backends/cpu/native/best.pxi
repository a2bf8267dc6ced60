# The k best logits of a row, in a sorted list: see Best in table.pxd. Kernels and the native code include this file.

cdef inline bint is_better(float x, int id, float other, int other_id) noexcept nogil:
    # A larger logit is better, so is the lower id among equals. An empty place has -inf and -1, the largest unsigned.
    return x > other or (x == other and <unsigned int>id < <unsigned int>other_id)


cdef inline void insert_best(float* values, int* ids, int k, float x, int id) noexcept nogil:
    # Put x at its place of the list, if it is better than the last of the k.
    cdef int i = k - 1
    if not is_better(x, id, values[i], ids[i]):
        return
    while i > 0 and is_better(x, id, values[i - 1], ids[i - 1]):
        values[i], ids[i] = values[i - 1], ids[i - 1]
        i -= 1
    values[i], ids[i] = x, id
