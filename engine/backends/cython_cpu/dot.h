/* Dot products of 8-bit integers: DOT steps of depth at once, codes (activations) from 0 to 255, weights from -127 to
 * 127, sums in int32. No instruction is used that saturates.
 *
 *   section       DOT  a code is  instruction
 *   AVX512-VNNI   4    uint8      vpdpbusd
 *   AVX-512       2    int16      vpmaddwd, of weights widened as they are loaded
 *   AVX-VNNI      4    uint8      vpdpbusd
 *   AVX2          2    int16      vpmaddwd
 *   portable      4    uint8      none: slow, and of AVX512-VNNI's layout, so that `wide` tests that
 *
 * d_dot is assembly because of its place in a tile: of intrinsics, gcc moves the products of a step before their sums and
 * runs out of registers; on Zen 3 that took 1.7 times as long. */
#pragma once
#include "simd.h"

#if defined(__AVX512F__) && !defined(ENGINE_EMULATE_WIDE)

typedef __m512i vd; /* VL sums; DOT codes in every lane; VL*DOT weights */
INLINE vd d_zero(void) { return _mm512_setzero_si512(); }
INLINE vf d_float(vd x) { return _mm512_cvtepi32_ps(x); }
#ifdef __AVX512VNNI__
enum { DOT = 4 };
typedef uint8_t code;
INLINE vd d_weights(const int8_t *p) { return _mm512_loadu_si512(p); }
INLINE vd d_dot(vd sum, vd codes, vd weights) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(weights));
    return sum;
}
INLINE void d_store(code *p, vf x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x))); }
#else
enum { DOT = 2 };
typedef int16_t code;
INLINE vd d_weights(const int8_t *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vd d_dot(vd sum, vd codes, vd weights) {
    vd product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(product) : "v"(codes), "v"(weights));
    return sum;
}
INLINE void d_store(code *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)));
}
#endif
INLINE vd d_set1(int32_t x) { return _mm512_set1_epi32(x); }

#elif defined(__AVX2__) && defined(__FMA__) && !defined(ENGINE_EMULATE_WIDE)

typedef __m256i vd;
INLINE vd d_zero(void) { return _mm256_setzero_si256(); }
INLINE vf d_float(vd x) { return _mm256_cvtepi32_ps(x); }
INLINE __m128i d_halves(vf x) {
    __m256i whole = _mm256_cvtps_epi32(x);
    return _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
}
#ifdef __AVXVNNI__
enum { DOT = 4 };
typedef uint8_t code;
INLINE vd d_weights(const int8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vd d_dot(vd sum, vd codes, vd weights) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(weights));
    return sum;
}
INLINE void d_store(code *p, vf x) {
    __m128i halves = d_halves(x);
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(halves, halves));
}
#else
enum { DOT = 2 };
typedef int16_t code;
INLINE vd d_weights(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)); }
INLINE vd d_dot(vd sum, vd codes, vd weights) {
    vd product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(codes), "x"(weights));
    return sum;
}
INLINE void d_store(code *p, vf x) { _mm_storeu_si128((__m128i *)p, d_halves(x)); }
#endif
INLINE vd d_set1(int32_t x) { return _mm256_set1_epi32(x); }

#else

enum { DOT = 4 };
typedef uint8_t code;
typedef struct {
    vi sums;
    int8_t bytes[4 * VL];
} vd;
INLINE vd d_zero(void) { return (vd){0}; }
INLINE vf d_float(vd x) { return __builtin_convertvector(x.sums, vf); }
INLINE vd d_weights(const int8_t *p) {
    vd weights;
    memcpy(weights.bytes, p, sizeof weights.bytes);
    return weights;
}
INLINE vd d_set1(int32_t x) {
    vd codes;
    memcpy(codes.bytes, &x, 4);
    return codes;
}
#ifdef ENGINE_EMULATE_WIDE
static __attribute__((noinline)) /* 24 times inlined, it takes gcc more than a minute */
#else
INLINE
#endif
vd d_dot(vd sum, vd codes, vd weights) {
    for (int lane = 0; lane < VL; lane++)
        for (int i = 0; i < 4; i++) sum.sums[lane] += (uint8_t)codes.bytes[i] * weights.bytes[4 * lane + i];
    return sum;
}
INLINE void d_store(code *p, vf x) {
    for (int lane = 0; lane < VL; lane++) {
        float rounded = rintf(x[lane]);
        p[lane] = rounded > 0 ? rounded < 255 ? (code)rounded : 255 : 0;
    }
}
#endif

/* d_zero: no sum yet. d_set1: the DOT codes that are the bytes of x. d_store: VL codes, the nearest integers to x, which
 * is from 0 to 255 (NaN gives some code). */
INLINE vd d_codes(const code *p) {
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return d_set1(bits);
}
