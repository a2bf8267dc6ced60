# Weights as the kernels take them: C structs, and the arrays that keep their memory alive.

cdef class Kernels
cdef class Product


cdef class PackedLinear:
    """A linear map y = activation(a w^T + bias) with its weights in the packed panels of a product.

    panels: zeros, N*K' numbers in the product's own type, K' being K padded to its depth step; `fill` fills them.
    bias: float32 [N], N a multiple of VL. scale: float32 [N] for int8 weights, otherwise None; the scale of a column that
    is never filled may be any finite number.
    """

    cdef Linear y
    cdef readonly Product product
    cdef object panels
    cdef unsigned char* start
    cdef const float[::1] bias
    cdef const float[::1] scale
    cdef float[::1] sums

    def __init__(self, Product product, panels, Py_ssize_t K, const float[::1] bias, const float[::1] scale=None,
                 int activation=IDENTITY):
        cdef Py_ssize_t N = bias.shape[0], step = product.row.depth_step
        cdef unsigned char[::1] memory = panels.view("u1")
        if (N % product.kernels.VL or memory.shape[0] != N * ((K + step - 1) // step * step) * product.weight_bytes
                or (scale is None) == (product.precision == "int8") or (scale is not None and scale.shape[0] != N)):
            raise ValueError(f"{memory.shape[0]} bytes of {product.precision} weights and {N} biases do not fit [{N}, {K}], "
                             f"or scales are missing or too many")
        self.product, self.panels, self.start, self.bias, self.scale = product, memory, &memory[0], bias, scale
        self.y.panels, self.y.bias = &memory[0], &bias[0]
        self.y.N, self.y.K, self.y.activation = N, K, activation
        if scale is not None:
            self.sums = np.zeros(N, np.float32)
            self.y.scale, self.y.sums = &scale[0], &self.sums[0]

    def fill(self, w, Py_ssize_t column=0):
        """Put the rows of w [n,K], in the product's own type, at columns [column, column+n)."""
        cdef const unsigned char[:, ::1] rows = w.view("u1")
        cdef Py_ssize_t n = w.shape[0]
        cdef float* sums = &self.sums[0] if self.sums is not None else NULL
        if w.itemsize != self.product.weight_bytes or w.shape[1] != self.y.K or column < 0 or column + n > self.y.N:
            raise ValueError(f"[{n}, {w.shape[1]}] of {w.dtype} at column {column} is outside [{self.y.N}, {self.y.K}] of "
                             f"{self.product.precision}")
        with nogil:
            self.product.row.pack(&self.y, self.start, sums, column, &rows[0, 0], n)


cdef class TableWeights:
    """A table of the embeddings as it is stored: the bytes of its rows, and a scale [rows] when it is int8."""

    cdef EmbeddingTable table
    cdef const unsigned char[:, ::1] rows
    cdef const float[::1] scale

    def __init__(self, const unsigned char[:, ::1] rows, int storage, const float[::1] scale):
        if (scale is None) == (storage == INT8) or (scale is not None and scale.shape[0] != rows.shape[0]):
            raise ValueError("an int8 table has a scale for each row, and no other table has one")
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
