"""Define conversions between bits and masks of lanes, and between floats and ranks, for Numba functions."""

from __future__ import annotations

from llvmlite import ir
from numba import types

from ..target import VL
from .emit import F32, I32, VF, VI, call
from .pointers import SIZE
from .vector import emits, vector

_LANES = ir.VectorType(ir.IntType(1), VL)
_RANKS = I32(0x7FFFFFFF)


@emits(vector)
def v_mask_of(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Return a mask whose lane i is all ones if bit i is 1."""
    return b.bitcast(b.sext(b.bitcast(b.trunc(bits, ir.IntType(VL)), _LANES), VI), VF)


@emits(types.intp)
def v_bits_of(b: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Return an integer whose bit i is 1 if lane i of a mask is all ones."""
    return b.zext(b.bitcast(b.icmp_signed("<", b.bitcast(mask, VI), VI(None)), ir.IntType(VL)), SIZE)


@emits(types.intp)
def first_bit(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Return the place of the lowest bit that is set."""
    return call(b, "llvm.cttz.i64", SIZE, bits, ir.IntType(1)(1))


def _flip(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Flip all bits but the sign of a negative number."""
    return b.xor(bits, b.and_(b.ashr(bits, I32(31)), _RANKS))


@emits(types.intp)
def rank_of(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return an integer, the rank of a float, that is larger for a larger float."""
    return b.sext(_flip(b, b.bitcast(x, I32)), SIZE)


@emits(types.float32)
def with_rank(b: ir.IRBuilder, rank: ir.Value) -> ir.Value:
    """Return the float with this rank."""
    return b.bitcast(_flip(b, b.trunc(rank, I32)), F32)
