# Weights as the kernels take them: C structs, and the arrays that keep their memory alive.

from engine.backends.cpu.native.layout import PRODUCT_PLACES, STORAGE, TABLE_NAME
from engine.model.precision import FORMATS

cdef class Kernels
cdef class Product


cdef class PackedLinear:
    """A linear map y = activation(a w^T + bias) with its weights in the packed panels of a product.

    format: that of the weights, which is what the product's precision stores, or one beside it. panels: zeros, as many
    as `Product.packed_bytes` says; `fill` fills them. Panels that are filled already may be read-only.
    bias: float32 [N], N a multiple of VL. scale: float32 [N] for int8 and int4 weights, otherwise None; the scale of a
    column that is never filled may be any finite number. offset_scale: the same for the offsets of int4. sums: float32
    [N], with filled int8 panels: the sum of each column.
    """

    cdef Linear y
    cdef readonly Product product
    cdef readonly str format
    cdef const unsigned char[::1] panels
    cdef object filled              # the array of the panels, to be filled
    cdef const float[::1] bias
    cdef const float[::1] scale
    cdef const float[::1] offset_scale
    cdef const float[::1] sums

    def __init__(self, Product product, panels, Py_ssize_t K, const float[::1] bias, const float[::1] scale=None,
                 int activation=IDENTITY, const float[::1] sums=None, const float[::1] offset_scale=None,
                 str format=None):
        # The pointers of `y` are those of the arrays that this object keeps.
        cdef Py_ssize_t N = bias.shape[0]
        cdef const unsigned char[::1] memory = panels.view("u1")
        form = format or FORMATS[product.precision].stored
        scales = (scale is not None) + (offset_scale is not None)
        if (N % product.kernels.VL or memory.shape[0] != product.packed_bytes(N, K, form)
                or scales != FORMATS[form].scales
                or scale is not None and scale.shape[0] != N or offset_scale is not None and offset_scale.shape[0] != N
                or sums is not None and (scale is None or sums.shape[0] != N)):
            raise ValueError(f"{memory.shape[0]} bytes of {form} weights and {N} biases do not fit [{N}, {K}], "
                             f"or scales are missing or too many")
        self.product, self.format, self.panels, self.filled = product, form, memory, panels
        self.bias, self.scale = bias, scale
        self.offset_scale, self.sums = offset_scale, sums
        self.y.panels, self.y.bias = &memory[0], &bias[0]
        self.y.N, self.y.K, self.y.activation = N, K, activation
        self.y.storage = <int>STORAGE[form]
        if scale is not None:
            self.sums = np.zeros(N, np.float32) if sums is None else sums
            self.y.scale, self.y.sums = &scale[0], &self.sums[0]
        if offset_scale is not None:
            self.y.offset_scale = &offset_scale[0]

    def fill(self, w, Py_ssize_t column=0):
        """Put the rows of w [n,K], in the map's own format, at columns [column, column+n)."""
        cdef const unsigned char[:, ::1] rows = w.view("u1")
        cdef unsigned char[::1] start = self.filled.view("u1")
        cdef Py_ssize_t n = w.shape[0]
        cdef float* sums = <float*>&self.sums[0] if self.sums is not None else NULL
        if rows.shape[1] != self.product.row_bytes(self.y.K, self.format) or column < 0 or column + n > self.y.N:
            raise ValueError(f"[{n}, {w.shape[1]}] of {w.dtype} at column {column} is outside "
                             f"[{self.y.N}, {self.y.K}] of {self.format}")
        with nogil:
            self.product.row.pack(&self.y, &start[0], sums, column, &rows[0, 0], n)

    @property
    def address(self):
        """Return the address of its Linear, for tests that call a kernel alone."""
        return <size_t>&self.y

    @property
    def columns(self):
        """Return N, padded to a multiple of VL."""
        return self.y.N

    @property
    def arrays(self):
        """Return the panels as uint8, and scale, sums and offset scale [N] or None."""
        return (np.asarray(self.panels), None if self.scale is None else np.asarray(self.scale),
                None if self.sums is None else np.asarray(self.sums),
                None if self.offset_scale is None else np.asarray(self.offset_scale))


cdef class TableWeights:
    """A table of the embeddings as it is stored: the bytes of its rows, and a scale [rows] when it is int8. A row in
    blocks of 32 numbers (q8_0) is padded to a whole block.

    factor: multiplies every number of the table.
    """

    cdef EmbeddingTable table
    cdef const unsigned char[:, ::1] rows
    cdef const float[::1] scale

    def __init__(self, const unsigned char[:, ::1] rows, int storage, const float[::1] scale, float factor=1):
        # The pointers of `table` are those of the arrays that this object keeps.
        if (scale is None) == (storage == INT8) or (scale is not None and scale.shape[0] != rows.shape[0]):
            raise ValueError("an int8 table has a scale for each row, and no other table has one")
        self.rows, self.scale = rows, scale
        self.table.rows, self.table.storage, self.table.factor = &rows[0, 0], storage, factor
        self.table.scale = &scale[0] if scale is not None else NULL


cdef class NormWeights:
    """Weight and bias [D] of a LayerNorm, and its epsilon."""

    cdef Norm norm
    cdef const float[::1] weight
    cdef const float[::1] bias

    def __init__(self, const float[::1] weight, const float[::1] bias, float eps):
        # The pointers of `norm` are those of the arrays that this object keeps.
        if weight.shape[0] != bias.shape[0]:
            raise ValueError(f"a weight of {weight.shape[0]} and a bias of {bias.shape[0]} entries do not belong "
                             f"together")
        self.weight, self.bias = weight, bias
        self.norm.weight, self.norm.bias, self.norm.D, self.norm.eps = &weight[0], &bias[0], weight.shape[0], eps


cdef class RelativeWeights:
    """The key and query vectors of relative positions for all heads, and the row of each distance; see Relative.

    keys: float32 [G, rows/NR, d, NR], or None. queries: [H, rows/NR, d, NR], or None. row: int32 [2 * limit + 1].
    """

    cdef Relative relative
    cdef Py_ssize_t head            # floats of a head
    cdef const float[:, :, :, ::1] keys
    cdef const float[:, :, :, ::1] queries
    cdef const int[::1] row

    def __init__(self, const float[:, :, :, ::1] keys, const float[:, :, :, ::1] queries, const int[::1] row,
                 Py_ssize_t rows):
        # near and columns of Relative follow from the rows of all distances.
        cdef const float[:, :, :, ::1] either = queries if keys is None else keys
        cdef Py_ssize_t NR = either.shape[3], limit = row.shape[0] // 2, near = 0, span = 1, x
        if either.shape[1] * NR < rows or row.shape[0] % 2 == 0 or min(row) < 0 or max(row) >= rows or (
                keys is not None and queries is not None and (keys.shape[1] != queries.shape[1]
                                                              or keys.shape[2] != queries.shape[2])):
            raise ValueError(f"panels of {either.shape[1]} * {NR} rows and a row for each of {row.shape[0]} distances "
                             f"do not fit {rows} rows")
        while near < limit and row[limit + near + 1] - row[limit] == row[limit] - row[limit - near - 1] == near + 1:
            near += 1
        for x in range(2 * limit + 1):
            span = max(span, row[min(2 * limit, x + DISTANCES - 1)] - row[x] + 1)       # rows for DISTANCES neighbours
        self.keys, self.queries, self.row = keys, queries, row
        self.head = either.shape[1] * either.shape[2] * NR
        self.relative.keys = &keys[0, 0, 0, 0] if keys is not None else NULL
        self.relative.queries = &queries[0, 0, 0, 0] if queries is not None else NULL
        self.relative.row, self.relative.limit, self.relative.near, self.relative.rows = &row[0], limit, near, rows
        # A run of rows may begin and end in the middle of a panel.
        self.relative.columns = min(either.shape[1] * NR, ((span - 2) // NR + 2) * NR)

    @property
    def columns(self):
        """See Relative."""
        return self.relative.columns
