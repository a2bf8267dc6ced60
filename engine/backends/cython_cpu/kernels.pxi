# One instruction set's kernels, and the table that holds them. Each kernels_<isa>.pyx includes this file and is
# compiled with that instruction set's flags (setup.py). PAIR_STEPS is 1 where an instruction multiplies bfloat16 pairs;
# elsewhere weights in bfloat16 are widened, and rows stay floats.

from cpython.pycapsule cimport PyCapsule_New
from libc.float cimport FLT_MAX, FLT_MIN
from libc.math cimport INFINITY, M_LN2, M_LOG2E, M_SQRT1_2, NAN, frexp, rintf, sqrtf
from libc.string cimport memcpy, memset

from engine.backends.cpu.native.table cimport *

include "simd/simd.pxi"
include "kernels/elementwise.pxi"
include "kernels/depth.pxi"
include "kernels/tile.pxi"
include "kernels/operands.pxi"
include "kernels/bfloat16.pxi"
include "kernels/linear.pxi"
include "kernels/maxima.pxi"
include "kernels/attention.pxi"
include "kernels/relative.pxi"
include "kernels/scores.pxi"
include "kernels/attention_bfloat16.pxi"
include "kernels/weigh.pxi"
include "kernels/norm.pxi"
include "kernels/embed.pxi"
include "kernels/softmax.pxi"
include "kernels/rotary.pxi"
include "kernels/cells.pxi"
include "kernels/ranges.pxi"
include "kernels/cached_few.pxi"
include "kernels/cached_many.pxi"
include "kernels/cached_attention.pxi"
include "../cpu/native/best.pxi"
include "kernels/choose.pxi"
include "kernels/int8.pxi"
include "kernels/blocks.pxi"
include "kernels/integers.pxi"
include "kernels/nibbles.pxi"
include "kernels/roofline.pxi"

cdef extern from "kernel_table.h":
    const char* ENGINE_TABLE    # the name of the kernel table: `TABLE_NAME` of layout.py when this was built

cdef KernelTable TABLE
TABLE.isa = ISA_NAME
TABLE.VL = VL
TABLE.NR = NR
TABLE.MR = MR
TABLE.fused = FUSED
TABLE.layer_norm = layer_norm
TABLE.rms_norm = rms_norm
TABLE.softmax = softmax
TABLE.rotate = rotate
TABLE.weigh = weigh
TABLE.cached_attention_scratch = cached_attention_scratch
TABLE.cached_attention = cached_attention
TABLE.fold_ranges = fold_ranges
TABLE.choose = choose
TABLE.powers = scaled_powers
TABLE.keep_above = keep_above
TABLE.sum_above = sum_above
TABLE.log_sum_exp = log_sum_exp
TABLE.column_maxima = column_maxima
TABLE.embed = embed
TABLE.activate = activate
TABLE.gate = gate
TABLE.read = read

cdef Product* product
cdef int kind
for kind in range(<int>PRODUCTS):
    product = &TABLE.products[kind]
    product.strip = 1
    product.block = 64
    product.shared = 64
    product.bundle = 192

product = &TABLE.products[<int>FLOAT32_PRODUCT]
product.name = b"float32"
product.instruction = FLOAT_INSTRUCTION
product.depth_step = 1
product.operand_bytes = sizeof(float)
product.pack = pack
product.multiply = linear
product.attention_scratch = attention_scratch
product.attention = attention
product.rounds = fma_rounds

TABLE.products[<int>FMA_PRODUCT] = TABLE.products[<int>FLOAT32_PRODUCT]

product = &TABLE.products[<int>BFLOAT16X3_PRODUCT]
product[0] = TABLE.products[<int>FLOAT32_PRODUCT]
product.name = b"bfloat16x3"
product.multiply = NULL         # vectors have no such product

product = &TABLE.products[<int>BFLOAT16_PRODUCT]
product.name = b"bfloat16" if PAIR_STEPS == 1 else b"bfloat16_weights"
product.instruction = QUAD_INSTRUCTION
product.depth_step = WEIGHTS_TOGETHER
product.operand_bytes = sizeof(operand)
product.pack = pack_bfloat16
if PAIR_STEPS == 1:
    product.convert = to_operands
    product.operands_depth = KC * sizeof(float) // 2        # one K block: sums of several would wait in `data`
product.multiply = linear_bfloat16
product.attention_scratch = attention_bfloat16_scratch if PAIR_STEPS == 1 else attention_scratch
product.attention = attention_bfloat16 if PAIR_STEPS == 1 else attention
product.rounds = pair_rounds

product = &TABLE.products[<int>BFLOAT16_WEIGHTS_PRODUCT]
product[0] = TABLE.products[<int>FLOAT32_PRODUCT if PAIR_STEPS == 1 else <int>BFLOAT16_PRODUCT]
product.name = b"bfloat16_weights"
product.instruction = WIDENED_INSTRUCTION
product.depth_step = 2
if PAIR_STEPS == 1:
    product.pack = pack_widened
    product.multiply = linear_widened

product = &TABLE.products[<int>INT8_PRODUCT]
product.name = b"int8"
product.instruction = DOT_INSTRUCTION
product.depth_step = DOT
product.operand_bytes = 1
product.code_zero = CODE_ZERO
product.bounded = DOT_BOUND
product.pack = pack_int8
product.convert = quantize
product.multiply = linear_int8
product.attention_scratch = TABLE.products[<int>BFLOAT16_PRODUCT].attention_scratch
product.attention = TABLE.products[<int>BFLOAT16_PRODUCT].attention
product.rounds = dot_rounds

product = &TABLE.products[<int>INT16_PRODUCT]
product.name = b"int16"
product.instruction = INTEGER_INSTRUCTION
product.depth_step = BLOCK_DEPTH
product.operand_bytes = sizeof(short)
product.pack = pack_integers
product.convert = to_integers
product.multiply = linear_integers
product.attention_scratch = TABLE.products[<int>BFLOAT16_PRODUCT].attention_scratch
product.attention = TABLE.products[<int>BFLOAT16_PRODUCT].attention
product.rounds = integer_rounds

TABLE.products[<int>INT16_VECTORS_PRODUCT] = TABLE.products[<int>INT16_PRODUCT]

product = &TABLE.products[<int>CODES_PRODUCT]
product[0] = TABLE.products[<int>INT16_PRODUCT]
product.name = b"codes"
product.instruction = DOT_INSTRUCTION
product.beside = BESIDE_BLOCK
product.convert = to_codes
product.rounds = dot_rounds

table = PyCapsule_New(&TABLE, ENGINE_TABLE, NULL)
