/* Dot products of 8-bit integers: DOT steps of depth at once, codes (activations) from 0 to 255, weights from -127 to
 * 127, sums in int32, which nothing saturates.
 *
 *   section       DOT  instructions
 *   AVX512-VNNI   4    vpdpbusd
 *   AVX-512       8    2 vpmaddubsw, vpaddw, vpmaddwd, vpaddd
 *   AVX-VNNI      4    vpdpbusd
 *   AVX2          8    as AVX-512
 *   portable      4    none: slow, and of AVX512-VNNI's layout, so that `wide` tests that
 *
 * Where DOT is 8, sums of four products, of steps {0, 1, 4, 5} and of {2, 3, 6, 7}, are made in int16. They fit because
 * weights are rounded so (engine/groups.py): those of one sign in such a group come to 128 at most, and 255 * 128 < 2^15.
 *
 * DOT_STEPS of DOT are written out in a tile's loop (depth.pxi); of five instructions a product, one is long enough.
 *
 * d_dot is assembly because of its place in a tile: of intrinsics, gcc moves the products of a step before their sums and
 * runs out of registers. For the same reason weights are taken from memory where DOT is 8, and tiles have DOT_MR rows:
 * 10 sums, 2 vectors of codes, 2 of products and one of ones are 15 of AVX2's registers; 24, 2, 2 and 1 are 29 of AVX-512's. */
#pragma once
#include "simd.h"

#if defined(__AVX512F__) && !defined(ENGINE_EMULATE_WIDE)

typedef __m512i vd; /* VL sums */
INLINE vd d_zero(void) { return _mm512_setzero_si512(); }
INLINE vf d_float(vd x) { return _mm512_cvtepi32_ps(x); }
INLINE void d_store(uint8_t *p, vf x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(x))); }
INLINE vd d_set1(int32_t x) { return _mm512_set1_epi32(x); }
enum { DOT_MR = MR };
#ifdef __AVX512VNNI__
#define ENGINE_VPDPBUSD "vpdpbusd"
#endif

#elif defined(__AVX2__) && defined(__FMA__) && !defined(ENGINE_EMULATE_WIDE)

typedef __m256i vd;
INLINE vd d_zero(void) { return _mm256_setzero_si256(); }
INLINE vf d_float(vd x) { return _mm256_cvtepi32_ps(x); }
INLINE void d_store(uint8_t *p, vf x) {
    __m256i whole = _mm256_cvtps_epi32(x);
    __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(halves, halves));
}
INLINE vd d_set1(int32_t x) { return _mm256_set1_epi32(x); }
#ifdef __AVXVNNI__
enum { DOT_MR = MR };
#define ENGINE_VPDPBUSD "%{vex%} vpdpbusd"
#else
enum { DOT_MR = 5 };
#endif

#else

#define ENGINE_PORTABLE_DOT
enum { DOT_MR = MR };
typedef struct {
    vi sums;
    uint8_t codes[4 * VL];
} vd;
INLINE vd d_zero(void) { return (vd){0}; }
INLINE vf d_float(vd x) { return __builtin_convertvector(x.sums, vf); }
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

#endif

/* The four codes from p on, in every lane. */
INLINE vd d_all(const uint8_t *p) {
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return d_set1(bits);
}

/* d_zero: no sum yet. d_store: VL codes, the nearest integers to x, which is from 0 to 255 (NaN gives some code).
 * d_codes: DOT codes of a row, for every lane. d_weights: VL*DOT weights, [DOT/4][VL][4]. d_dot: sum + their products. */
#if defined(ENGINE_VPDPBUSD)

enum { DOT = 4, DOT_STEPS = 4 };
typedef vd vcodes, vweights;
INLINE vcodes d_codes(const uint8_t *p) { return d_all(p); }
INLINE vweights d_weights(const int8_t *p) {
    vweights weights;
    memcpy(&weights, p, sizeof weights);
    return weights;
}
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    __asm__(ENGINE_VPDPBUSD " %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(weights));
    return sum;
}

#elif defined(ENGINE_PORTABLE_DOT)

enum { DOT = 4, DOT_STEPS = 4 };
typedef vd vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p) { return d_all(p); }
INLINE vweights d_weights(const int8_t *p) { return p; }
#ifdef ENGINE_EMULATE_WIDE
static __attribute__((noinline)) /* 24 times inlined, it takes gcc more than a minute */
#else
INLINE
#endif
vd d_dot(vd sum, vcodes codes, vweights weights) {
    for (int lane = 0; lane < VL; lane++)
        for (int i = 4 * lane; i < 4 * lane + 4; i++) sum.sums[lane] += codes.codes[i] * weights[i];
    return sum;
}

#else

enum { DOT = 8, DOT_STEPS = 1 };
typedef struct {
    vd first, second;
} vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p) { return (vcodes){d_all(p), d_all(p + 4)}; }
INLINE vweights d_weights(const int8_t *p) { return p; }
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    vd first, second;
    /* No "m" operands: for those, gcc writes every sum to the stack, in case they alias. Weights do not change here. */
    __asm__("vpmaddubsw (%5), %3, %1\n\t"
            "vpmaddubsw %c6(%5), %4, %2\n\t"
            "vpaddw %2, %1, %1\n\t"
            "vpmaddwd %7, %1, %1\n\t"
            "vpaddd %1, %0, %0"
            : "+v"(sum), "=&v"(first), "=&v"(second)
            : "v"(codes.first), "v"(codes.second), "r"(weights), "i"(4 * VL), "v"(d_set1(0x00010001)));
    return sum;
}

#endif
