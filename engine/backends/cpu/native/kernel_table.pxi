# The kernel table for Python: it serves to pack weights, in tests and in benchmarks. Arguments are not checked: the
# caller ensures that their sizes fit. Tests call its other functions by way of their addresses.

cdef extern from "kernel_table.h":
    const char* ENGINE_TABLE    # `layout.TABLE_NAME` when this module was built; setup.py writes the header

PORTABLE_LANES = 16
"""With portable arithmetic, heads of encoders in int8 are padded to this many numbers on every CPU: a row is rounded to
codes over its range, to which the zeros of the padding belong."""


def product_name(str precision, bint decodes, bint portable=False):
    """Return the name of the product for linear maps of a precision; whether of a decoder, in portable arithmetic.

    Rows are rounded to 16-bit integers for q8_0, and in decoders for int8: a decoder's rows have a few large numbers,
    and with one range of 256 codes a row the error of codes would exceed that of weights. The scales of q8_0 lie inside
    the depth, so vectors multiply its blocks. Weights of 4 bits are multiplied by codes with a step for each 32.
    Decoders multiply float32 by FMAs on every CPU: tiles are slower for the few rows of a step. Portable arithmetic
    multiplies floats by FMAs alone, also weights in bfloat16. Integers are exact on every CPU.
    """
    if precision == "float32" and (decodes or portable):
        return "fma"
    if FORMATS[precision].rounds_blocks:
        return "codes"
    if precision == "q8_0":
        return "int16_vectors"
    if precision == "int8":
        return "int16" if decodes else "int8"
    return "bfloat16_weights" if precision == "bfloat16" and portable else precision


cdef class Kernels:
    """The kernel table of one instruction set; `capsule` is the attribute `table` of a kernels module."""

    cdef readonly object capsule
    cdef const KernelTable* table
    cdef readonly str isa
    cdef readonly int VL            # lanes of a vector: padded widths are multiples of it
    cdef readonly int NR            # columns of a panel
    cdef readonly int MR            # rows of a tile
    cdef readonly bint fused        # whether a multiplication and an addition are fused, so that they round once

    def __cinit__(self, capsule):
        # The capsule keeps the memory of the table alive, and has the name that guards against any other struct.
        name = PyCapsule_GetName(capsule)
        if not name == ENGINE_TABLE == TABLE_NAME:
            raise BackendUnavailable(
                f"the compiled modules were not built from this table.pxd, which describes {TABLE_NAME.decode()}: the "
                f"kernels have {name.decode()}, and the native code {ENGINE_TABLE.decode()}; {build_command()}")
        self.capsule = capsule
        self.table = <const KernelTable*>PyCapsule_GetPointer(capsule, name)
        self.isa, self.fused = self.table.isa.decode(), self.table.fused
        self.VL, self.NR, self.MR = self.table.VL, self.table.NR, self.table.MR

    def product(self, str precision, bint decodes=False, bint portable=False):
        """The product for linear maps of a precision; decodes: for those of a decoder; portable: see `Product`."""
        return Product(self, precision, decodes, portable)

    @property
    def fma(self):
        """The product of float32 by FMAs, whose panels `column_maxima` reads."""
        return Product(self, "float32", row="fma")

    def read(self, const float[::1] x, int threads=1):
        """Sum x, each thread of the pool its part, as fast as memory can be read; a part is a multiple of 4*VL long."""
        cdef Probe probe
        probe.read, probe.x = self.table.read, &x[0]
        probe.n = x.shape[0] // threads // (4 * self.table.VL) * 4 * self.table.VL
        return run_probe(&probe, threads)


cdef inline void begin_work(const ProductRow* row) noexcept nogil:
    # Make this thread ready for a product that needs it: tiles have to be configured.
    if row.begin != NULL:
        row.begin()


cdef inline void end_work(const ProductRow* row) noexcept nogil:
    # Release what `begin_work` took, before any other code may use the same registers.
    if row.end != NULL:
        row.end()


cdef class Product:
    """What the kernels of one instruction set have for linear maps of one precision; see Product in table.pxd.

    portable: compute with the arithmetic that has the same bits on every CPU with fused multiply-adds. Then `row` is a
    copy of the table's row, with the attention of float32 and no approximation; int8 weights keep the bound that some
    CPUs need.
    """

    cdef readonly Kernels kernels
    cdef readonly str precision
    cdef readonly bint portable
    cdef readonly int lanes             # widths of rows and heads are padded to a multiple of it
    cdef readonly int depth_step        # the depth of a panel is padded to a multiple of it
    cdef readonly bint needs_bound      # whether int8 weights have to be within the bound of engine.weights.int8_bound
    # The fields of this name in table.pxd:
    cdef readonly int operand_bytes, strip, block, code_zero, shared, bundle
    cdef readonly int operands_depth, hidden_columns, fresh_depth
    cdef readonly bint approximates
    cdef const ProductRow* row
    cdef ProductRow copy

    def __init__(self, Kernels kernels, str precision, bint decodes=False, bint portable=False, str row=None):
        # row: the name of a product, in place of the one that `product_name` chooses.
        cdef const ProductRow* float32 = &kernels.table.products[<int>FLOAT32_PRODUCT]
        self.kernels, self.precision, self.portable = kernels, precision, portable
        self.row = &kernels.table.products[<int>PRODUCT_PLACES[row or product_name(precision, decodes, portable)]]
        if portable:
            self.copy = self.row[0]
            self.copy.attention, self.copy.attention_scratch = float32.attention, float32.attention_scratch
            self.copy.attend_rows, self.copy.attend_rows_scratch, self.copy.approximates = NULL, NULL, False
            self.copy.bounded = precision == "int8" and not decodes
            self.row = &self.copy
        self.lanes = PORTABLE_LANES if portable and self.row.bounded else kernels.VL
        self.depth_step, self.operand_bytes, self.strip = self.row.depth_step, self.row.operand_bytes, self.row.strip
        self.block, self.shared, self.bundle = self.row.block, self.row.shared, self.row.bundle
        self.operands_depth, self.hidden_columns = self.row.operands_depth, self.row.hidden_columns
        self.fresh_depth, self.code_zero = self.row.fresh_depth, self.row.code_zero
        self.needs_bound, self.approximates = self.row.bounded, self.row.approximates

    def packed_bytes(self, Py_ssize_t columns, Py_ssize_t K, str format=None):
        """The bytes of the panels of this many columns, in a format that it multiplies, by default its own."""
        cdef Py_ssize_t step = self.row.depth_step
        return columns * self.row_bytes((K + step - 1) // step * step, format)

    def row_bytes(self, Py_ssize_t K, str format=None):
        """The bytes of a row of K weights in the form that `PackedLinear.fill` takes."""
        return FORMATS[format or self.precision].row_bytes(K)

    @property
    def name(self):
        """The name of the product: the precision, or what its rows are, where these are not in the precision."""
        return self.row.name.decode()

    @property
    def instruction(self):
        """The instruction that multiplies."""
        return self.row.instruction.decode()

    @property
    def exists(self):
        """Whether these kernels have the product."""
        return self.row.multiply != NULL

    @property
    def attends_rows(self):
        """Whether it has attention without options of bfloat16 rows."""
        return self.row.attend_rows != NULL

    def operands_stride(self, Py_ssize_t width):
        """The numbers from one row of operands to the next, for rows of this width."""
        return operands_stride(self.row, width)

    @property
    def converts(self):
        """Whether rows have to be converted to operands; otherwise float32 rows are operands."""
        return self.row.convert != NULL

    def convert(self, const float[:, :] x, operands, float[:, ::1] ranges=None, Py_ssize_t first=0):
        """Rows [first, first + M) of operands, of the rows of x [M,K]; ranges [M,2] (low, step) of int8 codes.

        operands [R, K'], K' at least K padded to VL and to depth_step, R a multiple of strip.
        """
        cdef unsigned char[:, ::1] target = operands.view("u1")
        cdef RowRange* r = <RowRange*>&ranges[0, 0] if ranges is not None else NULL
        with nogil:
            self.row.convert(&x[0, 0], x.strides[0] // 4, x.shape[0], x.shape[1], &target[0, 0],
                             target.shape[1] // self.row.operand_bytes, first, r)

    def multiply(self, PackedLinear map, operands, float[:, :] out, const float[:, :] residual=None,
                 const float[:, ::1] ranges=None, Py_ssize_t width=0, Py_ssize_t block=0, tuple lines=(0, 0),
                 float[::1] sums=None):
        """out [M,N] = activation(operands w^T + bias + residual [M,N]).

        width, block: if width is not 0, `out` has a block of M rows for each `width` columns, `block` floats behind the
        one before. lines: the first line of the depth and the one after the last, (0, 0) for all; sums: where the sums
        of a part of the depth wait for the next (`Output` in table.pxd). M is the number of rows of out or of operands,
        whichever has fewer, because operands are filled up to whole strips.
        """
        cdef const unsigned char[:, :] a = operands.view("u1")
        cdef Py_ssize_t M = min(a.shape[0], out.shape[0])
        cdef const float* extra = &residual[0, 0] if residual is not None else NULL
        cdef const RowRange* r = <const RowRange*>&ranges[0, 0] if ranges is not None else NULL
        cdef Output target
        memset(&target, 0, sizeof(target))
        target.data, target.stride = &out[0, 0], out.strides[0] // 4
        target.width, target.block = width or map.y.N, block
        target.first_line, target.last_line = lines
        if sums is not None:
            target.sums = &sums[0]
        with nogil:
            begin_work(self.row)
            self.row.multiply(&map.y, &a[0, 0], a.strides[0] // self.row.operand_bytes, r, M, extra, &target, 0,
                              (map.y.N + self.kernels.table.NR - 1) // self.kernels.table.NR)
            end_work(self.row)

    def attention(self, const float[:, :] q, const float[:, :] k, const float[:, :] v, float[:, :] out, float scale,
                  float[::1] scratch, Py_ssize_t low=-2**40, Py_ssize_t high=2**40, float softcap=0,
                  const float[:, :] bias=None, const unsigned char[:, :] mask=None, size_t score_mod=0,
                  size_t captured=0, RelativeWeights relative=None, Py_ssize_t query=0):
        """One head: out [T,e] from q [T,d], k [S,d], v [S,e]; bias and mask [T,S].

        The options are those of Attention in table.pxd; the band (low, high) of all distances hides no key.
        """
        cdef Attention call
        memset(&call, 0, sizeof(call))
        call.q, call.k, call.v, call.out = &q[0, 0], &k[0, 0], &v[0, 0], &out[0, 0]
        call.q_stride, call.k_stride = q.strides[0] // 4, k.strides[0] // 4
        call.v_stride, call.out_stride = v.strides[0] // 4, out.strides[0] // 4
        call.T, call.S, call.d, call.e, call.scale = q.shape[0], k.shape[0], q.shape[1], v.shape[1], scale
        call.low, call.high, call.softcap = low, high, softcap
        if bias is not None:
            call.bias, call.bias_t, call.bias_s = &bias[0, 0], bias.strides[0] // 4, bias.strides[1] // 4
        if mask is not None:
            call.mask, call.mask_t, call.mask_s = &mask[0, 0], mask.strides[0], mask.strides[1]
        call.score_mod, call.captured = <ScoreMod>score_mod, <const void*>captured
        call.relative, call.query = &relative.relative if relative is not None else NULL, query
        with nogil:
            begin_work(self.row)
            self.row.attention(&call, &scratch[0])
            end_work(self.row)

    def attention_scratch(self, Py_ssize_t d, Py_ssize_t e, Py_ssize_t columns=0):
        """Floats of scratch that attention needs; columns: those of relative positions, see Relative in table.pxd."""
        return self.row.attention_scratch(d, e, columns)

    @property
    def attends_in_float32(self):
        """Whether attention of this precision runs in float32."""
        return self.row.attention == self.kernels.table.products[<int>FLOAT32_PRODUCT].attention

    def rounds(self, Py_ssize_t n, int threads=1):
        """Do n rounds of independent products on each thread of the pool; return the operations of all."""
        cdef Probe probe
        probe.rounds, probe.n, probe.x = self.row.rounds, n, NULL
        return run_probe(&probe, threads)


cdef struct Probe:
    double (*rounds)(Py_ssize_t n, float* sink) noexcept nogil
    float (*read)(const float* x, Py_ssize_t n) noexcept nogil
    Py_ssize_t n            # rounds, or the floats of each thread
    const float* x          # the floats to read; NULL to run rounds
    double total            # the sum of all threads, added up under a lock


cdef extern from *:
    """
    #include <pthread.h>
    static void add_up(double *total, double part) {
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&lock);
        *total += part;
        pthread_mutex_unlock(&lock);
    }
    """
    void add_up(double* total, double part) noexcept nogil


cdef void probe_work(void* arg, int rank, int size) noexcept nogil:
    # Run one thread's share of a probe.
    cdef Probe* probe = <Probe*>arg
    cdef float sink
    if probe.x == NULL:
        add_up(&probe.total, probe.rounds(probe.n, &sink))
    else:
        add_up(&probe.total, probe.read(probe.x + rank * probe.n, probe.n))


cdef double run_probe(Probe* probe, int threads) except *:
    # Return what all threads counted, or the sum of what they read.
    probe.total = 0
    run_team(threads, probe_work, probe)
    return probe.total


def struct_sizes():
    """Return the size in bytes of each struct of the kernel table, by name, as this module was compiled."""
    return {
        "Linear": sizeof(Linear),
        "RowRange": sizeof(RowRange),
        "Output": sizeof(Output),
        "Relative": sizeof(Relative),
        "Attention": sizeof(Attention),
        "CachedAttention": sizeof(CachedAttention),
        "RowChoice": sizeof(RowChoice),
        "Rotary": sizeof(Rotary),
        "EmbeddingTable": sizeof(EmbeddingTable),
        "Embedding": sizeof(Embedding),
        "Norm": sizeof(Norm),
        "Product": sizeof(ProductRow),
        "KernelTable": sizeof(KernelTable),
    }
