# Sort the best words, and draw words by the powers of their logits, 2^((x - the largest) scale). Sums are float64, in
# an order that depends on the row alone.

cdef enum:
    BUCKETS = 256               # in which find_last adds up powers
    FEW_WORDS = 64              # up to which find_last takes no time
    TRIMS = 8                   # halvings of the range of logits that trim looks at
    TOGETHER = 64               # parts whose powers are computed together


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


cdef inline int bucket_of(float value, float highest, float scale) noexcept nogil:
    # Return the number of a logit's bucket, which spans powers up to a factor of the eighth root of 2, the largest
    # first.
    return <int>min((highest - value) * scale * <float>8, <float>(BUCKETS - 1))


cdef Py_ssize_t trim(const KernelTable* kernels, const WordList* words, Py_ssize_t n, float highest, float scale,
                     double limit, float above, float* powers) noexcept nogil:
    # Compute the powers of n words, the only ones above `above`, and drop most of those that are less likely than the
    # words that reach the limit, found by bisection; a limit below 0 drops none. Return how many stay.
    cdef float low = max(above, highest - 60 / scale), high = highest, middle
    cdef float enough = <float>(limit * 1.001)      # sums of float32 are less exact than the limit
    cdef Py_ssize_t kept
    cdef int step
    kernels.powers(words.values, n, highest, scale, powers)
    if limit < 0 or n <= FEW_WORDS or kernels.sum_above(words.values, powers, n, low) < enough:
        return n
    for step in range(<int>TRIMS):
        middle = (low + high) / 2
        if kernels.sum_above(words.values, powers, n, middle) < enough:
            high = middle
        else:
            low = middle
    kept = kernels.keep_above(words.values, words.own, words.ids, n, low, words.values, words.own, words.ids)
    kernels.powers(words.values, kept, highest, scale, powers)
    return kept


cdef bint find_last(const WordList* words, Py_ssize_t n, float highest, float scale, double limit, float* powers,
                    float* least, Py_ssize_t* last) noexcept nogil:
    # Find the last of the best words that together reach the limit: its logit and its place among words as high. Powers
    # are added bucket by bucket, and only the words of the bucket in which the limit lies are sorted. There is room for
    # 3n words and powers.
    cdef double sums[BUCKETS]
    cdef double total = 0
    cdef float* values = words.values + n
    cdef float* likely = powers + n
    cdef int* places = words.ids + n
    cdef Py_ssize_t i, count = 0
    cdef int bucket
    if n == 0:      # which reach no limit, not even that of the best word, 0
        return False
    memset(sums, 0, sizeof(sums))
    for i in range(n):
        sums[bucket_of(words.values[i], highest, scale)] += powers[i]
    for bucket in range(BUCKETS):
        if total + sums[bucket] >= limit:
            break
        total += sums[bucket]
    else:
        return False
    for i in range(n):
        if bucket_of(words.values[i], highest, scale) == bucket:
            values[count], likely[count], places[count] = words.values[i], powers[i], <int>i
            count += 1
    sort_best(values, likely, places, count)
    for i in range(count):
        least[0], last[0] = values[i], places[i]
        total += likely[i]
        if total >= limit:
            break
    return True


cdef bint keep_likely(const WordList* words, Py_ssize_t n, float highest, float scale, double limit, float above,
                      bint complete, float least, float* powers) noexcept nogil:
    # Make the powers of some of n words in the order of ids 0, so that they are not drawn: all but the best whose
    # powers first reach `limit`, and of these the words that are at least `least`. A limit below 0 keeps all. Among the
    # words are all that are above `above`: if the last one that is kept is not above it, return False, but keep all if
    # the words are `complete`.
    cdef float bar = -INFINITY
    cdef Py_ssize_t i, last = n
    if limit >= 0 and not (find_last(words, n, highest, scale, limit, powers, &bar, &last) and bar > above):
        if not complete:
            return False
        bar, last = -INFINITY, n
    for i in range(n):
        if words.values[i] < bar or words.values[i] < least or (words.values[i] == bar and i > last):
            powers[i] = 0
    return True


cdef Py_ssize_t draw(const float* powers, Py_ssize_t n, double u) noexcept nogil:
    # Return the first of n powers at which their sum passes u times the total; -1 if that is 0. Rounding may let none
    # pass it; then it is the last one that is not 0.
    cdef double total = 0, limit
    cdef Py_ssize_t i, last = -1
    for i in range(n):
        total += powers[i]
    limit, total = u * total, 0
    for i in range(n):
        if powers[i] != 0:
            last = i
            total += powers[i]
            if total > limit:
                break
    return last
