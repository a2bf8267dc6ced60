/* Compute dot products of 8-bit integers, DOT steps of depth at a time. Codes (activations) are from 0 to 255, weights
 * from -127 to 127. Sums are int32, and no instruction saturates.
 *
 *   section       DOT  instructions
 *   AVX512-VNNI   4    vpdpbusd
 *   AVX-512       8    2 vpmaddubsw, vpaddw, vpmaddwd, vpaddd
 *   AVX-VNNI      4    vpdpbusd
 *   AVX2          8    the same as AVX-512
 *   portable      4    plain C: slow, but with AVX512-VNNI's layout, so that `wide` tests that layout
 *
 * Where DOT is 8, four products, of steps {0, 1, 4, 5} or {2, 3, 6, 7}, are added in int16. The sums cannot overflow,
 * because the weights are rounded so (quantize_bounded) that the sum of same-sign weights of such an int8 group is at
 * most 128, and 255 * 128 < 2^15.
 *
 * A tile's loop (depth.pxi) is unrolled DOT_STEPS times, each time for DOT steps of depth. With five instructions for a
 * product, one step is long enough.
 *
 * d_dot is assembly, because with intrinsics gcc computes all products of a step before adding them and runs out of
 * registers. To save registers where DOT is 8, weights are read from memory, and tiles have DOT_MR rows: 10 sums, 2
 * vectors of codes, 2 of products and one of ones are 15 of AVX2's 16 registers; 24 + 2 + 2 + 1 are 29 of AVX-512's 32.
 */
#pragma once
#include "simd.h"

#if defined(__AVX512F__) && !defined(ENGINE_EMULATE_WIDE)

typedef __m512i vd; /* VL int32 sums */
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

/* Broadcast the four codes from p on to every lane. */
INLINE vd d_all(const uint8_t *p) {
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return d_set1(bits);
}

/* d_zero: sums of zero. d_store: round VL floats from 0 to 255 to the nearest codes and store them; NaN gives an
 * unspecified code. d_codes: broadcast DOT codes of a row to every lane. d_weights: VL*DOT weights, [DOT/4][VL][4].
 * d_dot: return sum + the dot products of codes and weights. */
#if defined(ENGINE_VPDPBUSD)

#define DOT_INSTRUCTION "vpdpbusd"
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

#define DOT_INSTRUCTION "portable code"
enum { DOT = 4, DOT_STEPS = 4 };
typedef vd vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p) { return d_all(p); }
INLINE vweights d_weights(const int8_t *p) { return p; }
#ifdef ENGINE_EMULATE_WIDE
static __attribute__((noinline)) /* not inlined: gcc needs more than a minute to compile 24 inlined copies */
#else
INLINE
#endif
vd d_dot(vd sum, vcodes codes, vweights weights) {
    for (int lane = 0; lane < VL; lane++)
        for (int i = 4 * lane; i < 4 * lane + 4; i++) sum.sums[lane] += codes.codes[i] * weights[i];
    return sum;
}

#else

#define DOT_INSTRUCTION "vpmaddubsw"
enum { DOT = 8, DOT_STEPS = 1 };
typedef struct {
    vd first, second;
} vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p) { return (vcodes){d_all(p), d_all(p + 4)}; }
INLINE vweights d_weights(const int8_t *p) { return p; }
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    vd first, second;
    /* The weights are not "m" operands: for those gcc spills every sum, in case they alias it. Weights do not change
     * here. */
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
