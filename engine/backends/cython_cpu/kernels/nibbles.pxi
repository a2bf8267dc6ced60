# Compute the GEMM of rows in 8-bit integers and weights of 4 bits:
#   y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]).
#
# Every 32 numbers of a row, a block b, have a step of their own: a[i,k] = step[i,b] * code[i,k], code from -127 to 127.
# Weights q are from 0 to 15. Those of a GGUF file (engine/weights/blocks.py) have a float16 scale for each block, and
# in Q4_1 a minimum; in Q4_0 they count from 8:
#   y[i,j] = sum_b step[i,b] * (scale[j,b] * sum_k q code + minimum[j,b] * sum_k code) + bias[j].
# Those of INT4 (engine/weights/int4.py) have for each group g of 16 an integer multiplier m, 1 to 15, and an integer
# offset o, -127 to 127, and two scales for each column:
#   y[i,j] = scale[j] * sum_b step[i,b] * sum_k m q code + offset_scale[j] * step_i * sum_g o sum[i,g] + bias[j],
# where sum[i,g] is the sum of a group of a, rounded to an int16 with one step for the whole row.
#
# Sums of a block are exact in int32: 225 * 127 * 32 < 2^24, which a float holds too. They are added in float32 in the
# order of b, for one row as for many, so that the bits of a result depend on its row alone.
#
# A row of operands is that of integers.pxi, for the linear maps of the same model whose weights have 8 bits, and behind
# it, for K rounded up to blocks,
#   int8 code[K], float step[K/32], int32 sum of the codes [K/32], int16 sum[K/16].
#
# A panel is a run of blocks. A block of nv*VL columns is [4][nv*VL] words of 32 bits, and then what belongs to the
# format: the float16 scales, and in Q4_1 the minima, [nv*VL] each; or in INT4 bytes [nv*VL], the multipliers of both
# groups. Word h of a column holds the weights 8h to 8h + 7 of the block: byte t has number t in its lower half and
# number t + 4 in its upper half. The offsets of INT4 follow all blocks, [K/32][nv*VL][2], to be multiplied as int8.
#
# BLOCK_DEPTH = 32, SCALE_BYTES = 2 and FETCHED, bytes prefetched ahead: blocks.pxi. A tile has mr <= NIBBLE_MR rows and
# nv <= NV vectors of VL columns (simd.pxi); row_of(i, low, high, stride) is its row i; opaque: depth.pxi.

cdef enum:
    GROUP_DEPTH = 16            # of the two groups of a block, each of which has a multiplier and an offset in INT4
    WEIGHT_BYTES = BLOCK_DEPTH // 2     # of a block of one column, without what belongs to the format
    OFFSET_BYTES = 2            # of a block of one column of INT4: behind all blocks of a panel, and in a stored block
    DEEPEST_OFFSETS = 4096      # the depth over which sum_g o sum[i,g] is exact in int32: 127 * 32767 * 256 < 2^31
    BESIDE_BLOCK = 44           # bytes of the Codes of a block: 32 of int8, a step, a sum and two int16 of groups
    UNPACKED = 8                # blocks that are unpacked at a time for many rows: 256 * NR bytes stay in the L1 cache
    PACKED_ROWS = 12            # the most rows for which every tile unpacks the panel anew; NIBBLE_GROUPS: all rows


cdef struct Codes:
    # Where the parts of a row of operands begin, or their numbers of a later block.
    signed char* codes          # [K]
    float* steps                # [K/32]
    int* sums                   # [K/32], of the codes of a block
    short* groups               # [K/16], sum[i,g] of the formula


cdef inline Codes codes_of(void* row, Py_ssize_t blocks) noexcept nogil:
    # Return where the parts of a row of operands begin: they follow the int16 of integers.pxi, one for each of K.
    cdef Codes to
    to.codes = <signed char*>row + 2 * BLOCK_DEPTH * blocks
    to.steps = <float*>(to.codes + BLOCK_DEPTH * blocks)
    to.sums = <int*>(to.steps + blocks)
    to.groups = <short*>(to.sums + blocks)
    return to


cdef void to_codes(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands, Py_ssize_t stride,
                   Py_ssize_t first, RowRange* ranges) noexcept nogil:
    # Round M rows of x to the integers of integers.pxi, with their steps in `ranges`, and behind them to codes. The
    # steps of a row that holds NaN or infinity are NaN, which makes all its results NaN.
    cdef Py_ssize_t blocks = blocks_of(K), row, b
    cdef Codes to
    to_integers(x, x_stride, M, K, operands, stride, first, ranges)
    for row in range(M):
        to = codes_of(<short*>operands + (first + row) * stride, blocks)
        if ranges[row].step == ranges[row].step:        # not NaN
            round_blocks(x + row * x_stride, K, to, ranges[row].step)
        else:
            memset(to.codes, 0, BESIDE_BLOCK * blocks)
            for b in range(blocks):
                to.steps[b] = ranges[row].step


cdef void round_blocks(const float* x, Py_ssize_t K, Codes to, float row_step) noexcept nogil:
    # Round a row to codes, and store the sums of the codes of each block; round the sum that each group of codes stands
    # for to an int16, a multiple of row_step. Steps so small that their inverse could overflow give zeros.
    cdef vf value[BLOCK_DEPTH]      # BLOCK_DEPTH // VL of them
    cdef vf largest, inverse, total
    cdef vf magic = v_set1(12582912.0)      # 1.5 * 2^23: adding it rounds a small number to an integer
    cdef Py_ssize_t b, left
    cdef float top, step, sum, inverse_row_step = 1 / row_step if row_step > <float>1e-30 else 0
    cdef int i, g
    for b in range(blocks_of(K)):
        largest = v_set1(0.0)
        for i in range(BLOCK_DEPTH // VL):
            left = K - b * BLOCK_DEPTH - i * VL
            value[i] = v_load(x + i * VL) if left >= VL else v_loadn(x + i * VL, <int>max(left, 0))
            largest = v_max(v_abs(value[i]), largest)
        top = v_largest(largest)
        step = top * <float>(1 / 127.0)
        inverse = v_set1(127 / top if step > <float>1e-30 else 0)
        to.steps[b], to.sums[b] = step, 0
        for g in range(2):
            total = v_set1(0.0)
            for i in range(g * (GROUP_DEPTH // VL), (g + 1) * (GROUP_DEPTH // VL)):
                value[i] = v_mul(value[i], inverse)
                x_store_int8(to.codes + i * VL, value[i])
                total = v_add(total, v_sub(v_add(value[i], magic), magic))
            sum = v_sum(total)
            to.sums[b] += <int>sum
            to.groups[2 * b + g] = <short>rintf(sum * (step * inverse_row_step))
        to.codes += BLOCK_DEPTH
        x += BLOCK_DEPTH


cdef inline Py_ssize_t bytes_of_block(int storage) noexcept nogil:
    # Return the bytes of a column's block in a panel: weights; a byte of multipliers, a scale, or scale and minimum.
    return WEIGHT_BYTES + (1 if storage == <int>INT4 else SCALE_BYTES if storage == <int>Q4_0 else 2 * SCALE_BYTES)


cdef inline Py_ssize_t stored_bytes(int storage) noexcept nogil:
    # Return the bytes of a block as it is stored, where the offsets of INT4 are a part of it.
    return bytes_of_block(storage) + (OFFSET_BYTES if storage == <int>INT4 else 0)


cdef struct Nibbles:
    # A run of blocks of a panel.
    int storage
    const char* panel
    const char* wide            # the weights in bytes, as unpack_blocks stores them
    Py_ssize_t blocks
    Py_ssize_t step             # bytes from one block to the next
    Py_ssize_t width            # columns


cdef inline vx unpacked(const bint grouped, vx word, vx factor, const int n) noexcept nogil:
    # Return the lower (n = 0) or the upper four bits of every byte. grouped: whether they are weights of INT4, which
    # are multiplied by `factor`, the multiplier of their group; with NIBBLE_GROUPS, n_group does that.
    return x_mul16(n_half(word, n), factor) if grouped and not NIBBLE_GROUPS else n_half(word, n)


cdef inline void unpack_blocks(const bint grouped, Py_ssize_t width, Py_ssize_t step, Py_ssize_t blocks, const char* b,
                               char* to) noexcept nogil:
    # to [8 * blocks][width][4] = the weights of blocks of `width` columns, `step` bytes apart.
    cdef vx word, factor = x_set1(0)
    cdef Py_ssize_t k, c
    cdef int g, h, n
    for k in range(blocks):
        fetch_lines(b + FETCHED, step)
        c = 0
        while c < width:
            for g in range(2):
                if grouped:
                    factor = n_factors(<const unsigned char*>b + WEIGHT_BYTES * width + c, g)
                for h in range(2 * g, 2 * g + 2):
                    word = x_load(b + (h * width + c) * 4)
                    for n in range(2):
                        x_store(<int*>to + (2 * h + n) * width + c, unpacked(grouped, word, factor, n))
            c += VL
        b += step
        to += BLOCK_DEPTH * width


cdef inline void add_half_block(const bint grouped, const bint wide, const int mr, const int nv, Py_ssize_t width,
                                const char* b, const int g, const char* low, const char* high, Py_ssize_t stride,
                                const vx* factor, vx* sums) noexcept nogil:
    # sums[mr][NV] += the products of the weights and codes of group g of a block, four steps at a time: half n of word
    # h. wide: whether b has bytes, not words. low, high, stride: of codes, see row_of.
    cdef vx w[NV]
    cdef vx x
    cdef int i, j, h, n
    for h in range(2 * g, 2 * g + 2):
        for n in range(2):
            stride = opaque(stride)
            for j in range(nv):
                if wide:
                    w[j] = x_load(b + ((2 * h + n) * width + j * VL) * 4)
                else:
                    w[j] = unpacked(grouped, x_load(b + (h * width + j * VL) * 4), factor[j], n)
            for i in range(mr):
                x = x_set1(load_32(row_of(i, low, high, stride) + 8 * h + 4 * n))
                for j in range(nv):
                    sums[i * NV + j] = n_dot(sums[i * NV + j], w[j], x)


cdef inline void add_block(const bint grouped, const int mr, const int nv, int storage, Py_ssize_t width, const char* b,
                           const float* steps, const int* row_sums, Py_ssize_t stride, const vx* s,
                           float* results) noexcept nogil:
    # results[mr][NR] += the sums s [mr][NV] of a block times steps and scales, and in Q4_1 the sums of the codes times
    # minima. b: the scales of this block, behind its weights. steps, row_sums: of the first row, `stride` bytes apart.
    cdef vf scale, minimum, y, step
    cdef float* to
    cdef int i, j
    for j in range(nv):
        if not grouped:
            scale = v_load_float16(<const unsigned short*>b + j * VL)
        if not grouped and storage == <int>Q4_1:
            minimum = v_load_float16(<const unsigned short*>b + width + j * VL)
        stride = opaque(stride)
        for i in range(mr):
            step = v_set1((<const float*>row_of(i, <const char*>steps, <const char*>steps + 3 * stride, stride))[0])
            y, to = x_float(s[i * NV + j]), results + i * NR + j * VL
            if not grouped and storage == <int>Q4_1:
                y = v_fma(y, scale, v_mul(x_float(x_set1(load_32(<const char*>row_sums + i * stride))), minimum))
            elif not grouped:
                y = v_mul(y, scale)
            v_store(to, v_fma(step, y, v_load(to)))


cdef inline void begin_sums(const bint grouped, const int mr, const int nv, int storage, const int* row_sums,
                            Py_ssize_t stride, vx* sums) noexcept nogil:
    # Set sums[mr][NV] to 0, or in Q4_0, where q stands for q - 8, to -8 times the sum of the codes of the block.
    cdef vx x
    cdef int i, j
    for i in range(mr):
        x = x_set1(0)
        if not grouped and storage == <int>Q4_0:
            x = x_set1(-8 * load_32(<const char*>row_sums + i * stride))
        for j in range(nv):
            sums[i * NV + j] = x


cdef inline void add_block_by_steps(const bint grouped, const bint wide, const int mr, const int nv, const Nibbles* w,
                                    const char* b, Py_ssize_t c, const char* weights, Codes a, Py_ssize_t stride,
                                    float* results) noexcept nogil:
    # results[mr][NR] += the products of the block at b with nv vectors of columns, from column c on. A code is read
    # once for all vectors. wide: whether `weights` are bytes, as unpack_blocks stores them, or the words of the block.
    cdef vx sums[NIBBLE_MR * NV]
    cdef vx factor[NV]
    cdef const char* low = <const char*>a.codes
    cdef int j, g
    begin_sums(grouped, mr, nv, w.storage, a.sums, stride, sums)
    for g in range(2):
        if grouped and not wide:
            for j in range(nv):
                factor[j] = n_factors(<const unsigned char*>b + WEIGHT_BYTES * w.width + c + j * VL, g)
        add_half_block(grouped, wide, mr, nv, w.width, weights, g, low, low + 3 * stride, stride, factor, sums)
    add_block(grouped, mr, nv, w.storage, w.width, b + WEIGHT_BYTES * w.width + SCALE_BYTES * c, a.steps, a.sums,
              stride, sums, results)


cdef inline void add_block_by_groups(const bint grouped, const int mr, const Nibbles* w, const char* b, Py_ssize_t c,
                                     Codes a, Py_ssize_t stride, float* results) noexcept nogil:
    # Do the same for one vector of columns, from c on. The weights of a group are unpacked once for all rows. If they
    # are not INT4's (grouped), `factor` is 1, in both int16 of each lane.
    cdef vx sums[NIBBLE_MR * NV]
    cdef vx weights[4]
    cdef vx word, factor = x_set1(0x10001)
    cdef const char* low = <const char*>a.codes
    cdef int i, g, h
    begin_sums(grouped, mr, 1, w.storage, a.sums, stride, sums)
    for g in range(2):
        for h in range(2):
            word = x_load(b + ((2 * g + h) * w.width + c) * 4)
            weights[2 * h], weights[2 * h + 1] = n_half(word, 0), n_half(word, 1)
        if grouped:
            factor = n_factors(<const unsigned char*>b + WEIGHT_BYTES * w.width + c, g)
        stride = opaque(stride)
        for i in range(mr):
            sums[i * NV] = n_group(sums[i * NV], weights, <const signed char*>row_of(i, low, low + 3 * stride, stride)
                                   + GROUP_DEPTH * g, factor)
    add_block(grouped, mr, 1, w.storage, w.width, b + WEIGHT_BYTES * w.width + SCALE_BYTES * c, a.steps, a.sums, stride,
              sums, results)


cdef inline void nibble_tile(const bint grouped, const bint wide, const int mr, const int nv, Nibbles w, Codes a,
                             Py_ssize_t stride, Py_ssize_t c, float* results) noexcept nogil:
    # results[mr][NR] += the products of mr rows and nv vectors of columns, from column c of a panel on; without the
    # scale of INT4 and without its offsets. grouped: whether the storage is INT4. wide: whether the weights are
    # unpacked. a: of the first row; stride: bytes from one row to the next.
    cdef const char* b = w.panel
    cdef const char* weights
    cdef Py_ssize_t k
    cdef int j
    for k in range(w.blocks):
        if not wide:
            fetch_lines(b + FETCHED, w.step)
        if NIBBLE_GROUPS:
            for j in range(nv):
                add_block_by_groups(grouped, mr, &w, b, c + j * VL, a, stride, results + j * VL)
        else:
            weights = w.wide + k * BLOCK_DEPTH * w.width + 4 * c if wide else b + 4 * c
            add_block_by_steps(grouped, wide, mr, nv, &w, b, c, weights, a, stride, results)
        a.codes += BLOCK_DEPTH
        a.steps += 1
        a.sums += 1
        b += w.step


# The functions below map sizes known at run time to functions compiled for those sizes.

cdef inline void nibble_rows(const bint grouped, const bint wide, int mr, const int nv, Nibbles w, Codes a,
                             Py_ssize_t stride, Py_ssize_t c, float* results) noexcept nogil:
    # An instruction set whose tiles have fewer rows (NIBBLE_MR) does not compile the taller ones.
    if NIBBLE_MR > 5 and mr == 6: nibble_tile(grouped, wide, 6, nv, w, a, stride, c, results)
    elif NIBBLE_MR > 4 and mr == 5: nibble_tile(grouped, wide, 5, nv, w, a, stride, c, results)
    elif mr == 4: nibble_tile(grouped, wide, 4, nv, w, a, stride, c, results)
    elif mr == 3: nibble_tile(grouped, wide, 3, nv, w, a, stride, c, results)
    elif mr == 2: nibble_tile(grouped, wide, 2, nv, w, a, stride, c, results)
    else: nibble_tile(grouped, wide, 1, nv, w, a, stride, c, results)


cdef inline void nibble_panel(const bint grouped, const bint wide, int mr, Nibbles w, Codes a, Py_ssize_t stride,
                              float* results) noexcept nogil:
    # A whole panel is multiplied at once, and the last one, which may be narrower, vector by vector.
    cdef Py_ssize_t c = 0
    if w.width == NR:
        nibble_rows(grouped, wide, mr, NV, w, a, stride, 0, results)
    else:
        while c < w.width:
            nibble_rows(grouped, wide, mr, 1, w, a, stride, c, results + c)
            c += VL


cdef void sum_grouped(int mr, Nibbles w, Codes a, Py_ssize_t stride, float* results) noexcept nogil:
    # INT4, whose weights every tile unpacks anew.
    nibble_panel(True, False, mr, w, a, stride, results)


cdef void sum_scaled(int mr, Nibbles w, Codes a, Py_ssize_t stride, float* results) noexcept nogil:
    # The same for Q4_0 and Q4_1.
    nibble_panel(False, False, mr, w, a, stride, results)


cdef void sum_unpacked_grouped(int mr, Nibbles w, Codes a, Py_ssize_t stride, float* results) noexcept nogil:
    # INT4, whose weights are unpacked once for all rows.
    nibble_panel(True, True, mr, w, a, stride, results)


cdef void sum_unpacked_scaled(int mr, Nibbles w, Codes a, Py_ssize_t stride, float* results) noexcept nogil:
    # The same for Q4_0 and Q4_1.
    nibble_panel(False, True, mr, w, a, stride, results)


cdef void nibble_results(const Linear* y, const short* a, Py_ssize_t stride, const RowRange* ranges, Py_ssize_t M,
                         Py_ssize_t p, int nv, float* results) noexcept nogil:
    # results[M][NR] = the products of M rows and panel p. With many rows, UNPACKED blocks of the panel at a time are
    # unpacked to `wide`, and multiplied by all rows; with few, every tile unpacks what it multiplies.
    cdef char wide[UNPACKED * BLOCK_DEPTH * NR]
    cdef Py_ssize_t blocks = blocks_of(y.K), k = 0
    cdef bint grouped = y.storage == <int>INT4, many = M > PACKED_ROWS and not NIBBLE_GROUPS
    cdef const char* panel = <const char*>y.panels + p * NR * blocks * stored_bytes(y.storage)
    cdef Nibbles w
    cdef Codes rows
    w.storage, w.width, w.step, w.wide = y.storage, nv * VL, bytes_of_block(y.storage) * nv * VL, wide
    memset(results, 0, M * NR * sizeof(float))
    while k < blocks:
        w.panel, w.blocks = panel + k * w.step, min(blocks - k, <Py_ssize_t>UNPACKED) if many else blocks
        if many and grouped: unpack_blocks(True, w.width, w.step, w.blocks, w.panel, wide)
        elif many: unpack_blocks(False, w.width, w.step, w.blocks, w.panel, wide)
        rows = codes_of(<void*>a, blocks)
        rows.codes += k * BLOCK_DEPTH
        rows.steps += k
        rows.sums += k
        add_in_tiles(many, M, w, rows, stride * sizeof(short), results)
        k += w.blocks
    if grouped:
        add_offsets(y, codes_of(<void*>a, blocks).groups, stride, ranges, M, p, nv, panel + blocks * w.step, results)


cdef void add_in_tiles(bint many, Py_ssize_t M, Nibbles w, Codes a, Py_ssize_t stride, float* results) noexcept nogil:
    # Add the products of M rows, `stride` bytes apart, in tiles of nearly equal height. many: whether w is unpacked.
    cdef Py_ssize_t tiles = (M + NIBBLE_MR - 1) // NIBBLE_MR, row = 0, next_row, i
    cdef bint grouped = w.storage == <int>INT4
    cdef Codes rows = a
    cdef int mr
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        mr = <int>(next_row - row)
        rows.codes = a.codes + row * stride
        rows.steps = <float*>(<char*>a.steps + row * stride)
        rows.sums = <int*>(<char*>a.sums + row * stride)
        if grouped and many: sum_unpacked_grouped(mr, w, rows, stride, results + row * NR)
        elif grouped: sum_grouped(mr, w, rows, stride, results + row * NR)
        elif many: sum_unpacked_scaled(mr, w, rows, stride, results + row * NR)
        else: sum_scaled(mr, w, rows, stride, results + row * NR)
        row = next_row


cdef void add_offsets(const Linear* y, const short* groups, Py_ssize_t stride, const RowRange* ranges, Py_ssize_t M,
                      Py_ssize_t p, int nv, const char* offsets, float* results) noexcept nogil:
    # results[M][NR] = scale * results + offset_scale * step * sum over g of o * sum[g]: the last two parts of the
    # formula of INT4. Offsets are multiplied as the weights of integers.pxi are: a block's two groups are a pair. An
    # int32 holds the totals of DEEPEST_OFFSETS steps of depth.
    cdef int totals[INTEGER_ROWS * NR]
    cdef Py_ssize_t depth = blocks_of(y.K) * BLOCK_DEPTH, k = 0, pairs, i
    cdef int j
    cdef vf x
    while k < depth:
        pairs = min(depth - k, <Py_ssize_t>DEEPEST_OFFSETS) // BLOCK_DEPTH
        sum_in_tiles(M, nv, pairs, groups + k // GROUP_DEPTH, stride,
                     offsets + k // BLOCK_DEPTH * OFFSET_BYTES * nv * VL, totals)
        for i in range(M):
            for j in range(nv):
                x = v_load(results + i * NR + j * VL)
                if k == 0:
                    x = v_mul(x, v_load(y.scale + p * NR + j * VL))
                x = v_fma(x_float(x_load(totals + i * NR + j * VL)),
                          v_mul(v_set1(ranges[i].step), v_load(y.offset_scale + p * NR + j * VL)), x)
                v_store(results + i * NR + j * VL, x)
        k += DEEPEST_OFFSETS


cdef void pack_nibbles(const Linear* y, char* panel, Py_ssize_t width, Py_ssize_t c,
                       const unsigned char* row) noexcept nogil:
    # Put a stored row into column c of a panel of this width. A stored block of INT4 begins with its weights, numbers
    # 2i and 2i + 1 in a byte; one of GGUF begins with scales (and minima), and a byte has numbers i and i + 16.
    cdef Py_ssize_t size = bytes_of_block(y.storage), beside = size - WEIGHT_BYTES, blocks = blocks_of(y.K), k
    cdef char* offsets = panel + size * width * blocks
    cdef unsigned char q[BLOCK_DEPTH]
    cdef unsigned char word[4]
    cdef int h, i
    for k in range(blocks):
        for i in range(WEIGHT_BYTES):
            if y.storage == <int>INT4:
                q[2 * i], q[2 * i + 1] = row[i] & 15, row[i] >> 4
            else:
                q[i], q[i + WEIGHT_BYTES] = row[beside + i] & 15, row[beside + i] >> 4
        for h in range(4):
            for i in range(4):
                word[i] = q[8 * h + i] | q[8 * h + 4 + i] << 4
            memcpy(panel + (h * width + c) * 4, word, 4)
        if y.storage == <int>INT4:
            panel[WEIGHT_BYTES * width + c] = row[WEIGHT_BYTES]
            memcpy(offsets + (k * width + c) * OFFSET_BYTES, row + size, OFFSET_BYTES)
        else:
            for i in range(<int>beside // SCALE_BYTES):
                memcpy(panel + WEIGHT_BYTES * width + (i * width + c) * SCALE_BYTES, row + SCALE_BYTES * i, SCALE_BYTES)
        row += stored_bytes(y.storage)
        panel += size * width
