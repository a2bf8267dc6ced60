"""Dot products of 8-bit integers in LLVM's terms, as dot.h has them: codes from 0 to 255, weights from -127 to 127.

An operand is DOT steps of depth for each of VL lanes, laid out as its instruction wants it, in one vector or, where
there is no such instruction, in one for each step.
"""

from __future__ import annotations

from llvmlite import ir

from .emit import I32, VF, VI, call, splat
from .pointers import store
from .target import CODE_BYTES, DOT, INTEGERS, VL

Operand = list[ir.Value]

VH = ir.VectorType(ir.IntType(16), 2 * VL)
NO_SUM = ir.Constant(VI, [0] * VL)
MAGIC = ir.Constant(VF, [12582912.0] * VL)


def as_codes(b: ir.IRBuilder, bits: ir.Value) -> Operand:
    """The operand whose codes are the bytes, or the pairs of bytes, of each lane of `bits`."""
    if INTEGERS == "lanes":
        return [b.and_(b.lshr(bits, _all(8 * i)), _all(255)) for i in range(DOT)]
    return [b.bitcast(bits, VH)] if INTEGERS == "vpmaddwd" else [bits]


def as_weights(b: ir.IRBuilder, bits: ir.Value) -> Operand:
    """Likewise of weights."""
    if INTEGERS == "lanes":
        return [b.ashr(b.shl(bits, _all(24 - 8 * i)), _all(24)) for i in range(DOT)]
    return [b.bitcast(bits, VH)] if INTEGERS == "vpmaddwd" else [bits]


def load_codes(b: ir.IRBuilder, pointer: ir.Value) -> Operand:
    """The DOT codes from pointer on, in every lane."""
    return as_codes(b, splat(b, b.load(pointer, typ=I32, align=1)))


def load_weights(b: ir.IRBuilder, pointer: ir.Value) -> Operand:
    """VL*DOT weights, int8, from pointer on."""
    if INTEGERS == "vpmaddwd":
        return [b.sext(b.load(pointer, typ=ir.VectorType(ir.IntType(8), 2 * VL), align=1), VH)]
    return as_weights(b, b.load(pointer, typ=VI, align=1))


def dot(b: ir.IRBuilder, codes: Operand, weights: Operand, total: ir.Value) -> ir.Value:
    """total + the sum of DOT products, in each lane; nothing saturates."""
    for x, w in zip(codes, weights, strict=True):
        if INTEGERS == "vpdpbusd":
            total = call(b, f"llvm.x86.avx512.vpdpbusd.{32 * VL}", VI, total, x, w)
        elif INTEGERS == "vpmaddwd":
            name = "llvm.x86.avx512.pmaddw.d.512" if VL == 16 else "llvm.x86.avx2.pmadd.wd"
            total = b.add(total, call(b, name, VI, x, w))
        else:
            total = b.add(total, b.mul(x, w))
    return total


def store_codes(b: ir.IRBuilder, pointer: ir.Value, x: ir.Value) -> None:
    """VL codes, the nearest integers to x, which is from 0 to 255: adding 1.5*2^23 leaves them in the lowest bits."""
    narrow = ir.VectorType(ir.IntType(8 * CODE_BYTES), VL)
    store(b, pointer, b.trunc(b.bitcast(b.fadd(x, MAGIC), VI), narrow), 1)


def _all(x: int) -> ir.Constant:
    return ir.Constant(VI, [x] * VL)
