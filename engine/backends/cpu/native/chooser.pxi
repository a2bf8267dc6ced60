# What the lines of a `LineWants` (engine/backends/wants.py) want, in the form that kernels read, and the memory of a
# pass for the lists in which threads keep what they choose.

cdef class Chooser:
    """What lines want of the logits of picked rows, and where it goes.

    width: V, the number of tokens. written: the picked rows in front of the lines, whose logits are written. wanted,
    chosen: those of `Executor.forward`.
    """

    cdef Choice choice
    cdef list keep                  # the objects whose memory is used
    cdef Py_ssize_t count           # lines
    cdef Py_ssize_t written
    cdef int threads

    def __cinit__(self, int threads, Py_ssize_t width, Py_ssize_t written, wanted, chosen):
        # Read what lines want, and note where it goes; `give_lists` does the rest.
        cdef Py_ssize_t i
        cdef float[::1] log_sum_exp, given
        cdef const double[::1] numbers = wanted.numbers
        cdef float[:, :, ::1] sums
        self.count, self.written, self.threads, self.keep = wanted.count, written, threads, [wanted, chosen]
        log_sum_exp, given = chosen[0], chosen[7]
        if log_sum_exp.shape[0] != self.count or given.shape[0] != wanted.given_at[self.count]:
            raise ValueError(f"the results of {self.count} lines need arrays of that size")
        self.choice.best = words_in(chosen[1:4], wanted.best_at[self.count])
        self.choice.likely_words = words_in(chosen[4:7], wanted.likely_at[self.count])
        self.choice.drawn = words_in(chosen[8:], wanted.drawn_at[self.count])
        self.choice.numbers = &numbers[0] if numbers.shape[0] else NULL
        self.choice.stride = stride_of(width)
        i = min(written + self.count, <Py_ssize_t>SUMMED_ROWS)
        sums = self.kept(np.empty((2, i, self.choice.stride), np.float32))
        self.choice.maximum, self.choice.sum, self.choice.log_sum_exp = &sums[0, 0, 0], &sums[1, 0, 0], &log_sum_exp[0]
        self.choice.rows = <RowChoice*>self.zeros(threads * self.count * sizeof(RowChoice))
        if wanted.likely_at[self.count]:
            self.choice.likely = <RowChoice*>self.zeros(threads * self.count * sizeof(RowChoice))
        self.choice.lines = <Line*>self.zeros(self.count * sizeof(Line))
        self.read_lines(wanted, given)
        if wanted.draws is not None:
            self.read_draws(wanted.draws, width)
        if wanted.changes is not None:
            self.read_changes(wanted.changes)

    cdef object kept(self, array):
        # Return an array that lives as long as this object.
        self.keep.append(array)
        return array

    cdef void* zeros(self, Py_ssize_t size) except NULL:
        # Allocate zero bytes, as many as `size` says.
        cdef unsigned char[::1] memory = self.kept(np.zeros(size, np.uint8))
        return &memory[0]

    cdef int read_lines(self, wanted, float[::1] given) except -1:
        # Note what lines want but for draws and changes, for the first thread.
        cdef const int[::1] best_at = wanted.best_at
        cdef const int[::1] likely_at = wanted.likely_at
        cdef const int[::1] given_at = wanted.given_at
        cdef const int[::1] given_ids = wanted.given_ids
        cdef const int[::1] drawn_at = wanted.drawn_at
        cdef Py_ssize_t i
        cdef RowChoice* c
        cdef Line* line
        for i in range(self.count):
            line, c = &self.choice.lines[i], &self.choice.rows[i]
            line.best_at, line.best, line.top_p = best_at[i], best_at[i + 1] - best_at[i], 1
            line.likely_at, line.likely = likely_at[i], likely_at[i + 1] - likely_at[i]
            if line.likely:
                self.choice.likely[i].k, self.choice.likely[i].bar = <int>line.likely, -INFINITY
            line.drawn_at, line.drawn = drawn_at[i], drawn_at[i + 1] - drawn_at[i]
            c.k, c.givens, c.penalty, c.bar = <int>line.best, given_at[i + 1] - given_at[i], 1, -INFINITY
            if c.givens:
                c.given, c.given_logits = &given_ids[given_at[i]], &given[given_at[i]]
            c.plain = c.k == 1 and not c.givens and not line.drawn
        return 0

    cdef int read_draws(self, draws, Py_ssize_t width) except -1:
        # Note how each line draws. Lines without top_k keep the sums of the parts. Of these, lines with top_p or min_p
        # also collect the likely words.
        cdef const float[::1] temperature = draws[0]
        cdef const int[::1] top_k = draws[1]
        cdef const double[::1] top_p = draws[2]
        cdef const float[::1] log_min_p = draws[3]
        cdef float[:, :, ::1] sums = self.kept(np.empty((2, self.count, self.choice.stride), np.float32))
        cdef float[::1] bars = self.kept(np.full(self.count, -np.inf, np.float32))
        cdef Py_ssize_t i
        cdef RowChoice* c
        cdef Line* line
        for i in range(self.count):
            line, c = &self.choice.lines[i], &self.choice.rows[i]
            if not line.drawn:
                continue
            line.top_k, line.top_p = top_k[i] if top_k[i] < width else 0, top_p[i]
            line.depth_of_min_p = c.depth_of_min_p = temperature[i] * log_min_p[i]
            line.scale = <float>(M_LOG2E / temperature[i])
            if line.top_k:
                c.k = max(c.k, <int>line.top_k)
                continue
            c.scale, c.temperature, c.depth_of_top_p, c.highest = line.scale, temperature[i], -INFINITY, -INFINITY
            c.collected_bar, c.shared_bar = -INFINITY, &bars[i]
            c.maximum, c.sum = &sums[0, i, 0], &sums[1, i, 0]
            if top_p[i] < 1:
                c.depth_of_top_p = <float>(temperature[i] * log((1 - top_p[i]) * SHARE_OF_WORDS / width))
            if top_p[i] < 1 or c.depth_of_min_p > -INFINITY:
                # Of 16, because keep_above writes whole vectors: a full list, most + PART, may not reach into the next.
                c.most = <int>(width // (2 * self.threads) + PART + 15) // 16 * 16
                c.many = min(c.most, <int>MANY_WORDS)
        return 0

    cdef int read_changes(self, changes) except -1:
        # Note how the logits of lines are changed.
        cdef const unsigned long long[::1] seen, added, addends, allowed
        cdef const float[::1] penalty
        cdef const int[::1] additions
        cdef Py_ssize_t i
        cdef RowChoice* c
        seen, penalty, additions, added, addends, allowed = changes
        for i in range(self.count):
            c = &self.choice.rows[i]
            c.seen, c.penalty, c.additions = <const unsigned int*><size_t>seen[i], penalty[i], additions[i]
            c.added, c.addends = <const int*><size_t>added[i], <const float*><size_t>addends[i]
            c.allowed = <const unsigned int*><size_t>allowed[i]
            c.plain = c.plain and not (seen[i] or additions[i] or allowed[i])
        return 0

    cdef object give_lists(self, Py_ssize_t width, memory):
        # Give each thread its lists for each line, and a list into which it merges those of all threads. Return the
        # memory that they are in: that of an earlier pass, (float32 [3,n], int32 [n]) or None, if it is large enough.
        cdef Py_ssize_t words = 0, room = 3 * PART, i, at = 0, n, likely
        cdef float[:, ::1] floats
        cdef int[::1] ids
        cdef RowChoice* c
        cdef int rank, own
        cdef Py_ssize_t place
        for i in range(self.count):
            c = &self.choice.rows[i]
            n, likely = places_of(c.k), places_of(self.choice.lines[i].likely)
            words += n + likely + (c.most + PART if c.most else 0)
            room = max(room, 3 * max(self.threads * max(n, likely, c.most + PART), width if c.most else 0))
        words = self.threads * (words + room)
        if memory is None or memory[1].shape[0] < words:
            memory = np.empty((3, words), np.float32), np.empty(words, np.int32)
        floats, ids = self.kept(memory)
        for rank in range(self.threads):
            for i in range(self.count):
                c = &self.choice.rows[rank * self.count + i]
                c[0] = self.choice.rows[i]
                own = 1 if c.seen != NULL or c.additions or c.allowed != NULL else 0
                if not own and c.scale == <float>M_LOG2E:       # these sums are those of log_sum_exp
                    place = (self.written + i) % SUMMED_ROWS * self.choice.stride
                    c.maximum, c.sum = self.choice.maximum + place, self.choice.sum + place
                c.values, c.own, c.ids = &floats[0, at], &floats[own, at], &ids[at]
                at += places_of(c.k)
                c.collected_values, c.collected_own, c.collected_ids = &floats[0, at], &floats[own, at], &ids[at]
                at += c.most + PART if c.most else 0
                if self.choice.lines[i].likely:
                    c = &self.choice.likely[rank * self.count + i]
                    c[0] = self.choice.likely[i]
                    c.values, c.own, c.ids = &floats[0, at], &floats[0, at], &ids[at]
                    at += places_of(c.k)
        self.choice.merged.values, self.choice.merged.own = &floats[0, at], &floats[1, at]
        self.choice.merged.ids = &ids[at]
        self.choice.powers, self.choice.room = &floats[2, at], room
        return memory


cdef inline Py_ssize_t places_of(Py_ssize_t k) noexcept nogil:
    # Return the length of a list for the k best words (RowChoice.values).
    return k if k < 2 else 2 * k + PART


cdef WordList words_in(arrays, Py_ssize_t n) except *:
    # Return the addresses of arrays [n] of ids, values and own logits.
    cdef WordList words
    cdef int[::1] ids
    cdef float[::1] values, own
    ids, values, own = arrays
    if not n == ids.shape[0] == values.shape[0] == own.shape[0]:
        raise ValueError(f"{n} words need arrays of that size")
    memset(&words, 0, sizeof(words))
    if n:
        words.ids, words.values, words.own = &ids[0], &values[0], &own[0]
    return words
