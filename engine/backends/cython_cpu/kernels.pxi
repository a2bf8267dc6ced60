# One instruction set's kernels, and the table that holds them. Each kernels_<isa>.pyx includes this file and is
# compiled with that instruction set's flags (setup.py).

from cpython.pycapsule cimport PyCapsule_New
from libc.float cimport FLT_MAX
from libc.math cimport INFINITY, M_LOG2E, sqrtf
from libc.string cimport memcpy, memset

from engine.backends.cython_cpu.table cimport (
    BFLOAT16, FLOAT32, GELU, GELU_TANH, IDENTITY, INT8, RELU, SILU, Attention, Embedding, EmbeddingTable, KernelTable, Linear,
    LinearInt8, Norm, Output, Rotary, RowRange,
)

include "simd.pxi"
include "elementwise.pxi"
include "depth.pxi"
include "tile.pxi"
include "bfloat16.pxi"
include "linear.pxi"
include "attention.pxi"
include "scores.pxi"
include "attention_bfloat16.pxi"
include "norm.pxi"
include "embed.pxi"
include "softmax.pxi"
include "rotary.pxi"
include "int8.pxi"
include "roofline.pxi"

cdef KernelTable TABLE
TABLE.isa = ISA_NAME
TABLE.VL = VL
TABLE.NR = NR
TABLE.MR = MR
TABLE.DOT = DOT
TABLE.pack = pack
TABLE.linear = linear
TABLE.attention_scratch = attention_scratch
TABLE.attention = attention
TABLE.layer_norm = layer_norm
TABLE.rms_norm = rms_norm
TABLE.softmax = softmax
TABLE.rotate = rotate
TABLE.embed = embed
TABLE.activate = activate
TABLE.gate = gate
TABLE.quantize = quantize
TABLE.pack_int8 = pack_int8
TABLE.linear_int8 = linear_int8
TABLE.dot_rounds = dot_rounds
TABLE.operand_bytes = sizeof(operand)
TABLE.to_operands = to_operands
TABLE.pack_bfloat16 = pack_bfloat16
TABLE.linear_bfloat16 = linear_bfloat16
TABLE.pair_rounds = pair_rounds
if HALVES == 1:
    TABLE.attention_bfloat16_scratch = attention_bfloat16_scratch
    TABLE.attention_bfloat16 = attention_bfloat16
TABLE.fma_rounds = fma_rounds
TABLE.read = read

table = PyCapsule_New(&TABLE, "engine.KernelTable", NULL)
