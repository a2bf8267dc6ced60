/* What AVX2 and AVX-512 have in common: products in float32, of 16-bit integers by vpdpwssd or vpmaddwd, and of
 * codes by vpdpbusd or vpmaddubsw.
 *
 * The header that includes this one has defined vf, vx, vd, d_set1 and DOT_MR, and, if the CPU has VNNI,
 * ENGINE_VPDPBUSD and ENGINE_VPDPWSSD: how the assembler spells these instructions. */
#pragma once

#define FLOAT_INSTRUCTION "vfmadd231ps"
typedef vf vfactor;
INLINE vfactor v_factor(const float *p) { return v_set1(*p); }
INLINE vf v_all(vfactor x) { return x; }
INLINE vf v_add_product(vf sum, vfactor a, vf b) {
    __asm__(FLOAT_INSTRUCTION " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* Assembly for the reason that d_dot has: with intrinsics gcc computes the products of a step before it adds them. */
#ifdef ENGINE_VPDPWSSD
#define INTEGER_INSTRUCTION "vpdpwssd"
INLINE vx x_dot(vx sum, vx a, vx b) {
    __asm__(ENGINE_VPDPWSSD " %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
#else
#define INTEGER_INSTRUCTION "vpmaddwd"
INLINE vx x_dot(vx sum, vx a, vx b) {
    vx product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(product) : "v"(a), "v"(b));
    return sum;
}
#endif

#ifdef ENGINE_VPDPBUSD

INLINE vx n_dot(vx sum, vx weights, vx codes) {
    __asm__(ENGINE_VPDPBUSD " %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(codes));
    return sum;
}

#define DOT_INSTRUCTION "vpdpbusd"
enum { DOT = 4, DOT_STEPS = 4, DOT_ROWS = 1, DOT_GROUP = 4, DOT_BOUND = 0, CODE_ZERO = 0 };
typedef vd vcodes, vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) { return (void)next, d_set1(load_32(p)); }
INLINE vweights d_weights(const int8_t *p) {
    vweights weights;
    memcpy(&weights, p, sizeof weights);
    return weights;
}
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    __asm__(ENGINE_VPDPBUSD " %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(weights));
    return sum;
}

#else

/* A group of 16 in one piece: two sums of a lane are of 8 products each, at most 8 * 15 * 127 < 2^15. With the rows of
 * a tile inside the vectors of columns, the sums of 6 rows, a group's weights and their factor are 11 registers. */
#define ENGINE_NIBBLE_GROUPS
INLINE vx n_dot(vx sum, vx weights, vx codes) {
    vx pairs;
    __asm__("vpmaddubsw %2, %1, %0" : "=v"(pairs) : "v"(weights), "v"(codes));
    return x_dot(sum, pairs, x_set1(0x10001));
}
INLINE vx n_group(vx sum, const vx *weights, const int8_t *codes, vx factor) {
    vx first, second;
    __asm__("vpbroadcastd (%3), %1\n\tvpbroadcastd 4(%3), %2\n\t"
            "vpmaddubsw %1, %4, %1\n\tvpmaddubsw %2, %5, %2\n\tvpaddw %2, %1, %1\n\t"
            "vpbroadcastd 8(%3), %2\n\tvpmaddubsw %2, %6, %2\n\tvpaddw %2, %1, %1\n\t"
            "vpbroadcastd 12(%3), %2\n\tvpmaddubsw %2, %7, %2\n\tvpaddw %2, %1, %1\n\t"
            "vpmaddwd %8, %1, %1\n\tvpaddd %1, %0, %0"
            : "+v"(sum), "=&v"(first), "=&v"(second)
            : "r"(codes), "v"(weights[0]), "v"(weights[1]), "v"(weights[2]), "v"(weights[3]), "v"(factor));
    return sum;
}

/* Four products, of steps {0, 1, 4, 5} or {2, 3, 6, 7}, are added in int16 (DOT_BOUND). The sums cannot overflow,
 * because the weights are rounded so (quantize_bounded) that the sum of same-sign weights of such an int8 group is at
 * most 128, and 255 * 128 < 2^15. With five instructions for a product, one step is long enough for a tile's loop. To
 * save registers, weights are read from memory. */
#define DOT_INSTRUCTION "vpmaddubsw"
enum { DOT = 8, DOT_STEPS = 1, DOT_ROWS = 1, DOT_GROUP = 4, DOT_BOUND = 1, CODE_ZERO = 0 };
typedef struct {
    vd first, second;
} vcodes;
typedef const int8_t *vweights;
INLINE vcodes d_codes(const uint8_t *p, const uint8_t *next) {
    return (void)next, (vcodes){d_set1(load_32(p)), d_set1(load_32(p + 4))};
}
INLINE vweights d_weights(const int8_t *p) { return p; }
INLINE vd d_dot(vd sum, vcodes codes, vweights weights) {
    vd first, second;
    /* The weights, which do not change here, are no "m" operands: gcc would spill every sum, in case of an alias. */
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
