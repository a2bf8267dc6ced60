# Add the embeddings of tokens, from tables in float32, bfloat16, int8 or Q8_0, whose rows become float32 first.

cdef inline vf entries(const int storage, const void* rows, Py_ssize_t i, const int n) noexcept nogil:
    # Load n numbers from the i-th on; int8 numbers are not multiplied by their scale.
    if storage == INT8:
        return v_load_int8(<const signed char*>rows + i, n)
    if storage == BFLOAT16:
        return v_load_bfloat16(<const unsigned short*>rows + i, n)
    return v_loadn(<const float*>rows + i, n)


cdef inline void add_row_as(const int storage, const EmbeddingTable* table, Py_ssize_t row, const bint overwrite,
                            Py_ssize_t D, float* out) noexcept nogil:
    # Add a table's row to out, or overwrite out with the row. The scaled int8 row is rounded before it is added,
    # so that the bits are the same as with a float32 table of the same numbers.
    cdef vf scale = v_set1(table.scale[row] if storage == INT8 else 1)
    cdef vf factor = v_set1(table.factor)
    cdef vf x
    cdef Py_ssize_t i = 0
    cdef int tail = <int>(D % VL)
    while i + VL <= D:
        x = entries(storage, table.rows, row * D + i, VL)
        x = v_mul(scale, x) if storage == INT8 else x
        x = v_mul(factor, x)
        v_store(out + i, x if overwrite else v_add(v_load(out + i), x))
        i += VL
    if tail:
        x = entries(storage, table.rows, row * D + i, tail)
        x = v_mul(scale, x) if storage == INT8 else x
        x = v_mul(factor, x)
        v_storen(out + i, x if overwrite else v_add(v_loadn(out + i, tail), x), tail)


cdef inline void add_row_of_blocks(const EmbeddingTable* table, Py_ssize_t row, const bint overwrite, Py_ssize_t D,
                                   float* out) noexcept nogil:
    # The same for a row of blocks Q8_0, whose numbers are scale * code.
    cdef const char* block = <const char*>table.rows + row * blocks_of(D) * Q8_0_BYTES
    cdef const char* at         # the block of number i
    cdef float scales[VL]       # the block's scale; the others are not used
    cdef vf x
    cdef Py_ssize_t i = 0, n
    while i < D:
        at = block + i // BLOCK_DEPTH * Q8_0_BYTES
        v_store(scales, v_load_float16(<const unsigned short*>at))
        n = min(D - i, <Py_ssize_t>VL)
        x = v_load_int8(<const signed char*>at + SCALE_BYTES + i % BLOCK_DEPTH, <int>n)
        x = v_mul(v_set1(table.factor), v_mul(v_set1(scales[0]), x))
        v_storen(out + i, x if overwrite else v_add(v_loadn(out + i, <int>n), x), <int>n)
        i += VL


cdef inline void add_row(const EmbeddingTable* table, Py_ssize_t row, const bint overwrite, Py_ssize_t D,
                         float* out) noexcept nogil:
    # Map the storage of a table to a function that is compiled for it.
    if table.storage == INT8: add_row_as(INT8, table, row, overwrite, D, out)
    elif table.storage == BFLOAT16: add_row_as(BFLOAT16, table, row, overwrite, D, out)
    elif table.storage == Q8_0: add_row_of_blocks(table, row, overwrite, D, out)
    else: add_row_as(FLOAT32, table, row, overwrite, D, out)


cdef void embed(const Embedding* call, Py_ssize_t first, Py_ssize_t M, Py_ssize_t D, float* out,
                Py_ssize_t out_stride) noexcept nogil:
    # Compute rows [first, first + M) of the sum of the embeddings, before the norm. True: overwrite out.
    cdef Py_ssize_t row
    for row in range(first, first + M):
        add_row(call.word, row if call.ids == NULL else <Py_ssize_t>call.ids[row], True, D, out)
        if call.position != NULL:
            add_row(call.position, <Py_ssize_t>call.position_ids[row], False, D, out)
        if call.type != NULL:
            add_row(call.type, <Py_ssize_t>call.type_ids[row], False, D, out)
        out += out_stride
