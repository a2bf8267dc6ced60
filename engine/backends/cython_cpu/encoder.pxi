# The encoder as Python sees it: it owns the weights and the workspace, and hands a forward pass to schedule.pxi.

from libc.math cimport sqrt
from libc.stdlib cimport calloc, free


cdef inline const EmbeddingTable* table_of(TableWeights weights) noexcept:
    return &weights.table if weights is not None else NULL


cdef inline const int* first_id(const int[::1] ids) noexcept:
    return &ids[0] if ids is not None and ids.shape[0] else NULL


cdef Map map_of(packed):
    # A PackedLinear, PackedBFloat16 or PackedInt8, without its memory.
    cdef Map map
    memset(&map, 0, sizeof(map))
    if isinstance(packed, PackedInt8):
        map.integers = (<PackedInt8>packed).y
        map.N, map.K = map.integers.N, map.integers.K
    else:
        map.floats = (<PackedBFloat16>packed).y if isinstance(packed, PackedBFloat16) else (<PackedLinear?>packed).y
        map.N, map.K = map.floats.N, map.floats.K
    return map


cdef void set_layer(Layer* layer, qkv, output, NormWeights attention_norm, up, down, NormWeights ffn_norm) except *:
    layer.qkv, layer.output, layer.up, layer.down = map_of(qkv), map_of(output), map_of(up), map_of(down)
    layer.attention_norm, layer.ffn_norm = attention_norm.norm, ffn_norm.norm


cdef class Encoder:
    """A post-norm encoder, its weights packed, ready to run on `threads` threads.

    layers: for each, (qkv, output, attention_norm, up, down, ffn_norm) of NormWeights and PackedLinear, or in place of
    all of the latter PackedBFloat16 or PackedInt8.
    The tables word [V,D], position [P,D], type [Y,D] and the norm of their sum may each be None.
    allocate(n) returns n zeroed floats. A forward pass writes to this object: the caller lets in one at a time.
    """

    cdef Model model
    cdef Private* privates
    cdef object allocate
    cdef object keep
    cdef float[::1] tokens
    cdef readonly int threads

    def __cinit__(self, Kernels kernels, list layers, TableWeights word, TableWeights position,
                  TableWeights type, NormWeights embedding_norm, *, Py_ssize_t D, Py_ssize_t H, Py_ssize_t d,
                  int threads, allocate):
        cdef Model* m = &self.model
        cdef Py_ssize_t VL = kernels.table.VL, i
        m.kernels = kernels.table
        m.L, m.D, m.H, m.d, m.dp = len(layers), D, H, d, (d + VL - 1) // VL * VL
        m.scale = <float>(1.0 / sqrt(d))
        m.layers = <Layer*>calloc(m.L, sizeof(Layer))
        self.privates = <Private*>calloc(threads, sizeof(Private))
        if m.layers == NULL or self.privates == NULL:
            raise MemoryError
        for i in range(m.L):
            qkv, output, attention_norm, up, down, ffn_norm = layers[i]
            set_layer(&m.layers[i], qkv, output, attention_norm, up, down, ffn_norm)
        m.embedding.word, m.embedding.position, m.embedding.type = table_of(word), table_of(position), table_of(type)
        if embedding_norm is not None:
            m.embedding_norm = embedding_norm.norm
        m.x_stride = row_stride((D + VL - 1) // VL * VL)
        m.context_stride = row_stride(H * m.dp)
        m.hidden_stride = row_stride(m.layers[0].up.N)
        if isinstance(layers[0][0], PackedInt8):
            m.precision, m.operand_bytes = INT8, 1
        elif isinstance(layers[0][0], PackedBFloat16):
            m.precision, m.operand_bytes = BFLOAT16, kernels.table.operand_bytes % sizeof(float)
        if m.operand_bytes:     # an odd number of cache lines, as in row_stride
            widest = max(D, H * m.dp, m.layers[0].up.N) * m.operand_bytes
            m.operands_stride = row_stride(widest // 4 + 16) * 4 // m.operand_bytes
        self.threads, self.allocate = threads, allocate
        self.keep = [kernels, layers, word, position, type, embedding_norm]
        self.tokens = allocate(1)
        self._share_out()

    def __dealloc__(self):
        free(self.model.layers)
        free(self.privates)

    def _share_out(self):
        # Each thread's own rows and scratch, the thread's first touch deciding where the pages lie.
        cdef Model* m = &self.model
        cdef Py_ssize_t each = private_floats(m)
        cdef float[::1] own = self.allocate(each * self.threads)
        cdef int rank
        self.keep.append(own)
        for rank in range(self.threads):
            self.privates[rank].y = &own[rank * each]
            self.privates[rank].hidden = self.privates[rank].y + BLOCK * m.x_stride
            self.privates[rank].scratch = self.privates[rank].hidden + BLOCK * m.hidden_stride
            self.privates[rank].operands = self.privates[rank].scratch + row_stride(scratch_floats(m))
            self.privates[rank].ranges = <RowRange*>(<char*>self.privates[rank].operands
                                                     + BLOCK * m.operands_stride * m.operand_bytes)

    def workspace_bytes(self, Py_ssize_t tokens):
        """Bytes of workspace with `tokens` tokens in flight."""
        return 4 * (self.threads * private_floats(&self.model) + tokens * token_floats(&self.model))

    def forward(self, const long long[:, ::1] sequences, const long long[:, ::1] groups, bint bundles,
                const int[::1] ids, const float[:, ::1] embeds, const int[::1] position_ids, const int[::1] type_ids,
                float[:, ::1] out):
        """Run all groups. sequences: (source, T, row) each, in the groups' order; groups: (sequences, tokens) each."""
        cdef Job job
        cdef EmbeddingTable given
        cdef Py_ssize_t i, first = 0, most = 0
        memset(&job, 0, sizeof(job))
        job.model, job.privates, job.bundles, job.count, job.out = &self.model, self.privates, bundles, len(groups), &out[0, 0]
        job.embedding = self.model.embedding
        job.embedding.ids, job.embedding.position_ids, job.embedding.type_ids = (
            first_id(ids), first_id(position_ids), first_id(type_ids))
        if embeds is not None:
            given.rows, given.scale, given.storage = &embeds[0, 0], NULL, FLOAT32
            job.embedding.word = &given
        cdef Sequence* all_sequences = <Sequence*>calloc(len(sequences), sizeof(Sequence))
        job.groups = <Group*>calloc(job.count, sizeof(Group))
        try:
            if all_sequences == NULL or job.groups == NULL:
                raise MemoryError
            for i in range(len(sequences)):
                all_sequences[i].source, all_sequences[i].T, all_sequences[i].row = sequences[i, 0], sequences[i, 1], sequences[i, 2]
            for i in range(job.count):
                job.groups[i].sequences, job.groups[i].count, job.groups[i].N = all_sequences + first, groups[i, 0], groups[i, 1]
                first += groups[i, 0]
                most = max(most, groups[i, 1])
            job.share = most * token_floats(&self.model)
            needed = job.share * (self.threads if bundles else 1)
            if self.tokens.shape[0] < needed:
                self.tokens = None
                self.tokens = self.allocate(needed)
            job.tokens = &self.tokens[0]
            run_team(self.threads, work, &job)
        finally:
            free(all_sequences)
            free(job.groups)
