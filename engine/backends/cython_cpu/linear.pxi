# The packed matrix product: y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]).

cdef void linear(const Linear* y, const float* a, Py_ssize_t a_stride, Py_ssize_t M, const float* residual,
                 const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Loops, outermost first: slices of K; panels, whose slice stays in cache; tiles of rows of nearly equal height.
    cdef Py_ssize_t slices = (y.K + KC - 1) // KC, tiles = (M + MR - 1) // MR
    cdef Py_ssize_t s, k, p, i, row, next_row, column
    cdef int j, nv
    cdef bint final
    cdef Tile t
    t.a_stride = a_stride
    t.out_stride = out.stride
    t.ahead_step = (NR * sizeof(float) + tiles - 1) // max(tiles, 1)
    for s in range(slices):
        k = y.K * s // slices
        t.depth = y.K * (s + 1) // slices - k
        final = s == slices - 1
        t.activation = y.activation if final else IDENTITY
        for p in range(panel, last):
            nv = <int>(min(y.N - p * NR, <Py_ssize_t>NR) // VL)
            for j in range(nv):
                column = p * NR + j * VL
                t.column[j] = column // out.width * out.block + column % out.width
            t.b = y.panels + p * NR * y.K + k * nv * VL
            t.bias = y.bias + p * NR if s == 0 else NULL
            row = 0
            for i in range(tiles):
                next_row = M * (i + 1) // tiles
                t.a = a + row * a_stride + k
                t.ahead = <const char*>(t.b + NR * y.K) + t.depth * NR * sizeof(float) * i // tiles
                t.out = out.data + row * out.stride
                t.residual = residual + row * out.stride if final and residual != NULL else NULL
                linear_any(<int>(next_row - row), nv, &t)
                row = next_row


cdef void pack(const Linear* y, float* panels, Py_ssize_t column, const float* w, Py_ssize_t n) noexcept nogil:
    # Columns [column, column + n) of the panels, from the rows of w[n,K]; the caller zeroes the panels beforehand.
    cdef Py_ssize_t c = 0, first, count, width, k, i
    cdef float* panel
    while c < n:
        first = (column + c) // NR * NR
        width = min(y.N - first, <Py_ssize_t>NR)
        count = min(n - c, first + width - column - c)
        panel = panels + first * y.K + column + c - first
        for k in range(y.K):
            for i in range(count):
                panel[k * width + i] = w[(c + i) * y.K + k]
        c += count
