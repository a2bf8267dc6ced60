/* AVX-512: 16 lanes, 32 registers. A tile is 6x64, 24 accumulators; a K block of a panel is 1024 x 64 floats = 256 KB.
 *
 * Variants: with VNNI (vpdpbusd for codes), with BF16 (vdpbf16ps for pairs), and with AMX, whose tiles are in tiles.h.
 * A tile of codes by vpmaddubsw has 24 sums, 2 vectors of codes, 2 of products and one of ones: 29 of 32 registers.
 *
 * simd.pxi says what the functions do. */
#pragma once
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
enum { VL = 16, NV = 4, MR = 6 };
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
    return (__m512)_mm512_ternarylogic_epi32((__m512i)mask, (__m512i)a, (__m512i)b, 0xca); /* a where mask is 1, or b */
}
/* A bit of a mask becomes a lane of ones or zeros. */
INLINE vf v_from_mask(__mmask16 mask) { return (__m512)_mm512_movm_epi32(mask); }
INLINE vf v_equal(vf a, vf b) { return v_from_mask(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)); }
INLINE vf v_less(vf a, vf b) { return v_from_mask(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)); }
#define ENGINE_MASKS
INLINE vf v_mask_of(unsigned bits) { return v_from_mask((__mmask16)bits); }
INLINE unsigned v_bits_of(vf mask) { return _mm512_movepi32_mask((__m512i)mask); }
#define ENGINE_BITS
INLINE unsigned v_bits_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE vf v_select_bits(unsigned bits, vf a, vf b) { return _mm512_mask_blend_ps((__mmask16)bits, b, a); }
/* Lanes are moved inside of a register and then stored: the instruction that does both takes Zen 4 over 100 cycles. */
#define ENGINE_COMPRESS
INLINE int v_store_set(float *p, vf x, unsigned bits) {
    v_store(p, _mm512_maskz_compress_ps((__mmask16)bits, x));
    return __builtin_popcount(bits);
}
INLINE int x_store_set(int32_t *p, int32_t first, unsigned bits) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i places = _mm512_add_epi32(_mm512_set1_epi32(first), lane);
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32((__mmask16)bits, places));
    return __builtin_popcount(bits);
}
INLINE vf v_load_mask(const unsigned char *p, int n) {
    __m128i bytes = _mm_maskz_loadu_epi8(v_mask(n), p);
    return v_from_mask(_mm_test_epi8_mask(bytes, bytes));
}

#define ENGINE_SPLIT
typedef struct { vf n, rest; } v_parts;
INLINE v_parts v_split(vf x) {
    vf rest = _mm512_reduce_ps(x, 0); /* x minus the nearest integer */
    return (v_parts){_mm512_sub_ps(x, rest), rest};
}
INLINE vf v_scale(vf p, vf n) { return _mm512_scalef_ps(p, n); }

/* Combine the upper half of the lanes with the lower half, repeatedly: the order of v_sum in common.h. */
#define ENGINE_REDUCE
#define V_REDUCE(x, combine)                                                                           \
    __m256 half = _mm256_##combine##_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));      \
    __m128 four = _mm_##combine##_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));    \
    __m128 two = _mm_##combine##_ps(four, _mm_movehl_ps(four, four));                                  \
    return _mm_cvtss_f32(_mm_##combine##_ss(two, _mm_movehdup_ps(two)));
INLINE float v_sum(vf x) { V_REDUCE(x, add) }
INLINE float v_largest(vf x) { V_REDUCE(x, max) }

/* Products of 16-bit integers: a vx holds two int16 in each 32-bit lane, or one int32 */

#define ENGINE_INTEGERS
typedef __m512i vx;
INLINE vx x_set1(int32_t x) { return _mm512_set1_epi32(x); }
INLINE vx x_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void x_store(int32_t *p, vx x) { _mm512_storeu_si512(p, x); }
INLINE vx x_load_int8(const int8_t *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vx x_mul16(vx a, vx b) { return _mm512_mullo_epi16(a, b); }
INLINE vf x_float(vx x) { return _mm512_cvtepi32_ps(x); }
INLINE vf v_load_float16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE void x_store_int16(int16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}
INLINE void x_store_int8(int8_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
}
/* n_half: the lower (i = 0) or the upper four bits of every byte. n_factors: those of VL bytes at p, in both int16. */
INLINE vx n_half(vx words, int i) {
    return _mm512_and_si512(i ? _mm512_srli_epi16(words, 4) : words, _mm512_set1_epi8(15));
}
INLINE vx n_factors(const uint8_t *p, int i) {
    vx both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    both = _mm512_or_si512(both, _mm512_slli_epi32(both, 16));
    return _mm512_and_si512(_mm512_srli_epi16(both, 4 * i), _mm512_set1_epi16(15));
}
enum { NIBBLE_MR = MR }; /* the rows of a tile of 4-bit weights */

/* Load n numbers as floats, and below the first or the second bfloat16 number of each pair. */
#define ENGINE_WIDEN
INLINE vf v_load_int8(const int8_t *p, int n) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(v_mask(n), p)));
}
INLINE vf v_load_bfloat16(const uint16_t *p, int n) {
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v_mask(n), p)), 16);
}
INLINE vf v_load_half(const uint16_t *p, int second) {
    __m512i pairs = _mm512_loadu_si512(p);
    return (vf)(second ? _mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xffff0000))
                       : _mm512_slli_epi32(pairs, 16));
}

/* Dot products of codes, the integers from 0 to 255 of a row, and weights in int8; sums in int32 begin with 0 here */

typedef __m512i vd; /* VL int32 sums */
INLINE vd d_start(const float *sums) { return (void)sums, _mm512_setzero_si512(); }
INLINE vf d_float(vd x, int row) { return (void)row, _mm512_cvtepi32_ps(x); }
INLINE void d_store(uint8_t *p, vf x) {
    __m512i whole = _mm512_max_epi32(_mm512_cvtps_epi32(x), _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(whole));
}
INLINE vd d_set1(int32_t x) { return _mm512_set1_epi32(x); }
#define ENGINE_STORE_CODES
INLINE void d_store_line(uint8_t *p, vf a, vf b, vf c, vf d) {
    __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
    /* packs work within 128 bits: four codes of each vector lie together */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}
#ifdef __AVX512VNNI__
#define ENGINE_VPDPBUSD "vpdpbusd"
#define ENGINE_VPDPWSSD "vpdpwssd"
#endif
enum { DOT_MR = MR };
#include "x86.h"

/* Products of bfloat16 numbers, the upper halves of floats. A lane of weights is a pair: two successive steps of depth.
 * vdpbf16ps multiplies whole pairs (PAIR_STEPS = 1); without it, p_weights widens number `half` of each for FMAs. */

#ifdef __AVX512BF16__
#define PAIR_INSTRUCTION "vdpbf16ps"
enum { PAIR_STEPS = 1 };
typedef uint16_t operand;
typedef __m512bh vp, vpair;
INLINE vp p_weights(const uint16_t *p, int half) { return (void)half, (vp)_mm512_loadu_si512(p); }
INLINE vpair p_operand(const operand *p) { return (vpair)_mm512_set1_epi32(load_32(p)); }
INLINE vp p_lanes(vf x) { return (vp)x; }
INLINE vf p_dot(vf sum, vpair x, vp weights) { return _mm512_dpbf16_ps(sum, x, weights); }
INLINE __m256i p_round(vf x) { return (__m256i)_mm512_cvtneps_pbh(x); }
INLINE void p_store(operand *p, vf x) { _mm256_storeu_si256((__m256i *)p, p_round(x)); }
INLINE void p_store_pairs(uint16_t *p, vf first, vf second) {
    /* 32-bit lane i takes numbers i of both halves. */
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i twice = _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x10001));
    const __m512i order = _mm512_add_epi32(twice, _mm512_set1_epi32(16 << 16));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
}
#define ENGINE_STORE_OPERANDS
INLINE void p_store_line(operand *p, vf first, vf second) {
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}
#else
INLINE vf p_weights(const uint16_t *p, int half) {
    __m512i pairs = _mm512_loadu_si512(p);
    return (vf)(half ? _mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xffff0000)) : _mm512_slli_epi32(pairs, 16));
}
#endif
