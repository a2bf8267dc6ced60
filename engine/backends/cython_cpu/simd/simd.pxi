# List the functions of vectors for the kernels; the header that simd.h chooses, or common.h, defines each. Where we say
# nothing, the name says it. In names, v_ stands for floats, l_ for the lanes of a sum, p_ for bfloat16, x_ for 16-bit
# and n_ for 4-bit integers, d_ for codes.

cdef extern from "simd/simd.h" nogil:
    ctypedef struct vf:  # a vector of VL floats
        pass
    ctypedef struct vfactor:  # a number that multiplies a vector in v_add_product
        pass
    ctypedef struct v_parts:  # x = n + rest, n the nearest integer
        vf n
        vf rest
    enum:
        VL  # floats of a vector
        NV  # vectors of a panel
        MR  # the most rows of a tile
        NR  # NV*VL, the columns of a panel
        FUSED  # 1 if v_fma and v_add_product round once
        KC  # the largest K block of float32 steps, after which sums begin anew
        LINE  # floats of a cache line
        AHEAD  # floats that a plain loop prefetches ahead
        CELL_VECTORS  # vectors of one number of the CELL tokens of a cell
        LANES  # partial sums of the sum of a row, 16 everywhere
        LANE_VECTORS  # vectors that hold them
        FEW  # the most queries of a tile over a cell
    const char* ISA_NAME  # of the instruction set
    const char* FLOAT_INSTRUCTION  # of v_add_product; such names are macros
    vf v_set1(float x)  # x in every lane
    vf v_load(const float* p)
    vf v_loadn(const float* p, int n)  # the lanes from n on are zeros, here and below
    void v_store(float* p, vf x)
    void v_storen(float* p, vf x, int n)
    vf v_add(vf a, vf b)
    vf v_sub(vf a, vf b)
    vf v_mul(vf a, vf b)
    vf v_div(vf a, vf b)
    vf v_max(vf a, vf b)  # b where either is NaN, here and in v_min
    vf v_min(vf a, vf b)
    vf v_abs(vf a)
    vf v_fma(vf a, vf b, vf c)  # a b + c
    vfactor v_factor(const float* p)  # loads the number
    vf v_all(vfactor x)  # x in every lane
    vf v_add_product(vf sum, vfactor a, vf b)  # sum + a b
    vf v_fnma(vf a, vf b, vf c)  # c - a b
    v_parts v_split(vf x)  # -126 <= x <= 127
    vf v_scale(vf p, vf n)  # p 2^n, n from v_split
    vf v_keep(vf x, int n)  # zeros from lane n on
    vf v_and(vf a, vf b)
    vf v_or(vf a, vf b)
    vf v_select(vf mask, vf a, vf b)  # a where the mask is set, otherwise b
    vf v_equal(vf a, vf b)  # a mask: lanes of ones or zeros, here and in v_less
    vf v_less(vf a, vf b)  # false for NaN
    vf v_load_mask(const unsigned char* p, int n)  # ones where one of n bytes is not 0
    vf v_mask_of(unsigned int bits)  # ones in lane i where bit i is set; v_bits_of returns the bits of a mask
    unsigned int v_bits_of(vf mask)
    unsigned int v_bits_less(vf a, vf b)  # the bits of v_less
    vf v_select_bits(unsigned int bits, vf a, vf b)  # a where the bit is set, otherwise b
    int first_bit(unsigned int bits)  # the place of the lowest bit that is set; one is
    int v_store_set(float* p, vf x, unsigned int bits)  # the lanes whose bit is set; how many; VL numbers may change
    int x_store_set(int* p, int first, unsigned int bits)  # the same of first, first + 1, ...
    float load_shared(const float* p)  # a number that threads share without a lock
    void store_shared(float* p, float x)
    vf v_load_int8(const signed char* p, int n)
    vf v_load_bfloat16(const unsigned short* p, int n)
    vf v_load_half(const unsigned short* p, int second)  # of VL pairs of bfloat16 numbers
    vf v_iota()  # 0, 1, 2, ...
    vf v_zip_low(vf a, vf b)  # a0 b0 a1 b1 ...; v_zip_high does it with the upper halves
    vf v_zip_high(vf a, vf b)
    vf v_even(vf a, vf b)  # lanes 0, 2, ... of a, then of b; v_odd the others
    vf v_odd(vf a, vf b)
    void v_transpose(vf* rows)  # VL of them
    float v_sum(vf x)  # the order of the sum depends on VL, so it decides no result; l_sum may
    ctypedef struct v_lanes:
        vf v[1]         # LANE_VECTORS of them
    v_lanes l_zero()  # LANES partial sums of 0
    float l_sum(v_lanes sums)  # their sum, with the same bits on all sets
    int l_count(int n, int j)  # n < LANES
    float v_largest(vf x)  # NaN may be ignored
    void fetch_near(const char* p)  # prefetches a line into the L1 cache, fetch_far into the L2 cache
    void fetch_far(const char* p)
    void fetch_lines(const char* p, Py_ssize_t size)  # those of `size` bytes, into the L2 cache
    Py_ssize_t opaque(Py_ssize_t x)  # x; the compiler cannot compute with it in advance

    # bfloat16 numbers are the upper halves of floats. Their products are added in float32. Two successive steps of
    # depth, a pair, lie in each 32-bit lane of the weights, the first in the lower half.
    ctypedef struct vp:  # weights
        pass
    ctypedef struct vpair:  # an operand, or a pair of them, for p_dot
        pass
    ctypedef int operand  # bfloat16 where PAIR_STEPS is 1, otherwise float32
    ctypedef struct vq:  # sums of q_dot
        pass
    ctypedef struct vquad:  # its operands
        pass
    ctypedef struct vquads:  # its weights
        pass
    enum:
        PAIR_STEPS  # calls of p_dot for a pair, two successive steps of depth
        QUADS  # 1 if q_dot multiplies two rows by two columns
        WEIGHTS_TOGETHER  # successive weights of a column, 4 with QUADS, otherwise 2
    const char* QUAD_INSTRUCTION  # of q_dot, or of p_dot without QUADS
    const char* WIDENED_INSTRUCTION  # of products with widened weights
    vp p_weights(const unsigned short* p, int half)  # VL pairs; half: of each pair, where PAIR_STEPS is 2
    vpair p_operand(const operand* p)  # the operand at p, or the pair of them, as p_dot multiplies vectors by it
    vf p_dot(vf sum, vpair x, vp weights)  # sum + the products
    vp p_lanes(vf x)  # any bits used as weights, to measure how fast p_dot is
    void p_store(operand* p, vf x)  # rounds half to even where operands are bfloat16
    void p_store_pairs(unsigned short* p, vf first, vf second)  # only where PAIR_STEPS is 1
    void p_store_line(operand* p, vf first, vf second)  # p_store of two vectors
    void p_zip(const unsigned short* first, const unsigned short* second, unsigned short* to, Py_ssize_t n)  # pairs
    vq q_zero()  # sums of two rows and VL columns; these five only where QUADS is 1
    vquad q_operands(const operand* p, const operand* next)  # four of a row and of the next
    vquads q_weights(const unsigned short* p)  # [VL][4]
    vq q_dot(vq sum, vquad x, vquads weights)  # sum + the products
    vf q_row(vq sum, int row)  # the sums of the first row, 0, or of the second, 1

    # 16-bit integers. Sums are int32.
    ctypedef struct vx:  # VL int32, or 2*VL int16
        pass
    const char* INTEGER_INSTRUCTION  # of x_dot
    int load_32(const void* p)  # from any address
    vx x_set1(int x)
    vx x_load(const void* p)
    void x_store(int* p, vx x)
    vx x_load_int8(const signed char* p)  # 2*VL of them, widened to int16
    vx x_mul16(vx a, vx b)  # lower halves of the products of int16
    vx x_dot(vx sum, vx a, vx b)  # sum + both products of each lane; wraps
    vf x_float(vx x)
    vf v_load_float16(const unsigned short* p)  # finite numbers
    void x_store_int16(short* p, vf x)  # rounds numbers in the range of int16 to the nearest integers

    # weights of 4 bits, which are multiplied by codes from -127 to 127, four of each in a lane of a vx
    enum:
        NIBBLE_MR  # the most rows of a tile
        NIBBLE_GROUPS  # 1 if tiles multiply 16 steps of depth by n_group, 0 if 4 by n_dot
    vx n_half(vx words, int i)  # the lower (i = 0) or the upper four bits of every byte
    vx n_factors(const unsigned char* p, int i)  # the same of VL bytes, each in both int16 of its lane
    # sum + the four products of each lane; weights up to 15, or without NIBBLE_GROUPS, times their factor, up to 225
    vx n_dot(vx sum, vx weights, vx codes)
    vx n_group(vx sum, const vx* weights, const signed char* codes, vx factor)  # factor times 16 products, added to sum
    void x_store_int8(signed char* p, vf x)  # the same in the range of int8

    # 8-bit integers, DOT steps of depth at a time. Codes are from 0 to 255, weights from -127 to 127. Sums are int32,
    # and no instruction saturates.
    ctypedef struct vd:  # int32 sums of DOT_ROWS rows and VL columns
        pass
    ctypedef struct vcodes:
        pass
    ctypedef struct vweights:
        pass
    enum:
        DOT  # steps of depth that d_dot multiplies
        DOT_STEPS  # calls of d_dot in a turn of a tile's loop
        DOT_MR  # the most rows of a tile
        DOT_ROWS  # rows that d_dot multiplies, 1 or 2
        DOT_GROUP  # successive weights of a column that lie together
        DOT_BOUND  # 1 if products are added in int16, so that weights need a bound (x86.h)
        CODE_ZERO  # the byte that stands for the code 0; codes count up from it, modulo 256
    const char* DOT_INSTRUCTION  # of d_dot
    vd d_start(const float* sums)  # sums before the first product; `sums`: of the columns' weights
    vcodes d_codes(const unsigned char* p, const unsigned char* next)  # of a row, and of the next one if DOT_ROWS is 2
    vweights d_weights(const signed char* p)  # [DOT/DOT_GROUP][VL][DOT_GROUP]
    vd d_dot(vd sum, vcodes codes, vweights weights)  # sum + the products
    vf d_float(vd x, int row)  # sums of 0 or more
    void d_store(unsigned char* p, vf x)  # rounds to the nearest codes; NaN gives any code
    void d_store_line(unsigned char* p, vf a, vf b, vf c, vf d)
