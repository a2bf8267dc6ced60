"""Emit LLVM instructions on vectors of VL lanes."""

from __future__ import annotations

from llvmlite import ir
from numba.core.cgutils import get_or_insert_function

from ..target import FUSED, VL
from .pointers import SIZE

F32, I32 = ir.FloatType(), ir.IntType(32)
VF, VI = ir.VectorType(F32, VL), ir.VectorType(I32, VL)


def call(b: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    """Emit a call of an LLVM intrinsic."""
    function = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(get_or_insert_function(b.module, function, name), args)


def splat(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Broadcast a scalar to every lane."""
    kind = ir.VectorType(x.type, VL)
    first = b.insert_element(ir.Constant(kind, ir.Undefined), x, I32(0))
    return b.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(VI, [0] * VL))


def shuffle(b: ir.IRBuilder, x: ir.Value, y: ir.Value, lanes: list[int]) -> ir.Value:
    """Return a vector of the numbered lanes of x and y, counted through x and then y."""
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def shift(b: ir.IRBuilder, pointer: ir.Value, floats: ir.Value | int) -> ir.Value:
    """Return a pointer moved on by a number of floats."""
    return b.gep(pointer, [SIZE(floats) if isinstance(floats, int) else floats], source_etype=F32)


def load(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """Load VL floats."""
    return b.load(pointer, typ=VF, align=4)


def load_some(b: ir.IRBuilder, pointer: ir.Value, n: ir.Value) -> ir.Value:
    """Load n floats; other lanes are zero."""
    return call(b, f"llvm.masked.load.v{VL}f32.p0", VF, pointer, I32(4), first_lanes(b, n), VF(None))


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """Return x y + z."""
    return call(b, f"llvm.fma.v{VL}f32", VF, x, y, z) if FUSED else b.fadd(b.fmul(x, y), z)


def greater(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return the larger number in each lane, or y where either is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def fetch(b: ir.IRBuilder, pointer: ir.Value, locality: int) -> None:
    """Prefetch the cache line at `pointer`: into the L1 cache with locality 3, into the L2 cache with locality 2."""
    call(b, "llvm.prefetch.p0", ir.VoidType(), pointer, I32(0), I32(locality), I32(1))


def load_again(b: ir.IRBuilder) -> None:
    """Make LLVM load values again instead of keeping them, with an empty instruction that may change all memory."""
    b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)


def first_lanes(b: ir.IRBuilder, n: ir.Value) -> ir.Value:
    """Return a mask of the first n lanes."""
    return b.icmp_signed("<", ir.Constant(VI, list(range(VL))), splat(b, b.trunc(n, I32)))
