# Linear maps of rows outside of a program: the keys and values of sources, and logits.
#
# Several maps run in one call of the pool. The rows that they share are converted to operands once. Threads take units
# from a queue, each a block of rows and a part of the panels of one map, so that few rows read each weight once, and many
# rows keep all threads busy. The bits do not depend on the units.

cdef struct MappedRows:
    Py_ssize_t first            # the rows [first, first + M) of x
    Py_ssize_t M
    Py_ssize_t start            # the first of their rows of operands, a multiple of strip

cdef struct MapOfRows:
    const Linear* y
    MappedRows rows
    Output out

cdef struct MapsJob:
    const ProductRow* product
    const float* x
    Py_ssize_t x_stride
    MappedRows* shared                # all rows of operands
    Py_ssize_t shared_count
    Py_ssize_t K
    char* operands              # see operands.pxi
    Py_ssize_t operands_stride  # numbers
    RowRange* ranges            # of each row of operands
    MapOfRows* maps
    Py_ssize_t count
    int NR
    Py_ssize_t next             # atomic
    pool_barrier barrier


cdef void maps_work(void* arg, int rank, int size) noexcept nogil:
    cdef MapsJob* job = <MapsJob*>arg
    cdef const ProductRow* product = job.product
    cdef Py_ssize_t first, last, unit, i, blocks, begin, M, panels, block, part, row
    cdef const MapOfRows* map
    cdef const MappedRows* rows
    cdef const void* a
    cdef Output out
    if product.convert != NULL:
        for i in range(job.shared_count):
            rows = &job.shared[i]
            first, last = rows.M * rank // size, rows.M * (rank + 1) // size
            if first < last:
                product.convert(job.x + (rows.first + first) * job.x_stride, job.x_stride, last - first, job.K, job.operands,
                                job.operands_stride, rows.start + first, job.ranges + rows.start + first)
        if size > 1:
            pool_barrier_wait(&job.barrier, size)
    begin_work(product)
    unit = take_next(&job.next)
    begin = 0
    for i in range(job.count):
        map = &job.maps[i]
        blocks = (map.rows.M + product.block - 1) // product.block
        panels = (map.y.N + job.NR - 1) // job.NR
        while unit - begin < blocks * size:
            block, part = (unit - begin) // size, (unit - begin) % size
            row, M = block * product.block, min(<Py_ssize_t>product.block, map.rows.M - block * product.block)
            if product.convert != NULL:
                a = job.operands + (map.rows.start + row) * job.operands_stride * product.operand_bytes
            else:
                a = job.x + (map.rows.first + row) * job.x_stride
            out = map.out
            out.data += row * out.stride
            product.multiply(map.y, a, job.operands_stride if product.convert != NULL else job.x_stride,
                             job.ranges + map.rows.start + row, M, NULL, &out, panels * part // size,
                             panels * (part + 1) // size)
            unit = take_next(&job.next)
        begin += blocks * size
    end_work(product)


def apply_maps(const float[:, ::1] x, list maps, int threads=1):
    """Compute linear maps of rows of x [rows,K].

    maps: of each (map, first row, rows, results, width, block): a PackedLinear of K inputs; a float32 array, in which
    column c of row r of the result lies at r * width + c // width * block + c % width.
    """
    cdef MapsJob job
    cdef PackedLinear map = maps[0][0]
    cdef MapOfRows* own
    cdef float[::1] target
    cdef unsigned char[::1] operands
    cdef float[:, ::1] ranges
    cdef Py_ssize_t i, end = 0
    cdef dict starts = {}
    memset(&job, 0, sizeof(job))
    job.product, job.NR = map.product.row, map.product.kernels.NR
    job.x, job.x_stride, job.K, job.count = &x[0, 0], x.shape[1], map.y.K, len(maps)
    for _, first, M, *_ in maps:
        if (first, M) not in starts:
            starts[first, M] = end
            end += (M + job.product.strip - 1) // job.product.strip * job.product.strip
    ranges = np.empty((max(1, end), 2), np.float32)
    if job.product.convert != NULL:
        job.operands_stride = operands_stride(job.product, job.K)
        operands = np.zeros(end * job.operands_stride * job.product.operand_bytes + 64, np.uint8)
        job.operands = <char*>((<size_t>&operands[0] + 63) // 64 * 64)
    job.ranges = <RowRange*>&ranges[0, 0]
    job.maps = <MapOfRows*>calloc(job.count, sizeof(MapOfRows))
    job.shared = <MappedRows*>calloc(len(starts), sizeof(MappedRows))
    try:
        if job.maps == NULL or job.shared == NULL:
            raise MemoryError(f"no memory for a list of {job.count} maps")
        for (first, M), start in starts.items():
            job.shared[job.shared_count].first, job.shared[job.shared_count].M = first, M
            job.shared[job.shared_count].start = start
            job.shared_count += 1
        for i in range(job.count):
            own = &job.maps[i]
            map, own.rows.first, own.rows.M, results, own.out.width, own.out.block = maps[i]
            own.rows.start = starts[own.rows.first, own.rows.M]
            if (map.y.K != job.K or x.shape[1] != job.K or own.rows.first < 0 or own.rows.M < 1
                    or own.rows.first + own.rows.M > x.shape[0] or map.product.row != job.product):
                raise ValueError(f"map {i} does not fit {x.shape[0]} rows of {job.K} numbers")
            target = results
            if map.y.N % own.out.width or target.shape[0] < (map.y.N // own.out.width - 1) * own.out.block + own.rows.M * own.out.width:
                raise ValueError(f"the results of map {i} do not fit {target.shape[0]} floats")
            own.y, own.out.data, own.out.stride = &map.y, &target[0], own.out.width
        run_team(threads, maps_work, &job)
    finally:
        free(job.maps)
        free(job.shared)
