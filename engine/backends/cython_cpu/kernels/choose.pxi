# The epilogue of the vocabulary product: choose from the logits of a part of the columns while they are in cache. No
# row of all logits is kept. table.pxd says what a row may want (RowChoice).
#
# The maximum and the sum of a part are those of the model's own logits, so that log_sum_exp does not depend on changes.
# The maxima and the sums of all parts of a row are kept until all are there. log_sum_exp and the draws then add them up
# in the order of ids, so that the result does not depend on the number of threads.

cdef inline float penalized(float logit, float penalty) noexcept nogil:
    # Return the logit of a token that a text has already (Keskar et al., arXiv 1909.05858, for logits above 0).
    return logit * penalty if logit < 0 else logit / penalty


cdef inline float with_addend(float logit, float addend) noexcept nogil:
    # Return the logit of a token that the caller makes more likely or less.
    return logit + addend


cdef inline vf logits_at(const bint restricted, const float* x, Py_ssize_t i, Py_ssize_t n,
                         const unsigned int* allowed) noexcept nogil:
    # Load logits i, i + 1, ... of n, and -inf in the lanes of forbidden tokens and behind the last one.
    cdef vf logits = v_load(x + i) if n - i >= VL else row_tail(x + i, <int>(n - i))
    if restricted:
        return v_select_bits(allowed[i // 32] >> (i % 32), logits, v_set1(-INFINITY))
    return logits


cdef inline const unsigned int* restriction(const RowChoice* c, Py_ssize_t id, Py_ssize_t n) noexcept nogil:
    # Return the bits of the allowed tokens from `id` on; NULL if all n are allowed.
    cdef const unsigned int* allowed
    cdef Py_ssize_t word
    cdef unsigned int all = 0xffffffffu
    if c.allowed == NULL:
        return NULL
    allowed = c.allowed + id // 32
    for word in range(n // 32):
        all &= allowed[word]
    if n % 32:
        all &= allowed[n // 32] | 0xffffffffu << (n % 32)
    return allowed if all != 0xffffffffu else NULL


cdef inline float largest_of(const bint restricted, const float* x, Py_ssize_t n,
                             const unsigned int* allowed) noexcept nogil:
    # Return the largest logit, at least the lowest finite number. NaN is ignored.
    cdef vf highest = v_set1(-FLT_MAX)
    cdef Py_ssize_t i = 0
    while i < n:
        highest = v_max(logits_at(restricted, x, i, n, allowed), highest)
        i += VL
    return v_largest(highest)


cdef struct Before:
    # Which of a part's logits were changed, in the order of the changes, and what they were before.
    int count
    int places[2 * PART]        # a penalty and an addend for each
    float values[2 * PART]


cdef inline void put_logit(float* x, int i, float changed, Before* before, float* highest, bint* lost) noexcept nogil:
    # Change logit i and the largest one; lost: set if that may have become smaller.
    before.places[before.count], before.values[before.count] = i, x[i]
    before.count += 1
    if x[i] >= highest[0]:
        lost[0] = True
    x[i] = changed
    if changed > highest[0]:
        highest[0] = changed


cdef inline void penalize(const RowChoice* c, float* x, Py_ssize_t id, Py_ssize_t n, Before* before, float* highest,
                          bint* lost) noexcept nogil:
    # Change the logits [n] of the tokens that have a penalty.
    cdef const unsigned int* seen = c.seen + id // 32
    cdef Py_ssize_t word
    cdef unsigned int bits
    cdef int i
    for word in range((n + 31) // 32):
        bits = seen[word]
        while bits:
            i = <int>word * 32 + first_bit(bits)
            bits &= bits - 1
            if i >= n:
                break
            put_logit(x, i, penalized(x[i], c.penalty), before, highest, lost)


cdef inline void add_addends(RowChoice* c, float* x, Py_ssize_t id, Py_ssize_t n, Before* before, float* highest,
                             bint* lost) noexcept nogil:
    # Change the logits [n] of the tokens that have an addend.
    cdef int i
    while c.next_added < c.additions and c.added[c.next_added] < id + n:
        i = <int>(c.added[c.next_added] - id)
        if i >= 0:
            put_logit(x, i, with_addend(x[i], c.addends[c.next_added]), before, highest, lost)
        c.next_added += 1


cdef inline const float* own_logits(const Before* before, const float* x, Py_ssize_t n, float* own) noexcept nogil:
    # Return the model's own logits [n]: x if none was changed, else a copy of x in `own` [n] with the values before
    # the changes. It is called for a part with a word to choose alone; few parts have one.
    cdef int i
    if before.count == 0:
        return x
    memcpy(own, x, n * sizeof(float))
    for i in range(before.count - 1, -1, -1):       # what was changed twice ends as it was first
        own[before.places[i]] = before.values[i]
    return own


cdef inline void add_candidate(RowChoice* c, float value, float own, Py_ssize_t id) noexcept nogil:
    # Append a candidate for the best.
    c.values[c.count], c.own[c.count], c.ids[c.count] = value, own, <int>id
    c.count += 1


cdef inline void choose_one(const bint restricted, RowChoice* c, const float* x, const float* own, Py_ssize_t id,
                            Py_ssize_t n, float highest, const unsigned int* allowed) noexcept nogil:
    # Replace the best one by the largest logit, which is larger, or there is none so far. Of logits that are all -inf
    # or NaN, the first that is not NaN is the best.
    cdef vf wanted = v_set1(highest)
    cdef Py_ssize_t i = 0
    cdef unsigned int bits
    while i < n:
        bits = v_bits_of(v_equal(logits_at(restricted, x, i, n, allowed), wanted))
        if bits:
            i += first_bit(bits)
            c.count, c.bar = 0, x[i]
            add_candidate(c, x[i], own[i], id + i)
            return
        i += VL
    if c.count == 0:
        for i in range(n):
            if restricted and not allowed[i // 32] >> (i % 32) & 1:
                add_candidate(c, -INFINITY, own[i], id + i)
                return
            if x[i] == x[i]:
                add_candidate(c, x[i], own[i], id + i)
                return


cdef inline int append_above(const bint restricted, float bar, const float* x, const float* own, Py_ssize_t id,
                             Py_ssize_t n, const unsigned int* allowed, float* values, float* owns,
                             int* ids) noexcept nogil:
    # Append the logits [n] above the bar to lists, and return how many. There is room for n, in whole vectors.
    cdef vf logits
    cdef Py_ssize_t i = 0
    cdef int count = 0
    cdef unsigned int bits
    while i < n:
        logits = logits_at(restricted, x, i, n, allowed)
        bits = v_bits_less(v_set1(bar), logits)
        x_store_set(ids + count, <int>(id + i), bits)
        if owns != values:
            v_store_set(owns + count, logits_at(False, own, i, n, NULL), bits)
        count += v_store_set(values + count, logits, bits)
        i += VL
    return count


cdef inline void add_candidates(const bint restricted, RowChoice* c, const float* x, const float* own, Py_ssize_t id,
                                Py_ssize_t n, const unsigned int* allowed) noexcept nogil:
    # Append the logits above the bar; while there are not k, all that are not NaN. Ids ascend, so that a logit as high
    # as the bar comes after k others.
    cdef Py_ssize_t i
    if c.count < c.k:
        for i in range(n):
            if restricted and not allowed[i // 32] >> (i % 32) & 1:
                add_candidate(c, -INFINITY, own[i], id + i)
            elif x[i] == x[i]:
                add_candidate(c, x[i], own[i], id + i)
    else:
        c.count += append_above(restricted, c.bar, x, own, id, n, allowed, c.values + c.count, c.own + c.count,
                                c.ids + c.count)
    if c.count > 2 * c.k:
        c.bar = keep_best(c.values, c.own, c.ids, c.count, c.k)
        c.count = c.k


cdef inline vf scaled_power(vf x, vf maximum, vf scale) noexcept nogil:
    # Return 2^((x - maximum) scale), with the bits of `power` for the scale log2 e. A large scale would give denormal
    # numbers, which are slow, so 2^-126 takes their place.
    cdef vf y = v_mul(v_sub(x, maximum), scale)
    return v_select(v_less(v_set1(-126.0), y), v_exp2(y), v_max(v_set1(0.0), y))


cdef void scaled_powers(const float* x, Py_ssize_t n, float maximum, float scale, float* out) noexcept nogil:
    # out = 2^((x - maximum) scale) of n numbers, none of which is larger.
    cdef Py_ssize_t i = 0
    while i < n:
        v_storen(out + i, scaled_power(logits_at(False, x, i, n, NULL), v_set1(maximum), v_set1(scale)),
                 <int>min(n - i, <Py_ssize_t>VL))
        i += VL


cdef inline float sum_of_powers(const bint restricted, const float* x, Py_ssize_t n, float maximum, float scale,
                                const unsigned int* allowed) noexcept nogil:
    # Return the sum of 2^((x - maximum) scale) of the allowed logits, in lanes (simd/common.h).
    cdef v_lanes sums = l_zero()
    cdef Py_ssize_t i = 0
    cdef int j
    while i < n:
        for j in range(LANE_VECTORS):
            if i + j * VL < n:
                sums.v[j] = v_add(sums.v[j], scaled_power(logits_at(restricted, x, i + j * VL, n, allowed),
                                                          v_set1(maximum), v_set1(scale)))
        i += LANES
    return l_sum(sums)


cdef Py_ssize_t keep_above(const float* values, const float* own, const int* ids, Py_ssize_t n, float bar,
                           float* to_values, float* to_own, int* to_ids) noexcept nogil:
    # Copy the words above a bar, in their order; return how many.
    cdef vf x, y, z
    cdef Py_ssize_t i = 0, kept = 0
    cdef unsigned int bits
    cdef int count
    while i < n:
        count = <int>min(n - i, <Py_ssize_t>VL)
        x, y, z = logits_at(False, values, i, n, NULL), v_loadn(own + i, count), v_loadn(<const float*>ids + i, count)
        bits = v_bits_less(v_set1(bar), x)
        v_store_set(<float*>to_ids + kept, z, bits)
        if to_own != to_values:
            v_store_set(to_own + kept, y, bits)
        kept += v_store_set(to_values + kept, x, bits)
        i += VL
    return kept


cdef float sum_above(const float* values, const float* powers, Py_ssize_t n, float bar) noexcept nogil:
    # Return about the sum of the powers of the words above a bar.
    cdef vf sums[4]
    cdef Py_ssize_t i = 0
    cdef int j
    for j in range(4):
        sums[j] = v_set1(0.0)
    while i + 4 * VL <= n:
        for j in range(4):
            sums[j] = v_add(sums[j], v_and(v_less(v_set1(bar), v_load(values + i + j * VL)),
                                           v_load(powers + i + j * VL)))
        i += 4 * VL
    while i < n:
        sums[0] = v_add(sums[0], v_and(v_less(v_set1(bar), logits_at(False, values, i, n, NULL)),
                                       v_loadn(powers + i, <int>min(n - i, <Py_ssize_t>VL))))
        i += VL
    return v_sum(v_add(v_add(sums[0], sums[1]), v_add(sums[2], sums[3])))


cdef void raise_bar(RowChoice* c, Py_ssize_t part) noexcept nogil:
    # Raise the bar by the sum of the powers of all parts up to this one. The next time is when there are twice as many
    # words. Those that are not above the bar stay until there is no room for more.
    cdef Py_ssize_t i = c.first_part, kept
    cdef vf total = v_set1(0.0)
    while i <= part:
        total = v_fma(scaled_power(logits_at(False, c.maximum, i, part + 1, NULL), v_set1(c.highest), v_set1(c.scale)),
                      v_loadn(c.sum + i, <int>min(part + 1 - i, <Py_ssize_t>VL)), total)
        i += VL
    c.collected_bar = max(c.collected_bar,
                          c.highest + c.depth_of_top_p + c.temperature * natural_logarithm(v_sum(total)))
    if c.collected > c.most:
        kept = keep_above(c.collected_values, c.collected_own, c.collected_ids, c.collected, c.collected_bar,
                          c.collected_values, c.collected_own, c.collected_ids)
        c.collected = <int>kept if kept <= c.most // 4 * 3 else -1
    c.many = min(c.most, 2 * c.collected)


cdef inline void collect_likely(const bint restricted, RowChoice* c, const float* x, const Before* before,
                                Py_ssize_t id, Py_ssize_t n, float highest, const unsigned int* allowed) noexcept nogil:
    # Collect the words that may be likely enough for top_p and min_p.
    cdef float own[PART]
    cdef float bar = c.collected_bar, shared
    if highest > c.highest:
        c.highest = highest
        bar = max(bar, max(highest + c.depth_of_top_p, just_below(highest + c.depth_of_min_p)))
    shared = load_shared(c.shared_bar)
    if shared < bar:
        store_shared(c.shared_bar, bar)
    c.collected_bar = bar = max(bar, shared)
    if not highest > bar:
        return
    c.collected += append_above(restricted, bar, x, own_logits(before, x, n, own), id, n, allowed,
                                c.collected_values + c.collected, c.collected_own + c.collected,
                                c.collected_ids + c.collected)
    if c.collected > c.many:
        raise_bar(c, id // PART)


cdef inline void choose_from(const bint restricted, RowChoice* c, const float* x, const Before* before, Py_ssize_t id,
                             Py_ssize_t n, float highest, float sum, const unsigned int* allowed) noexcept nogil:
    # Choose from changed logits. sum: of the powers for log_sum_exp, if these are the model's own; otherwise 0.
    cdef float own[PART]
    if restricted:
        highest = largest_of(True, x, n, allowed)
    if c.k == 1:
        if highest > c.bar:
            choose_one(restricted, c, x, own_logits(before, x, n, own), id, n, highest, allowed)
    elif c.k and (c.count < c.k or highest > c.bar):
        add_candidates(restricted, c, x, own_logits(before, x, n, own), id, n, allowed)
    if c.scale != 0:
        c.maximum[id // PART] = highest
        if restricted or sum == 0 or c.scale != <float>M_LOG2E:
            sum = sum_of_powers(restricted, x, n, highest, c.scale, allowed)
        c.sum[id // PART] = sum
        if c.most and c.collected >= 0:
            collect_likely(restricted, c, x, before, id, n, highest, allowed)


cdef inline bint passes(const RowChoice* c, Py_ssize_t id, Py_ssize_t n, float highest) noexcept nogil:
    # Return whether nothing is chosen of a part, because its largest logit is not above the bar, and no change can make
    # one larger.
    return (highest <= c.bar and c.scale == 0 and c.penalty >= 1
            and not (c.next_added < c.additions and c.added[c.next_added] < id + n))


cdef void choose_changed(RowChoice* c, float* x, Py_ssize_t id, Py_ssize_t n, float highest, float sum) noexcept nogil:
    # Choose what a row wants that wants more than the best one, or whose logits are changed. sum: of its powers.
    cdef Before before
    cdef const unsigned int* allowed
    cdef Py_ssize_t i
    cdef bint lost = False
    for i in range(c.givens):
        if id <= c.given[i] < id + n:
            c.given_logits[i] = x[c.given[i] - id]
    if passes(c, id, n, highest):
        return
    before.count = 0
    if c.seen != NULL:
        penalize(c, x, id, n, &before, &highest, &lost)
    if c.next_added < c.additions:
        add_addends(c, x, id, n, &before, &highest, &lost)
    if lost:
        highest = largest(x, n, -FLT_MAX)
    if before.count:
        sum = 0
    allowed = restriction(c, id, n)
    if allowed != NULL:
        choose_from(True, c, x, &before, id, n, highest, sum, allowed)
    else:
        choose_from(False, c, x, &before, id, n, highest, sum, NULL)


cdef inline void fetch_row(const RowChoice* c, Py_ssize_t id) noexcept nogil:
    # Prefetch what a row says of the tokens from `id` on, the end of its lists, and the choice of the row behind it:
    # since the part before, weights have gone through the cache.
    cdef Py_ssize_t at = 0
    while at < <Py_ssize_t>sizeof(RowChoice):
        fetch_near(<const char*>(c + 1) + at)
        at += 64
    if c.most:
        fetch_near(<const char*>(c.collected_values + c.collected))
        fetch_near(<const char*>(c.collected_ids + c.collected))
    if c.seen != NULL:
        fetch_near(<const char*>(c.seen + id // 32))
    if c.allowed != NULL:
        fetch_near(<const char*>(c.allowed + id // 32))
    if c.next_added < c.additions:
        fetch_near(<const char*>(c.added + c.next_added))
        fetch_near(<const char*>(c.addends + c.next_added))


cdef void choose(RowChoice* rows, float* logits, Py_ssize_t logits_stride, Py_ssize_t M, Py_ssize_t id, Py_ssize_t n,
                 float* maximum, float* sum, Py_ssize_t stride) noexcept nogil:
    # Choose from M rows of logits [n], n <= PART, of tokens id, id + 1, ... Store each row's maximum and its sum of
    # e^(x - maximum), `stride` floats apart; for a row of -inf, the lowest finite number and 0. Logits may be changed.
    cdef RowChoice* c
    cdef float* x = logits
    cdef Py_ssize_t row
    cdef float highest, total
    for row in range(M):
        c = &rows[row]
        if not c.plain and row + 1 < M:
            fetch_row(c + 1, id)
        highest = largest(x, n, -FLT_MAX)
        total = powers_of_row(x, n, highest, NULL)
        maximum[row * stride], sum[row * stride] = highest, total
        if not c.plain:
            choose_changed(c, x, id, n, highest, total)
        elif highest > c.bar:       # as in greedy search
            choose_one(False, c, x, x, id, n, highest, NULL)
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
