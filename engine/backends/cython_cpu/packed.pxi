# Weights as the kernels take them: C structs, and the arrays that keep their memory alive.

cdef class Kernels


cdef int check_place(Py_ssize_t n, Py_ssize_t depth, Py_ssize_t column, Py_ssize_t N, Py_ssize_t K) except -1:
    if depth != K or column < 0 or column + n > N:
        raise ValueError(f"[{n}, {depth}] at column {column} is outside [{N}, {K}]")
    return 0


cdef class PackedLinear:
    """A linear map y = activation(a w^T + bias), its weights in panels.

    `panels` is float32 [N*K] of zeros to be filled by `fill`, `bias` float32 [N], N a multiple of VL.
    """

    cdef Linear y
    cdef Kernels kernels
    cdef float[::1] panels
    cdef const float[::1] bias

    def __init__(self, Kernels kernels, float[::1] panels, const float[::1] bias, int activation=IDENTITY):
        if bias.shape[0] % kernels.VL or panels.shape[0] % bias.shape[0]:
            raise ValueError(f"{panels.shape[0]} weights do not fit {bias.shape[0]} columns of a multiple of {kernels.VL}")
        self.kernels, self.panels, self.bias = kernels, panels, bias
        self.y.panels, self.y.bias = &panels[0], &bias[0]
        self.y.N, self.y.K = bias.shape[0], panels.shape[0] // bias.shape[0]
        self.y.activation = activation

    def fill(self, const float[:, ::1] w, Py_ssize_t column=0):
        """Put the rows of w [n,K] at columns [column, column+n)."""
        check_place(w.shape[0], w.shape[1], column, self.y.N, self.y.K)
        with nogil:
            self.kernels.table.pack(&self.y, &self.panels[0], column, &w[0, 0], w.shape[0])


cdef class PackedBFloat16:
    """The same in bfloat16, kept as uint16: `panels` is [N*K'] of zeros, with K' = K padded to a multiple of 2."""

    cdef Linear y
    cdef Kernels kernels
    cdef unsigned short[::1] panels
    cdef const float[::1] bias

    def __init__(self, Kernels kernels, unsigned short[::1] panels, Py_ssize_t K, const float[::1] bias,
                 int activation=IDENTITY):
        cdef Py_ssize_t N = bias.shape[0]
        if N % kernels.VL or panels.shape[0] != N * ((K + 1) // 2 * 2):
            raise ValueError(f"{panels.shape[0]} weights and {N} biases are no packed [N, {K}]")
        self.kernels, self.panels, self.bias = kernels, panels, bias
        self.y.panels, self.y.bias, self.y.N, self.y.K, self.y.activation = &panels[0], &bias[0], N, K, activation

    def fill(self, const unsigned short[:, ::1] w, Py_ssize_t column=0):
        """Put the rows of w [n,K] at columns [column, column+n)."""
        check_place(w.shape[0], w.shape[1], column, self.y.N, self.y.K)
        with nogil:
            self.kernels.table.pack_bfloat16(&self.y, &self.panels[0], column, &w[0, 0], w.shape[0])


cdef class PackedInt8:
    """The same in 8-bit integers, w = scale * integer for each column; see int8.pxi.

    `panels` is int8 [N*K'] of zeros to be filled by `fill`, with K' = K padded to a multiple of DOT; scale, bias and
    sums float32 [N], sums zeros, N a multiple of VL. Scales of columns that are never filled may be anything finite.
    """

    cdef LinearInt8 y
    cdef Kernels kernels
    cdef signed char[::1] panels
    cdef const float[::1] scale
    cdef const float[::1] bias
    cdef float[::1] sums

    def __init__(self, Kernels kernels, signed char[::1] panels, Py_ssize_t K, const float[::1] scale,
                 const float[::1] bias, float[::1] sums, int activation=IDENTITY):
        cdef Py_ssize_t N = bias.shape[0], DOT = kernels.table.DOT
        if N % kernels.VL or scale.shape[0] != N or sums.shape[0] != N or panels.shape[0] != N * ((K + DOT - 1) // DOT * DOT):
            raise ValueError(f"{panels.shape[0]} weights, {scale.shape[0]} scales and {N} biases are no packed [N, {K}]")
        self.kernels, self.panels, self.scale, self.bias, self.sums = kernels, panels, scale, bias, sums
        self.y.panels, self.y.scale, self.y.sums, self.y.bias = &panels[0], &scale[0], &self.sums[0], &bias[0]
        self.y.N, self.y.K, self.y.activation = N, K, activation

    def fill(self, const signed char[:, ::1] w, Py_ssize_t column=0):
        """Put the rows of w [n,K] at columns [column, column+n)."""
        check_place(w.shape[0], w.shape[1], column, self.y.N, self.y.K)
        with nogil:
            self.kernels.table.pack_int8(&self.y, &self.panels[0], &self.sums[0], column, &w[0, 0], w.shape[0])


cdef class TableWeights:
    """A table of the embeddings as it is stored: rows' bytes, `storage` as in table.pxd, scale [rows] for INT8."""

    cdef EmbeddingTable table
    cdef const unsigned char[:, ::1] rows
    cdef const float[::1] scale

    def __init__(self, const unsigned char[:, ::1] rows, int storage, const float[::1] scale):
        if (scale is None) == (storage == INT8) or (scale is not None and scale.shape[0] != rows.shape[0]):
            raise ValueError("a table has a scale for each row, in int8, and none otherwise")
        self.rows, self.scale = rows, scale
        self.table.rows, self.table.storage = &rows[0, 0], storage
        self.table.scale = &scale[0] if scale is not None else NULL


cdef class NormWeights:
    """Weight and bias [D] of a LayerNorm, and its epsilon."""

    cdef Norm norm
    cdef const float[::1] weight
    cdef const float[::1] bias

    def __init__(self, const float[::1] weight, const float[::1] bias, float eps):
        if weight.shape[0] != bias.shape[0]:
            raise ValueError(f"a weight of {weight.shape[0]} and a bias of {bias.shape[0]} entries do not belong together")
        self.weight, self.bias = weight, bias
        self.norm.weight, self.norm.bias, self.norm.D, self.norm.eps = &weight[0], &bias[0], weight.shape[0], eps
