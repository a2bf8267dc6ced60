# Run single operations on arrays with the threads of the pool; native_ops.py makes the operations of engine.ops from
# them. Arguments are not checked: the caller ensures that their shapes fit and that their last strides are one float.
# The bits of a result depend neither on the number of threads nor on other rows.

cdef enum:
    GRAIN = 65536               # least floats of a thread's share; with fewer, waking the thread costs too much
    PIECE = 4096                # floats that an elementwise operation copies, and then changes while they are in cache
    FMAS = 32                   # cost model: this many multiply-adds of a GEMM take as long as touching one other float


cdef inline int team_of(int threads, Py_ssize_t units, Py_ssize_t floats) noexcept nogil:
    # Return how many threads share the work on `floats` floats, which can be divided into `units` parts.
    return <int>max(1, min(<Py_ssize_t>threads, min(units, floats // GRAIN)))


# Rows: norms and softmax.

cdef struct Rows:
    const KernelTable* table
    const Norm* norm            # NULL for softmax
    const float* x
    float* out
    Py_ssize_t x_stride         # floats from one row to the next
    Py_ssize_t out_stride
    Py_ssize_t M                # rows
    Py_ssize_t N                # floats of a row


cdef Rows rows_between(Kernels kernels, const float[:, :] x, float[:, :] out):
    # Return the rows of x and out, of float32, as one thread's work.
    cdef Rows rows
    rows.table, rows.x, rows.out, rows.M, rows.N = kernels.table, &x[0, 0], &out[0, 0], x.shape[0], x.shape[1]
    rows.norm, rows.x_stride, rows.out_stride = NULL, x.strides[0] // 4, out.strides[0] // 4
    return rows


cdef inline Rows share_of(const void* arg, int rank, int size) noexcept nogil:
    # Return a thread's share of the rows.
    cdef Rows rows = (<const Rows*>arg)[0]
    cdef Py_ssize_t first = rows.M * rank // size
    rows.M = rows.M * (rank + 1) // size - first
    rows.x += first * rows.x_stride
    rows.out += first * rows.out_stride
    return rows


cdef void layer_norm_work(void* arg, int rank, int size) noexcept nogil:
    # One thread's share of `layer_norm`.
    cdef Rows r = share_of(arg, rank, size)
    r.table.layer_norm(r.norm, r.x, r.x_stride, r.out, r.out_stride, r.M)


cdef void rms_norm_work(void* arg, int rank, int size) noexcept nogil:
    # One thread's share of `rms_norm`.
    cdef Rows r = share_of(arg, rank, size)
    r.table.rms_norm(r.norm, r.x, r.x_stride, r.out, r.out_stride, r.M)


cdef void softmax_work(void* arg, int rank, int size) noexcept nogil:
    # One thread's share of `softmax`.
    cdef Rows r = share_of(arg, rank, size)
    r.table.softmax(r.x, r.x_stride, r.out, r.out_stride, r.M, r.N)


def layer_norm(Kernels kernels, NormWeights weights, const float[:, :] x, float[:, :] out, int threads=1):
    """out [M,D] = LayerNorm(x [M,D]); out may be x, here and in the next two."""
    cdef Rows rows = rows_between(kernels, x, out)
    rows.norm = &weights.norm
    run_team(team_of(threads, rows.M, rows.M * rows.N), layer_norm_work, &rows)


def rms_norm(Kernels kernels, NormWeights weights, const float[:, :] x, float[:, :] out, int threads=1):
    """out [M,D] = RMSNorm(x [M,D]); the bias is not read."""
    cdef Rows rows = rows_between(kernels, x, out)
    rows.norm = &weights.norm
    run_team(team_of(threads, rows.M, rows.M * rows.N), rms_norm_work, &rows)


def softmax(Kernels kernels, const float[:, :] x, float[:, :] out, int threads=1):
    """out [M,N] = softmax of the rows of x [M,N]."""
    cdef Rows rows = rows_between(kernels, x, out)
    run_team(team_of(threads, rows.M, rows.M * rows.N), softmax_work, &rows)


# Elements: activations, with or without a gate.

cdef struct Elements:
    const KernelTable* table
    int activation
    const float* x
    const float* y              # NULL: no gate
    float* out
    Py_ssize_t n


cdef void elements_work(void* arg, int rank, int size) noexcept nogil:
    # One thread's share of `activate`. The kernel works in place, so each piece is copied first.
    cdef const Elements* e = <const Elements*>arg
    cdef Py_ssize_t pieces = (e.n + PIECE - 1) // PIECE, piece, i, n
    for piece in range(pieces * rank // size, pieces * (rank + 1) // size):
        i = piece * PIECE
        n = min(e.n - i, <Py_ssize_t>PIECE)
        if e.y == NULL:
            memcpy(e.out + i, e.x + i, n * sizeof(float))
            e.table.activate(e.activation, e.out + i, n, 1, n)
        else:
            e.table.gate(e.activation, e.x + i, n, e.y + i, n, e.out + i, n, 1, n)


def activate(Kernels kernels, int activation, const float[::1] x, float[::1] out, const float[::1] gate=None,
             int threads=1):
    """out [n] = activation(x [n]), times gate [n] where there is one; out is neither."""
    cdef Elements e
    e.table, e.activation, e.x, e.out, e.n = kernels.table, activation, &x[0], &out[0], x.shape[0]
    e.y = &gate[0] if gate is not None else NULL
    run_team(team_of(threads, (e.n + PIECE - 1) // PIECE, e.n), elements_work, &e)


# Rotary embedding.

cdef struct Rotation:
    const KernelTable* table
    Rotary rotary               # with the angles of row (0, 0, 0)
    const float* x
    float* out                  # [B,H,T,d]
    Py_ssize_t x_strides[3]
    Py_ssize_t angles_b         # floats from one sequence's angles to the next one's
    Py_ssize_t H
    Py_ssize_t T
    Py_ssize_t rows             # B*H*T


cdef void rotate_work(void* arg, int rank, int size) noexcept nogil:
    # One thread's share of `rotate`, in runs of rows of one head, whose angles follow each other.
    cdef const Rotation* r = <const Rotation*>arg
    cdef Py_ssize_t row = r.rows * rank // size, last = r.rows * (rank + 1) // size, b, h, t, M, angles
    cdef Rotary rotary = r.rotary
    while row < last:
        b, h, t = row // (r.H * r.T), row // r.T % r.H, row % r.T
        M = min(r.T - t, last - row)
        angles = b * r.angles_b + t * rotary.stride
        rotary.cos, rotary.sin = r.rotary.cos + angles, r.rotary.sin + angles
        r.table.rotate(&rotary, r.x + b * r.x_strides[0] + h * r.x_strides[1] + t * r.x_strides[2], r.x_strides[2],
                       r.out + row * rotary.d, rotary.d, M)
        row += M


def rotate(Kernels kernels, const float[:, :, :, :] x, const float[:, :, :] cos, const float[:, :, :] sin,
           bint interleaved, float[:, :, :, ::1] out, int threads=1):
    """out [B,H,T,d] = x [B,H,T,d], turned by cos, sin [B,T,r/2], whose strides are the same; out may be x."""
    cdef Rotation r
    cdef int i
    r.table, r.x, r.out, r.H, r.T = kernels.table, &x[0, 0, 0, 0], &out[0, 0, 0, 0], x.shape[1], x.shape[2]
    for i in range(3):
        r.x_strides[i] = x.strides[i] // 4
    r.rows, r.angles_b = x.shape[0] * r.H * r.T, cos.strides[0] // 4
    r.rotary.cos, r.rotary.sin, r.rotary.stride = &cos[0, 0, 0], &sin[0, 0, 0], cos.strides[1] // 4
    r.rotary.width, r.rotary.d, r.rotary.interleaved = 2 * cos.shape[2], x.shape[3], interleaved
    run_team(team_of(threads, r.rows, r.rows * r.rotary.d), rotate_work, &r)


# The GEMM of two arrays, which packs the weights for this call alone. Each thread packs its share of the panels, waits
# for the others, and computes its share of the rows. If there are few rows, they are not divided, and nobody waits:
# each thread multiplies all rows by every panel that it has packed.

cdef struct ArrayProduct:
    const KernelTable* table
    const ProductRow* product
    Linear y
    char* panels
    Py_ssize_t column_bytes     # of the panels, with the padding of their depth
    bint depth_is_padded
    float* operands             # memory of each thread for the operands of a block of rows, if the product converts
    Py_ssize_t operands_floats  # of one thread
    Py_ssize_t operands_stride
    const char* weight          # [N,K], in the precision's own type
    Py_ssize_t weight_bytes     # of a row
    Py_ssize_t N                # columns before padding
    const float* x
    Py_ssize_t x_stride
    Py_ssize_t M
    const float* residual
    Output out
    pool_barrier barrier


cdef inline Py_ssize_t count_panels(const ArrayProduct* p) noexcept nogil:
    # Return the panels of the padded columns, of which the last may be narrower.
    return (p.y.N + p.table.NR - 1) // p.table.NR


cdef void pack_panels(const ArrayProduct* p, Py_ssize_t panel, Py_ssize_t last) noexcept nogil:
    # Pack panels [panel, last), zeroed first where they are padded: in depth all, in columns the last one alone.
    cdef Py_ssize_t column = panel * p.table.NR, end = min(p.y.N, last * p.table.NR), begin
    if column < end:
        if end > p.N or p.depth_is_padded:
            begin = column if p.depth_is_padded else (last - 1) * p.table.NR
            memset(p.panels + begin * p.column_bytes, 0, (end - begin) * p.column_bytes)
        p.product.pack(&p.y, p.panels, NULL, column, p.weight + column * p.weight_bytes, min(end, p.N) - column)


cdef void multiply_rows(const ArrayProduct* p, int rank, Py_ssize_t first, Py_ssize_t last, Py_ssize_t panel,
                        Py_ssize_t last_panel) noexcept nogil:
    # Multiply rows [first, last), which the thread has converted if the product converts; they have no ranges.
    cdef Output out = p.out
    cdef const float* a = p.x + first * p.x_stride
    cdef Py_ssize_t stride = p.x_stride
    out.data += first * out.stride
    if p.product.convert != NULL:
        a, stride = p.operands + rank * p.operands_floats, p.operands_stride
    p.product.multiply(&p.y, a, stride, NULL, last - first,
                       p.residual + first * out.stride if p.residual != NULL else NULL, &out, panel, last_panel)


cdef void convert_block(const ArrayProduct* p, int rank, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    # Convert rows [first, last) to operands in this thread's memory, if the product converts.
    if p.product.convert != NULL:
        p.product.convert(p.x + first * p.x_stride, p.x_stride, last - first, p.y.K,
                          p.operands + rank * p.operands_floats, p.operands_stride, 0, NULL)       # row 0; no ranges


cdef void product_work(void* arg, int rank, int size) noexcept nogil:
    # One thread's share of `linear`: of the panels if all rows are one block, otherwise also of the rows.
    cdef ArrayProduct* p = <ArrayProduct*>arg
    cdef Py_ssize_t panels = count_panels(p), panel = panels * rank // size, last_panel = panels * (rank + 1) // size
    cdef Py_ssize_t first = p.M * rank // size, count = p.M * (rank + 1) // size - first        # its rows
    cdef Py_ssize_t block = p.product.block, blocks = (count + block - 1) // block, i, row, next_row
    begin_work(p.product)
    if p.M <= block:
        convert_block(p, rank, 0, p.M)      # each thread converts all rows for itself, so that nobody waits
        for i in range(panel, last_panel):
            pack_panels(p, i, i + 1)
            multiply_rows(p, rank, 0, p.M, i, i + 1)
        end_work(p.product)
        return
    pack_panels(p, panel, last_panel)
    pool_barrier_wait(&p.barrier, size)
    for i in range(blocks):
        row, next_row = first + count * i // blocks, first + count * (i + 1) // blocks
        convert_block(p, rank, row, next_row)
        multiply_rows(p, rank, row, next_row, 0, panels)
    end_work(p.product)


def linear(Product product, const float[:, :] x, const unsigned char[:, ::1] weight, const float[::1] bias,
           int activation, const float[:, ::1] residual, float[:, ::1] out, float[::1] panels,
           float[:, ::1] operands=None, int threads=1):
    """out [M,P] = activation(x [M,K] weight [N,K]^T + bias [P] + residual [M,P], if any), by a float product.

    weight: its rows as bytes, of float32 or bfloat16 as the product multiplies. P is N padded to a multiple of VL.
    panels: memory to pack the weights into. operands [threads, n]: memory for the operands of a block of rows, if the
    product converts.
    """
    cdef ArrayProduct p
    memset(&p, 0, sizeof(p))
    p.table, p.panels, p.product = product.kernels.table, <char*>&panels[0], product.row
    p.weight, p.weight_bytes, p.N = <const char*>&weight[0, 0], weight.shape[1], weight.shape[0]
    p.y.K = x.shape[1]
    p.column_bytes, p.depth_is_padded = product.packed_bytes(1, p.y.K), p.y.K % p.product.depth_step != 0
    if operands is not None:
        p.operands, p.operands_floats = &operands[0, 0], operands.shape[1]
        p.operands_stride = operands_stride(p.product, p.y.K)
    p.y.storage = <int>STORAGE[product.precision]
    p.y.panels, p.y.bias, p.y.N, p.y.activation = p.panels, &bias[0], bias.shape[0], activation
    p.x, p.x_stride, p.M = &x[0, 0], x.strides[0] // 4, x.shape[0]
    p.residual = &residual[0, 0] if residual is not None else NULL
    p.out.data, p.out.stride, p.out.width = &out[0, 0], p.y.N, p.y.N
    cdef Py_ssize_t units = count_panels(&p) if p.M <= p.product.block else p.M
    run_team(team_of(threads, units, p.y.N * p.y.K * (1 + p.M // FMAS)), product_work, &p)
