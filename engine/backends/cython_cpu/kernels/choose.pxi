# The epilogue of the vocabulary product: choose from the logits of a part of the columns while they are in cache. No
# row of all logits is kept. table.pxd says what a row may want (RowChoice).
#
# The maximum and the sum of a part are those of the model's own logits, so that log_sum_exp does not depend on changes.
# Those of a row wait for log_sum_exp, and for draws, which add them up in the order of ids: no bit depends on threads.

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
        return v_select(v_mask_of(allowed[i // 32] >> (i % 32)), logits, v_set1(-INFINITY))
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


cdef inline void put_logit(float* x, float changed, float* highest, bint* lost) noexcept nogil:
    # Change a logit and the largest one; lost: set if that may have become smaller.
    if x[0] >= highest[0]:
        lost[0] = True
    x[0] = changed
    if changed > highest[0]:
        highest[0] = changed


cdef bint change_logits(RowChoice* c, float* x, Py_ssize_t id, Py_ssize_t n, float* own, float* highest) noexcept nogil:
    # Change single logits [n] in place, and the largest of them; return whether any was. Then own [n] has all as
    # before.
    cdef Py_ssize_t word, i
    cdef unsigned int bits
    cdef bint changed = False, lost = False
    if c.seen != NULL:
        for word in range((n + 31) // 32):
            bits = c.seen[id // 32 + word]
            while bits:
                i = word * 32 + first_bit(bits)
                bits &= bits - 1
                if i >= n:
                    break
                if not changed:
                    memcpy(own, x, n * sizeof(float))
                    changed = True
                put_logit(x + i, penalized(x[i], c.penalty), highest, &lost)
    while c.next_added < c.additions and c.added[c.next_added] < id + n:
        i = c.added[c.next_added] - id
        if i >= 0:
            if not changed:
                memcpy(own, x, n * sizeof(float))
                changed = True
            put_logit(x + i, with_addend(x[i], c.addends[c.next_added]), highest, &lost)
        c.next_added += 1
    if lost:
        highest[0] = largest(x, n, -FLT_MAX)
    return changed


cdef inline void add_candidate(RowChoice* c, float value, float own, Py_ssize_t id) noexcept nogil:
    # Append a candidate for the best. `own` may be `values`.
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


cdef inline void add_candidates(const bint restricted, RowChoice* c, const float* x, const float* own, Py_ssize_t id,
                                Py_ssize_t n, const unsigned int* allowed) noexcept nogil:
    # Append the logits above the bar; while there are not k, all that are not NaN. Ids ascend, so that a logit as high
    # as the bar comes after k others.
    cdef vf bar
    cdef Py_ssize_t i = 0
    cdef int j
    cdef unsigned int bits
    if c.count < c.k:
        for i in range(n):
            if restricted and not allowed[i // 32] >> (i % 32) & 1:
                add_candidate(c, -INFINITY, own[i], id + i)
            elif x[i] == x[i]:
                add_candidate(c, x[i], own[i], id + i)
    else:
        bar = v_set1(c.bar)
        while i < n:
            bits = v_bits_of(v_less(bar, logits_at(restricted, x, i, n, allowed)))
            while bits:
                j = first_bit(bits)
                bits &= bits - 1
                add_candidate(c, x[i + j], own[i + j], id + i + j)
            i += VL
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


cdef void raise_bar(RowChoice* c, Py_ssize_t part) noexcept nogil:
    # Take the sum of the powers of all parts up to this one into account, and drop the words that are not above the
    # bar. The next time is when there are twice as many.
    cdef Py_ssize_t i, kept = 0
    cdef float total = 0
    cdef float power
    for i in range(c.first_part, part + 1):
        scaled_powers(c.maximum + i, 1, c.highest, c.scale, &power)
        total += power * c.sum[i]
    c.collected_bar = max(c.collected_bar, c.highest + c.depth_of_top_p + c.temperature * natural_logarithm(total))
    for i in range(c.collected):
        if c.collected_values[i] > c.collected_bar:
            c.collected_values[kept], c.collected_own[kept] = c.collected_values[i], c.collected_own[i]
            c.collected_ids[kept] = c.collected_ids[i]
            kept += 1
    c.collected = <int>kept if kept <= c.most // 4 * 3 else -1
    c.many = min(c.most, max(c.many, 2 * <int>kept))


cdef inline void collect_likely(const bint restricted, RowChoice* c, const float* x, const float* own, Py_ssize_t id,
                                Py_ssize_t n, float highest, const unsigned int* allowed) noexcept nogil:
    # Collect the words that may be likely enough for top_p and min_p.
    cdef float bar
    cdef Py_ssize_t i = 0, place
    cdef int j
    cdef unsigned int bits
    if highest > c.highest:
        c.highest = highest
        bar = max(highest + c.depth_of_top_p, just_below(highest + c.depth_of_min_p))
        c.collected_bar = max(bar, c.collected_bar)
    if not highest > c.collected_bar:
        return
    while i < n:
        bits = v_bits_of(v_less(v_set1(c.collected_bar), logits_at(restricted, x, i, n, allowed)))
        while bits:
            j = first_bit(bits)
            bits &= bits - 1
            place = c.collected
            c.collected_values[place], c.collected_own[place] = x[i + j], own[i + j]
            c.collected_ids[place] = <int>(id + i + j)
            c.collected += 1
        i += VL
    if c.collected > c.many:
        raise_bar(c, id // PART)


cdef inline void choose_from(const bint restricted, RowChoice* c, const float* x, const float* own, Py_ssize_t id,
                             Py_ssize_t n, float highest, float sum, const unsigned int* allowed) noexcept nogil:
    # Choose from changed logits. sum: of the powers for log_sum_exp, if these are the model's own; otherwise 0.
    if restricted:
        highest = largest_of(True, x, n, allowed)
    if c.k == 1:
        if highest > c.bar:
            choose_one(restricted, c, x, own, id, n, highest, allowed)
    elif c.k and (c.count < c.k or highest > c.bar):
        add_candidates(restricted, c, x, own, id, n, allowed)
    if c.scale != 0:
        c.maximum[id // PART] = highest
        if restricted or sum == 0 or c.scale != <float>M_LOG2E:
            sum = sum_of_powers(restricted, x, n, highest, c.scale, allowed)
        c.sum[id // PART] = sum
        if c.most and c.collected >= 0:
            collect_likely(restricted, c, x, own, id, n, highest, allowed)


cdef void choose(RowChoice* rows, float* logits, Py_ssize_t logits_stride, Py_ssize_t M, Py_ssize_t id, Py_ssize_t n,
                 float* maximum, float* sum, Py_ssize_t stride) noexcept nogil:
    # Choose from M rows of logits [n], n <= PART, of tokens id, id + 1, ... Store each row's maximum and its sum of
    # e^(x - maximum), `stride` floats apart; for a row of -inf, the lowest finite number and 0. Logits may be changed.
    cdef float before[PART]
    cdef const float* own
    cdef const unsigned int* allowed
    cdef RowChoice* c
    cdef float* x = logits
    cdef Py_ssize_t row, i
    cdef float highest, total
    for row in range(M):
        c = &rows[row]
        highest = largest(x, n, -FLT_MAX)
        total = powers_of_row(x, n, highest, NULL)
        maximum[row * stride], sum[row * stride] = highest, total
        if c.plain:         # as in greedy search
            if highest > c.bar:
                choose_one(False, c, x, x, id, n, highest, NULL)
        else:
            for i in range(c.givens):
                if id <= c.given[i] < id + n:
                    c.given_logits[i] = x[c.given[i] - id]
            own = x
            if change_logits(c, x, id, n, before, &highest):
                own, total = before, 0
            allowed = restriction(c, id, n)
            if allowed != NULL:
                choose_from(True, c, x, own, id, n, highest, total, allowed)
            else:
                choose_from(False, c, x, own, id, n, highest, total, NULL)
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
