"""Generate the loop over the depth, which all tiles share: depth.pxi as a generator of LLVM code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from ..compiler.emit import F32, VF, VI, fetch, fma, load, load_again, splat
from ..compiler.flow import Sums, either, repeat
from ..compiler.pointers import BYTE, POINTER, SIZE
from ..target import DOT, LINE, STEPS, VL
from . import dot
from .integer_pairs import NO_SUM, every

EMPTY = ir.Constant(POINTER, None)      # a null pointer


class Arithmetic(NamedTuple):
    """The operand types and the arithmetic of a tile's loop."""

    a: ir.Type                          # element of a, in which its strides are counted
    w: ir.Type                          # element of w, in which its strides are counted
    vector: int                         # elements of w in a vector of columns
    zero: ir.Constant                   # initial value of a sum
    row: Callable[..., Any]             # (b, pointer into a) -> operand with one value in every lane
    column: Callable[..., Any]          # (b, pointer into w, half) -> operand with one value for each lane
    add: Callable[..., ir.Value]        # (b, row, column, sum) -> sum + row * column
    pair_steps: int = 1                 # products in a step, each with the next element of a
    steps: int = STEPS                  # unrolled steps of a tile's loop


def broadcast(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """Load a float into every lane."""
    return splat(b, b.load(pointer, typ=F32, align=4))


def load_widened(b: ir.IRBuilder, pointer: ir.Value, half: int) -> ir.Value:
    """Load VL pairs of bfloat16 weights, and return the first or the second number of each as float."""
    pairs = b.load(pointer, typ=VI, align=2)
    widened = b.and_(pairs, every(0xFFFF0000)) if half else b.shl(pairs, every(16))
    return b.bitcast(widened, VF)


FLOATS = Arithmetic(a=F32, w=F32, vector=VL, zero=ir.Constant(VF, [0.0] * VL), row=broadcast,
                    column=lambda b, p, half: load(b, p), add=fma)
INTEGERS = Arithmetic(a=BYTE, w=BYTE, vector=VL * DOT, zero=NO_SUM, row=dot.load_codes,
                      column=lambda b, p, half: dot.load_weights(b, p), add=dot.dot, steps=STEPS if DOT == 4 else 1)
WIDENED = Arithmetic(a=F32, w=ir.IntType(16), vector=VL * 2, zero=FLOATS.zero, row=broadcast,
                     column=load_widened, add=fma, pair_steps=2)
"""Weights in bfloat16 and operands in float32."""


def _advance(b: ir.IRBuilder, pointer: ir.Value, by: ir.Value, element: ir.Type) -> ir.Value:
    """Return the pointer moved on by this number of elements."""
    return b.gep(pointer, [by], source_etype=element)


def _add_products(b: ir.IRBuilder, kind: Arithmetic, half: int, a: ir.Value, rows: list[ir.Value], w: ir.Value,
                  sums: Sums) -> Sums:
    """Add the products of one step of depth, or of one half of it, to the sums.

    rows: offsets in a of the first four rows. Later ones are addressed from the fourth, which saves registers.
    """
    columns = [kind.column(b, _advance(b, w, SIZE(j * kind.vector), kind.w), half) for j in range(len(sums[0]))]
    a = _advance(b, a, SIZE(half), kind.a)
    fourth = _advance(b, a, rows[3], kind.a)
    results = []
    for i, row in enumerate(sums):      # row i >= 3 lies rows[i - 3] behind the fourth one; a tile has 6 rows at most
        x = kind.row(b, _advance(b, a if i < 3 else fourth, rows[i % 3], kind.a))
        results.append([kind.add(b, x, column, total) for total, column in zip(row, columns, strict=True)])
    return results


def fetch_lines(b: ir.IRBuilder, pointer: ir.Value, size: ir.Value) -> None:
    """Emit the prefetch of the cache lines that hold `size` bytes, at least one line, into the L2 cache."""
    fetch(b, pointer, locality=2)

    def another(values: list[ir.Value]) -> list[ir.Value]:
        following = _advance(b, values[0], SIZE(4 * LINE), BYTE)
        fetch(b, following, locality=2)
        return [following]

    further_lines = b.lshr(b.sub(size, SIZE(1)), SIZE((4 * LINE).bit_length() - 1))     # (size - 1) // (4 * LINE)
    repeat(b, further_lines, [pointer], another)


def multiply(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, a_step: ir.Value,
             w: ir.Value, w_step: ir.Value, ahead: ir.Value = EMPTY, ahead_step: ir.Value | None = None,
             kind: Arithmetic = FLOATS) -> Sums:
    """Return sums[i][j] = sum over k < depth of a[i*a_stride + k*a_step] * w[k*w_step + j*vector ...].

    Meanwhile `ahead` is prefetched into the L2 cache, and advances by ahead_step bytes in each step.
    """
    rows = [b.mul(a_stride, SIZE(i)) for i in range(4)]

    def rounds(times: ir.Value, steps: int, values: list[ir.Value], size: ir.Value | None = None) -> list[ir.Value]:
        """Run `times` iterations of `steps` unrolled steps; each prefetches `size` bytes. values: a, w, ahead, sums."""

        def body(values: list[ir.Value]) -> list[ir.Value]:
            a, w, ahead, *totals = values
            sums = _by_rows(totals, nv)
            if size is not None:
                fetch_lines(b, ahead, size)
                ahead = _advance(b, ahead, size, BYTE)
            for _ in range(steps):
                for half in range(kind.pair_steps):
                    sums = _add_products(b, kind, half, a, rows, w, sums)
                    if kind.pair_steps > 1:
                        load_again(b)       # without this, LLVM keeps weights for the second half and spills them
                a, w = _advance(b, a, a_step, kind.a), _advance(b, w, w_step, kind.w)
            return [a, w, ahead, *(total for row in sums for total in row)]

        return repeat(b, times, values, body)

    # The loop of unrolled steps, then the steps that remain, one by one.
    steps = SIZE(kind.steps)
    size = b.mul(ahead_step, steps) if ahead_step is not None else None
    values = rounds(b.sdiv(depth, steps), kind.steps, [a, w, ahead, *[kind.zero] * (mr * nv)], size)
    if kind.steps > 1:
        values = rounds(b.srem(depth, steps), 1, values)
    return _by_rows(values[3:], nv)


def _by_rows(values: list[ir.Value], nv: int) -> Sums:
    """Return the sums of a tile, which lie row by row in a list, as a list for each row."""
    return [values[i : i + nv] for i in range(0, len(values), nv)]


def multiply_widened(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
                     ahead: ir.Value, ahead_step: ir.Value) -> Sums:
    """Return the same sums as multiply for bfloat16 weights [depth/2][nv*VL][2]; a is not read beyond depth."""
    width = nv * WIDENED.vector

    def add_last_step() -> Sums:        # of an odd depth: the first numbers of the last pairs of weights
        k = b.sub(depth, SIZE(1))
        w_last = _advance(b, w, b.mul(k, SIZE(width // 2)), WIDENED.w)
        rows = [b.mul(a_stride, SIZE(i)) for i in range(4)]
        return _add_products(b, WIDENED, 0, _advance(b, a, k, WIDENED.a), rows, w_last, sums)

    pairs = b.lshr(depth, SIZE(1))
    sums = multiply(b, mr, nv, pairs, a, a_stride, SIZE(2), w, SIZE(width), ahead, ahead_step, WIDENED)
    depth_is_odd = b.trunc(depth, ir.IntType(1))
    return either(b, depth_is_odd, add_last_step, lambda: sums)
