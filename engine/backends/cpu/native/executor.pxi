# A program as Python sees it: it owns the instructions, the weights and the workspace, and runs forward passes.

from libc.stdlib cimport calloc, free


cdef Py_ssize_t row_stride(Py_ssize_t width) noexcept nogil:
    # Return an odd number of cache lines, in floats, so that the rows of a tile fall into different sets of a cache.
    return ((width + 15) // 16 | 1) * 16


def padded_stride(Py_ssize_t width):
    """Return the floats from one row to the next in a buffer of rows of this width."""
    return row_stride(width)


cdef Py_ssize_t operands_stride(const ProductRow* product, Py_ssize_t width) noexcept nogil:
    # Return the numbers from one row of operands to the next, with what is beside them: whole lines in strips,
    # otherwise an odd number of lines, with room for the padding of a row.
    cdef Py_ssize_t step = product.depth_step
    if product.beside or product.strip > 1:     # a step of strips is a line
        width = (width + step - 1) // step * step
    width += width // step * product.beside // product.operand_bytes
    if product.strip > 1:
        return width
    return row_stride(width * product.operand_bytes // 4 + 16) * 4 // product.operand_bytes


cdef inline const EmbeddingTable* table_of(TableWeights weights) noexcept:
    # Return the struct of a table; NULL for None.
    return &weights.table if weights is not None else NULL


cdef inline const int* first_id(const int[::1] ids) noexcept:
    # Return the address of the first id; NULL for None or no ids.
    return &ids[0] if ids is not None and ids.shape[0] else NULL


cdef class Executor:
    """Instructions over buffers, and the memory to run them on `threads` threads.

    buffers: for each, (in_pass, offset, stride, heads, bfloat16, operands) as in `Buffer` of machine.pxi. token_floats,
    block_floats and picked_floats are those of all buffers together. count: how many instructions there will be. Each
    method named after a kind of instruction appends one; `start` ends this and allocates. allocate(n) returns n zeroed
    floats. A forward pass writes to this object, so the caller lets in one at a time.
    """

    cdef Machine machine
    cdef Private* privates
    cdef Py_ssize_t capacity        # the most instructions
    cdef object allocate
    cdef list keep                  # the objects whose memory instructions point to
    cdef float[::1] workspace       # the buffers of tokens, the keys and values of each thread, the picked rows
    cdef bint picks                 # whether there is a PICK
    cdef object lists               # the memory of the last pass for what threads choose, which the next one uses again
    cdef object stop                # None, or when the pass has to stop
    cdef object error               # why the last pass was stopped
    cdef readonly int threads

    def __cinit__(self, Product product, list buffers, Py_ssize_t count, *, Py_ssize_t token_floats,
                  Py_ssize_t block_floats, Py_ssize_t picked_floats, int threads, allocate):
        # What fails here leaves pointers of NULL, which __dealloc__ may free.
        cdef Machine* m = &self.machine
        cdef Py_ssize_t i
        m.kernels, m.product = product.kernels.table, product.row
        m.token_floats, m.block_floats, m.picked_floats = token_floats, block_floats, picked_floats
        m.code = <Instruction*>calloc(count, sizeof(Instruction))
        m.buffers = <Buffer*>calloc(len(buffers), sizeof(Buffer))
        self.privates = <Private*>calloc(threads, sizeof(Private))
        if m.code == NULL or m.buffers == NULL or self.privates == NULL:
            raise MemoryError(f"no memory for {count} instructions and {threads} threads")
        for i in range(len(buffers)):
            m.buffers[i].in_pass, m.buffers[i].offset, m.buffers[i].stride, m.buffers[i].heads, *rest = buffers[i]
            m.buffers[i].bfloat16, m.buffers[i].operands = rest
        self.capacity, self.threads, self.allocate = count, threads, allocate
        self.keep = [product]
        self.workspace = allocate(1)

    def __dealloc__(self):
        # Free what calloc gave; arrays belong to Python.
        free(self.machine.code)
        free(self.machine.buffers)
        free(self.privates)

    cdef Instruction* append(self, Kind kind, bint needs_barrier, int x, int out, object keep) except NULL:
        # Add an instruction whose other fields are zeros. keep: what has to live as long as it does.
        if self.machine.count == self.capacity:
            raise ValueError(f"there is room for {self.capacity} instructions")
        cdef Instruction* op = &self.machine.code[self.machine.count]
        op.kind, op.needs_barrier, op.x, op.out, op.residual, op.operands = kind, needs_barrier, x, out, -1, -1
        self.machine.count += 1
        if not self.picks:      # what follows a PICK does not run for each group
            self.machine.body = self.machine.count
        self.keep.append(keep)
        return op

    def embed(self, int out, Py_ssize_t width, TableWeights word, TableWeights position, TableWeights token_type, *,
              bint needs_barrier):
        """out = the sum of the tables' rows; each table may be None."""
        cdef Instruction* op = self.append(EMBED, needs_barrier, -1, out, (word, position, token_type))
        op.width = width
        op.embedding.word, op.embedding.position = table_of(word), table_of(position)
        op.embedding.type = table_of(token_type)

    def norm(self, int x, int out, NormWeights weights, *, int residual, int operands, bint rms, bint stored,
             bint needs_barrier):
        """out = the norm of x, plus the buffer `residual` unless it is -1; stored: the norm of the caller's array.

        The result is converted to the buffer `operands`, too, unless it is -1. If x has heads, those of a row are
        normed together, in place.
        """
        cdef Machine* m = &self.machine
        cdef Instruction* op = self.append(NORM, needs_barrier, x, out, weights)
        if m.buffers[x].heads:
            if x != out or residual >= 0 or operands >= 0 or stored:
                raise ValueError("heads are normed together in place, and their result goes nowhere else")
            m.scratch_floats = max(m.scratch_floats, row_stride(weights.norm.D))
        op.norm, op.residual, op.operands, op.rms, op.stored = weights.norm, residual, operands, rms, stored
        op.width = op.norm.D

    def convert(self, int x, int operands, Py_ssize_t width, *, bint needs_barrier):
        """Convert rows of x, of `width` numbers, to a buffer of operands."""
        cdef Instruction* op = self.append(CONVERT, needs_barrier, x, -1, None)
        op.operands, op.width = operands, width

    def multiply(self, int x, int out, PackedLinear map, *, int residual, int operands, bint approximate, bint gated,
                 Py_ssize_t first_hidden=0, Py_ssize_t last_hidden=0, bint needs_barrier):
        """out = the map of x, plus the buffer `residual` unless it is -1, or gated: see `multiply_panels`.

        x: a buffer of operands, if the product converts. The result goes to the buffer `operands` alone, unless it is
        -1. approximate: whether the result is only read to be converted. first_hidden, last_hidden: see Instruction.
        """
        cdef Instruction* op = self.append(MULTIPLY, needs_barrier, x, out, map)
        op.linear, op.residual, op.operands, op.approximate, op.gated = map.y, residual, operands, approximate, gated
        op.first_hidden, op.last_hidden = first_hidden, last_hidden
        if last_hidden and operands < 0 and not self.machine.product.fresh_depth:       # the second product of the pair
            self.machine.sums_columns = max(self.machine.sums_columns, (map.y.N + 31) // 32 * 32)
        if gated:
            self.machine.gated = True
            op.activation, op.linear.activation = map.y.activation, IDENTITY

    def heads(self, int x, NormWeights norm, const float[:, ::1] cos, const float[:, ::1] sin, Py_ssize_t d,
              bint interleaved, *, bint needs_barrier):
        """Norm each head of x and rotate it by its position, in place; cos, sin [positions, width/2] or None."""
        cdef Instruction* op = self.append(HEADS, needs_barrier, x, x, (norm, cos, sin))
        if norm is not None:
            op.norm = norm.norm
        if cos is not None:
            op.rotary.cos, op.rotary.sin, op.rotary.stride = &cos[0, 0], &sin[0, 0], cos.shape[1]
            op.rotary.width, op.rotary.d, op.rotary.interleaved = 2 * cos.shape[1], d, interleaved

    def attend(self, int q, int k, int v, int out, Py_ssize_t d, float scale, float softcap, Py_ssize_t low,
               Py_ssize_t high, const float[:, ::1] bias, RelativeWeights relative, const int[:, ::1] observed,
               Py_ssize_t longest, *, bint needs_barrier):
        """out = attention of the heads of q over those of k and v, inside the band (low, high).

        softcap: of the scores; 0 for none.
        bias: None, or [H, 2n - 1] as `engine.model.positions.distance_bias` makes it; then no sequence has more than n
        tokens. relative: of all heads, or None.
        observed: a row for each `ObservedHead`. longest: the tokens of the longest sequence.
        """
        cdef Machine* m = &self.machine
        cdef Instruction* op = self.append(ATTEND, needs_barrier, q, out, (bias, relative, observed))
        cdef Py_ssize_t e = m.buffers[v].stride
        if bias is not None:
            op.bias, op.bias_stride = &bias[0, bias.shape[1] // 2], bias.shape[1]       # at the distance 0
        op.k, op.v, op.d, op.scale, op.softcap, op.low, op.high = k, v, d, scale, softcap, low, high
        if relative is not None:
            op.relative, op.relative_head = relative.relative, relative.head
        cdef Py_ssize_t columns = op.relative.columns
        m.scratch_floats = max(m.scratch_floats, row_stride(m.product.attention_scratch(d, e, columns)))
        if m.buffers[q].bfloat16:
            m.scratch_floats = max(m.scratch_floats, row_stride(m.product.attend_rows_scratch(d, e)))
        if observed.shape[0]:
            op.observed, op.observed_count = <const ObservedHead*>&observed[0, 0], observed.shape[0]
            # `weigh` computes in float32 for every precision.
            op.wide_scratch = row_stride(m.kernels.products[<int>FLOAT32_PRODUCT].attention_scratch(d, e, columns))
            m.scratch_floats = max(m.scratch_floats, op.wide_scratch)
            if m.buffers[q].bfloat16:
                m.scratch_floats = max(m.scratch_floats, op.wide_scratch + row_stride((CALL_QUERIES + longest) * d))

    def attend_state(self, int q, int k, int v, int out, int source, Py_ssize_t layer, Py_ssize_t key_heads,
                     Py_ssize_t d, float scale, float softcap, Py_ssize_t low, Py_ssize_t high,
                     const float[:, ::1] bias, int storage, *, bint needs_barrier):
        """out = attention of the heads of q over the keys of the cache (source 1), or of the encoder (source 2).

        k and v are the buffers that go to the cache, -1 for cross-attention. layer: counts the layers of the cache, or
        of the keys and values for cross-attention. softcap, bias: as in `attend`. storage: an enum Storage.
        """
        cdef Machine* m = &self.machine
        cdef Instruction* op = self.append(ATTEND, needs_barrier, q, out, bias)
        cdef Py_ssize_t e = m.buffers[q].stride
        if source not in (FROM_CACHE, FROM_CROSS) or (k >= 0 and not e == m.buffers[k].stride == m.buffers[v].stride):
            raise ValueError("keys and values of a state have heads as wide as those of the queries")
        if bias is not None:
            op.bias, op.bias_stride = &bias[0, bias.shape[1] // 2], bias.shape[1]       # at the distance 0
        op.source, op.layer, op.key_heads, op.k, op.v = source, layer, key_heads, max(k, 0), max(v, 0)
        op.d, op.scale, op.softcap, op.low, op.high, op.storage = d, scale, softcap, low, high, storage
        m.sums_floats, m.key_heads = max(m.sums_floats, m.buffers[q].heads * (e + 2)), max(m.key_heads, key_heads)
        m.scratch_floats = max(m.scratch_floats, row_stride(m.kernels.cached_attention_scratch(d, e)))

    def store(self, int x, Py_ssize_t width, int array, *, bint needs_barrier):
        """Copy rows of x to the caller's array of this number."""
        cdef Instruction* op = self.append(STORE, needs_barrier, x, -1, None)
        op.width, op.array = width, array

    def pick(self, int x, int out, Py_ssize_t width, *, bint needs_barrier):
        """out = the rows of x that the caller picks; later instructions, and the buffer `out`, have these rows."""
        self.append(PICK, needs_barrier, x, out, None).width = width
        self.picks = True

    def scale(self, int x, int out, Py_ssize_t width, float factor, *, bint needs_barrier):
        """out = factor * x."""
        cdef Instruction* op = self.append(SCALE, needs_barrier, x, out, None)
        op.width, op.scale = width, factor

    def logits(self, int x, PackedLinear map, Py_ssize_t width, *, bint needs_barrier):
        """Give the caller the map of the picked rows x, whose first `width` columns are tokens; see logits.pxi."""
        cdef Machine* m = &self.machine
        cdef Instruction* op = self.append(LOGITS, needs_barrier, x, -1, map)
        op.linear, op.width = map.y, width
        m.scratch_floats = max(m.scratch_floats, <Py_ssize_t>PART_ROWS * PART)

    def start(self):
        """Allocate each thread's own memory; instructions are complete."""
        cdef Machine* m = &self.machine
        cdef Private* private
        cdef int rank
        cdef Py_ssize_t each = self.private_floats()
        cdef float[::1] memory = self.allocate(each * self.threads)
        self.keep.append(memory)
        for rank in range(self.threads):
            private = &self.privates[rank]
            private.rows = &memory[rank * each]
            private.scratch = private.rows + m.product.block * m.block_floats
            private.sums = private.scratch + m.scratch_floats
            private.panel = private.sums + m.product.block * m.sums_columns

    cdef Py_ssize_t panel_floats(self) noexcept:
        # Return the floats of a thread for the panel of a gated product, and for the sums between parts of the depth.
        cdef Machine* m = &self.machine
        return m.product.block * ((m.kernels.NR if m.gated else 0) + m.sums_columns)

    cdef Py_ssize_t private_floats(self) noexcept:
        # Return the floats of a thread's own memory, an odd number of cache lines.
        cdef Machine* m = &self.machine
        return row_stride(m.product.block * m.block_floats + m.scratch_floats + self.panel_floats())

    def workspace_bytes(self, Py_ssize_t tokens, Py_ssize_t picked=0):
        """Return the bytes of workspace with `tokens` tokens in flight, and with this many picked rows."""
        return 4 * (self.threads * self.private_floats() + tokens * self.machine.token_floats
                    + self.head_floats(picked))

    cdef Py_ssize_t whole_strips(self, Py_ssize_t rows) noexcept:
        # Return rows rounded up to the strips in which operands lie.
        return (rows + self.machine.product.strip - 1) // self.machine.product.strip * self.machine.product.strip

    cdef Py_ssize_t head_floats(self, Py_ssize_t picked) noexcept:
        # Return the floats of the buffers of the picked rows, and those of a line of the cache, at which they begin.
        return self.whole_strips(picked) * self.machine.picked_floats + 16 if picked else 0

    def forward(self, const long long[:, ::1] sequences, const long long[:, ::1] groups, bint bundles,
                const int[::1] ids, const float[:, ::1] embeds, const int[::1] position_ids, const int[::1] type_ids,
                list arrays, const long long[::1] weight_offsets=None, stop=None, state=None,
                const long long[:, ::1] picked=None, wanted=None, chosen=None, const size_t[::1] results=None,
                const long long[::1] keys=None):
        """Run all groups.

        sequences: (its first token in the batch, T, its first row in the group) each, in the groups' order. groups:
        (sequences, tokens) each. bundles: whether a thread computes whole groups by itself (schedule.pxi), in place of
        all threads one group after the other.
        arrays: float32 arrays of any shape, which the program fills; the first is its result [N,width].
        weight_offsets: for each sequence, the place of its first attention weight in a flat array that holds the [T,T]
        of all sequences; None if no weights are asked for.
        Signal handlers run during the pass; an exception that one raises, such as KeyboardInterrupt, stops the pass.
        stop: None, or a `Stop`, which is checked during the pass.
        state: what a decoder keeps: (addresses of cells, bytes from the keys of a cell to its values, and for each
        sequence, in the order of `sequences`, (the place of its first cell, past, its Sequence.shared_cell, address of
        the list of the cells of its source, S, bytes from keys to values of the source)), or None.
        picked: for a program that picks rows: for each sequence, (how many of its last tokens are picked, where the
        first of them lies among the picked rows). The result, [W, columns of the packed map], has all logits of the
        first W picked rows; `arrays` is empty if there are none.
        wanted: None if these are all picked rows, or a `LineWants` with a line for each of the others, which says what
        `chosen` is (engine/backends/wants.py). log_sum_exp is NaN for a row with NaN or inf; -1 and -inf stand where
        there is no word.
        keys: for each sequence, how many of its first tokens are read, at least 1; None for all.
        results: for each group, the address of the memory of the buffers that are kept for all its tokens, in place of
        the workspace: a program leaves results there.
        """
        cdef Job job
        cdef EmbeddingTable given
        cdef Py_ssize_t i, most_tokens = 0, first_sequence = 0
        cdef float[::1] flat
        cdef object memory = None
        memset(&job, 0, sizeof(job))
        job.machine, job.privates, job.bundles, job.count = &self.machine, self.privates, bundles, len(groups)
        job.ids, job.position_ids, job.type_ids = first_id(ids), first_id(position_ids), first_id(type_ids)
        if embeds is not None:
            given.rows, given.scale, given.storage, given.factor = &embeds[0, 0], NULL, FLOAT32, 1
            job.given = &given
        for i in range(self.threads):
            self.privates[i].begun = 0
        job.looked, job.executor, self.stop, self.error = monotonic_seconds(), <void*>self, stop, None
        cdef Sequence* all_sequences = <Sequence*>calloc(len(sequences), sizeof(Sequence))
        job.groups = <Group*>calloc(job.count, sizeof(Group))
        job.arrays = <float**>calloc(max(1, len(arrays)), sizeof(float*))
        try:
            if all_sequences == NULL or job.groups == NULL or job.arrays == NULL:
                raise MemoryError(f"no memory to list {len(sequences)} sequences in {job.count} groups")
            for i in range(len(arrays)):
                flat = arrays[i].reshape(-1)
                job.arrays[i] = &flat[0]
            for i in range(len(sequences)):
                all_sequences[i].source, all_sequences[i].T = sequences[i, 0], sequences[i, 1]
                all_sequences[i].row = sequences[i, 2]
                all_sequences[i].keys = keys[i] if keys is not None else sequences[i, 1]
                all_sequences[i].weight_offset = weight_offsets[i] if weight_offsets is not None else 0
            for i in range(job.count):
                job.groups[i].sequences = all_sequences + first_sequence
                job.groups[i].count, job.groups[i].N = groups[i, 0], groups[i, 1]
                job.groups[i].rows = <float*>results[i] if results is not None else NULL
                first_sequence += groups[i, 0]
                most_tokens = max(most_tokens, groups[i, 1])
            job.share = most_tokens * self.machine.token_floats if results is None else 0
            if self.picks:
                memory = self.pick_for(&job, all_sequences, len(sequences), picked, arrays, wanted, chosen)
            self.take_state(&job, all_sequences, len(sequences), state)
            self.give_memory(&job)
            run_team(self.threads, work, &job, look_while_waiting)
            if job.stop:
                error, self.error = self.error, None
                raise error
        finally:
            free(all_sequences)
            free(job.groups)
            free(job.arrays)
            free(job.done)

    cdef int take_state(self, Job* job, Sequence* sequences, Py_ssize_t count, state) except -1:
        # Note the state of each sequence, and where the sums of its ranges go. (1 +: calloc may return NULL for none.)
        cdef const size_t[::1] cells
        cdef const long long[:, ::1] kept
        cdef Py_ssize_t i, done = 0, sums
        if state is None:
            return 0
        cells, job.run, kept = state
        for i in range(count):
            sequences[i].cells, sequences[i].past = &cells[kept[i, 0]], kept[i, 1]
            sequences[i].shared_cell = <size_t>kept[i, 2]
            sequences[i].cross, sequences[i].S = <const size_t*><size_t>kept[i, 3], kept[i, 4]
            sequences[i].cross_run = kept[i, 5]
        for i in range(job.count):
            sums = place_sums(&self.machine, job.groups[i].sequences, job.groups[i].count, &done)
            job.sums_share = max(job.sums_share, row_stride(sums) if sums else 0)
            job.done_share = max(job.done_share, done)
        job.done = <Py_ssize_t*>calloc(1 + job.done_share * (self.threads if job.bundles else 1), sizeof(Py_ssize_t))
        if job.done == NULL:
            raise MemoryError(f"no memory to count the ranges of {count} sequences")
        return 0

    cdef object pick_for(self, Job* job, Sequence* sequences, Py_ssize_t count, const long long[:, ::1] picked,
                         list arrays, wanted, chosen):
        # Note which rows are picked and where the results go; return what has to live as long as the pass.
        cdef const Instruction* op = &self.machine.code[self.machine.count - 1]
        cdef Py_ssize_t i
        cdef Chooser chooser
        if picked is None or len(picked) != count:
            raise ValueError(f"the picked rows of {count} sequences are missing")
        for i in range(count):
            sequences[i].picked, sequences[i].first_picked = picked[i, 0], picked[i, 1]
            if not 0 <= picked[i, 0] <= sequences[i].T or picked[i, 1] < 0:
                raise ValueError(f"{picked[i, 0]} of the {sequences[i].T} tokens of a sequence cannot be picked")
            if picked[i, 0]:
                job.picked = max(job.picked, picked[i, 0] + picked[i, 1])
        job.head.N = self.whole_strips(job.picked)
        job.written = len(arrays[0]) if arrays else 0
        i = job.picked - job.written
        if i < 0 or (wanted.count if wanted is not None else 0) != i:
            raise ValueError(f"{job.written} of {job.picked} picked rows are written, and `wanted` is for all others")
        if arrays and arrays[0].shape != (job.written, op.linear.N):
            raise ValueError(f"the logits of {job.written} rows of {op.linear.N} need an array of that shape")
        if not i:
            return None
        chooser = Chooser(self.threads, op.width, job.written, wanted, chosen)
        self.lists = chooser.give_lists(op.width, self.lists)
        job.choice = chooser.choice
        return chooser

    cdef int give_memory(self, Job* job) except -1:
        # Give the buffers of tokens, the sums of ranges and the picked rows their places in the workspace.
        cdef Py_ssize_t shares = self.threads if job.bundles else 1
        cdef Py_ssize_t tokens = job.share * shares, sums = job.sums_share * shares
        cdef Py_ssize_t needed = tokens + sums + self.head_floats(job.picked)
        cdef float[::1] smaller
        # None if an earlier allocation failed, or in a child that was forked while memory was freed or allocated.
        if self.workspace is None or self.workspace.shape[0] < needed:
            smaller, self.workspace = self.workspace, None
            smaller = None      # freed before the larger one is allocated, and only when self.workspace is None
            self.workspace = self.allocate(needed)
        job.tokens = &self.workspace[0]
        job.sums = job.tokens + tokens
        job.head.rows = <float*>((<size_t>(job.sums + sums) + 63) // 64 * 64)       # at a line of the cache
        return 0


cdef void look_for_a_reason_to_stop(Job* job) noexcept nogil:
    # Called by the thread that called `forward`.
    with gil:
        try:
            PyErr_CheckSignals()
            if pool_is_orphaned():
                raise EngineError(FORKED)
            if (<Executor>job.executor).stop is not None:
                (<Executor>job.executor).stop.check()
        except BaseException as error:
            (<Executor>job.executor).error = error
            set(&job.stop)


cdef int look_while_waiting(void* arg) noexcept nogil:
    # Look for a reason to stop while the caller waits for other calls, or for the last of its threads.
    cdef Job* job = <Job*>arg
    if not is_set(&job.stop):
        look_for_a_reason_to_stop(job)
    return is_set(&job.stop)
