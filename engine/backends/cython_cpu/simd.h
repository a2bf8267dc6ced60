/* Define a vector of floats, `vf`, with VL lanes, for each instruction set.
 *
 * Kernels (.pxi) are written once with these functions and compiled once per instruction set; the compiler's macros
 * choose the section below. A panel has NR = NV*VL columns, that is NV vectors, and a tile has MR rows. The register
 * file must hold MR*NV accumulators, NV vectors of the panel and one broadcast value. KC is the largest K block: its
 * slice of a panel stays in the L2 cache while a block of rows is multiplied by it.
 *
 *   section    lanes  registers  tile   accumulators  slice of a panel
 *   AVX-512    16     32         6x64   24            1024 x 64 floats = 256 KB
 *   AVX2+FMA    8     16         6x16   12             768 x 16 floats =  48 KB
 *   NEON        4     32         6x16   24             768 x 16 floats =  48 KB
 *   portable    4     16         6x8    12            1024 x  8 floats =  32 KB
 *
 * ENGINE_NEON chooses NEON's section, because every compiler for AArch64 defines its macro, also for portable code.
 * ENGINE_EMULATE_WIDE gives the portable section AVX-512's sizes, so that its tiles can be tested on any machine. */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Indices for __builtin_shufflevector: lane i of both vectors, then lane i+1 of both, and so on. */
#define PAIR(i) (i), (i) + VL
#define PAIRS_4(i) PAIR(i), PAIR((i) + 1)
#define PAIRS_8(i) PAIRS_4(i), PAIRS_4((i) + 2)
#define PAIRS_16(i) PAIRS_8(i), PAIRS_8((i) + 4)
/* Indices of every second lane of both vectors, beginning with lane i. */
#define ALTERNATE_4(i) (i), (i) + 2, (i) + 4, (i) + 6
#define ALTERNATE_8(i) ALTERNATE_4(i), ALTERNATE_4((i) + 8)
#define ALTERNATE_16(i) ALTERNATE_8(i), ALTERNATE_8((i) + 16)

#if defined(__AVX512F__) && !defined(ENGINE_EMULATE_WIDE)
#include <immintrin.h>

#if defined(__AMX_TILE__)
#define ISA_NAME "amx"
#elif defined(__AVX512BF16__)
#define ISA_NAME "avx512bf16"
#elif defined(__AVX512VNNI__)
#define ISA_NAME "avx512vnni"
#else
#define ISA_NAME "avx512"
#endif
enum { VL = 16, NV = 4, MR = 6, KC = 1024 };
#define PAIRS PAIRS_16
#define ALTERNATE ALTERNATE_16
typedef __m512 vf;

INLINE vf v_set1(float x) { return _mm512_set1_ps(x); }
INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
/* v_max, v_min: if either operand is NaN, the result is the second operand. */
INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf v_abs(vf a) { return _mm512_abs_ps(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf v_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE __mmask16 v_mask(int n) { return (__mmask16)((1u << n) - 1); }
INLINE vf v_keep(vf x, int n) { return _mm512_maskz_mov_ps(v_mask(n), x); }
INLINE vf v_loadn(const float *p, int n) { return _mm512_maskz_loadu_ps(v_mask(n), p); }
INLINE void v_storen(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, v_mask(n), x); }
INLINE vf v_and(vf a, vf b) { return _mm512_and_ps(a, b); }
INLINE vf v_or(vf a, vf b) { return _mm512_or_ps(a, b); }
INLINE vf v_select(vf mask, vf a, vf b) {
    return (__m512)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)a, (__m512i)b, 0xca);
}
INLINE vf v_lanes(__mmask16 mask) { return (__m512)_mm512_movm_epi32(mask); }
INLINE vf v_equal(vf a, vf b) { return v_lanes(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)); }
INLINE vf v_less(vf a, vf b) { return v_lanes(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)); }
INLINE vf v_load_mask(const unsigned char *p, int n) {
    __m128i bytes = _mm_maskz_loadu_epi8(v_mask(n), p);
    return v_lanes(_mm_test_epi8_mask(bytes, bytes));
}

#elif defined(__AVX2__) && defined(__FMA__) && !defined(ENGINE_EMULATE_WIDE)
#include <immintrin.h>

#ifdef __AVXVNNI__
#define ISA_NAME "avxvnni"
#else
#define ISA_NAME "avx2"
#endif
enum { VL = 8, NV = 2, MR = 6, KC = 768 };
#define PAIRS PAIRS_8
#define ALTERNATE ALTERNATE_8
typedef __m256 vf;

INLINE vf v_set1(float x) { return _mm256_set1_ps(x); }
INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf v_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf v_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vf v_raise(vf p, vf z) {
    return (__m256)_mm256_add_epi32((__m256i)p, _mm256_slli_epi32((__m256i)z, 23));
}
INLINE __m256i v_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vf v_keep(vf x, int n) { return _mm256_and_ps(x, (__m256)v_mask(n)); }
/* Masked stores are slow, so they are avoided if the compiler knows that n is VL. */
INLINE int v_whole(int n) { return __builtin_constant_p(n) && n == VL; }
INLINE vf v_loadn(const float *p, int n) { return v_whole(n) ? v_load(p) : _mm256_maskload_ps(p, v_mask(n)); }
INLINE void v_storen(float *p, vf x, int n) {
    if (v_whole(n)) v_store(p, x);
    else _mm256_maskstore_ps(p, v_mask(n), x);
}
INLINE vf v_and(vf a, vf b) { return _mm256_and_ps(a, b); }
INLINE vf v_or(vf a, vf b) { return _mm256_or_ps(a, b); }
INLINE vf v_select(vf mask, vf a, vf b) { return _mm256_blendv_ps(b, a, mask); }
INLINE vf v_equal(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
INLINE vf v_less(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE vf v_load_mask(const unsigned char *p, int n) {
    uint64_t bytes = 0;
    if (n == VL) memcpy(&bytes, p, VL);
    else memcpy(&bytes, p, (size_t)n);
    __m256i lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    return (__m256)_mm256_cmpgt_epi32(lanes, _mm256_setzero_si256());
}

#elif defined(ENGINE_NEON)
#include <arm_neon.h>

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define ISA_NAME "neonbf16"
#elif defined(__ARM_FEATURE_DOTPROD)
#define ISA_NAME "neondot"
#else
#define ISA_NAME "neon"
#endif
enum { VL = 4, NV = 4, MR = 6, KC = 768 };
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
INLINE vf v_lanes(uint32x4_t x) { return vreinterpretq_f32_u32(x); }
INLINE vf v_keep(vf x, int n) {
    static const int32_t lanes[] = {0, 1, 2, 3};
    return v_lanes(vandq_u32(v_bits(x), vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(n))));
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
INLINE vf v_and(vf a, vf b) { return v_lanes(vandq_u32(v_bits(a), v_bits(b))); }
INLINE vf v_or(vf a, vf b) { return v_lanes(vorrq_u32(v_bits(a), v_bits(b))); }
INLINE vf v_select(vf mask, vf a, vf b) { return vbslq_f32(v_bits(mask), a, b); }
INLINE vf v_equal(vf a, vf b) { return v_lanes(vceqq_f32(a, b)); }
INLINE vf v_less(vf a, vf b) { return v_lanes(vcltq_f32(a, b)); }
INLINE vf v_load_mask(const unsigned char *p, int n) {
    uint32_t bytes = 0;
    if (n == VL) memcpy(&bytes, p, VL);
    else for (int i = 0; i < n; i++) bytes |= (uint32_t)p[i] << 8 * i;
    uint32x4_t wide = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
    return v_lanes(vtstq_u32(wide, wide));
}

#else
#if defined(ENGINE_EMULATE_WIDE)
#ifdef ENGINE_EMULATE_TILES
#define ISA_NAME "amxemulated"
#else
#define ISA_NAME "wide"
#endif
enum { VL = 16, NV = 4, MR = 6, KC = 1024 };
#define PAIRS PAIRS_16
#define ALTERNATE ALTERNATE_16
#else
#define ISA_NAME "portable"
enum { VL = 4, NV = 2, MR = 6, KC = 1024 };
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
#else
/* These round twice: SSE2 has no fused multiply-add, and contraction is off, so every tile rounds in the same way. */
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
#endif

/* v_split: divide x into the nearest integer n and the rest. v_scale: return p * 2^n, for the n of v_split. AVX-512 has
 * instructions for this. Elsewhere, adding 1.5*2^23 rounds x to an integer, which the low bits of the sum then hold, and
 * v_raise adds them to the exponent of p. Results are the same for -126 <= x <= 127. */
typedef struct { vf n, rest; } v_parts;
#if defined(__AVX512F__) && !defined(ENGINE_EMULATE_WIDE)
INLINE v_parts v_split(vf x) {
    vf rest = _mm512_reduce_ps(x, 0);
    return (v_parts){_mm512_sub_ps(x, rest), rest};
}
INLINE vf v_scale(vf p, vf n) { return _mm512_scalef_ps(p, n); }
#else
INLINE v_parts v_split(vf x) {
    vf magic = v_set1(12582912.0f), n = v_add(x, magic);
    return (v_parts){n, v_sub(x, v_sub(n, magic))};
}
INLINE vf v_scale(vf p, vf n) { return v_raise(p, n); }
#endif

/* A mask is a vector whose lanes are all ones or all zeros. v_equal and v_less (false for NaN) return one. v_load_mask
 * reads n bytes and returns ones where a byte is not zero; lanes from n on are zeros. v_select returns a where the mask
 * is set, otherwise b. */

/* v_factor: load the number that multiplies a vector in v_add_product. v_all: set every lane to that number.
 * v_add_product: return sum + a b in the register of `sum`. It is assembly because gcc, when the steps are unrolled,
 * compiles intrinsics to code that moves sums between registers and spills some of them. */
#if defined(__FMA__) && !defined(ENGINE_EMULATE_WIDE)
#define FLOAT_INSTRUCTION "vfmadd231ps"
typedef vf vfactor;
INLINE vfactor v_factor(const float *p) { return v_set1(*p); }
INLINE vf v_all(vfactor x) { return x; }
INLINE vf v_add_product(vf sum, vfactor a, vf b) {
    __asm__(FLOAT_INSTRUCTION " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
#elif defined(ENGINE_NEON)
/* The factor stays in the first lane, because loading it to all lanes would take a pipe of the multiply-adds. */
#define FLOAT_INSTRUCTION "fmla"
typedef float vfactor;
INLINE vfactor v_factor(const float *p) { return *p; }
INLINE vf v_all(vfactor x) { return v_set1(x); }
INLINE vf v_add_product(vf sum, vfactor a, vf b) {
    __asm__(FLOAT_INSTRUCTION " %0.4s, %2.4s, %1.s[0]" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}
#else
#define FLOAT_INSTRUCTION "portable code"
typedef vf vfactor;
INLINE vfactor v_factor(const float *p) { return v_set1(*p); }
INLINE vf v_all(vfactor x) { return x; }
INLINE vf v_add_product(vf sum, vfactor a, vf b) { return v_fma(a, b, sum); }
#endif

enum { NR = NV * VL, LINE = 16, AHEAD = 512 }; /* LINE: floats in a cache line. AHEAD: prefetch distance in floats. */

/* Load n int8 numbers, or n bfloat16 numbers, and convert them to float; other lanes are zero. */
INLINE vf v_load_int8(const int8_t *p, int n) {
    typedef int8_t narrow __attribute__((vector_size(VL)));
    typedef int32_t wide __attribute__((vector_size(VL * 4)));
    narrow x = {0};
    memcpy(&x, p, (size_t)n);
    return (vf)__builtin_convertvector(__builtin_convertvector(x, wide), vf);
}
INLINE vf v_load_bfloat16(const uint16_t *p, int n) {
    typedef uint16_t narrow __attribute__((vector_size(VL * 2)));
    typedef uint32_t wide __attribute__((vector_size(VL * 4)));
    narrow x = {0};
    memcpy(&x, p, 2 * (size_t)n);
    return (vf)(__builtin_convertvector(x, wide) << 16);
}

/* Return 0, 1, 2, ... */
INLINE vf v_iota(void) {
    float lane[VL];
    for (int i = 0; i < VL; i++) lane[i] = (float)i;
    return v_load(lane);
}

/* v_zip_low and v_zip_high interleave a0 b0 a1 b1 ... the lower or the upper halves of a and b. v_even and v_odd invert
 * that: they return the even or the odd lanes of the two vectors. */
INLINE vf v_zip_low(vf a, vf b) { return __builtin_shufflevector(a, b, PAIRS(0)); }
INLINE vf v_zip_high(vf a, vf b) { return __builtin_shufflevector(a, b, PAIRS(VL / 2)); }
INLINE vf v_even(vf a, vf b) { return __builtin_shufflevector(a, b, ALTERNATE(0)); }
INLINE vf v_odd(vf a, vf b) { return __builtin_shufflevector(a, b, ALTERNATE(1)); }

/* Transpose VL vectors. A round that zips row i with row i + VL/2 rotates the bits of (row, lane) by one place, so that
 * after log2(VL) rounds row and lane are exchanged. */
INLINE void v_transpose(vf *rows) {
    vf zipped[VL];
    for (int round = 1; round < VL; round *= 2) {
        for (int i = 0; i < VL / 2; i++) {
            zipped[2 * i] = v_zip_low(rows[i], rows[i + VL / 2]);
            zipped[2 * i + 1] = v_zip_high(rows[i], rows[i + VL / 2]);
        }
        for (int i = 0; i < VL; i++) rows[i] = zipped[i];
    }
}

/* v_sum: return the sum of the lanes in a fixed order: the upper half is added to the lower half, repeatedly. v_largest:
 * return the largest lane; NaN may be ignored. */
#if defined(__AVX512F__) && !defined(ENGINE_EMULATE_WIDE)
#define V_REDUCE(x, combine)                                                                           \
    __m256 half = _mm256_##combine##_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));      \
    __m128 four = _mm_##combine##_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));    \
    __m128 two = _mm_##combine##_ps(four, _mm_movehl_ps(four, four));                                  \
    return _mm_cvtss_f32(_mm_##combine##_ss(two, _mm_movehdup_ps(two)));
INLINE float v_sum(vf x) { V_REDUCE(x, add) }
INLINE float v_largest(vf x) { V_REDUCE(x, max) }
#else
INLINE float v_sum(vf x) {
    float lane[VL];
    v_store(lane, x);
    for (int half = VL / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}
INLINE float v_largest(vf x) {
    float lane[VL];
    v_store(lane, x);
    for (int i = 1; i < VL; i++) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
    return lane[0];
}
#endif

/* Prefetch the cache line at p into the L1 or the L2 cache. */
INLINE void fetch_near(const char *p) { __builtin_prefetch(p, 0, 3); }
INLINE void fetch_far(const char *p) { __builtin_prefetch(p, 0, 2); }
/* Prefetch the lines that hold `size` bytes from p on, usually one line, into the L2 cache. */
INLINE void fetch_lines(const char *p, ptrdiff_t size) {
    fetch_far(p);
    if (__builtin_expect(size > 4 * LINE, 0))
        for (ptrdiff_t at = 4 * LINE; at < size; at += 4 * LINE) fetch_far(p + at);
}

/* Return x, but hide its value from the compiler, so that it does not compute addresses from it in advance. */
INLINE ptrdiff_t opaque(ptrdiff_t x) { __asm__("" : "+r"(x)); return x; }
