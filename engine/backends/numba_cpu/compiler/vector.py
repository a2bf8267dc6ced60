"""Define a vector of floats with VL lanes for Numba functions, with the operations and names of simd.h.

Each operation is an intrinsic: b is an LLVM builder, x, y, p, n are LLVM values, VF and VI vectors of floats and int32.

The compiler must not reorder or contract these operations: none has a fast-math flag.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from ..target import VL
from .emit import I32, VF, VI, call, fetch, first_lanes, fma, greater, load, load_some, shift, shuffle, splat
from .pointers import SIZE, store


class _VectorType(types.Type):
    """The Numba type of `vf`."""

    def __init__(self) -> None:
        super().__init__(f"vector({VL} x float32)")


vector = _VectorType()


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: types.Type):
        super().__init__(manager, kind, VF)


def with_parameters(typing: Callable[..., Any], build: Callable[..., Any]) -> Any:
    """Return an intrinsic with the parameters of `build`; Numba would replace *args by a tuple."""
    typing.__signature__ = signature(build)  # type: ignore[attr-defined]
    return intrinsic(typing)


def emits(result: types.Type = types.void) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that turns a function that emits LLVM code into an intrinsic for kernels.

    The function gets a builder and the values of the arguments, and returns a value of this type; void stands for none.
    Integers come as intp, and other arguments as they are.
    """

    def intrinsic_of(emit: Callable[..., Any]) -> Any:
        """Return the intrinsic with the name, the parameters and the docstring of `emit`."""

        def typing(context: Any, *args: Any) -> Any:
            def build(context: Any, b: ir.IRBuilder, sig: Any, values: Any) -> ir.Value:
                value = emit(b, *values)
                return context.get_dummy_value() if result is types.void else value

            return result(*(types.intp if isinstance(arg, types.Integer) else arg for arg in args)), build

        typing.__name__, typing.__doc__ = emit.__name__, emit.__doc__
        return with_parameters(typing, emit)

    return intrinsic_of


def _of_vectors(build: Callable[..., ir.Value]) -> Any:
    """Return an intrinsic on vectors, from a function of a builder and LLVM values."""

    def operation(typing: Any, *args: Any) -> Any:
        if any(arg != vector for arg in args):
            return None     # so that Numba reports the types as unfit
        return vector(*args), lambda context, b, sig, values: build(b, *values)

    return with_parameters(operation, build)


v_add = _of_vectors(lambda b, x, y: b.fadd(x, y))
v_sub = _of_vectors(lambda b, x, y: b.fsub(x, y))
v_mul = _of_vectors(lambda b, x, y: b.fmul(x, y))
v_div = _of_vectors(lambda b, x, y: b.fdiv(x, y))
v_max = _of_vectors(greater)
v_min = _of_vectors(lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))
v_abs = _of_vectors(lambda b, x: call(b, f"llvm.fabs.v{VL}f32", VF, x))
v_fma = _of_vectors(fma)
v_fnma = _of_vectors(lambda b, x, y, z: fma(b, b.fneg(x), y, z))


def _scale(b: ir.IRBuilder, p: ir.Value, z: ir.Value) -> ir.Value:
    """Return p * 2^n, where z = n + 1.5*2^23: the low bits of z are n, which is added to the exponent of p."""
    exponent = b.shl(b.bitcast(z, VI), ir.Constant(VI, [23] * VL))
    return b.bitcast(b.add(b.bitcast(p, VI), exponent), VF)


v_scale = _of_vectors(_scale)


# A mask is a vector whose lanes are all ones or all zeros.

def _bits(operation: str) -> Any:
    """Return an intrinsic that applies an operation of LLVM to the bits of two vectors."""
    return _of_vectors(lambda b, x, y: b.bitcast(getattr(b, operation)(b.bitcast(x, VI), b.bitcast(y, VI)), VF))


def _mask(b: ir.IRBuilder, lanes: ir.Value) -> ir.Value:
    """Return the mask for VL booleans."""
    return b.bitcast(b.sext(lanes, VI), VF)


v_and, v_or = _bits("and_"), _bits("or_")
v_equal = _of_vectors(lambda b, x, y: _mask(b, b.fcmp_ordered("==", x, y)))
v_less = _of_vectors(lambda b, x, y: _mask(b, b.fcmp_ordered("<", x, y)))
v_select = _of_vectors(lambda b, mask, x, y: b.select(b.icmp_signed("<", b.bitcast(mask, VI), VI(None)), x, y))

PAIRS = [i // 2 + i % 2 * VL for i in range(2 * VL)]    # lane 0 of both vectors, then lane 1 of both, and so on
v_zip_low = _of_vectors(lambda b, x, y: shuffle(b, x, y, PAIRS[:VL]))
v_zip_high = _of_vectors(lambda b, x, y: shuffle(b, x, y, PAIRS[VL:]))
v_even = _of_vectors(lambda b, x, y: shuffle(b, x, y, list(range(0, 2 * VL, 2))))
v_odd = _of_vectors(lambda b, x, y: shuffle(b, x, y, list(range(1, 2 * VL, 2))))

v_iota = _of_vectors(lambda b: ir.Constant(VF, [float(i) for i in range(VL)]))


def _load_narrow(bits: int, widen: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Any:
    """Return an intrinsic that loads n integers of `bits` bits and converts them to a vector; other lanes are zero."""
    kind = ir.VectorType(ir.IntType(bits), VL)

    def load_widened(b: ir.IRBuilder, pointer: ir.Value, n: ir.Value) -> ir.Value:
        with b.if_else(b.icmp_signed(">=", n, SIZE(VL)), likely=True) as (then, otherwise):
            with then:
                all_lanes, all_block = b.load(pointer, typ=kind, align=1), b.block
            with otherwise:
                name, mask = f"llvm.masked.load.v{VL}i{bits}.p0", first_lanes(b, n)
                some_lanes = call(b, name, kind, pointer, I32(1), mask, kind(None))
                some_block = b.block
        lanes = b.phi(kind)
        lanes.add_incoming(all_lanes, all_block)
        lanes.add_incoming(some_lanes, some_block)
        return widen(b, lanes)

    return emits(vector)(load_widened)


def _upper_halves(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the floats whose upper halves are VL bfloat16 numbers."""
    return b.bitcast(b.shl(b.zext(x, VI), ir.Constant(VI, [16] * VL)), VF)


v_load_mask = _load_narrow(8, lambda b, x: _mask(b, b.icmp_unsigned("!=", x, x.type(None))))
v_load_int8 = _load_narrow(8, lambda b, x: b.sitofp(x, VF))
v_load_bfloat16 = _load_narrow(16, _upper_halves)


def _load_half(widen: Callable[[ir.IRBuilder, ir.Value], ir.Value]) -> Any:
    """Return an intrinsic that loads one number of each of VL pairs of bfloat16 numbers; `widen` makes it a float."""
    return emits(vector)(lambda b, p: b.bitcast(widen(b, b.load(p, typ=VI, align=1)), VF))


v_load_first = _load_half(lambda b, x: b.shl(x, ir.Constant(VI, [16] * VL)))
v_load_second = _load_half(lambda b, x: b.and_(x, ir.Constant(VI, [-65536] * VL)))        # without the lower 16 bits


@emits()
def transpose(b: ir.IRBuilder, pointer: ir.Value, step: ir.Value, target: ir.Value) -> None:
    """Transpose the rows of VL floats at `pointer` into `target` [VL][VL]; both may be equal.

    A round that zips row i with row i + VL/2 rotates the bits of (row, lane) by one place, so that after log2(VL)
    rounds row and lane are exchanged.
    """
    rows = [load(b, shift(b, pointer, b.mul(step, SIZE(i)))) for i in range(VL)]
    for _ in range(VL.bit_length() - 1):
        halves = zip(rows[: VL // 2], rows[VL // 2 :], strict=True)
        rows = [shuffle(b, x, y, lanes) for x, y in halves for lanes in (PAIRS[:VL], PAIRS[VL:])]
    for i, row in enumerate(rows):
        store(b, shift(b, target, i * VL), row, align=4)


@intrinsic
def v_set1(typing: Any, x: Any) -> Any:
    """Round x to float32 and broadcast it to every lane."""
    return vector(types.float32), lambda context, b, sig, args: splat(b, args[0])


@emits(vector)
def v_load(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    """Load VL floats from p."""
    return load(b, p)


@emits()
def v_store(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> None:
    """Store VL floats at p."""
    store(b, p, x, align=4)


@emits(vector)
def v_loadn(b: ir.IRBuilder, p: ir.Value, n: ir.Value) -> ir.Value:
    """Load n floats from p; other lanes are zero."""
    return load_some(b, p, n)


@emits()
def v_storen(b: ir.IRBuilder, pointer: ir.Value, value: ir.Value, count: ir.Value) -> None:
    """Store the first `count` lanes of a vector at `pointer`."""
    # Masked stores are slow on some CPUs. If the count is a constant, the compiler removes the branch.
    with b.if_else(b.icmp_signed(">=", count, SIZE(VL))) as (then, otherwise):
        with then:
            store(b, pointer, value, align=4)
        with otherwise:
            mask = first_lanes(b, count)
            call(b, f"llvm.masked.store.v{VL}f32.p0", ir.VoidType(), value, pointer, I32(4), mask)


@emits(vector)
def v_keep(b: ir.IRBuilder, x: ir.Value, n: ir.Value) -> ir.Value:
    """Keep the first n lanes and set the others to zero."""
    return b.select(first_lanes(b, n), x, VF(None))


@emits(types.float32)
def v_sum(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the sum of the lanes in a fixed order: the upper half is added to the lower half, repeatedly."""
    half = VL // 2
    while half:
        low, high = (shuffle(b, x, x, list(range(first, first + half))) for first in (0, half))
        x = b.fadd(low, high)
        half //= 2
    return b.extract_element(x, I32(0))


@emits(types.float32)
def v_largest(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return the largest lane; NaN may be ignored."""
    largest = b.extract_element(x, I32(0))
    for i in range(1, VL):
        lane = b.extract_element(x, I32(i))
        largest = b.select(b.fcmp_ordered(">", lane, largest), lane, largest)
    return largest


@emits()
def fetch_far(b: ir.IRBuilder, p: ir.Value) -> None:
    """Prefetch the cache line at p into the L2 cache."""
    fetch(b, p, locality=2)
