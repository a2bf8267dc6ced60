/* Choose the header of an instruction set. It defines a vector of floats, `vf`, with VL lanes, and products of float32,
 * bfloat16 and int8 numbers.
 *
 * Kernels (.pxi) are written once with the functions below and compiled once per instruction set. Each family of
 * instruction sets has one header, which also holds the variants of the family, such as AVX-512 with VNNI. x86.h holds
 * what AVX2 and AVX-512 have in common. common.h comes last: it holds the functions that are the same for all sets, and
 * formulas for functions for which most sets have no instruction. simd.pxi declares all of it for the kernels.
 *
 * ENGINE_NEON chooses neon.h, because every compiler for AArch64 defines its macro, also for portable code.
 * ENGINE_EMULATE_WIDE gives portable.h the sizes of AVX-512, so that its tiles can be tested on any machine.
 *
 * A header begins with its sizes. A panel has NR = NV*VL columns, that is NV vectors, and a tile has MR rows. The
 * register file must hold MR*NV accumulators, NV vectors of the panel and one broadcast value. KC is the largest K
 * block: its slice of a panel stays in the L2 cache while a block of rows is multiplied by it.
 *
 * Then it defines the functions of one vector. Where we say nothing, the name says it.
 *
 *   ISA_NAME            a macro: the name of the instruction set
 *   PAIRS, ALTERNATE    macros: the indices below, for VL lanes
 *   v_load, v_store     Load and store VL floats.
 *   v_loadn, v_storen   Load and store the first n floats; the other lanes are zeros.
 *   v_keep              Set the lanes from n on to zero.
 *   v_set1              Set every lane to x.
 *   v_add, v_sub, v_mul, v_div, v_abs, v_and, v_or
 *   v_max, v_min        If either operand is NaN, the result is the second operand.
 *   v_fma, v_fnma       Return a b + c, and c - a b.
 *   v_equal, v_less     Return a mask: a vector whose lanes are all ones or all zeros. v_less is false for NaN.
 *   v_load_mask         Read n bytes, and return ones where a byte is not zero; lanes from n on are zeros.
 *   v_select            Return a where the mask is set, otherwise b.
 *   v_raise             Add the low bits of z to the exponent of p, for v_scale in common.h.
 *   vfactor, v_factor   The type of the number that multiplies a vector in v_add_product; load such a number.
 *   v_all               Set every lane to that number.
 *   v_add_product       Return sum + a b in the register of `sum`. On all but portable code it is assembly because gcc,
 *                       when the steps are unrolled, compiles intrinsics to code that moves sums between registers and
 *                       spills some of them.
 *   FLOAT_INSTRUCTION   a macro: the instruction of v_add_product
 *
 * Dot products of 8-bit integers take DOT steps of depth at a time. Codes (activations) are from 0 to 255, weights from
 * -127 to 127. Sums are int32, and no instruction saturates.
 *
 *   DOT_INSTRUCTION     a macro: the instruction of d_dot
 *   DOT_MR              the rows of a tile
 *   DOT_STEPS           how often a tile's loop (depth.pxi) is unrolled, each time for DOT steps of depth
 *   DOT_ROWS            A `vd` holds the sums of DOT_ROWS rows and VL columns.
 *   DOT_GROUP           how many successive weights of a column lie together
 *   DOT_BOUND           1 if products are added in int16, so that the weights need a bound (x86.h); otherwise 0
 *   CODE_ZERO           the byte that stands for the code 0; codes count up from it, modulo 256
 *   d_start             Return the sums before the first product; `sums` are the sums of the weights of VL columns.
 *   d_float             Return the sums of a row, 0 or more, as floats.
 *   d_store             Round VL floats to the nearest codes and store them; NaN gives an unspecified code.
 *   d_codes             Load DOT codes of a row, as d_dot multiplies whole vectors by them, and of the next row if
 *                       DOT_ROWS is 2.
 *   d_weights           Load VL*DOT weights, [DOT/DOT_GROUP][VL][DOT_GROUP].
 *   d_dot               Return sum + the dot products of codes and weights. On all but portable code it is assembly,
 *                       because with intrinsics gcc computes all products of a step before adding them and runs out of
 *                       registers.
 *
 * Vectors of integers, `vx`, have VL lanes of int32, or two int16 in each lane, a pair. Sums are int32 and wrap.
 *
 *   INTEGER_INSTRUCTION a macro: the instruction of x_dot
 *   x_load, x_store     Load a whole vector; store VL int32.
 *   x_load_int8         Load 2*VL int8 and widen them to int16.
 *   x_set1              Set every lane to x.
 *   x_mul16             Multiply int16; the lower half of the products.
 *   x_dot               Return sum + a b, the products of both numbers of each pair added.
 *   x_float             Convert int32 to float.
 *   v_load_float16      Load VL finite float16 numbers and convert them to floats.
 *   x_store_int16       Round VL floats within the range of int16 to the nearest integers, and store them.
 *   x_store_int8        The same for int8.
 *
 * Weights of 4 bits are multiplied by codes from -127 to 127, four of each in a lane of a `vx`.
 *
 *   NIBBLE_MR           the rows of a tile
 *   NIBBLE_GROUPS       1 if a tile multiplies by groups of 16 steps, with n_group; 0 if by 4 steps, with n_dot
 *   n_half              Return the lower or the upper four bits of every byte, for i = 0 or 1.
 *   n_factors           Return the same of VL bytes in memory, each twice: in both int16 of its lane.
 *   n_dot               Return sum + the four products of each lane. Without NIBBLE_GROUPS weights are times the
 *                       factor of their group: up to 15 * 15. It is assembly for the reason that d_dot has.
 *   n_group             Return sum + factor times the products of four vectors of weights and 16 codes in memory.
 *
 * bfloat16 numbers are the upper halves of floats. Their products are added in float32. Two successive steps of depth,
 * a pair, lie in each 32-bit lane of the weights, the first in the lower half. A set without an instruction for such
 * products defines only p_weights. Its operands stay float32, because rounding them would save no time, and common.h
 * defines the rest, with PAIR_STEPS = 2. A set with an instruction defines all of these, with PAIR_STEPS = 1.
 *
 *   p_weights           Load VL pairs; if PAIR_STEPS is 2, the first or the second number of each pair.
 *   PAIR_INSTRUCTION    a macro: the instruction of p_dot
 *   operand, vp, vpair  the types of an operand, of weights, and of an operand or a pair that multiplies them
 *   p_operand           Load the operand at p, or the pair of operands if PAIR_STEPS is 1, as p_dot multiplies whole
 *                       vectors by it.
 *   p_lanes             Take the bits of any floats as weights, to measure how fast p_dot is.
 *   p_dot               Return sum + the products of operands and weights.
 *   p_store             Round VL floats half to even, if operands are bfloat16, and store them as operands.
 *   p_store_pairs       Round and store VL pairs of weights; only for PAIR_STEPS = 1.
 *
 * A set that multiplies two rows by two columns, four steps of depth at a time, defines these for its GEMMs, with
 * QUADS = 1:
 *
 *   QUAD_INSTRUCTION    a macro: the instruction of q_dot
 *   vq, vquad, vquads   the types of sums, operands and weights
 *   q_zero              Return empty sums of two rows and VL columns.
 *   q_operands          Load four operands of a row and of the next.
 *   q_weights           Load [VL][4] weights.
 *   q_dot               Return sum + the products.
 *   q_row               Return the sums of the first row, 0, or of the second, 1.
 *
 * A set that has instructions for some functions of common.h defines them, and says so by a macro:
 *
 *   ENGINE_SPLIT             v_parts, v_split and v_scale; it then needs no v_raise
 *   ENGINE_REDUCE            v_sum and v_largest
 *   ENGINE_WIDEN             v_load_int8, v_load_bfloat16 and v_load_half
 *   ENGINE_STORE_CODES       d_store_line
 *   ENGINE_STORE_OPERANDS    p_store_line */
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

/* Load four codes, or a pair of operands or of integers. */
INLINE int32_t load_32(const void *p) {
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

#if defined(ENGINE_EMULATE_WIDE)
#include "portable.h"
#elif defined(__AVX512F__)
#include "avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "avx2.h"
#elif defined(ENGINE_NEON)
#include "neon.h"
#else
#include "portable.h"
#endif

#include "common.h"
