/* Multiply with AMX's tiles: eight registers of 16 rows with 64 bytes each.
 *
 * A tile of the first operand holds 16 rows of operands. A tile of the second operand holds weights of 16 columns:
 * row g has, for each column, the four bytes of depth that belong to bytes 4g to 4g + 3 of a row of operands. A tile of
 * sums holds 16 rows of 16 floats or integers. One instruction multiplies 16 x 16 x 64 bytes and adds to the sums:
 *
 *   tdpbf16ps   pairs of bfloat16 numbers, sums in float32; see t_add_pairs
 *   tdpbusd     four codes from 0 to 255 and four signed weights, sums in int32
 *   tdpbssd     the same with signed codes
 *
 * With ENGINE_EMULATE_TILES the same functions compute the same bits in plain C, so that any machine can test their
 * callers. Where the CPU would raise a fault, because a thread has not configured its tiles, the emulation aborts.
 *
 * A block of sums has one or two tiles of rows and one or two tiles of columns: sums 0 and 1 are the upper ones, sums 2
 * and 3 the lower ones. Operands are in tiles 4 and 5, weights in tiles 6 and 7. The numbers of tiles are part of the
 * instructions, so these functions know them, and their callers do not.
 *
 * Floats are multiplied as sums of two or three bfloat16 numbers, their parts; see parts.pxi. */
#pragma once
#include "simd.h"

enum { TILE_ROWS = 16, TILE_BYTES = 1024, SIDE = 2 * TILE_ROWS };

/* What a product multiplies. Of 16-bit integers the upper tile of operands has the upper bytes, which are signed, and
 * the lower tile has the lower bytes of the same rows, from 0 to 255. */
enum TileNumbers { OF_BFLOAT16, OF_INT8, OF_TWO_PARTS, OF_THREE_PARTS, OF_INT16 };

/* What a loop over t_step reads again soon, so that it has to stay in the L1 cache. */
enum { KEEP_OPERANDS = 1, KEEP_WEIGHTS = 2 };

/* The sums of a block, where their results go, and the row that the epilogue comes to next. */
typedef struct {
    float sums[SIDE * SIDE] __attribute__((aligned(64))); /* [SIDE][SIDE]; of int8, the bits of int32 */
    ptrdiff_t row, column;  /* the first ones */
    ptrdiff_t rows, next;
    ptrdiff_t place[2];     /* the offset in the result of each 16 columns of the first row */
    int columns;            /* tiles of columns, 1 or 2 */
    int first, final;       /* whether the sums are those of the first part of the depth, and those of the last part */
} tile_sums;

typedef int32_t t_lanes __attribute__((vector_size(4 * VL)));
typedef uint32_t t_bits __attribute__((vector_size(4 * VL)));

#if !defined(ENGINE_EMULATE_TILES)

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* t_begin: make this thread's tiles usable, all of the full size. t_end: release them; then the system saves none. */
static void t_begin(void) {
    static const tile_shapes all = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                    .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&all);
}
static void t_end(void) { _tile_release(); }
#define t_zero(tile) _tile_zero(tile)
/* t_stream: a load that leaves no copy in the L1 cache, for what no load reads again soon. */
#define t_load(tile, p, stride) _tile_loadd(tile, p, stride)
#define t_stream(tile, p, stride) _tile_stream_loadd(tile, p, stride)
#define t_store(tile, p, stride) _tile_stored(tile, p, stride)
#define t_add_pairs(sum, a, b) _tile_dpbf16ps(sum, a, b)
#define t_add_codes(sum, a, b) _tile_dpbusd(sum, a, b)
#define t_add_signed(sum, a, b) _tile_dpbssd(sum, a, b)
/* Keep the compiler from moving writes to operands, or reads of sums, across this place: gcc's functions for tile loads
 * do not say that they read memory. */
#define T_BARRIER() __asm__ volatile("" ::: "memory")

/* Return the number of the smaller magnitude, with the sign of x; of NaN and a number, the number. */
INLINE vf t_cut(vf x, float largest) { return (vf)_mm512_range_ps((__m512)x, _mm512_set1_ps(largest), 2); }

#else
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local struct {
    int configured;
    uint8_t tile[8][TILE_ROWS][64] __attribute__((aligned(64)));
} t_state;

static void t_begin(void) { memset(&t_state, 0, sizeof t_state), t_state.configured = 1; }
static void t_end(void) { memset(&t_state, 0, sizeof t_state); }
static void t_demand(void) {
    if (!t_state.configured) fputs("a tile instruction ran before t_begin\n", stderr), abort();
}
static void t_zero(int tile) { t_demand(), memset(t_state.tile[tile], 0, TILE_BYTES); }
static void t_load(int tile, const void *p, ptrdiff_t stride) {
    t_demand();
    for (int i = 0; i < TILE_ROWS; i++) memcpy(t_state.tile[tile][i], (const char *)p + i * stride, 64);
}
#define t_stream t_load
static void t_store(int tile, void *p, ptrdiff_t stride) {
    t_demand();
    for (int i = 0; i < TILE_ROWS; i++) memcpy((char *)p + i * stride, t_state.tile[tile][i], 64);
}

/* Half of the columns of a tile, which is a register where the CPU has AVX2. */
typedef float t_floats __attribute__((vector_size(32)));
typedef int32_t t_words __attribute__((vector_size(32)));
INLINE t_words t_half(int tile, int row, int half) {
    t_words x;
    memcpy(&x, t_state.tile[tile][row] + 32 * half, sizeof x);
    return x;
}

/* Return a b + c, rounded once, as the tiles do: an operand below FLT_MIN counts as a zero of its sign, and a result
 * that is below FLT_MIN once rounded to 24 bits becomes one. a b must have at most 24 bits where there are no FMAs. */
#ifdef __FMA__
enum { DENORMAL_IS_ZERO = 0x8040 }; /* bits of MXCSR, with which FMAs do the same */
INLINE t_floats t_fma(t_floats a, t_floats b, t_floats c) {
    return (t_floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
#else
INLINE double t_flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }
/* The product is exact in double, and rounding the sum first to double changes nothing: such a sum is in the middle
 * between two floats only where double is exact. */
INLINE t_floats t_fma(t_floats a, t_floats b, t_floats c) {
    for (int j = 0; j < 8; j++) {
        double sum = t_flush(a[j]) * t_flush(b[j]) + t_flush(c[j]);
        /* Floats are this dense below FLT_MIN, too, once they are scaled. */
        int is_zero = fabsf((float)(sum * 0x1p64)) < FLT_MIN * 0x1p64f;
        c[j] = is_zero ? copysignf(0, (float)sum) : (float)sum;
    }
    return c;
}
#endif
INLINE t_floats t_set1(float x) { return (t_floats){x, x, x, x, x, x, x, x}; }

/* Each accumulator gets two partial sums, both started at 0: the products of the even elements in order, and those of
 * the odd elements in order. Their total is then added to it. Each addition rounds half to even, with its product
 * unrounded. Tests on Sapphire Rapids gave the same bits, except for the bits of NaN. */
static __attribute__((noinline)) void t_add_products(int sum, int a, int b) {
    union { t_words halves[2]; float elements[16]; } even_x, odd_x;
    t_floats even_w[16], odd_w[16], total;
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 16; k++) {
            t_words w = t_half(b, k, half);
            even_w[k] = (t_floats)(w << 16), odd_w[k] = (t_floats)(w & (int32_t)0xffff0000);
        }
        for (int i = 0; i < TILE_ROWS; i++) {
            for (int j = 0; j < 2; j++) {
                t_words x = t_half(a, i, j);
                even_x.halves[j] = x << 16, odd_x.halves[j] = x & (int32_t)0xffff0000;
            }
            t_floats even = {0}, odd = {0};
            for (int k = 0; k < 16; k++) {
                even = t_fma(t_set1(even_x.elements[k]), even_w[k], even);
                odd = t_fma(t_set1(odd_x.elements[k]), odd_w[k], odd);
            }
            total = t_fma(t_set1(1), (t_floats)t_half(sum, i, half), t_fma(t_set1(1), even, odd));
            memcpy(t_state.tile[sum][i] + 32 * half, &total, sizeof total);
        }
    }
}
static void t_add_pairs(int sum, int a, int b) {
    t_demand();
#ifdef __FMA__
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | DENORMAL_IS_ZERO);
    t_add_products(sum, a, b);
    _mm_setcsr(mode);
#else
    t_add_products(sum, a, b);
#endif
}

/* tdpbusd, or tdpbssd if is_signed: row k/4 of tile b has the weights of four steps for each of 16 columns. */
static __attribute__((noinline)) void t_add_bytes(int is_signed, int sum, int a, int b) {
    t_demand();
    t_words weights[64], total;
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 64; k++) weights[k] = t_half(b, k / 4, half) << (24 - 8 * (k % 4)) >> 24;
        for (int i = 0; i < TILE_ROWS; i++) {
            total = t_half(sum, i, half);
            for (int k = 0; k < 64; k++) {
                uint8_t code = t_state.tile[a][i][k];
                total += (is_signed ? (int8_t)code : code) * weights[k];
            }
            memcpy(t_state.tile[sum][i] + 32 * half, &total, sizeof total);
        }
    }
}
static void t_add_codes(int sum, int a, int b) { t_add_bytes(0, sum, a, b); }
static void t_add_signed(int sum, int a, int b) { t_add_bytes(1, sum, a, b); }
#define T_BARRIER() ((void)0)

INLINE vf t_cut(vf x, float largest) { return v_min(v_set1(largest), v_max(v_set1(-largest), x)); }

#endif

/* Load a tile, past the L1 cache unless `keep`. Add the products of tiles a and b, of the caller's constant `numbers`;
 * of 16-bit integers tile 4 has the upper bytes, which are signed. */
#define T_LOAD(keep, tile, p, stride) if (keep) { t_load(tile, p, stride); } else { t_stream(tile, p, stride); }
#define T_ADD(sum, a, b) \
    if (numbers == OF_BFLOAT16) { t_add_pairs(sum, a, b); } \
    else if (numbers == OF_INT16 && a == 4) { t_add_signed(sum, a, b); } \
    else { t_add_codes(sum, a, b); }

/* Set the sums of a block to zero. rows and columns, 1 or 2, count tiles; they and `numbers` have to be constants. */
INLINE void t_clear(const int rows, const int columns) {
    T_BARRIER();
    t_zero(0);
    if (columns == 2) { t_zero(1); }
    if (rows == 2) { t_zero(2); }
    if (rows == 2 && columns == 2) { t_zero(3); }
}

/* Load the sums of a block, whose rows are `stride` bytes apart. */
INLINE void t_load_sums(const int rows, const int columns, const float *sums, ptrdiff_t stride) {
    const char *p = (const char *)sums;
    T_BARRIER();
    t_stream(0, p, stride);
    if (columns == 2) { t_stream(1, p + 64, stride); }
    if (rows == 2) { t_stream(2, p + TILE_ROWS * stride, stride); }
    if (rows == 2 && columns == 2) { t_stream(3, p + TILE_ROWS * stride + 64, stride); }
}

/* Add the products of 64 bytes of depth: of a whole tile of operands at a, and of one at `lower` if rows is 2, with the
 * tile of weights at b, and with the one `next` bytes later if columns is 2. stride: bytes from one row of weights to
 * the next; a_stride: from one row of operands to the next. keep: a sum of KEEP_OPERANDS and KEEP_WEIGHTS. */
INLINE void t_step(const int numbers, const int keep, const int rows, const int columns, const char *a,
                   const char *lower, ptrdiff_t a_stride, const char *b, ptrdiff_t next, ptrdiff_t stride) {
    T_LOAD(keep & KEEP_OPERANDS, 4, a, a_stride)
    T_LOAD(keep & KEEP_WEIGHTS, 6, b, stride)
    T_ADD(0, 4, 6)
    if (columns == 2) {
        T_LOAD(keep & KEEP_WEIGHTS, 7, b + next, stride)
        T_ADD(1, 4, 7)
    }
    if (rows == 2) {
        T_LOAD(keep & KEEP_OPERANDS, 5, lower, a_stride)
        T_ADD(2, 5, 6)
        if (columns == 2) { T_ADD(3, 5, 7) }
    }
}

/* Store the sums of a block in rows that are `stride` bytes apart. */
INLINE void t_store_sums(const int rows, const int columns, float *sums, ptrdiff_t stride) {
    char *p = (char *)sums;
    t_store(0, p, stride);
    if (columns == 2) { t_store(1, p + 64, stride); }
    if (rows == 2) { t_store(2, p + TILE_ROWS * stride, stride); }
    if (rows == 2 && columns == 2) { t_store(3, p + TILE_ROWS * stride + 64, stride); }
    T_BARRIER();
}

/* Store the sums of a block, each tile in one run of 1 KB: those of the upper rows at `upper`, those of the others at
 * `lower`. A block has two tiles of columns. */
INLINE void t_store_tiles(const int rows, float *upper, float *lower) {
    t_store(0, upper, 64);
    t_store(1, upper + TILE_ROWS * 16, 64);
    if (rows == 2) { t_store(2, lower, 64); }
    if (rows == 2) { t_store(3, lower + TILE_ROWS * 16, 64); }
    T_BARRIER();
}

/* Multiply tiles in registers: the work of t_step on a full block without its loads. */
INLINE void t_round(const int numbers) {
    T_ADD(0, 4, 6)
    T_ADD(1, 4, 7)
    T_ADD(2, 5, 6)
    T_ADD(3, 5, 7)
}
INLINE void t_clear_all(void) {
    t_zero(0); t_zero(1); t_zero(2); t_zero(3); t_zero(4); t_zero(5); t_zero(6); t_zero(7);
}

/* Load 16 sums as integers, and convert them to float. */
INLINE vf t_integers(const float *sums) {
    t_lanes x;
    memcpy(&x, sums, sizeof x);
    return (vf)__builtin_convertvector(x, vf);
}

/* Return a - b of integers. */
INLINE vx t_minus(vx a, vx b) { return (vx)((t_bits)a - (t_bits)b); }

/* Load 16 sums of upper bytes and 16 of lower ones as integers, join them, and convert them to float. */
INLINE vf t_joined(const float *upper, const float *lower) {
    t_bits high, low;
    memcpy(&high, upper, sizeof high), memcpy(&low, lower, sizeof low);
    return __builtin_convertvector((t_lanes)((high << 8) + low), vf);
}

/* Round VL floats to 16-bit integers, and store their upper bytes at p and their lower bytes in the next tile. */
INLINE void t_store_int16(char *p, vf x) {
    typedef int16_t t_shorts __attribute__((vector_size(2 * VL)));
    typedef int8_t t_bytes __attribute__((vector_size(VL)));
    t_shorts codes;
    x_store_int16((int16_t *)&codes, x);
    t_bytes high = __builtin_convertvector(codes >> 8, t_bytes), low = __builtin_convertvector(codes, t_bytes);
    memcpy(p, &high, sizeof high), memcpy(p + TILE_BYTES, &low, sizeof low);
}

/* Return pairs of bfloat16 numbers: the upper halves of the lanes of `first`, and of `second`. */
INLINE t_bits t_zip(vf first, vf second) { return (t_bits)first >> 16 | ((t_bits)second & 0xffff0000); }

/* Return bfloat16 numbers as floats: cut, or the nearest ones, and of two that are as near the larger magnitude. */
INLINE vf t_upper(vf x) { return (vf)((t_bits)x & 0xffff0000); }
INLINE vf t_nearest(vf x) { return t_upper((vf)((t_bits)x + 0x8000)); }

/* Write VL pairs of floats, as lines of their parts, each `next` bytes behind the one before. Three parts add up to the
 * float, exactly, if it is 0 or at least 2^-103; otherwise the tiles, which take denormal numbers as zeros, lack less
 * than 2^-125. Two parts lack up to 2^-17 of the float more. Infinity and NaN have a NaN among their parts.
 *
 * Operands are rounded to nearest, so that the sign of what their products leave out is not that of the product. Three
 * parts of weights are cut, which takes 14 instructions and not 22; two would lack nearly three times as much then.
 *
 * parts, 2 or 3, has to be a constant, here and below. */
enum { PARTS = 3 }; /* the most */
INLINE void t_split_operands(const int parts, char *p, ptrdiff_t next, vf first, vf second) {
    const float largest = 0x1.fefffep127f; /* the largest float that rounds to a finite number */
    vf nearest_first = t_nearest(t_cut(first, largest)), nearest_second = t_nearest(t_cut(second, largest));
    t_bits line = t_zip(nearest_first, nearest_second);
    memcpy(p, &line, sizeof line);
    first = v_sub(first, nearest_first), second = v_sub(second, nearest_second);
    nearest_first = t_nearest(first), nearest_second = t_nearest(second);
    /* What is left has at most 8 significant bits. */
    vf left_first = v_sub(first, nearest_first), left_second = v_sub(second, nearest_second);
    if (parts == 2) {   /* the nearest number again, but NaN for NaN: adding to the bits of a NaN can make it 0 */
        line = t_zip(v_sub(first, left_first), v_sub(second, left_second));
        memcpy(p + next, &line, sizeof line);
        return;
    }
    line = t_zip(nearest_first, nearest_second);
    memcpy(p + next, &line, sizeof line);
    line = t_zip(left_first, left_second);
    memcpy(p + 2 * next, &line, sizeof line);
}
INLINE void t_split_weights(const int parts, char *p, ptrdiff_t next, vf first, vf second) {
    if (parts == 2) {
        t_split_operands(2, p, next, first, second);
        return;
    }
    for (int part = 0; part < 3; part++) {
        t_bits line = t_zip(first, second);
        memcpy(p + part * next, &line, sizeof line);
        first = v_sub(first, t_upper(first)), second = v_sub(second, t_upper(second));
    }
}

/* Load one or two tiles of operands, or of weights, which lie one after the other. keep: in the L1 cache. */
INLINE void t_load_operands(const int keep, const int rows, const char *a, const char *lower) {
    T_LOAD(keep, 4, a, 64)
    if (rows == 2) { T_LOAD(keep, 5, lower, 64) }
}
INLINE void t_load_weights(const int keep, const int columns, const char *b) {
    T_LOAD(keep, 6, b, 64)
    if (columns == 2) { T_LOAD(keep, 7, b + TILE_BYTES, 64) }
}

/* Add the products of the tiles of operands with those of weights to the sums of a block. */
INLINE void t_multiply(const int rows, const int columns) {
    t_add_pairs(0, 4, 6);
    if (columns == 2) { t_add_pairs(1, 4, 7); }
    if (rows == 2) { t_add_pairs(2, 5, 6); }
    if (rows == 2 && columns == 2) { t_add_pairs(3, 5, 7); }
}
/* The same for a block of one tile of rows, whose sums leave room for all parts of the operands, the last one in tile 2
 * or 3 and the first one in tile 4, and for those of 16 columns of weights in tiles 5, 6 and 7. */
INLINE void t_load_parts(const int parts, const char *a) {
    if (parts == 3) { t_stream(2, a + 2 * TILE_BYTES, 64); }
    t_stream(3, a + TILE_BYTES, 64);
    t_stream(4, a, 64);
}
/* Of the parts of operands, tile 4 has part 0, tile 3 part 1 and tile 2 part 2; tiles 5, 6 and 7 get parts 0, 1 and 2
 * of weights, one a call, from b. `column` is the tile of sums. Products come in the order that parts.pxi states. */
#define T_PART_OF_THREE(column, part, b)                                                            \
    if (part == 0) { t_stream(5, b, 64); t_add_pairs(column, 2, 5); t_add_pairs(column, 3, 5); }    \
    if (part == 1) { t_stream(6, b, 64); t_add_pairs(column, 3, 6); t_add_pairs(column, 4, 6); }    \
    if (part == 2) { t_stream(7, b, 64); t_add_pairs(column, 4, 7); t_add_pairs(column, 4, 5); }
#define T_PART_OF_TWO(column, part, b)                                                              \
    if (part == 0) { t_stream(5, b, 64); t_add_pairs(column, 3, 5); t_add_pairs(column, 4, 5); }    \
    if (part == 1) { t_stream(6, b, 64); t_add_pairs(column, 4, 6); }
#define T_PART_OF(column, part, b)                                                                  \
    if (parts == 3) { T_PART_OF_THREE(column, part, b) } else { T_PART_OF_TWO(column, part, b) }
/* Load a part of the weights of column 0 or 1 of a block, and add the products that it is the last to be loaded for. */
INLINE void t_multiply_part(const int parts, const int column, const int part, const char *b) {
    if (column == 0) {
        T_PART_OF(0, part, b)
    } else {
        T_PART_OF(1, part, b)
    }
}
INLINE void t_barrier(void) { T_BARRIER(); } /* for callers that write operands or weights by vectors */

/* Where a thread keeps weights that it has split: two panels of SIDE columns and FRESH steps of the depth, or two
 * steps. They begin at a page: at some other places a product of few rows took 1.13 times as long. */
enum { FRESH = 24, STEP_BYTES = PARTS * 2 * TILE_BYTES };
static _Thread_local struct { char panels[2][FRESH * STEP_BYTES] __attribute__((aligned(4096))); } t_weights;
INLINE char *t_weight_parts(int i) { return t_weights.panels[i]; }
