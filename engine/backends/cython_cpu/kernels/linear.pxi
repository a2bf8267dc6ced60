# Compute the GEMM y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]) from packed panels. Weights are
# float32, or bfloat16 with two or four successive k of a column together (WEIGHTS_TOGETHER in simd.pxi, which also says
# what VL, NV, NR, MR and KC are; a Tile and its kinds LINEAR, PAIRS and WIDENED: tile.pxi).

cdef inline Py_ssize_t place_of(Py_ssize_t column, const Output* out) noexcept nogil:
    # Return the offset of a column in the first row of the result; see Output in table.pxd.
    return column // out.width * out.block + column % out.width


cdef inline void multiply_panels(const int kind, const Linear* y, const char* a, Py_ssize_t a_stride, Py_ssize_t M,
                                 const float* residual, const Output* out, Py_ssize_t panel,
                                 Py_ssize_t last) noexcept nogil:
    # The loops, from the outermost: K blocks (slices), whole steps of depth each; panels p, whose K block stays in
    # cache; tiles of rows of nearly equal height. The first K block adds the bias, the last one residual and
    # activation. A tile prefetches its share of the next panel's K block (t.ahead).
    cdef Py_ssize_t step = WEIGHTS_TOGETHER if kind == PAIRS else 2 if kind == WIDENED else 1    # of depth
    cdef Py_ssize_t a_size = sizeof(operand) if kind == PAIRS else sizeof(float)
    cdef Py_ssize_t w_size = sizeof(float) if kind == LINEAR else 2
    cdef Py_ssize_t deepest = KC * sizeof(float) // w_size, K = (y.K + step - 1) // step * step
    cdef Py_ssize_t slices = (K + deepest - 1) // deepest, tiles = (M + MR - 1) // MR
    cdef Py_ssize_t s, k, p, i, row, next_row
    cdef int j, nv
    cdef bint final
    cdef Tile t
    t.a_stride, t.out_stride = a_stride, out.stride
    t.out, t.operands, t.operands_stride = NULL, NULL, out.operands_stride
    t.ahead_step = (NR * step * w_size + tiles - 1) // max(tiles, 1)
    for s in range(slices):
        k = K // step * s // slices * step
        final = s == slices - 1
        t.depth = (y.K if final else K // step * (s + 1) // slices * step) - k
        t.activation = y.activation if final else IDENTITY
        for p in range(panel, last):
            nv = <int>(min(y.N - p * NR, <Py_ssize_t>NR) // VL)
            for j in range(nv):
                t.column[j] = place_of(p * NR + j * VL, out)
            t.b = <const char*>y.panels + (p * NR * K + k * nv * VL) * w_size
            t.bias = y.bias + p * NR if s == 0 else NULL
            row = 0
            for i in range(tiles):
                next_row = M * (i + 1) // tiles
                t.a = a + (row * a_stride + k) * a_size
                t.ahead = <const char*>t.b + NR * (K + t.depth * i // tiles) * w_size
                if kind == PAIRS and out.operands != NULL:
                    t.operands = <operand*>out.operands + row * out.operands_stride + p * NR
                else:
                    t.out = out.data + row * out.stride
                t.residual = residual + row * out.stride if final and residual != NULL else NULL
                if kind == PAIRS: pairs_any(<int>(next_row - row), nv, &t)
                elif kind == WIDENED: widened_any(<int>(next_row - row), nv, &t)
                else: linear_any(<int>(next_row - row), nv, &t)
                row = next_row


cdef void linear(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                 const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Weights and rows in float32.
    multiply_panels(LINEAR, y, <const char*>a, a_stride, M, residual, out, panel, last)


cdef void linear_bfloat16(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                          const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Weights in bfloat16; rows as the instruction set multiplies them, see PAIR_STEPS.
    multiply_panels(PAIRS, y, <const char*>a, a_stride, M, residual, out, panel, last)


cdef void linear_widened(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                         const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Weights in bfloat16, which are widened, and rows in float32.
    multiply_panels(WIDENED, y, <const char*>a, a_stride, M, residual, out, panel, last)


cdef void pack(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* weight,
               Py_ssize_t n) noexcept nogil:
    # Transpose w [n,K] into panels [K][width], as many columns of one panel at a time as there are.
    cdef const float* w = <const float*>weight
    cdef Py_ssize_t c = 0, first, count, width, k, i
    cdef float* panel
    while c < n:
        first = (column + c) // NR * NR
        width = min(y.N - first, <Py_ssize_t>NR)
        count = min(n - c, first + width - column - c)
        panel = <float*>panels + first * y.K + column + c - first
        for k in range(y.K):
            for i in range(count):
                panel[k * width + i] = w[(c + i) * y.K + k]
        c += count
