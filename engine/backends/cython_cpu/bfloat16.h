/* Compute products of bfloat16 numbers, which are the upper halves of floats, and add them in float32. Two successive
 * steps of depth, a pair, lie in each 32-bit lane of the weights, the first in the lower half.
 *
 *   section       type of an operand  operations for a pair
 *   AVX512-BF16   bfloat16            one instruction, vdpbf16ps
 *   NEON-BF16     bfloat16            one instruction, bfdot; GEMMs: bfmmla, see below
 *   wide          bfloat16            an emulation of it, so that its layout is tested on any machine
 *   others        float               two FMAs, with weights widened by a shift and a mask
 *
 * On machines without such an instruction the operands stay float32, because rounding them would save no time. */
#pragma once
#include "simd.h"

#if defined(__AVX512BF16__) && !defined(ENGINE_EMULATE_WIDE)

#define PAIR_INSTRUCTION "vdpbf16ps"
enum { HALVES = 1 };
typedef uint16_t operand;
typedef __m512bh vp, vpair;
INLINE vp p_weights(const uint16_t *p, int half) { return (void)half, (vp)_mm512_loadu_si512(p); }
INLINE vpair p_operand(const operand *p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (vpair)_mm512_set1_epi32(pair);
}
INLINE vp p_lanes(vf x) { return (vp)x; }
INLINE vf p_dot(vf sum, vpair x, vp weights) { return _mm512_dpbf16_ps(sum, x, weights); }
INLINE __m256i p_round(vf x) { return (__m256i)_mm512_cvtneps_pbh(x); }
INLINE void p_store(operand *p, vf x) { _mm256_storeu_si256((__m256i *)p, p_round(x)); }
INLINE void p_store_pairs(uint16_t *p, vf first, vf second) {
    /* 32-bit lane i takes numbers i of both halves. */
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(0x10001)), _mm512_set1_epi32(16 << 16));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
}
#define ENGINE_STORE_OPERANDS
INLINE void p_store_line(operand *p, vf first, vf second) {
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(ENGINE_NEON)

#define PAIR_INSTRUCTION "bfdot"
enum { HALVES = 1 };
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

#elif defined(ENGINE_EMULATE_WIDE)

#define PAIR_INSTRUCTION "portable code"
enum { HALVES = 1 };
typedef uint16_t operand;
typedef vi vp, vpair;
INLINE vp p_weights(const uint16_t *p, int half) {
    vp pairs;
    return (void)half, memcpy(&pairs, p, sizeof pairs), pairs;
}
INLINE vpair p_operand(const operand *p) {
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return pair - (vpair){0};
}
INLINE vp p_lanes(vf x) { return (vp)x; }
/* not inlined, to limit the compile time, as d_dot */
static __attribute__((noinline)) vf p_dot(vf sum, vpair x, vp weights) {
    sum = (vf)(x << 16) * (vf)(weights << 16) + sum;
    return (vf)(x & (int32_t)0xffff0000) * (vf)(weights & (int32_t)0xffff0000) + sum;
}
INLINE uint16_t p_round(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40);
}
static __attribute__((noinline)) void p_store(operand *p, vf x) {
    for (int lane = 0; lane < VL; lane++) p[lane] = p_round(x[lane]);
}
static __attribute__((noinline)) void p_store_pairs(uint16_t *p, vf first, vf second) {
    for (int lane = 0; lane < VL; lane++) p[2 * lane] = p_round(first[lane]), p[2 * lane + 1] = p_round(second[lane]);
}

#else

#define PAIR_INSTRUCTION FLOAT_INSTRUCTION " of widened weights"
enum { HALVES = 2 };
typedef float operand;
typedef vf vp;
typedef vfactor vpair;
#if defined(__AVX512F__)
INLINE vp p_weights(const uint16_t *p, int half) {
    __m512i pairs = _mm512_loadu_si512(p);
    return (vp)(half ? _mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xffff0000)) : _mm512_slli_epi32(pairs, 16));
}
#elif defined(__AVX2__)
INLINE vp p_weights(const uint16_t *p, int half) {
    __m256i pairs = _mm256_loadu_si256((const __m256i *)p);
    return (vp)(half ? _mm256_and_si256(pairs, _mm256_set1_epi32((int32_t)0xffff0000)) : _mm256_slli_epi32(pairs, 16));
}
#elif defined(ENGINE_NEON)
INLINE vp p_weights(const uint16_t *p, int half) {
    uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p));
    return v_lanes(half ? vandq_u32(pairs, vdupq_n_u32(0xffff0000)) : vshlq_n_u32(pairs, 16));
}
#else
INLINE vp p_weights(const uint16_t *p, int half) {
    vi pairs;
    memcpy(&pairs, p, sizeof pairs);
    return (vp)(half ? pairs & (int32_t)0xffff0000 : pairs << 16);
}
#endif
INLINE vpair p_operand(const operand *p) { return v_factor(p); }
INLINE vp p_lanes(vf x) { return x; }
INLINE vf p_dot(vf sum, vpair x, vp weights) { return v_add_product(sum, x, weights); }
INLINE void p_store(operand *p, vf x) { v_store(p, x); }
INLINE void p_store_pairs(uint16_t *p, vf first, vf second) { (void)p, (void)first, (void)second; /* never called */ }

#endif

#ifndef QUAD_INSTRUCTION
#define QUAD_INSTRUCTION PAIR_INSTRUCTION
enum { QUADS = 0 }; /* the functions are never called */
typedef vf vq;
typedef vf vquad;
typedef vf vquads;
INLINE vq q_zero(void) { return v_set1(0); }
INLINE vquad q_operands(const operand *p, const operand *next) { return (void)p, (void)next, v_set1(0); }
INLINE vquads q_weights(const uint16_t *p) { return (void)p, v_set1(0); }
INLINE vq q_dot(vq sum, vquad x, vquads weights) { return (void)x, (void)weights, sum; }
INLINE vf q_row(vq sum, int row) { return (void)row, sum; }
#endif

/* How many successive weights of a column of a GEMM lie together. */
enum { WEIGHTS_TOGETHER = QUADS ? 4 : 2 };

#if !defined(ENGINE_STORE_OPERANDS)
INLINE void p_store_line(operand *p, vf first, vf second) { p_store(p, first), p_store(p + VL, second); }
#endif

/* Interleave n numbers of two rows of bfloat16; the second may be NULL, for zeros. */
INLINE void p_zip(const uint16_t *first, const uint16_t *second, uint16_t *to, ptrdiff_t n) {
    if (second)
        for (ptrdiff_t i = 0; i < n; i++) to[2 * i] = first[i], to[2 * i + 1] = second[i];
    else
        for (ptrdiff_t i = 0; i < n; i++) to[2 * i] = first[i], to[2 * i + 1] = 0;
}

/* p_weights: load VL pairs; if HALVES is 2, the first or the second number of each pair. p_operand: load the operand at
 * p, or the pair of operands if HALVES is 1, as p_dot multiplies whole vectors by it. p_lanes: use the lanes of x as
 * weights. p_store: round VL floats half to even, if operands are bfloat16, and store them as operands. p_store_line:
 * the same for two vectors, one after the other. p_store_pairs: round and store VL pairs of weights; only for
 * HALVES = 1.
 *
 * If QUADS is 1, GEMMs take four steps of depth of two rows at a time. q_zero: empty sums of two rows and VL columns.
 * q_operands: load four operands of a row and of the next. q_weights: load [VL][4] weights. q_dot: return sum + the
 * products. q_row: the sums of the first row, 0, or of the second, 1. */
