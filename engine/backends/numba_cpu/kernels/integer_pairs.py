"""Generate products of 16-bit integers as LLVM code, as simd/ does in C: a 32-bit lane holds two steps of depth."""

from __future__ import annotations

from llvmlite import ir

from ..compiler.emit import I32, VI, call, splat
from ..compiler.pointers import BYTE
from ..target import INTEGERS, VL

BLOCK_DEPTH = 32
"""The depth of a row and of a panel is padded to a multiple of it."""
FETCHED = 2048
"""Bytes of a panel that are prefetched ahead."""
SHORT = ir.IntType(16)
SHORTS = ir.VectorType(SHORT, 2 * VL)
NO_SUM = ir.Constant(VI, [0] * VL)
_PRODUCTS = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}    # vpmaddwd, by VL


def every(x: int) -> ir.Constant:
    """Return a vector with this integer in each lane."""
    return ir.Constant(VI, [x] * VL)


def dot(b: ir.IRBuilder, total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return total + x y, the products of both int16 of each lane added."""
    if VL in _PRODUCTS and INTEGERS != "lanes":
        return b.add(total, call(b, _PRODUCTS[VL], VI, b.bitcast(x, SHORTS), b.bitcast(y, SHORTS)))
    (x_low, x_high), (y_low, y_high) = [(b.ashr(b.shl(v, every(16)), every(16)), b.ashr(v, every(16))) for v in (x, y)]
    return b.add(b.add(total, b.mul(x_low, y_low)), b.mul(x_high, y_high))


def at(b: ir.IRBuilder, pointer: ir.Value, by: ir.Value, element: ir.Type = BYTE) -> ir.Value:
    """Return the pointer moved on by this number of elements."""
    return b.gep(pointer, [by], source_etype=element)


def pair(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """Broadcast the pair of int16 at `pointer` to every lane."""
    return splat(b, b.load(pointer, typ=I32, align=2))


def load_pairs_of_bytes(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """Load 2*VL int8 and widen them to int16."""
    return b.bitcast(b.sext(b.load(pointer, typ=ir.VectorType(BYTE, 2 * VL), align=1), SHORTS), VI)
