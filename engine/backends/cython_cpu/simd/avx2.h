/* AVX2 with FMA: 8 lanes, 16 registers. A tile is 6x16, 12 accumulators; a K block of a panel has 1024 x 16 floats,
 * 64 KB. The variant with AVX-VNNI has vpdpbusd for codes. A tile of codes by vpmaddubsw has 5 rows: 10 sums, 2 vectors
 * of codes, 2 of products and one of ones are 15 of 16 registers.
 *
 * simd.pxi says what the functions do. */
#pragma once
#include <immintrin.h>

#ifdef __AVXVNNI__
#define ISA_NAME "avxvnni"
#else
#define ISA_NAME "avx2"
#endif
enum { VL = 8, NV = 2, MR = 6 };
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
/* Add the low bits of z to the exponent of p, which begins at bit 23. */
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
#define ENGINE_MASKS
INLINE vf v_mask_of(unsigned bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return (__m256)_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane);
}
INLINE unsigned v_bits_of(vf mask) { return (unsigned)_mm256_movemask_ps(mask); }
INLINE vf v_load_mask(const unsigned char *p, int n) {
    uint64_t bytes = 0;
    if (n == VL) memcpy(&bytes, p, VL);
    else memcpy(&bytes, p, (size_t)n);
    __m256i lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    return (__m256)_mm256_cmpgt_epi32(lanes, _mm256_setzero_si256());
}

/* Products of 16-bit integers: a vx holds two of them in each 32-bit lane, or one int32 */

#define ENGINE_INTEGERS
typedef __m256i vx;
INLINE vx x_set1(int32_t x) { return _mm256_set1_epi32(x); }
INLINE vx x_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE void x_store(int32_t *p, vx x) { _mm256_storeu_si256((__m256i *)p, x); }
INLINE vx x_load_int8(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }
INLINE vx x_mul16(vx a, vx b) { return _mm256_mullo_epi16(a, b); }
INLINE vf x_float(vx x) { return _mm256_cvtepi32_ps(x); }
/* Without the instruction of F16C, which is another feature of CPUs: a subnormal number is its integer times 2^-24; any
 * other has 112 less in its exponent than a float. */
INLINE vf v_load_float16(const uint16_t *p) {
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i size = _mm256_and_si256(x, _mm256_set1_epi32(0x7fff));
    vf normal = (vf)_mm256_add_epi32(_mm256_slli_epi32(size, 13), _mm256_set1_epi32(112 << 23));
    vf small = _mm256_mul_ps(_mm256_cvtepi32_ps(size), _mm256_set1_ps(0x1p-24f));
    vf tiny = (vf)_mm256_cmpgt_epi32(_mm256_set1_epi32(0x0400), size);
    return _mm256_or_ps(_mm256_blendv_ps(normal, small, tiny), (vf)_mm256_slli_epi32(_mm256_sub_epi32(x, size), 16));
}
INLINE void x_store_int16(int16_t *p, vf x) {
    __m256i whole = _mm256_cvtps_epi32(x);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
}
INLINE void x_store_int8(int8_t *p, vf x) {
    __m256i whole = _mm256_cvtps_epi32(x);
    __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(halves, halves));
}
/* The lower (i = 0) or the upper four bits of every byte; and of VL bytes at p, each in both int16 of its lane. */
INLINE vx n_half(vx words, int i) {
    return _mm256_and_si256(i ? _mm256_srli_epi16(words, 4) : words, _mm256_set1_epi8(15));
}
INLINE vx n_factors(const uint8_t *p, int i) {
    vx both = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    both = _mm256_or_si256(both, _mm256_slli_epi32(both, 16));
    return _mm256_and_si256(_mm256_srli_epi16(both, 4 * i), _mm256_set1_epi16(15));
}
#ifdef __AVXVNNI__
enum { NIBBLE_MR = 4 }; /* the rows of a tile of 4-bit weights */
#else
enum { NIBBLE_MR = 6 };
#endif

/* Load n numbers as floats. From the compiler's vectors of int8, gcc makes a load for each number. */
#define ENGINE_WIDEN
INLINE vf v_load_int8(const int8_t *p, int n) {
    long long bytes = 0;
    memcpy(&bytes, p, v_whole(n) ? VL : (size_t)n);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes)));
}
INLINE vf v_load_bfloat16(const uint16_t *p, int n) {
    __m128i halves = _mm_setzero_si128();
    memcpy(&halves, p, v_whole(n) ? 2 * VL : 2 * (size_t)n);
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}
/* Load the first or the second bfloat16 number of each pair. The mask stays in memory: tiles need all registers. */
INLINE vf v_load_half(const uint16_t *p, int second) {
    static const uint32_t mask[8] = {0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
                                     0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u};
    __m256i pairs = _mm256_loadu_si256((const __m256i *)p);
    if (!second) return (vf)_mm256_slli_epi32(pairs, 16);
    __asm__("vpand %1, %0, %0" : "+x"(pairs) : "m"(mask));
    return (vf)pairs;
}

/* Dot products of codes, the integers from 0 to 255 of a row, and weights in int8; sums in int32 begin with 0 here */

typedef __m256i vd;
INLINE vd d_start(const float *sums) { return (void)sums, _mm256_setzero_si256(); }
INLINE vf d_float(vd x, int row) { return (void)row, _mm256_cvtepi32_ps(x); }
INLINE void d_store(uint8_t *p, vf x) {
    __m256i whole = _mm256_cvtps_epi32(x);
    __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(halves, halves));
}
INLINE vd d_set1(int32_t x) { return _mm256_set1_epi32(x); }
#ifdef __AVXVNNI__
enum { DOT_MR = MR };
#define ENGINE_VPDPBUSD "%{vex%} vpdpbusd"
#define ENGINE_VPDPWSSD "%{vex%} vpdpwssd"
#else
enum { DOT_MR = 5 };
#endif
#include "x86.h"

/* Products of bfloat16 numbers are FMAs of floats here. Load the first (half = 0) or the second number of each pair of
 * weights: a bfloat16 number is the upper half of a float. */

INLINE vf p_weights(const uint16_t *p, int half) {
    __m256i pairs = _mm256_loadu_si256((const __m256i *)p);
    return (vf)(half ? _mm256_and_si256(pairs, _mm256_set1_epi32((int32_t)0xffff0000)) : _mm256_slli_epi32(pairs, 16));
}
