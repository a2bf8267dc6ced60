/* Portable code, with vectors of the compiler: 4 lanes, and 16 registers are enough. A tile is 6x8, 12 accumulators; a
 * K block of a panel is 1024 x 8 floats = 32 KB.
 *
 * With ENGINE_EMULATE_WIDE, sizes and layouts are AVX-512's with VNNI and BF16, so that any machine can test them;
 * ENGINE_EMULATE_TILES adds AMX's tiles (tiles.h). */
#pragma once

#if defined(ENGINE_EMULATE_WIDE)
#ifdef ENGINE_EMULATE_TILES
#define ISA_NAME "amxemulated"
#else
#define ISA_NAME "wide"
#endif
enum { VL = 16, NV = 4, MR = 6 };
#define PAIRS PAIRS_16
#define ALTERNATE ALTERNATE_16
#else
#define ISA_NAME "baseline"
enum { VL = 4, NV = 2, MR = 6 };
#define PAIRS PAIRS_4
#define ALTERNATE ALTERNATE_4
#endif
typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef uint8_t vb __attribute__((vector_size(VL)));

INLINE vf v_set1(float x) { return x - (vf){0}; }
INLINE vf v_load(const float *p) { vf x; memcpy(&x, p, sizeof x); return x; }
INLINE void v_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
INLINE vf v_add(vf a, vf b) { return a + b; }
INLINE vf v_sub(vf a, vf b) { return a - b; }
INLINE vf v_mul(vf a, vf b) { return a * b; }
INLINE vf v_div(vf a, vf b) { return a / b; }
INLINE vf v_and(vf a, vf b) { return (vf)((vi)a & (vi)b); }
INLINE vf v_or(vf a, vf b) { return (vf)((vi)a | (vi)b); }
INLINE vf v_select(vf mask, vf a, vf b) { return (vf)(((vi)mask & (vi)a) | (~(vi)mask & (vi)b)); }
INLINE vf v_equal(vf a, vf b) { return (vf)(a == b); }
INLINE vf v_less(vf a, vf b) { return (vf)(a < b); }
INLINE vf v_max(vf a, vf b) { return v_select(v_less(b, a), a, b); }
INLINE vf v_min(vf a, vf b) { return v_select(v_less(a, b), a, b); }
INLINE vf v_abs(vf a) { return (vf)((vi)a & 0x7fffffff); }
#if defined(__aarch64__) && !defined(ENGINE_EMULATE_WIDE)
#include <arm_neon.h>
INLINE vf v_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE vf v_fnma(vf a, vf b, vf c) { return (vf)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#elif defined(__FMA__)
#include <immintrin.h>
/* Where the CPU has FMA, setup.py compiles the sets for tests with it: they then have the bits that they emulate. */
INLINE vf v_fma(vf a, vf b, vf c) {
    for (int i = 0; i < VL; i += 8) {
        __m256 sum = _mm256_fmadd_ps(_mm256_loadu_ps((float *)&a + i), _mm256_loadu_ps((float *)&b + i),
                                     _mm256_loadu_ps((float *)&c + i));
        _mm256_storeu_ps((float *)&c + i, sum);
    }
    return c;
}
INLINE vf v_fnma(vf a, vf b, vf c) { return v_fma(-a, b, c); }
#else
#define ENGINE_ROUNDS_TWICE
/* SSE2 has no fused multiply-add, and contraction is off, so every tile rounds in the same way. */
INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf v_fnma(vf a, vf b, vf c) { return c - a * b; }
#endif
INLINE vf v_raise(vf p, vf z) { return (vf)((vu)p + ((vu)z << 23)); }
INLINE vf v_keep(vf x, int n) {
    vi mask;
    for (int i = 0; i < VL; i++) mask[i] = -(i < n);
    return (vf)((vi)x & mask);
}
INLINE vf v_loadn(const float *p, int n) { vf x = {0}; memcpy(&x, p, 4 * (size_t)n); return x; }
INLINE void v_storen(float *p, vf x, int n) { memcpy(p, &x, 4 * (size_t)n); }
INLINE vf v_load_mask(const unsigned char *p, int n) {
    vb bytes = {0};
    if (n == VL) memcpy(&bytes, p, VL);
    else memcpy(&bytes, p, (size_t)n);
    return (vf)(__builtin_convertvector(bytes, vi) != 0);
}

#ifdef __FMA__
#define FLOAT_INSTRUCTION "vfmadd231ps"
#else
#define FLOAT_INSTRUCTION "portable code"
#endif
typedef vf vfactor;
INLINE vfactor v_factor(const float *p) { return v_set1(*p); }
INLINE vf v_all(vfactor x) { return x; }
INLINE vf v_add_product(vf sum, vfactor a, vf b) { return v_fma(a, b, sum); }

/* Dot products of codes, by lanes of int32 in the layout of AVX-512's VNNI, so that `wide` tests that layout. */

#define DOT_INSTRUCTION "portable code"
enum { DOT = 4, DOT_MR = MR, DOT_STEPS = 4, DOT_ROWS = 1, DOT_GROUP = 4, DOT_BOUND = 0, CODE_ZERO = 0 };
typedef struct {
    vi sums;
    uint8_t codes[4 * VL];
} vd;
INLINE vd d_start(const float *sums) { return (void)sums, (vd){0}; }
INLINE vf d_float(vd x, int row) { return (void)row, __builtin_convertvector(x.sums, vf); }
INLINE void d_store(uint8_t *p, vf x) {
    for (int lane = 0; lane < VL; lane++) {
        float rounded = rintf(x[lane]);
        p[lane] = rounded > 0 ? rounded < 255 ? (uint8_t)rounded : 255 : 0;
    }
}
INLINE vd d_set1(int32_t x) {
    vd all;
    for (int lane = 0; lane < VL; lane++) memcpy(all.codes + 4 * lane, &x, sizeof x);
    return all;
}
typedef vd vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) { return (void)next, d_set1(load_32(p)); }
INLINE vweights d_weights(const int8_t *p) { return p; }
#ifdef ENGINE_EMULATE_WIDE
static __attribute__((noinline)) /* not inlined: gcc needs more than a minute to compile 24 inlined copies */
#else
INLINE
#endif
vd d_dot(vd sum, vcodes codes, vweights weights) {
    vi four_codes, four;
    memcpy(&four_codes, codes.codes, sizeof four_codes), memcpy(&four, weights, sizeof four);
    for (int i = 0; i < 32; i += 8) sum.sums += (four_codes >> i & 255) * (four << (24 - i) >> 24);
    return sum;
}

/* Products of bfloat16 numbers, the upper halves of floats; a lane of weights is a pair of steps of depth. `wide`
 * emulates vdpbf16ps, so that its layout is tested on any machine; elsewhere number `half` of each pair is widened. */

#ifdef ENGINE_EMULATE_WIDE
#define PAIR_INSTRUCTION "portable code"
enum { PAIR_STEPS = 1 };
typedef uint16_t operand;
typedef vi vp, vpair;
INLINE vp p_weights(const uint16_t *p, int half) {
    vp pairs;
    return (void)half, memcpy(&pairs, p, sizeof pairs), pairs;
}
INLINE vpair p_operand(const operand *p) { return load_32(p) - (vpair){0}; }
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
INLINE vf p_weights(const uint16_t *p, int half) {
    vi pairs;
    memcpy(&pairs, p, sizeof pairs);
    return (vf)(half ? pairs & (int32_t)0xffff0000 : pairs << 16);
}
#endif
