cdef extern from "simd.h" nogil:
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
        KC
        LINE
        AHEAD
    const char* ISA_NAME
    const char* FLOAT_INSTRUCTION
    vf v_set1(float x)
    vf v_load(const float* p)
    vf v_loadn(const float* p, int n)
    void v_store(float* p, vf x)
    void v_storen(float* p, vf x, int n)
    vf v_add(vf a, vf b)
    vf v_sub(vf a, vf b)
    vf v_mul(vf a, vf b)
    vf v_div(vf a, vf b)
    vf v_max(vf a, vf b)
    vf v_min(vf a, vf b)
    vf v_abs(vf a)
    vf v_fma(vf a, vf b, vf c)
    vfactor v_factor(const float* p)
    vf v_all(vfactor x)
    vf v_add_product(vf sum, vfactor a, vf b)
    vf v_fnma(vf a, vf b, vf c)
    v_parts v_split(vf x)
    vf v_scale(vf p, vf n)
    vf v_keep(vf x, int n)
    vf v_and(vf a, vf b)
    vf v_or(vf a, vf b)
    vf v_select(vf mask, vf a, vf b)
    vf v_equal(vf a, vf b)
    vf v_less(vf a, vf b)
    vf v_load_mask(const unsigned char* p, int n)
    vf v_load_int8(const signed char* p, int n)
    vf v_load_bfloat16(const unsigned short* p, int n)
    vf v_iota()
    vf v_zip_low(vf a, vf b)
    vf v_zip_high(vf a, vf b)
    vf v_even(vf a, vf b)
    vf v_odd(vf a, vf b)
    void v_transpose(vf* rows)
    float v_sum(vf x)
    float v_largest(vf x)
    void fetch_near(const char* p)
    void fetch_far(const char* p)
    void fetch_lines(const char* p, Py_ssize_t size)
    Py_ssize_t opaque(Py_ssize_t x)
