# Declare the functions of simd.h, which says what they do. A rule that a caller keeps, or relies on, stands here too.

cdef extern from "simd/simd.h" nogil:
    ctypedef struct vf:
        pass
    ctypedef struct vfactor:
        pass
    ctypedef struct v_parts:
        vf n
        vf rest
    enum:
        VL
        NV
        MR
        NR
        FUSED
        KC
        LINE
        AHEAD
        CELL_VECTORS
        LANES
        LANE_VECTORS
        FEW
    const char* ISA_NAME
    const char* FLOAT_INSTRUCTION
    vf v_set1(float x)
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
    vf v_fma(vf a, vf b, vf c)
    vfactor v_factor(const float* p)
    vf v_all(vfactor x)
    vf v_add_product(vf sum, vfactor a, vf b)
    vf v_fnma(vf a, vf b, vf c)
    v_parts v_split(vf x)  # -126 <= x <= 127
    vf v_scale(vf p, vf n)
    vf v_keep(vf x, int n)
    vf v_and(vf a, vf b)
    vf v_or(vf a, vf b)
    vf v_select(vf mask, vf a, vf b)
    vf v_equal(vf a, vf b)
    vf v_less(vf a, vf b)  # false for NaN
    vf v_load_mask(const unsigned char* p, int n)
    vf v_load_int8(const signed char* p, int n)
    vf v_load_bfloat16(const unsigned short* p, int n)
    vf v_load_half(const unsigned short* p, int second)
    vf v_iota()
    vf v_zip_low(vf a, vf b)
    vf v_zip_high(vf a, vf b)
    vf v_even(vf a, vf b)
    vf v_odd(vf a, vf b)
    void v_transpose(vf* rows)
    float v_sum(vf x)  # the order of the sum depends on VL, so it decides no result; l_sum may
    ctypedef struct v_lanes:
        vf v[1]         # LANE_VECTORS of them
    v_lanes l_zero()
    float l_sum(v_lanes sums)
    int l_count(int n, int j)  # n < LANES
    float v_largest(vf x)  # NaN may be ignored
    void fetch_near(const char* p)
    void fetch_far(const char* p)
    void fetch_lines(const char* p, Py_ssize_t size)
    Py_ssize_t opaque(Py_ssize_t x)  # x; the compiler cannot compute with it in advance

    # bfloat16
    ctypedef struct vp:
        pass
    ctypedef struct vpair:
        pass
    ctypedef int operand
    ctypedef struct vq:
        pass
    ctypedef struct vquad:
        pass
    ctypedef struct vquads:
        pass
    enum:
        PAIR_STEPS
        QUADS
        WEIGHTS_TOGETHER
    const char* QUAD_INSTRUCTION
    const char* WIDENED_INSTRUCTION
    vp p_weights(const unsigned short* p, int half)  # half: of each pair, where PAIR_STEPS is 2
    vpair p_operand(const operand* p)
    vf p_dot(vf sum, vpair x, vp weights)
    vp p_lanes(vf x)
    void p_store(operand* p, vf x)  # rounds half to even where operands are bfloat16
    void p_store_pairs(unsigned short* p, vf first, vf second)  # only where PAIR_STEPS is 1
    void p_store_line(operand* p, vf first, vf second)
    void p_zip(const unsigned short* first, const unsigned short* second, unsigned short* to, Py_ssize_t n)
    vq q_zero()  # these five: only where QUADS is 1
    vquad q_operands(const operand* p, const operand* next)
    vquads q_weights(const unsigned short* p)
    vq q_dot(vq sum, vquad x, vquads weights)
    vf q_row(vq sum, int row)

    # 16-bit integers
    ctypedef struct vx:
        pass
    const char* INTEGER_INSTRUCTION
    int load_32(const void* p)  # from any address
    vx x_set1(int x)
    vx x_load(const void* p)
    void x_store(int* p, vx x)
    vx x_load_int8(const signed char* p)  # 2*VL of them
    vx x_mul16(vx a, vx b)
    vx x_dot(vx sum, vx a, vx b)  # wraps
    vf x_float(vx x)
    vf v_load_float16(const unsigned short* p)  # finite numbers
    void x_store_int16(short* p, vf x)  # numbers in the range of int16

    # weights of 4 bits
    enum:
        NIBBLE_MR
        NIBBLE_GROUPS
    vx n_half(vx words, int i)
    vx n_factors(const unsigned char* p, int i)
    vx n_dot(vx sum, vx weights, vx codes)  # weights up to 225 without NIBBLE_GROUPS, otherwise up to 15
    vx n_group(vx sum, const vx* weights, const signed char* codes, vx factor)
    void x_store_int8(signed char* p, vf x)  # numbers in the range of int8

    # 8-bit integers
    ctypedef struct vd:
        pass
    ctypedef struct vcodes:
        pass
    ctypedef struct vweights:
        pass
    enum:
        DOT
        DOT_STEPS
        DOT_MR
        DOT_ROWS
        DOT_GROUP
        DOT_BOUND
        CODE_ZERO
    const char* DOT_INSTRUCTION
    vd d_start(const float* sums)
    vcodes d_codes(const unsigned char* p, const unsigned char* next)
    vweights d_weights(const signed char* p)
    vd d_dot(vd sum, vcodes codes, vweights weights)
    vf d_float(vd x, int row)  # sums of 0 or more
    void d_store(unsigned char* p, vf x)  # NaN gives any code
    void d_store_line(unsigned char* p, vf a, vf b, vf c, vf d)
