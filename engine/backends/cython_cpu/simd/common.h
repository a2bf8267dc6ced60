/* Define what is the same for all instruction sets, over the functions of the set's header, which simd.h has included;
 * and plain formulas for functions that this header has not defined itself. */
#pragma once

enum { NR = NV * VL, LINE = 16, AHEAD = 512 }; /* LINE: floats in a cache line. AHEAD: prefetch distance in floats. */

/* The largest K block of a product, which cuts its sums, so it is one number for all instruction sets. */
enum { KC = 1024 };

/* Vectors of the tokens of a cell of a cache, and the most queries of a tile over a cell: its sums are in MR*NV
 * registers at most. */
enum { CELL_VECTORS = 16 / VL, FEW = NV < CELL_VECTORS ? MR * NV / CELL_VECTORS : MR };

/* Load n int8 numbers, or n bfloat16 numbers, and convert them to float; other lanes are zero. */
#ifndef ENGINE_WIDEN
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

/* Load the first or the second numbers of VL pairs of bfloat16 numbers, and convert them to float. */
INLINE vf v_load_half(const uint16_t *p, int second) {
    typedef uint32_t wide __attribute__((vector_size(VL * 4)));
    wide pairs;
    memcpy(&pairs, p, sizeof pairs);
    return (vf)(second ? pairs & 0xffff0000u : pairs << 16);
}
#endif

/* v_mask_of: return a mask whose lane i is set if bit i is. v_bits_of: return the bits of a mask. first_bit: return the
 * place of the lowest bit that is set, of a number that is not 0. */
#ifndef ENGINE_MASKS
INLINE vf v_mask_of(unsigned bits) {
    int32_t lane[VL];
    vf mask;
    for (int i = 0; i < VL; i++) lane[i] = -(int32_t)(bits >> i & 1);
    memcpy(&mask, lane, sizeof mask);
    return mask;
}
INLINE unsigned v_bits_of(vf mask) {
    int32_t lane[VL];
    unsigned bits = 0;
    memcpy(lane, &mask, sizeof mask);
    for (int i = 0; i < VL; i++) bits |= (unsigned)(lane[i] & 1) << i;
    return bits;
}
#endif
/* The bits of v_less, and a where a bit is set, otherwise b: some sets need no mask in a vector for these. */
#ifndef ENGINE_BITS
INLINE unsigned v_bits_less(vf a, vf b) { return v_bits_of(v_less(a, b)); }
INLINE vf v_select_bits(unsigned bits, vf a, vf b) { return v_select(v_mask_of(bits), a, b); }
#endif
INLINE int first_bit(unsigned bits) { return __builtin_ctz(bits); }

/* v_store_set: store the lanes whose bit is set, one after the other, and return how many. x_store_set: the same of the
 * integers first, first + 1, ... Either may write VL numbers. */
#ifndef ENGINE_COMPRESS
INLINE int v_store_set(float *p, vf x, unsigned bits) {
    float lane[VL];
    int count = 0;
    if (bits) v_store(lane, x);
    for (; bits; bits &= bits - 1) p[count++] = lane[first_bit(bits)];
    return count;
}
INLINE int x_store_set(int32_t *p, int32_t first, unsigned bits) {
    int count = 0;
    for (; bits; bits &= bits - 1) p[count++] = first + first_bit(bits);
    return count;
}
#endif

/* Load and store a number that threads share without a lock: each sees an older or a newer one. */
INLINE float load_shared(const float *p) {
    float x;
    __atomic_load(p, &x, __ATOMIC_RELAXED);
    return x;
}
INLINE void store_shared(float *p, float x) { __atomic_store(p, &x, __ATOMIC_RELAXED); }

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

/* v_split: divide x into the nearest integer n and the rest. v_scale: return p * 2^n, for the n of v_split. AVX-512 has
 * instructions for this. Elsewhere, adding 1.5*2^23 rounds x to an integer, which the low bits of the sum then hold,
 * and v_raise adds them to the exponent of p. Results are the same for -126 <= x <= 127. */
#ifndef ENGINE_SPLIT
typedef struct { vf n, rest; } v_parts;
INLINE v_parts v_split(vf x) {
    vf magic = v_set1(12582912.0f), n = v_add(x, magic);
    return (v_parts){n, v_sub(x, v_sub(n, magic))};
}
INLINE vf v_scale(vf p, vf n) { return v_raise(p, n); }
#endif

/* v_sum: return the sum of the lanes in a fixed order: the upper half is added to the lower half, repeatedly.
 * v_largest: return the largest lane; NaN may be ignored. Only l_sum may reduce what decides a result: the bits of
 * v_sum depend on VL, unless the sums are exact. */
#ifndef ENGINE_REDUCE
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

/* A sum over the numbers of a row has the same bits on all instruction sets. It has LANES partial sums, and lane i adds
 * the numbers whose index is i modulo LANES, in their order. Then the upper half of the lanes is added to the lower
 * half, repeatedly. A row's end adds zeros. `v_lanes` holds the partial sums, in LANE_VECTORS vectors.
 *
 * l_zero: return empty sums. l_sum: return the sum of the lanes. l_count: return how many numbers the vector j of lanes
 * takes from the last n numbers of a row, n < LANES. */
enum { LANES = 16, LANE_VECTORS = LANES / VL };
typedef struct {
    vf v[LANE_VECTORS];
} v_lanes;
INLINE v_lanes l_zero(void) {
    v_lanes sums;
    for (int j = 0; j < LANE_VECTORS; j++) sums.v[j] = v_set1(0);
    return sums;
}
INLINE float l_sum(v_lanes sums) {
    for (int half = LANE_VECTORS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) sums.v[j] = v_add(sums.v[j], sums.v[j + half]);
    return v_sum(sums.v[0]);
}
INLINE int l_count(int n, int j) {
    n -= j * VL;
    return n < 0 ? 0 : n < VL ? n : VL;
}

/* Store the codes of 4*VL floats. */
#ifndef ENGINE_STORE_CODES
INLINE void d_store_line(uint8_t *p, vf a, vf b, vf c, vf d) {
    d_store(p, a), d_store(p + VL, b), d_store(p + 2 * VL, c), d_store(p + 3 * VL, d);
}
#endif

/* Products of 16-bit integers: vectors of the compiler, with two int16 in each lane of 32 bits */
#ifndef ENGINE_INTEGERS
#define INTEGER_INSTRUCTION "portable code"
typedef int32_t vx __attribute__((vector_size(VL * 4)));
typedef int16_t x_halves __attribute__((vector_size(VL * 4)));
INLINE vx x_set1(int32_t x) { return x - (vx){0}; }
INLINE vx x_load(const void *p) { vx x; memcpy(&x, p, sizeof x); return x; }
INLINE void x_store(int32_t *p, vx x) { memcpy(p, &x, sizeof x); }
INLINE vx x_load_int8(const int8_t *p) {
    typedef int8_t narrow __attribute__((vector_size(VL * 2)));
    narrow x;
    memcpy(&x, p, sizeof x);
    return (vx)__builtin_convertvector(x, x_halves);
}
INLINE vx x_mul16(vx a, vx b) { return (vx)((x_halves)a * (x_halves)b); }
INLINE vx x_dot(vx sum, vx a, vx b) {
    return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
}
INLINE vf x_float(vx x) { return __builtin_convertvector(x, vf); }
INLINE vf v_load_float16(const uint16_t *p) {
    /* A subnormal number is its integer times 2^-24; any other has 112 less in its exponent than a float. */
    typedef uint16_t narrow __attribute__((vector_size(VL * 2)));
    narrow halves;
    memcpy(&halves, p, sizeof halves);
    vx x = __builtin_convertvector(halves, vx), size = x & 0x7fff;
    vx normal = (size << 13) + (112 << 23), small = (vx)(x_float(size) * 0x1p-24f), tiny = size < 0x0400;
    return (vf)((normal & ~tiny) | (small & tiny) | (x & 0x8000) << 16);
}
INLINE void x_store_int16(int16_t *p, vf x) {
    for (int lane = 0; lane < VL; lane++) p[lane] = (int16_t)rintf(x[lane]);
}
INLINE void x_store_int8(int8_t *p, vf x) {
    for (int lane = 0; lane < VL; lane++) p[lane] = (int8_t)rintf(x[lane]);
}
/* Weights of 4 bits: the rows of a tile; the lower (i = 0) or the upper four bits of every byte; those of VL bytes at
 * p, each in both int16 of its lane; and sum + the four products of each lane, of unsigned weights and signed codes. */
enum { NIBBLE_MR = 4 };
INLINE vx n_half(vx words, int i) { return words >> 4 * i & 0x0f0f0f0f; }
INLINE vx n_factors(const uint8_t *p, int i) {
    typedef uint8_t narrow __attribute__((vector_size(VL)));
    narrow x;
    memcpy(&x, p, sizeof x);
    return (__builtin_convertvector(x, vx) >> 4 * i & 15) * 0x10001;
}
INLINE vx n_dot(vx sum, vx weights, vx codes) {
    for (int i = 0; i < 4; i++) sum += (weights >> 8 * i & 255) * (codes << (24 - 8 * i) >> 24);
    return sum;
}
#endif
#ifdef ENGINE_NIBBLE_GROUPS
enum { NIBBLE_GROUPS = 1 };
#else
enum { NIBBLE_GROUPS = 0 };
/* Return sum + the products of a group: four vectors of weights with four steps each, and 16 codes. */
INLINE vx n_group(vx sum, const vx *weights, const int8_t *codes, vx factor) {
    (void)factor;       /* the weights are multiplied by it already */
    for (int i = 0; i < 4; i++) sum = n_dot(sum, weights[i], x_set1(load_32(codes + 4 * i)));
    return sum;
}
#endif

/* Whether v_fma and v_add_product round once. */
#ifdef ENGINE_ROUNDS_TWICE
enum { FUSED = 0 };
#else
enum { FUSED = 1 };
#endif

#define WIDENED_INSTRUCTION FLOAT_INSTRUCTION " of widened weights"

/* Without an instruction for products of bfloat16, two FMAs multiply a pair, with weights widened by a shift and a
 * mask. */
#ifndef PAIR_INSTRUCTION
#define PAIR_INSTRUCTION WIDENED_INSTRUCTION
enum { PAIR_STEPS = 2 };
typedef float operand;
typedef vf vp;
typedef vfactor vpair;
INLINE vpair p_operand(const operand *p) { return v_factor(p); }
INLINE vp p_lanes(vf x) { return x; }
INLINE vf p_dot(vf sum, vpair x, vp weights) { return v_add_product(sum, x, weights); }
INLINE void p_store(operand *p, vf x) { v_store(p, x); }
INLINE void p_store_pairs(uint16_t *p, vf first, vf second) { (void)p, (void)first, (void)second; /* never called */ }
#endif

/* Round two vectors and store them as operands, one after the other. */
#ifndef ENGINE_STORE_OPERANDS
INLINE void p_store_line(operand *p, vf first, vf second) { p_store(p, first), p_store(p + VL, second); }
#endif

/* Products of two rows by two columns are bfmmla's (neon.h); other sets have empty functions that are never called. */
#ifndef QUAD_INSTRUCTION
#define QUAD_INSTRUCTION PAIR_INSTRUCTION
enum { QUADS = 0 };
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

/* Interleave n numbers of two rows of bfloat16; the second may be NULL, for zeros. */
INLINE void p_zip(const uint16_t *first, const uint16_t *second, uint16_t *to, ptrdiff_t n) {
    if (second)
        for (ptrdiff_t i = 0; i < n; i++) to[2 * i] = first[i], to[2 * i + 1] = second[i];
    else
        for (ptrdiff_t i = 0; i < n; i++) to[2 * i] = first[i], to[2 * i + 1] = 0;
}

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
