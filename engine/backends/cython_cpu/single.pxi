# Kernels one at a time on NumPy arrays, for tests and benchmarks. Arguments are trusted: sizes are the caller's task.

cdef Output output_at(float[:, :] out, Py_ssize_t width, Py_ssize_t block):
    cdef Output target
    target.data, target.stride, target.width, target.block = &out[0, 0], out.strides[0] // 4, width, block
    return target


cdef Attention attention_of(const float[:, :] q, const float[:, :] k, const float[:, :] v, float[:, :] out, float scale):
    # Without options, and without a band.
    cdef Attention call
    memset(&call, 0, sizeof(call))
    call.q, call.k, call.v, call.out = &q[0, 0], &k[0, 0], &v[0, 0], &out[0, 0]
    call.q_stride, call.k_stride = q.strides[0] // 4, k.strides[0] // 4
    call.v_stride, call.out_stride = v.strides[0] // 4, out.strides[0] // 4
    call.T, call.S, call.d, call.e, call.scale = q.shape[0], k.shape[0], q.shape[1], v.shape[1], scale
    return call


cdef class Kernels:
    """The kernel table of one instruction set; `capsule` is the attribute `table` of a kernels module."""

    cdef object capsule
    cdef const KernelTable* table

    def __cinit__(self, capsule):
        self.capsule = capsule
        self.table = <const KernelTable*>PyCapsule_GetPointer(capsule, "engine.KernelTable")

    @property
    def isa(self):
        return self.table.isa.decode()

    @property
    def VL(self):
        """Lanes of a vector: padded widths are multiples of it."""
        return self.table.VL

    @property
    def NR(self):
        """Columns of a panel."""
        return self.table.NR

    @property
    def MR(self):
        """Rows of a tile."""
        return self.table.MR

    def linear(self, PackedLinear map, const float[:, :] a, float[:, :] out, const float[:, :] residual=None,
               Py_ssize_t width=0, Py_ssize_t block=0):
        """out [M,N] = activation(a [M,K] w^T + bias + residual [M,N]); width, block: see table.pxd, Output."""
        cdef Output target = output_at(out, width or map.y.N, block)
        cdef const float* extra = &residual[0, 0] if residual is not None else NULL
        with nogil:
            self.table.linear(&map.y, &a[0, 0], a.strides[0] // 4, a.shape[0], extra, &target, 0,
                              (map.y.N + self.table.NR - 1) // self.table.NR)

    @property
    def DOT(self):
        """Steps of depth of a product of integers; 0 where these kernels have none."""
        return self.table.DOT

    def quantize(self, const float[:, :] x, unsigned char[:, ::1] codes, float[:, ::1] ranges):
        """codes [M,K'] and their low and step, ranges [M,2], of x [M,K]; K' is at least K padded to VL."""
        with nogil:
            self.table.quantize(&x[0, 0], x.strides[0] // 4, x.shape[0], x.shape[1], &codes[0, 0],
                                codes.shape[1], <RowRange*>&ranges[0, 0])

    def linear_int8(self, PackedInt8 map, const unsigned char[:, ::1] codes, const float[:, ::1] ranges, float[:, :] out,
                    const float[:, :] residual=None, Py_ssize_t width=0, Py_ssize_t block=0):
        """As `linear`, of codes and ranges [M,2] by `quantize`."""
        cdef Output target = output_at(out, width or map.y.N, block)
        cdef const float* extra = &residual[0, 0] if residual is not None else NULL
        with nogil:
            self.table.linear_int8(&map.y, &codes[0, 0], codes.shape[1], <const RowRange*>&ranges[0, 0], codes.shape[0],
                                   extra, &target, 0, (map.y.N + self.table.NR - 1) // self.table.NR)

    @property
    def operand_bytes(self):
        """Bytes of a left operand of a product with bfloat16 weights: 2, bfloat16, or 4, float32; 0 where there is none."""
        return self.table.operand_bytes

    def to_operands(self, const float[:, :] x, unsigned char[:, ::1] operands):
        """The rows of x [M,K] as `linear_bfloat16` takes them, padded to VL."""
        with nogil:
            self.table.to_operands(&x[0, 0], x.strides[0] // 4, x.shape[0], x.shape[1], &operands[0, 0],
                                   operands.shape[1] // self.table.operand_bytes)

    def linear_bfloat16(self, PackedBFloat16 map, const unsigned char[:, ::1] operands, float[:, :] out,
                        const float[:, :] residual=None, Py_ssize_t width=0, Py_ssize_t block=0):
        """As `linear`, of rows by `to_operands`."""
        cdef Output target = output_at(out, width or map.y.N, block)
        cdef const float* extra = &residual[0, 0] if residual is not None else NULL
        with nogil:
            self.table.linear_bfloat16(&map.y, &operands[0, 0], operands.shape[1] // self.table.operand_bytes,
                                       operands.shape[0], extra, &target, 0,
                                       (map.y.N + self.table.NR - 1) // self.table.NR)

    def attention(self, const float[:, :] q, const float[:, :] k, const float[:, :] v, float[:, :] out, float scale,
                  float[::1] scratch, Py_ssize_t low=-2**40, Py_ssize_t high=2**40, float softcap=0,
                  const float[:, :] bias=None, const unsigned char[:, :] mask=None, size_t score_mod=0,
                  size_t captured=0):
        """One head: out [T,e] from q [T,d], k [S,d], v [S,e]; the options as in table.pxd, bias and mask [T,S]."""
        cdef Attention call = attention_of(q, k, v, out, scale)
        call.low, call.high, call.softcap = low, high, softcap
        if bias is not None:
            call.bias, call.bias_t, call.bias_s = &bias[0, 0], bias.strides[0] // 4, bias.strides[1] // 4
        if mask is not None:
            call.mask, call.mask_t, call.mask_s = &mask[0, 0], mask.strides[0], mask.strides[1]
        call.score_mod, call.captured = <ScoreMod>score_mod, <const void*>captured
        with nogil:
            self.table.attention(&call, &scratch[0])

    def attention_bfloat16(self, const float[:, :] q, const float[:, :] k, const float[:, :] v, float[:, :] out,
                           float scale, float[::1] scratch):
        """As `attention` without options, in bfloat16; the scratch is that of `attention_bfloat16_scratch`."""
        cdef Attention call = attention_of(q, k, v, out, scale)
        with nogil:
            self.table.attention_bfloat16(&call, &scratch[0])

    def attention_bfloat16_scratch(self, Py_ssize_t d, Py_ssize_t e):
        """Floats of scratch that it needs; 0 where these kernels have none."""
        return self.table.attention_bfloat16_scratch(d, e) if self.table.attention_bfloat16 != NULL else 0

    def attention_scratch(self, Py_ssize_t d, Py_ssize_t e):
        """Floats of scratch that attention needs."""
        return self.table.attention_scratch(d, e)

    def layer_norm(self, NormWeights weights, const float[:, :] x, float[:, :] out):
        """out [M,D] = LayerNorm(x [M,D]); out may be x."""
        with nogil:
            self.table.layer_norm(&weights.norm, &x[0, 0], x.strides[0] // 4, &out[0, 0], out.strides[0] // 4, x.shape[0])

    def activate(self, int activation, float[:, :] x):
        """x [M,N] = activation(x), in place."""
        with nogil:
            self.table.activate(activation, &x[0, 0], x.strides[0] // 4, x.shape[0], x.shape[1])

    def fma_rounds(self, Py_ssize_t n, int threads=1):
        """Do n rounds of independent FMAs on each thread of the pool; returns the floating-point operations of all."""
        cdef Probe probe
        probe.rounds, probe.n, probe.x = self.table.fma_rounds, n, NULL
        return run_probe(&probe, threads)

    def pair_rounds(self, Py_ssize_t n, int threads=1):
        """Likewise n rounds of independent products of bfloat16, or FMAs where there is no instruction for them."""
        cdef Probe probe
        probe.rounds, probe.n, probe.x = self.table.pair_rounds, n, NULL
        return run_probe(&probe, threads)

    def dot_rounds(self, Py_ssize_t n, int threads=1):
        """Likewise n rounds of independent products of 8-bit integers; returns the integer operations of all."""
        cdef Probe probe
        probe.rounds, probe.n, probe.x = self.table.dot_rounds, n, NULL
        return run_probe(&probe, threads)

    def read(self, const float[::1] x, int threads=1):
        """Sum x, each thread of the pool its part, as fast as memory can be read; a part is a multiple of 4*VL long."""
        cdef Probe probe
        probe.read, probe.x = self.table.read, &x[0]
        probe.n = x.shape[0] // threads // (4 * self.table.VL) * 4 * self.table.VL
        return run_probe(&probe, threads)


cdef struct Probe:
    double (*rounds)(Py_ssize_t n, float* sink) noexcept nogil
    float (*read)(const float* x, Py_ssize_t n) noexcept nogil
    Py_ssize_t n
    const float* x          # what to read; NULL: do rounds
    double total            # added up under a lock


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
    cdef Probe* probe = <Probe*>arg
    cdef float sink
    if probe.x == NULL:
        add_up(&probe.total, probe.rounds(probe.n, &sink))
    else:
        add_up(&probe.total, probe.read(probe.x + rank * probe.n, probe.n))


cdef double run_probe(Probe* probe, int threads) except *:
    probe.total = 0
    run_team(threads, probe_work, probe)
    return probe.total
