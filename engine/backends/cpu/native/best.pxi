# Find the k best of some words. Kernels and the native code include this file.

cdef inline int rank_of(float x) noexcept nogil:
    # Return an integer that is larger for a larger number.
    cdef int bits
    memcpy(&bits, &x, sizeof(x))
    return bits ^ (bits >> 31 & 0x7fffffff)


cdef inline float with_rank(int rank) noexcept nogil:
    # Return the number with this rank.
    cdef int bits = rank ^ (rank >> 31 & 0x7fffffff)
    cdef float x
    memcpy(&x, &bits, sizeof(x))
    return x


cdef inline float just_below(float x) noexcept nogil:
    # Return the largest normal number below x; -inf for -inf. A vector comparison may take denormal numbers for 0.
    if -FLT_MIN < x < FLT_MIN:
        return -FLT_MIN
    return with_rank(rank_of(x) - 1) if x > -INFINITY else x


cdef Py_ssize_t count_from(const float* values, Py_ssize_t n, float least) noexcept nogil:
    # Return how many of n numbers are at least `least`.
    cdef Py_ssize_t i
    cdef int count = 0
    for i in range(n):
        count += values[i] >= least
    return count


cdef float keep_best(float* values, float* own, int* ids, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
    # Move the k largest of n > k values to the front, in their order; among equals the first ones. Return a bar that k
    # of them reach and all larger ones belong to. It is found by bisection between numbers that too many and too few
    # reach.
    cdef int least = rank_of(INFINITY), most = rank_of(-INFINITY)
    cdef long long low, high, middle
    cdef Py_ssize_t i, kept = 0, count = n, equal
    cdef float bar
    for i in range(n):
        least, most = min(least, rank_of(values[i])), max(most, rank_of(values[i]))
    low, high = least, <long long>most + 1
    while low + 1 < high and count != k:
        middle = (low + high) // 2
        i = count_from(values, n, with_rank(<int>middle))
        if i >= k:
            low, count = middle, i
        else:
            high = middle
    bar = with_rank(<int>low)
    equal = n if count == k else k - count_from(values, n, with_rank(<int>high))      # of the bar, how many stay
    for i in range(n):
        if values[i] < bar:
            continue
        if values[i] == bar:
            if equal == 0:
                continue
            equal -= 1
        values[kept], own[kept], ids[kept] = values[i], own[i], ids[i]
        kept += 1
    return bar
