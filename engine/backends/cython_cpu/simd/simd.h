/* Choose the header of an instruction set. It defines a vector of floats, `vf`, with VL lanes, and products of float32,
 * bfloat16 and int8 numbers.
 *
 * Kernels (.pxi) are written once with the functions that simd.pxi lists, and compiled once per instruction set. Each
 * family of instruction sets has one header, which also holds the variants of the family, such as AVX-512 with VNNI.
 * x86.h holds what AVX2 and AVX-512 have in common. common.h comes last: it holds the functions that are the same for
 * all sets, and formulas for functions for which most sets have no instruction.
 *
 * ENGINE_NEON chooses neon.h, because every compiler for AArch64 defines its macro, also for portable code.
 * ENGINE_EMULATE_WIDE gives portable.h the sizes of AVX-512, so that its tiles can be tested on any machine.
 *
 * A header begins with its sizes. A panel has NR = NV*VL columns, that is NV vectors, and a tile has MR rows. The
 * register file must hold MR*NV accumulators, NV vectors of the panel and one broadcast value. KC is the largest K
 * block: its slice of a panel stays in the L2 cache while a block of rows is multiplied by it.
 *
 * Then it defines the functions of simd.pxi that common.h does not define, and for common.h these:
 *
 *   PAIRS, ALTERNATE    macros: the indices below, for VL lanes
 *   v_raise             Add the low bits of z to the exponent of p, for v_scale.
 *   PAIR_INSTRUCTION    a macro: the instruction of p_dot
 *
 * v_add_product, d_dot and n_dot are assembly on all but portable code, and v_add_product leaves its result in the
 * register of `sum`: when the steps are unrolled, gcc compiles intrinsics to code that moves sums between registers, or
 * computes all products of a step before it adds them, and spills some of them.
 *
 * A set without an instruction for products of bfloat16 numbers defines only p_weights. Its operands stay float32,
 * because rounding them would save no time, and common.h defines the rest, with PAIR_STEPS = 2. A set with an
 * instruction defines all functions of bfloat16, with PAIR_STEPS = 1. The functions that begin with q_ are for a set
 * that multiplies two rows by two columns, four steps of depth at a time, with QUADS = 1.
 *
 * A set that has instructions for some functions of common.h defines them, and says so by a macro:
 *
 *   ENGINE_SPLIT             v_parts, v_split and v_scale; it then needs no v_raise
 *   ENGINE_REDUCE            v_sum and v_largest
 *   ENGINE_MASKS             v_mask_of and v_bits_of
 *   ENGINE_BITS              v_bits_less and v_select_bits
 *   ENGINE_COMPRESS          v_store_set and x_store_set
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
