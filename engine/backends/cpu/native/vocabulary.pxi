# The vocabulary product: the best logits of each row, and the logarithm of the sum of all their exponentials. Threads
# share the parts of the vocabulary, which are a few panels of the weights. Each thread multiplies a part by all rows,
# chooses from the logits while they are in its cache, and keeps a list of its own, which is merged at the end.

cdef enum:
    PART = 128                  # columns of a part, a multiple of every NR
    PART_ROWS = 64              # rows of logits that a thread keeps: 32 KB

cdef struct Vocabulary:
    const KernelTable* kernels
    const ProductRow* product
    const Linear* linear
    Py_ssize_t V                # columns of it that are tokens; the others are padding
    const char* a               # operands [M][a_stride]
    Py_ssize_t a_stride
    const RowRange* ranges
    Py_ssize_t M
    float* maximum              # [M][parts], like sum; NULL: no sums are wanted
    float* sum


cdef void clear_best(const Best* best, Py_ssize_t M) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(M * best.k):
        best.values[i], best.ids[i] = -INFINITY, -1


cdef void choose_parts(const Vocabulary* call, const Best* best, float* scratch, Py_ssize_t part,
                       Py_ssize_t last) noexcept nogil:
    # Update the best with parts [part, last). The scratch has PART_ROWS * PART floats.
    cdef Py_ssize_t NR = call.kernels.NR, parts = (call.V + PART - 1) // PART, columns, panel, row, rows
    cdef bint sums = call.maximum != NULL
    cdef Best some = best[0]
    cdef Output out
    memset(&out, 0, sizeof(out))
    out.data, out.stride, out.width = scratch, PART, PART
    while part < last:
        columns, panel = min(call.V - part * PART, <Py_ssize_t>PART), part * (PART // NR)
        row = 0
        while row < call.M:
            rows = min(call.M - row, <Py_ssize_t>PART_ROWS)
            call.product.multiply(call.linear, call.a + row * call.a_stride * call.product.operand_bytes, call.a_stride,
                                  call.ranges + row if call.ranges != NULL else NULL, rows, NULL, &out, panel,
                                  panel + (columns + NR - 1) // NR)
            some.values, some.ids = best.values + row * best.k, best.ids + row * best.k
            call.kernels.choose(&some, scratch, PART, rows, part * PART, columns,
                                call.maximum + row * parts + part if sums else NULL,
                                call.sum + row * parts + part if sums else NULL, parts)
            row += rows
        part += 1


cdef void merge_best(const Best* best, const Best* other, Py_ssize_t M) noexcept nogil:
    # Update the best of M rows with the best of another thread.
    cdef Py_ssize_t row, i
    for row in range(M):
        for i in range(row * best.k, (row + 1) * best.k):
            if other.ids[i] < 0:
                break
            insert_best(best.values + row * best.k, best.ids + row * best.k, best.k, other.values[i], other.ids[i])


cdef struct Choice:
    Vocabulary call
    Best* best                  # of each thread
    float* scratch              # [threads][PART_ROWS][PART]


cdef void choice_work(void* arg, int rank, int size) noexcept nogil:
    cdef Choice* c = <Choice*>arg
    cdef Py_ssize_t parts = (c.call.V + PART - 1) // PART
    clear_best(&c.best[rank], c.call.M)
    begin_work(c.call.product)
    choose_parts(&c.call, &c.best[rank], c.scratch + rank * PART_ROWS * PART, parts * rank // size,
                 parts * (rank + 1) // size)
    end_work(c.call.product)


def best_logits(PackedLinear map, operands, Py_ssize_t V, float[:, ::1] values, int[:, ::1] ids,
                float[::1] log_sum_exp=None, const float[:, ::1] ranges=None, int threads=1):
    """values and ids [M,k] of the k largest logits of each row, and log_sum_exp [M], unless it is None.

    The logits are those of `Product.multiply` for the same operands, which may have more rows than there are results, up
    to whole strips; the first V columns of the map are tokens. The
    largest comes first, and among equals the one with the lowest id. NaN is never chosen, and a row with NaN or inf has
    the log_sum_exp NaN. Where fewer than k can be chosen, values are -inf and ids -1.
    """
    cdef Kernels kernels = map.product.kernels
    cdef const unsigned char[:, :] a = operands.view("u1")
    cdef Py_ssize_t M = values.shape[0], k = values.shape[1], parts = (V + PART - 1) // PART
    cdef int team = <int>max(1, min(threads, parts)), rank
    cdef Choice c
    memset(&c, 0, sizeof(c))
    c.call.kernels, c.call.product, c.call.linear, c.call.V = kernels.table, map.product.row, &map.y, V
    c.call.a, c.call.a_stride = <const char*>&a[0, 0], a.strides[0] // map.product.row.operand_bytes
    c.call.ranges, c.call.M = <const RowRange*>&ranges[0, 0] if ranges is not None else NULL, M
    cdef float[:, :, ::1] sums = np.empty((2, M, parts), np.float32)
    if log_sum_exp is not None:
        c.call.maximum, c.call.sum = &sums[0, 0, 0], &sums[1, 0, 0]
    cdef float[:, :, ::1] other_values = np.empty((team, M, k), np.float32)
    cdef int[:, :, ::1] other_ids = np.empty((team, M, k), np.int32)
    cdef float[::1] scratch = np.empty(team * PART_ROWS * PART, np.float32)
    cdef unsigned char[::1] memory = np.empty(team * sizeof(Best), np.uint8)
    c.best, c.scratch = <Best*>&memory[0], &scratch[0]
    for rank in range(team):
        c.best[rank].k = <int>k
        c.best[rank].values = &other_values[rank, 0, 0] if rank else &values[0, 0]
        c.best[rank].ids = &other_ids[rank, 0, 0] if rank else &ids[0, 0]
    run_team(team, choice_work, &c)
    for rank in range(1, team):
        merge_best(&c.best[0], &c.best[rank], M)
    if log_sum_exp is not None:
        kernels.table.log_sum_exp(c.call.maximum, c.call.sum, parts, M, parts, &log_sum_exp[0])
