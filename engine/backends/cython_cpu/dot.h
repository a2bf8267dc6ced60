/* Compute dot products of 8-bit integers, DOT steps of depth at a time. Codes (activations) are from 0 to 255, weights
 * from -127 to 127. Sums are int32, and no instruction saturates.
 *
 * NEON's instructions multiply signed by signed bytes. There, rows hold the signed byte code - CODE_ZERO, CODE_ZERO
 * being 128, and sums begin with 128 times the sum of a column's weights, so that they end as the same integers.
 * Elsewhere CODE_ZERO is 0, and sums begin with 0.
 *
 *   section       DOT  instructions
 *   AVX512-VNNI   4    vpdpbusd
 *   AVX-512       8    2 vpmaddubsw, vpaddw, vpmaddwd, vpaddd
 *   AVX-VNNI      4    vpdpbusd
 *   AVX2          8    the same as AVX-512
 *   NEON-i8mm     8    smmla: two rows by two columns
 *   NEON-dot      4    sdot
 *   NEON          16   4 smull or smlal of 8 products each, 2 sadalp; twice
 *   portable      4    plain C: slow, but with AVX512-VNNI's layout, so that `wide` tests that layout
 *
 * With vpmaddubsw, four products, of steps {0, 1, 4, 5} or {2, 3, 6, 7}, are added in int16 (DOT_BOUND). The sums cannot
 * overflow, because the weights are rounded so (quantize_bounded) that the sum of same-sign weights of such an int8 group
 * is at most 128, and 255 * 128 < 2^15.
 *
 * A tile's loop (depth.pxi) is unrolled DOT_STEPS times, each time for DOT steps of depth. With five instructions for a
 * product, one step is long enough.
 *
 * Where DOT is 16, two products of -128 to 127 and -127 to 127, at most 32,512, are added in int16.
 *
 * A `vd` holds the sums of DOT_ROWS rows and VL columns. DOT_GROUP successive weights of a column lie together.
 *
 * d_dot is assembly, because with intrinsics gcc computes all products of a step before adding them and runs out of
 * registers. To save registers with vpmaddubsw, weights are read from memory, and tiles have DOT_MR rows: 10 sums, 2
 * vectors of codes, 2 of products and one of ones are 15 of AVX2's 16 registers; 24 + 2 + 2 + 1 are 29 of AVX-512's 32.
 */
#pragma once
#include "simd.h"

#if defined(__AVX512F__) && !defined(ENGINE_EMULATE_WIDE)

typedef __m512i vd; /* VL int32 sums */
INLINE vd d_start(const float *sums) { return (void)sums, _mm512_setzero_si512(); }
INLINE vf d_float(vd x, int row) { return (void)row, _mm512_cvtepi32_ps(x); }
INLINE void d_store(uint8_t *p, vf x) {
    __m512i whole = _mm512_max_epi32(_mm512_cvtps_epi32(x), _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)p, _mm512_cvtusepi32_epi8(whole));
}
INLINE void d_store_line(uint8_t *p, vf a, vf b, vf c, vf d) {
    __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
    /* packs work within 128 bits: four codes of each vector lie together */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}
#define ENGINE_STORE_LINE
INLINE vd d_set1(int32_t x) { return _mm512_set1_epi32(x); }
enum { DOT_MR = MR };
#ifdef __AVX512VNNI__
#define ENGINE_VPDPBUSD "vpdpbusd"
#endif

#elif defined(__AVX2__) && defined(__FMA__) && !defined(ENGINE_EMULATE_WIDE)

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
#else
enum { DOT_MR = 5 };
#endif

#elif defined(ENGINE_NEON)

#define ENGINE_SIGNED_CODES
INLINE void d_store(uint8_t *p, vf x) {
    int16x4_t whole = vqmovn_s32(vcvtnq_s32_f32(x));    /* narrowing saturates */
    uint8x8_t codes = vqmovun_s16(vcombine_s16(whole, whole));
    uint32_t four = vget_lane_u32(vreinterpret_u32_u8(veor_u8(codes, vdup_n_u8(128))), 0);
    memcpy(p, &four, sizeof four);
}
/* Return 128 times the sums of VL columns; they are integers. */
INLINE int32x4_t d_offset(const float *sums) { return vshlq_n_s32(vcvtq_s32_f32(v_load(sums)), 7); }
#if defined(__ARM_FEATURE_MATMUL_INT8)
enum { DOT_MR = MR };
typedef struct {
    int32x4_t low, high; /* columns 0 and 1 of the first row, then of the second; and columns 2 and 3 */
} vd;
INLINE vd d_start(const float *sums) {
    int64x2_t offset = vreinterpretq_s64_s32(d_offset(sums));
    return (vd){vreinterpretq_s32_s64(vdupq_laneq_s64(offset, 0)), vreinterpretq_s32_s64(vdupq_laneq_s64(offset, 1))};
}
INLINE vf d_float(vd x, int row) {
    int64x2_t low = vreinterpretq_s64_s32(x.low), high = vreinterpretq_s64_s32(x.high);
    return vcvtq_f32_s32(vreinterpretq_s32_s64(row ? vzip2q_s64(low, high) : vzip1q_s64(low, high)));
}
#elif defined(__ARM_FEATURE_DOTPROD)
enum { DOT_MR = MR };
typedef int32x4_t vd;
INLINE vd d_start(const float *sums) { return d_offset(sums); }
INLINE vf d_float(vd x, int row) { return (void)row, vcvtq_f32_s32(x); }
#else
enum { DOT_MR = 2 }; /* 16 sums, 4 vectors of codes, 2 of weights and 2 of products are 24 of 32 registers */
typedef struct {
    int32x4_t low, high; /* the sum of lane i is low[2i] + low[2i+1], of lane i + 2 that of high */
} vd;
INLINE vd d_start(const float *sums) {
    int32x4_t offset = d_offset(sums), zero = vdupq_n_s32(0);
    return (vd){vzip1q_s32(offset, zero), vzip2q_s32(offset, zero)};
}
INLINE vf d_float(vd x, int row) { return (void)row, vcvtq_f32_s32(vpaddq_s32(x.low, x.high)); }
#endif

#else

#define ENGINE_PORTABLE_DOT
enum { DOT_MR = MR };
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

#endif

#ifdef ENGINE_SIGNED_CODES
enum { CODE_ZERO = 128 };
#else
enum { CODE_ZERO = 0 };
/* Broadcast the four codes from p on to every lane. */
INLINE vd d_all(const uint8_t *p) {
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return d_set1(bits);
}
#endif

/* d_start: sums before the first product; `sums` are those of the weights of VL columns. d_float: sums of a row, 0 or
 * more, as floats. d_store: round VL floats to the nearest codes from 0 to 255 and store them; NaN gives an unspecified
 * code. d_store_line: store the codes of 4*VL floats. d_codes: load DOT codes of a row, as d_dot multiplies whole vectors
 * by them, and of the next row if DOT_ROWS is 2. d_weights: VL*DOT weights, [DOT/DOT_GROUP][VL][DOT_GROUP]. d_dot: return
 * sum + the dot products of codes and weights. */
#if !defined(ENGINE_STORE_LINE)
INLINE void d_store_line(uint8_t *p, vf a, vf b, vf c, vf d) {
    d_store(p, a), d_store(p + VL, b), d_store(p + 2 * VL, c), d_store(p + 3 * VL, d);
}
#endif
#if defined(ENGINE_VPDPBUSD)

#define DOT_INSTRUCTION "vpdpbusd"
enum { DOT = 4, DOT_STEPS = 4 };
typedef vd vcodes, vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) { return (void)next, d_all(p); }
INLINE vweights d_weights(const int8_t *p) {
    vweights weights;
    memcpy(&weights, p, sizeof weights);
    return weights;
}
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    __asm__(ENGINE_VPDPBUSD " %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(weights));
    return sum;
}

#elif defined(ENGINE_SIGNED_CODES) && defined(__ARM_FEATURE_MATMUL_INT8)

#define DOT_INSTRUCTION "smmla"
#define ENGINE_DOT_ROWS 2
#define ENGINE_DOT_GROUP 8
enum { DOT = 8, DOT_STEPS = 2 };
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

#elif defined(ENGINE_SIGNED_CODES) && defined(__ARM_FEATURE_DOTPROD)

#define DOT_INSTRUCTION "sdot"
enum { DOT = 4, DOT_STEPS = 4 };
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

#elif defined(ENGINE_SIGNED_CODES)

#define DOT_INSTRUCTION "smlal"
enum { DOT = 16, DOT_STEPS = 1 };
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

#elif defined(ENGINE_PORTABLE_DOT)

#define DOT_INSTRUCTION "portable code"
enum { DOT = 4, DOT_STEPS = 4 };
typedef vd vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) { return (void)next, d_all(p); }
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
#define ENGINE_DOT_BOUND 1
enum { DOT = 8, DOT_STEPS = 1 };
typedef struct {
    vd first, second;
} vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) { return (void)next, (vcodes){d_all(p), d_all(p + 4)}; }
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

#ifndef ENGINE_DOT_ROWS
#define ENGINE_DOT_ROWS 1
#define ENGINE_DOT_GROUP 4
#endif
#ifndef ENGINE_DOT_BOUND
#define ENGINE_DOT_BOUND 0
#endif
enum { DOT_ROWS = ENGINE_DOT_ROWS, DOT_GROUP = ENGINE_DOT_GROUP, DOT_BOUND = ENGINE_DOT_BOUND };
