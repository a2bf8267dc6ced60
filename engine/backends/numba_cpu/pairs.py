"""Products of bfloat16 in LLVM's terms, as bfloat16.h has them: a 32-bit lane holds a pair, two steps of depth.

Where the CPU has vdpbf16ps an operand is a pair; elsewhere it is a float, and takes one half of a pair, widened.
"""

from __future__ import annotations

from llvmlite import ir

from .emit import F32, I32, VF, VI, call, fma, splat
from .pointers import store
from .target import HALVES, OPERAND_BYTES, VL

# LLVM now has bfloat in the signatures of these two instructions, but reads integers, as they were, in its place.
ROUNDED = ir.VectorType(ir.IntType(16), VL)


def load_operand(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """The number, or the pair, from pointer on, in every lane."""
    return splat(b, b.load(pointer, typ=I32 if HALVES == 1 else F32, align=OPERAND_BYTES))


def load_weights(b: ir.IRBuilder, pointer: ir.Value, half: int) -> ir.Value:
    """VL pairs of weights from pointer on; with HALVES = 2, the first or second of each."""
    pairs = b.load(pointer, typ=VI, align=2)
    if HALVES == 1:
        return pairs
    widened = b.and_(pairs, _all(0xFFFF0000)) if half else b.shl(pairs, _all(16))
    return b.bitcast(widened, VF)


def dot(b: ir.IRBuilder, x: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
    """total + the product, or the sum of a pair's, in each lane."""
    if HALVES == 2:
        return fma(b, x, weights, total)
    return call(b, "llvm.x86.avx512bf16.dpbf16ps.512", VF, total, x, weights)


def rounded(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """The bits of VL floats rounded half to even."""
    return call(b, "llvm.x86.avx512bf16.cvtneps2bf16.512", ROUNDED, x)


def store_operands(b: ir.IRBuilder, pointer: ir.Value, x: ir.Value) -> None:
    """VL operands, of floats."""
    store(b, pointer, rounded(b, x) if HALVES == 1 else x, OPERAND_BYTES)


def _all(x: int) -> ir.Constant:
    return ir.Constant(VI, [x] * VL)
