# Compute the largest number of each column of a GEMM, maximum[N] = max(maximum[N], max over rows of a[M,K] w[N,K]^T +
# bias[N]), from packed panels in float32. SPLADE: the rows are tokens and the columns words of the vocabulary. MaxSim:
# the rows are tokens of a document and the columns those of a query. The results themselves are not written; the
# maximum is taken while they are in registers.
#
# The sums are those of linear.pxi, bit for bit, and a maximum does not depend on the order of rows. Therefore the bits
# depend neither on the tiles nor on how callers divide rows and columns.

cdef enum:
    WAITING = 64        # rows whose sums wait for the next K block: 256 * NR bytes of the stack


cdef void column_maxima(const Linear* y, const float* a, Py_ssize_t a_stride, Py_ssize_t M, float* maximum,
                        Py_ssize_t panel, Py_ssize_t last, const float* ahead) noexcept nogil:
    # The loops, from the outermost: blocks of rows, which stay in cache; panels; K blocks; tiles of nearly equal
    # height. Each tile prefetches its share of the rows at the same places in the next block.
    cdef float waiting[WAITING * NR]
    cdef Py_ssize_t slices = (y.K + KC - 1) // KC, shares = (last - panel) * slices
    cdef Py_ssize_t first = 0, rows, tiles, s, k, p, i, row, next_row, share
    cdef const float* next
    cdef int j, nv
    cdef bint final
    cdef Tile t
    t.a_stride, t.out_stride = a_stride, NR
    t.residual, t.operands, t.activation = NULL, NULL, IDENTITY
    for j in range(NV):
        t.column[j] = j * VL
    while first < M:
        rows = min(M - first, <Py_ssize_t>WAITING)
        tiles = (rows + MR - 1) // MR
        next = a + (first + rows) * a_stride if first + rows < M else ahead     # the rows to prefetch
        for p in range(panel, last):
            nv = <int>(min(y.N - p * NR, <Py_ssize_t>NR) // VL)
            t.maximum = maximum + p * NR
            for s in range(slices):
                final = s == slices - 1
                k = y.K * s // slices
                t.depth = y.K * (s + 1) // slices - k
                t.b = <const float*>y.panels + p * NR * y.K + k * nv * VL
                t.bias = y.bias + p * NR if s == 0 else NULL        # NULL: the tile adds the sums that wait
                t.ahead, t.ahead_step = <const char*>t.b, 0         # step 0: nothing to prefetch, the same line again
                row = 0
                for i in range(tiles):
                    next_row = rows * (i + 1) // tiles
                    if next != NULL:
                        share = max(0, (next_row - row) * a_stride) * sizeof(float) // shares   # a stride may be < 0
                        t.ahead = <const char*>(next + row * a_stride) + ((p - panel) * slices + s) * share
                        t.ahead_step = (share + t.depth - 1) // t.depth     # bytes a step of depth
                    t.a = a + (first + row) * a_stride + k
                    t.out = waiting + row * NR
                    if final:
                        maxima_any(<int>(next_row - row), nv, &t)
                    else:
                        linear_any(<int>(next_row - row), nv, &t)
                    row = next_row
        first += rows
