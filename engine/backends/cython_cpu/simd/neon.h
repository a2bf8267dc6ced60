/* NEON: 4 lanes, 32 registers. A tile is 6x16, 24 accumulators; a K block of a panel is 1024 x 16 floats = 64 KB.
 *
 * Variants: with dot products of codes (sdot); with matrix products of codes and of bfloat16 (smmla, bfmmla, bfdot).
 *
 * The instructions multiply signed by signed bytes. So rows hold the signed byte code - CODE_ZERO, CODE_ZERO being 128,
 * and sums begin with 128 times the sum of a column's weights, so that they end as the same integers.
 *
 * simd.pxi says what the functions do. */
#pragma once
#include <arm_neon.h>

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define ISA_NAME "neonbf16"
#elif defined(__ARM_FEATURE_DOTPROD)
#define ISA_NAME "neondot"
#else
#define ISA_NAME "neon"
#endif
enum { VL = 4, NV = 4, MR = 6 };
#define PAIRS PAIRS_4
#define ALTERNATE ALTERNATE_4
typedef float32x4_t vf;

INLINE vf v_set1(float x) { return vdupq_n_f32(x); }
INLINE vf v_load(const float *p) { return vld1q_f32(p); }
INLINE void v_store(float *p, vf x) { vst1q_f32(p, x); }
INLINE vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
/* Compare and select: fmax and fmin would return NaN if the first operand is NaN. */
INLINE vf v_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE vf v_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
INLINE vf v_abs(vf a) { return vabsq_f32(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf v_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
INLINE vf v_raise(vf p, vf z) {
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vreinterpretq_s32_f32(z), 23)));
}
INLINE uint32x4_t v_bits(vf x) { return vreinterpretq_u32_f32(x); }
INLINE vf v_from_bits(uint32x4_t x) { return vreinterpretq_f32_u32(x); }
INLINE vf v_keep(vf x, int n) {
    static const int32_t lanes[] = {0, 1, 2, 3};
    return v_from_bits(vandq_u32(v_bits(x), vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(n))));
}
/* There are no masked loads and stores. Up to three numbers are loaded as a pair and a single one. */
INLINE vf v_loadn(const float *p, int n) {
    vf x = vdupq_n_f32(0);
    if (n >= VL) return v_load(p);
    if (n & 2) {
        x = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
        if (n & 1) x = vld1q_lane_f32(p + 2, x, 2);
    } else if (n & 1) {
        x = vld1q_lane_f32(p, x, 0);
    }
    return x;
}
INLINE void v_storen(float *p, vf x, int n) {
    if (n >= VL) {
        v_store(p, x);
    } else if (n & 2) {
        vst1_f32(p, vget_low_f32(x));
        if (n & 1) vst1q_lane_f32(p + 2, x, 2);
    } else if (n & 1) {
        vst1q_lane_f32(p, x, 0);
    }
}
INLINE vf v_and(vf a, vf b) { return v_from_bits(vandq_u32(v_bits(a), v_bits(b))); }
INLINE vf v_or(vf a, vf b) { return v_from_bits(vorrq_u32(v_bits(a), v_bits(b))); }
INLINE vf v_select(vf mask, vf a, vf b) { return vbslq_f32(v_bits(mask), a, b); }
INLINE vf v_equal(vf a, vf b) { return v_from_bits(vceqq_f32(a, b)); }
INLINE vf v_less(vf a, vf b) { return v_from_bits(vcltq_f32(a, b)); }
INLINE vf v_load_mask(const unsigned char *p, int n) {
    uint32_t bytes = 0;
    if (n == VL) memcpy(&bytes, p, VL);
    else for (int i = 0; i < n; i++) bytes |= (uint32_t)p[i] << 8 * i;
    uint32x4_t wide = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
    return v_from_bits(vtstq_u32(wide, wide));
}

/* The factor stays in the first lane, because loading it to all lanes would take a pipe of the multiply-adds. */
#define FLOAT_INSTRUCTION "fmla"
typedef float vfactor;
INLINE vfactor v_factor(const float *p) { return *p; }
INLINE vf v_all(vfactor x) { return v_set1(x); }
INLINE vf v_add_product(vf sum, vfactor a, vf b) {
    __asm__(FLOAT_INSTRUCTION " %0.4s, %2.4s, %1.s[0]" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}

/* Dot products of codes, the integers from 0 to 255 of a row, and weights in int8. d_store writes code - 128. */

INLINE void d_store(uint8_t *p, vf x) {
    int16x4_t whole = vqmovn_s32(vcvtnq_s32_f32(x));    /* narrowing saturates */
    uint8x8_t codes = vqmovun_s16(vcombine_s16(whole, whole));
    uint32_t four = vget_lane_u32(vreinterpret_u32_u8(veor_u8(codes, vdup_n_u8(128))), 0);
    memcpy(p, &four, sizeof four);
}
/* Return 128 times the sums of VL columns; they are integers. */
INLINE int32x4_t d_offset(const float *sums) { return vshlq_n_s32(vcvtq_s32_f32(v_load(sums)), 7); }

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* smmla multiplies two rows by two columns over eight steps of depth. */
#define DOT_INSTRUCTION "smmla"
enum { DOT = 8, DOT_MR = MR, DOT_STEPS = 2, DOT_ROWS = 2, DOT_GROUP = 8, DOT_BOUND = 0, CODE_ZERO = 128 };
typedef struct {
    int32x4_t low, high; /* columns 0 and 1 of the first row, then of the second; and columns 2 and 3 */
} vd;
INLINE vd d_start(const float *sums) { /* the same for both rows */
    int64x2_t offset = vreinterpretq_s64_s32(d_offset(sums));
    return (vd){vreinterpretq_s32_s64(vdupq_laneq_s64(offset, 0)), vreinterpretq_s32_s64(vdupq_laneq_s64(offset, 1))};
}
INLINE vf d_float(vd x, int row) {
    int64x2_t low = vreinterpretq_s64_s32(x.low), high = vreinterpretq_s64_s32(x.high);
    return vcvtq_f32_s32(vreinterpretq_s32_s64(row ? vzip2q_s64(low, high) : vzip1q_s64(low, high)));
}
typedef int8x16_t vcodes;
typedef int8x16x2_t vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) {
    return vreinterpretq_s8_u8(vcombine_u8(vld1_u8(p), vld1_u8(next)));
}
INLINE vweights d_weights(const int8_t *p) { return (vweights){{vld1q_s8(p), vld1q_s8(p + 16)}}; }
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum.low) : "w"(codes), "w"(weights.val[0]));
    __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum.high) : "w"(codes), "w"(weights.val[1]));
    return sum;
}

#elif defined(__ARM_FEATURE_DOTPROD)

#define DOT_INSTRUCTION "sdot"
enum { DOT = 4, DOT_MR = MR, DOT_STEPS = 4, DOT_ROWS = 1, DOT_GROUP = 4, DOT_BOUND = 0, CODE_ZERO = 128 };
typedef int32x4_t vd;
INLINE vd d_start(const float *sums) { return d_offset(sums); }
INLINE vf d_float(vd x, int row) { return (void)row, vcvtq_f32_s32(x); }
typedef float vcodes; /* four codes, not a number; they stay in the first lane, as v_factor's number */
typedef int8x16_t vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) {
    vcodes codes;
    memcpy(&codes, p, sizeof codes);
    return (void)next, codes;
}
INLINE vweights d_weights(const int8_t *p) { return vld1q_s8(p); }
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    __asm__("sdot %0.4s, %2.16b, %1.4b[0]" : "+w"(sum) : "w"(codes), "w"(weights));
    return sum;
}

#else

/* Two products of -128 to 127 and -127 to 127, at most 32,512, are added in int16. A tile has 2 rows: 16 sums, 4
 * vectors of codes, 2 of weights and 2 of products are 24 of 32 registers. */
#define DOT_INSTRUCTION "smlal"
enum { DOT = 16, DOT_MR = 2, DOT_STEPS = 1, DOT_ROWS = 1, DOT_GROUP = 4, DOT_BOUND = 0, CODE_ZERO = 128 };
typedef struct {
    int32x4_t low, high; /* the sum of lane i is low[2i] + low[2i+1], of lane i + 2 that of high */
} vd;
INLINE vd d_start(const float *sums) {
    int32x4_t offset = d_offset(sums), zero = vdupq_n_s32(0);
    return (vd){vzip1q_s32(offset, zero), vzip2q_s32(offset, zero)};
}
INLINE vf d_float(vd x, int row) { return (void)row, vcvtq_f32_s32(vpaddq_s32(x.low, x.high)); }
typedef struct {
    int8x16_t four[4]; /* each has four codes in every lane */
} vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) {
    (void)next;
    int32x4_t codes = vreinterpretq_s32_u8(vld1q_u8(p));
    return (vcodes){{
        vreinterpretq_s8_s32(vdupq_laneq_s32(codes, 0)), vreinterpretq_s8_s32(vdupq_laneq_s32(codes, 1)),
        vreinterpretq_s8_s32(vdupq_laneq_s32(codes, 2)), vreinterpretq_s8_s32(vdupq_laneq_s32(codes, 3)),
    }};
}
INLINE vweights d_weights(const int8_t *p) { return p; }
/* Load two vectors of weights, each with four steps of depth for four columns; add both products in int16, and then
 * neighbours of these sums to int32. */
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    for (int i = 0; i < 4; i += 2) {
        int8x16_t first, second;
        int16x8_t low, high;
        __asm__("ldp %q2, %q3, [%6]\n\t"
                "smull %4.8h, %2.8b, %7.8b\n\t"
                "smull2 %5.8h, %2.16b, %7.16b\n\t"
                "smlal %4.8h, %3.8b, %8.8b\n\t"
                "smlal2 %5.8h, %3.16b, %8.16b\n\t"
                "sadalp %0.4s, %4.8h\n\t"
                "sadalp %1.4s, %5.8h"
                : "+w"(sum.low), "+w"(sum.high), "=&w"(first), "=&w"(second), "=&w"(low), "=&w"(high)
                : "r"(weights + 4 * VL * i), "w"(codes.four[i]), "w"(codes.four[i + 1]));
    }
    return sum;
}

#endif

/* Products of bfloat16 numbers, the upper halves of floats. A lane of weights is a pair: two successive steps of depth.
 * bfdot multiplies whole pairs (PAIR_STEPS = 1); without it, p_weights widens number `half` of each pair for FMAs. */

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define PAIR_INSTRUCTION "bfdot"
enum { PAIR_STEPS = 1 };
typedef uint16_t operand;
typedef uint16x8_t vp;
typedef float vpair; /* two operands, not a number; it stays in the first lane, as v_factor's number */
INLINE vp p_weights(const uint16_t *p, int half) { return (void)half, vld1q_u16(p); }
INLINE vpair p_operand(const operand *p) {
    vpair pair;
    memcpy(&pair, p, sizeof pair);
    return pair;
}
INLINE vp p_lanes(vf x) { return vreinterpretq_u16_f32(x); }
INLINE vf p_dot(vf sum, vpair x, vp weights) {
    __asm__("bfdot %0.4s, %2.8h, %1.2h[0]" : "+w"(sum) : "w"(x), "w"(weights));
    return sum;
}
INLINE uint16x4_t p_round(vf x) { return vreinterpret_u16_bf16(vcvt_bf16_f32(x)); }
INLINE void p_store(operand *p, vf x) { vst1_u16(p, p_round(x)); }
INLINE void p_store_pairs(uint16_t *p, vf first, vf second) {
    uint16x4x2_t halves = {{p_round(first), p_round(second)}};
    vst2_u16(p, halves);
}

/* bfmmla multiplies two rows by two columns, four steps of depth at a time, with the bits of two bfdot. */
#define QUAD_INSTRUCTION "bfmmla"
enum { QUADS = 1 };
typedef struct {
    vf low, high; /* columns 0 and 1 of the first row, then of the second; and columns 2 and 3 */
} vq;
typedef uint16x8_t vquad;
typedef uint16x8x2_t vquads;
INLINE vq q_zero(void) { return (vq){vdupq_n_f32(0), vdupq_n_f32(0)}; }
INLINE vquad q_operands(const operand *p, const operand *next) { return vcombine_u16(vld1_u16(p), vld1_u16(next)); }
INLINE vquads q_weights(const uint16_t *p) { return (vquads){{vld1q_u16(p), vld1q_u16(p + 8)}}; }
INLINE vq q_dot(vq sum, vquad x, vquads weights) {
    __asm__("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum.low) : "w"(x), "w"(weights.val[0]));
    __asm__("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum.high) : "w"(x), "w"(weights.val[1]));
    return sum;
}
INLINE vf q_row(vq sum, int row) {
    float64x2_t low = vreinterpretq_f64_f32(sum.low), high = vreinterpretq_f64_f32(sum.high);
    return vreinterpretq_f32_f64(row ? vzip2q_f64(low, high) : vzip1q_f64(low, high));
}
#else
INLINE vf p_weights(const uint16_t *p, int half) {
    uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p));
    return v_from_bits(half ? vandq_u32(pairs, vdupq_n_u32(0xffff0000)) : vshlq_n_u32(pairs, 16));
}
#endif
