# The largest number of each column of a product, for several arrays of rows: the texts of SPLADE, or the documents of
# MaxSim. Neither the results of all rows nor a copy of the rows is ever made.
#
# Threads share the panels if there are enough of them, so that one core alone reads each weight; otherwise they share
# the rows. A maximum does not depend on the order, so the division does not change a bit.

cdef enum:
    MAXIMA_ROWS = 512           # rows that a thread multiplies by all of its panels before it goes on
    MAXIMA_WEIGHTS = 32768      # floats of panels that stay in the L2 cache while these rows pass
    MAXIMA_SHARE = 4            # least panels of a thread's share

cdef struct MaximaJob:
    const KernelTable* table
    const Linear* y
    const float* const* rows    # [parts], where the rows of each part begin
    const Py_ssize_t* stride    # [parts], floats from one row to the next
    const Py_ssize_t* starts    # [parts + 1], the number of rows before each part
    Py_ssize_t parts
    float* out                  # [parts][N]
    Py_ssize_t out_stride


cdef inline bint divides_panels(const MaximaJob* m, Py_ssize_t panels, int size) noexcept nogil:
    # Return whether threads share the panels, and not the rows.
    return panels >= MAXIMA_SHARE * size


cdef Py_ssize_t part_at(const MaximaJob* m, Py_ssize_t row) noexcept nogil:
    # Return the first part that begins at this row or after it.
    cdef Py_ssize_t low = 0, high = m.parts, middle
    while low < high:
        middle = (low + high) // 2
        if m.starts[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


cdef void maxima_of_rows(const MaximaJob* m, Py_ssize_t part, Py_ssize_t row, Py_ssize_t end, Py_ssize_t panel,
                         Py_ssize_t last) noexcept nogil:
    # Update the maxima of the parts with the rows [row, end), of which `row` belongs to this part.
    cdef Py_ssize_t stop
    while row < end:
        stop = min(end, m.starts[part + 1])
        if row < stop:
            m.table.column_maxima(m.y, m.rows[part] + (row - m.starts[part]) * m.stride[part], m.stride[part],
                                  stop - row, m.out + part * m.out_stride, panel, last,
                                  m.rows[part + 1] if part + 1 < m.parts else NULL)
        row = stop
        part += 1


cdef void maxima_work(void* arg, int rank, int size) noexcept nogil:
    # Compute one thread's share, panels [panel, last) of all parts, or all panels of parts [part, end_part), whose
    # first row lies in its share of the rows: MAXIMA_ROWS rows at a time pass by panels that stay in the L2 cache.
    cdef const MaximaJob* m = <const MaximaJob*>arg
    cdef Py_ssize_t NR = m.table.NR, panels = (m.y.N + NR - 1) // NR, total = m.starts[m.parts]
    cdef Py_ssize_t panel = 0, last = panels, part = 0, end_part = m.parts, from_panel, to_panel, row, end, i, j
    if divides_panels(m, panels, size):
        panel, last = panels * rank // size, panels * (rank + 1) // size
    else:
        part = part_at(m, total * rank // size) if rank else 0
        end_part = part_at(m, total * (rank + 1) // size) if rank < size - 1 else m.parts
    for i in range(part, end_part):
        for j in range(panel * NR, min(last * NR, m.y.N)):
            m.out[i * m.out_stride + j] = -INFINITY
    row = m.starts[part]
    while row < m.starts[end_part]:
        end = min(row + MAXIMA_ROWS, m.starts[end_part])
        from_panel = panel
        while from_panel < last:
            to_panel = min(last, from_panel + max(1, MAXIMA_WEIGHTS // (NR * m.y.K)))
            maxima_of_rows(m, part, row, end, from_panel, to_panel)
            from_panel = to_panel
        while part < end_part and m.starts[part + 1] <= end:       # parts that end here
            part += 1
        row = end


def column_maxima(Kernels kernels, PackedLinear map, parts, float[:, ::1] out, int threads=1):
    """out [B,N] = the largest number of each column of part w^T + bias, for each of B parts; -inf for one without rows.

    parts: a tuple of float32 arrays [T_i,K] whose last stride is one float. N is padded to a multiple of VL.
    """
    cdef Py_ssize_t B = len(parts), i
    cdef size_t[::1] rows = np.empty(B, np.uintp)
    cdef Py_ssize_t[::1] stride = np.empty(B, np.intp)
    cdef Py_ssize_t[::1] starts = np.zeros(B + 1, np.intp)
    cdef const float[:, :] x
    cdef MaximaJob m
    for i in range(B):
        x = parts[i]
        rows[i], stride[i], starts[i + 1] = <size_t>&x[0, 0], x.strides[0] // 4, starts[i] + x.shape[0]
    m.table, m.y, m.parts = kernels.table, &map.y, B
    m.rows, m.stride, m.starts = <const float* const*>&rows[0], &stride[0], &starts[0]
    m.out, m.out_stride = &out[0, 0], out.shape[1]
    cdef Py_ssize_t panels = (map.y.N + kernels.table.NR - 1) // kernels.table.NR
    cdef int team = team_of(threads, max(B, panels), map.y.N * map.y.K * (1 + starts[B] // FMAS))
    run_team(team, maxima_work, &m)
