"""Generate products of bfloat16 as LLVM code, as simd/ does in C: a 32-bit lane holds a pair, two steps of depth.

If the CPU has vdpbf16ps, an operand is a pair. Otherwise an operand is a float, which is multiplied by one half of a
pair of weights, converted to float.
"""

from __future__ import annotations

from llvmlite import ir

from ..compiler.emit import F32, I32, VF, VI, call, fma, splat
from ..compiler.pointers import store
from ..target import OPERAND_BYTES, PAIR_STEPS, VL
from .integer_pairs import every

# LLVM's signatures of these two instructions now have bfloat, but LLVM still accepts the integers that they had before.
ROUNDED = ir.VectorType(ir.IntType(16), VL)


def load_operand(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """Broadcast the number, or the pair of numbers, at `pointer` to every lane."""
    return splat(b, b.load(pointer, typ=I32 if PAIR_STEPS == 1 else F32, align=OPERAND_BYTES))


def load_widened(b: ir.IRBuilder, pointer: ir.Value, half: int) -> ir.Value:
    """Load VL pairs of weights, and return the first or the second number of each as float."""
    pairs = b.load(pointer, typ=VI, align=2)
    widened = b.and_(pairs, every(0xFFFF0000)) if half else b.shl(pairs, every(16))
    return b.bitcast(widened, VF)


def load_weights(b: ir.IRBuilder, pointer: ir.Value, half: int) -> ir.Value:
    """Load VL pairs of weights; if PAIR_STEPS is 2, one number of each, as `load_widened` does."""
    return b.load(pointer, typ=VI, align=2) if PAIR_STEPS == 1 else load_widened(b, pointer, half)


def dot(b: ir.IRBuilder, x: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
    """Return total + the product in each lane, or the sum of a pair's two products."""
    if PAIR_STEPS == 2:
        return fma(b, x, weights, total)
    return call(b, "llvm.x86.avx512bf16.dpbf16ps.512", VF, total, x, weights)


def rounded(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Round VL floats to bfloat16, half to even, and return the bits."""
    return call(b, "llvm.x86.avx512bf16.cvtneps2bf16.512", ROUNDED, x)


def store_operands(b: ir.IRBuilder, pointer: ir.Value, x: ir.Value) -> None:
    """Convert VL floats to operands and store them."""
    store(b, pointer, rounded(b, x) if PAIR_STEPS == 1 else x, OPERAND_BYTES)
