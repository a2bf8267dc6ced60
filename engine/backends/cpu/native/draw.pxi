# Sort the best words, and draw words by the powers of their logits, 2^((x - the largest) scale). Sums are float64. Those
# of the parts of a row are taken in the order of the parts, and those of words are exact, so that no order matters:
# before, each power is rounded to a multiple of 2^-52 of a power of two that is above their total.

cdef enum:
    FEW_WORDS = 64              # up to which none are dropped
    HALVINGS = 16               # of the range of logits in which the last likely word lies
    FIRST_HALVINGS = 6          # after which less likely words are dropped
    TOGETHER = 64               # parts whose powers are computed together
    BLOCK = 16                  # words whose powers are added up together

cdef extern from "draw.h" nogil:
    double on_grid(float power, double grid)
    double sum_on_grid(const float* values, const float* powers, Py_ssize_t n, float bar, double grid)
    Py_ssize_t place_between(const float* values, Py_ssize_t i, Py_ssize_t n, float low, float high)
    void keep_from(const float* values, const int* ids, Py_ssize_t n, float bar, int last, float least, float* powers)


cdef void merge_runs(const float* values, const float* own, const int* ids, Py_ssize_t middle, Py_ssize_t n,
                     float* to_values, float* to_own, int* to_ids) noexcept nogil:
    # Merge two sorted runs, [0, middle) and [middle, n), to another place; among equals, the first run comes first.
    cdef Py_ssize_t first = 0, second = middle, i, taken
    for i in range(n):
        if first < middle and (second >= n or values[first] >= values[second]):
            taken = first
            first += 1
        else:
            taken = second
            second += 1
        to_values[i], to_own[i], to_ids[i] = values[taken], own[taken], ids[taken]


cdef void sort_best(float* values, float* own, int* ids, Py_ssize_t n) noexcept nogil:
    # Sort n words, the best first, and among equals in their order. Numbers [n, 2n) are scratch space.
    cdef Py_ssize_t run = 1, i, source = 0, to
    while run < n:
        to, i = n - source, 0
        while i < n:
            merge_runs(values + source + i, own + source + i, ids + source + i, min(run, n - i), min(2 * run, n - i),
                       values + to + i, own + to + i, ids + to + i)
            i += 2 * run
        source = to
        run *= 2
    if source:
        memcpy(values, values + n, n * sizeof(float))
        memcpy(own, own + n, n * sizeof(float))
        memcpy(ids, ids + n, n * sizeof(int))


cdef double add_parts(const KernelTable* kernels, const float* maximum, const float* sum, Py_ssize_t parts, float scale,
                      float highest, double limit, Py_ssize_t* part, double* before) noexcept nogil:
    # Add up 2^((m_p - highest) scale) s_p in the order of the parts, while the sum is at most `limit`; return it. part:
    # set to the last one that is not 0, and before: to the sum of those in front of it.
    cdef float powers[TOGETHER]
    cdef Py_ssize_t first = 0, i, n
    cdef double total = 0, each
    part[0], before[0] = -1, 0
    while first < parts:
        n = min(parts - first, <Py_ssize_t>TOGETHER)
        kernels.powers(maximum + first, n, highest, scale, powers)
        for i in range(n):
            each = <double>powers[i] * sum[first + i]
            if each != 0:
                part[0], before[0] = first + i, total
            total += each
            if total > limit:
                return total
        first += TOGETHER
    return total


cdef float largest_of(const float* x, Py_ssize_t n) noexcept nogil:
    # Return the largest of n numbers, at least the lowest finite number: of words that all have -inf, all powers are 0.
    cdef Py_ssize_t i
    cdef float highest = -FLT_MAX
    for i in range(n):
        highest = max(highest, x[i])
    return highest


cdef Py_ssize_t draw_part(const KernelTable* kernels, const float* maximum, const float* sum, Py_ssize_t parts,
                          float scale, double u, double* share, double* total) noexcept nogil:
    # Return the first part at which the powers of a row pass u times their total, and of its powers the share in front
    # of that place; -1 if the total, which is returned too, is 0, NaN or infinite.
    cdef float highest = largest_of(maximum, parts)
    cdef Py_ssize_t part
    cdef double before, passed
    total[0] = add_parts(kernels, maximum, sum, parts, scale, highest, INFINITY, &part, &before)
    if not 0 < total[0] < INFINITY:
        return -1
    passed = add_parts(kernels, maximum, sum, parts, scale, highest, u * total[0], &part, &before)
    share[0] = (u * total[0] - before) / (passed - before)
    return part


cdef void put_word(const WordList* to, Py_ssize_t at, const WordList* words, Py_ssize_t i) noexcept nogil:
    # Write a word to the results; -1 stands for none.
    to.ids[at] = words.ids[i] if i >= 0 else -1
    to.values[at] = words.values[i] if i >= 0 else -INFINITY
    to.own[at] = words.own[i] if i >= 0 else -INFINITY


cdef inline double grid_of(double total) noexcept nogil:
    # Return a number to which powers are added, and from which it is taken again, to round them (`on_grid`): its last
    # bit is 2^-52 of the power of two above the total.
    cdef int exponent
    frexp(total, &exponent)
    return ldexp(1.5, exponent)


cdef inline float margin_of(double limit, Py_ssize_t n) noexcept nogil:
    # Return how far a sum of n powers in float32 that is near the limit may be from the exact one (`sum_above`).
    return <float>(limit * <double>(n // 16 + 32) * 2.0**-24)


cdef bint reaches(const KernelTable* kernels, const float* values, const float* powers, Py_ssize_t n, float bar,
                  double limit, double grid) noexcept nogil:
    # Return whether the words above a bar reach the limit; no words reach none, not even that of the best word, 0.
    cdef double sum
    if kernels.sum_above(values, powers, n, bar) > <float>limit + margin_of(limit, n):
        return True
    sum = sum_on_grid(values, powers, n, bar, grid)
    return sum > 0 and sum >= limit


cdef bint halve(const KernelTable* kernels, const float* values, const float* powers, Py_ssize_t n, double limit,
                int times, float* low, float* high) noexcept nogil:
    # Halve the range (low, high] of the least logit of the words that together reach the limit. Return whether there
    # may be more to halve: the sums of float32 say it only beside a margin around the limit.
    cdef float margin = margin_of(limit, n), middle, sum
    cdef int step
    for step in range(times):
        middle = low[0] + (high[0] - low[0]) / 2
        if -FLT_MIN < middle < FLT_MIN:     # a vector comparison may take denormal numbers for 0
            middle = 0
        if not low[0] < middle < high[0]:
            return False
        sum = kernels.sum_above(values, powers, n, middle)
        if sum > <float>limit + margin:
            low[0] = middle
        elif sum < <float>limit - margin:
            high[0] = middle
        else:
            return False
    return True


cdef void find_last(const WordList* words, Py_ssize_t n, double limit, float low, float high, double grid,
                    float* powers, float* least, int* last) noexcept nogil:
    # Find the last of the best words that together reach the limit, whose logit is in (low, high]: its logit, and its
    # id, because words as high with higher ids come behind it. There is room for 3n words and powers.
    cdef double total = sum_on_grid(words.values, powers, n, high, grid)
    cdef float* values = words.values + n
    cdef float* likely = powers + n
    cdef int* ids = words.ids + n
    cdef Py_ssize_t i = place_between(words.values, 0, n, low, high), count = 0
    while i < n:
        values[count], likely[count], ids[count] = words.values[i], powers[i], words.ids[i]
        count += 1
        i = place_between(words.values, i + 1, n, low, high)
    sort_best(values, likely, ids, count)
    for i in range(count):
        least[0], last[0] = values[i], ids[i]
        total += on_grid(likely[i], grid)
        if total >= limit:
            break


cdef Py_ssize_t keep_top_p(const KernelTable* kernels, const WordList* words, Py_ssize_t n, float highest, float scale,
                           double limit, float above, double grid, float* powers, float* least,
                           int* last) noexcept nogil:
    # Find the last of the best of n words that together reach the limit (`find_last`), drop words that are less likely,
    # and return how many stay. If the n words, which are all that are above `above`, do not reach it, return -1.
    cdef float high = highest, low = max(above, highest - 60 / scale)
    if not reaches(kernels, words.values, powers, n, low, limit, grid):
        low, high = above, low
        if not reaches(kernels, words.values, powers, n, low, limit, grid):
            return -1
    if halve(kernels, words.values, powers, n, limit, FIRST_HALVINGS, &low, &high):
        if n > FEW_WORDS:
            n = kernels.keep_above(words.values, words.own, words.ids, n, low, words.values, words.own, words.ids)
            kernels.powers(words.values, n, highest, scale, powers)
        halve(kernels, words.values, powers, n, limit, HALVINGS - FIRST_HALVINGS, &low, &high)
    find_last(words, n, limit, low, high, grid, powers, least, last)
    return n


cdef Py_ssize_t keep_likely(const KernelTable* kernels, const WordList* words, Py_ssize_t n, float highest, float scale,
                            double limit, float above, bint complete, float least, double grid,
                            float* powers) noexcept nogil:
    # Of n words in the order of ids, keep the best whose powers first reach `limit`, and of these the words that are at
    # least `least`: drop most of the others, make the powers of the rest of them 0, and return how many words stay. A
    # limit below 0 keeps all. Among the words are all that are above `above`: if these do not reach the limit, return
    # -1, but keep all if the words are `complete`.
    cdef float bar = -INFINITY
    cdef Py_ssize_t stay
    cdef int last = INT_MAX
    if limit >= 0:
        stay = keep_top_p(kernels, words, n, highest, scale, limit, above, grid, powers, &bar, &last)
        if stay >= 0:
            n = stay
        elif not complete:
            return -1
    keep_from(words.values, words.ids, n, bar, last, least, powers)
    return n


cdef Py_ssize_t draw(const float* powers, Py_ssize_t n, double u, double grid) noexcept nogil:
    # Return the first of n powers at which their sum passes u times the total; -1 if that is 0. Rounding may let none
    # pass it; then it is the last one that is not 0.
    cdef double limit = u * sum_on_grid(powers, powers, n, 0, grid), total = 0, sum
    cdef Py_ssize_t i = 0, last = -1
    while i + BLOCK <= n:
        sum = total + sum_on_grid(powers + i, powers + i, BLOCK, 0, grid)
        if sum > limit:
            break
        total = sum
        i += BLOCK
    while i < n:
        if on_grid(powers[i], grid) != 0:
            last = i
            total += on_grid(powers[i], grid)
            if total > limit:
                break
        i += 1
    return last
