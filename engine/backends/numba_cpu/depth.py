"""The loop over the depth, which all tiles have: depth.pxi, as a generator of LLVM functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from . import dot, pairs
from .emit import F32, VF, fetch, fma, load, load_again, splat
from .flow import Sums, either, repeat
from .pointers import BYTE, POINTER, SIZE
from .target import DOT, HALVES, LINE, OPERAND_BYTES, STEPS, VL

EMPTY = ir.Constant(POINTER, None)


class Arithmetic(NamedTuple):
    """What a tile multiplies, and how."""

    a: ir.Type                          # what the strides of a count
    w: ir.Type                          # likewise of w
    vector: int                         # so many of w make a vector of columns
    zero: ir.Constant                   # no sum yet
    row: Callable[..., Any]             # (b, pointer into a): an operand alike in every lane
    column: Callable[..., Any]          # (b, pointer into w, half): another for each lane
    add: Callable[..., ir.Value]        # (b, row, column, sum): the sum with their product
    halves: int = 1                     # products in a step, of successive elements of a
    steps: int = STEPS                  # written out in a tile's loop


def broadcast(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    return splat(b, b.load(pointer, typ=F32, align=4))


FLOATS = Arithmetic(F32, F32, VL, ir.Constant(VF, [0.0] * VL), broadcast, lambda b, p, half: load(b, p), fma)
INTEGERS = Arithmetic(BYTE, BYTE, VL * DOT, dot.NO_SUM, dot.load_codes,
                      lambda b, p, half: dot.load_weights(b, p), dot.dot, steps=STEPS if DOT == 4 else 1)
PAIRS = Arithmetic(ir.IntType(8 * OPERAND_BYTES), ir.IntType(16), VL * 2, FLOATS.zero, pairs.load_operand,
                   pairs.load_weights, pairs.dot, HALVES)


def _moved(b: ir.IRBuilder, pointer: ir.Value, by: ir.Value, element: ir.Type) -> ir.Value:
    return b.gep(pointer, [by], source_etype=element)


def _add_products(b: ir.IRBuilder, kind: Arithmetic, half: int, a: ir.Value, rows: list[ir.Value], w: ir.Value,
                  sums: Sums) -> Sums:
    """The sums with the products of one step of depth, or of one half of it; rows: where in a the first four rows are.

    Others are reached from the fourth, as in depth.pxi: six rows take few registers.
    """
    columns = [kind.column(b, _moved(b, w, SIZE(j * kind.vector), kind.w), half) for j in range(len(sums[0]))]
    a = _moved(b, a, SIZE(half), kind.a)
    high = _moved(b, a, rows[3], kind.a)
    results = []
    for i, row in enumerate(sums):
        x = kind.row(b, _moved(b, a if i < 3 else high, rows[i % 3], kind.a))
        results.append([kind.add(b, x, column, total) for total, column in zip(row, columns, strict=True)])
    return results


def _fetch_lines(b: ir.IRBuilder, pointer: ir.Value, size: ir.Value) -> None:
    """Ask for the lines of so many bytes, at least one."""
    fetch(b, pointer, 2)

    def another(values: list[ir.Value]) -> list[ir.Value]:
        following = _moved(b, values[0], SIZE(4 * LINE), BYTE)
        fetch(b, following, 2)
        return [following]

    repeat(b, b.lshr(b.sub(size, SIZE(1)), SIZE((4 * LINE).bit_length() - 1)), [pointer], another)


def multiply(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, a_step: ir.Value,
             w: ir.Value, w_step: ir.Value, ahead: ir.Value = EMPTY, ahead_step: ir.Value | None = None,
             kind: Arithmetic = FLOATS) -> Sums:
    """sums[i][j] = sum over k < depth of a[i*a_stride + k*a_step] * w[k*w_step + j*vector ...]

    Meanwhile `ahead` is fetched into the second-level cache, ahead_step bytes further at each step.
    """
    rows = [b.mul(a_stride, SIZE(i)) for i in range(4)]

    def rounds(times: ir.Value, steps: int, values: list[ir.Value], size: ir.Value | None = None) -> list[ir.Value]:
        """So many times, so many steps written out, fetching that many bytes; values: a, w, ahead and the sums."""

        def body(values: list[ir.Value]) -> list[ir.Value]:
            a, w, ahead, *totals = values
            sums = _by_rows(totals, nv)
            if size is not None:
                _fetch_lines(b, ahead, size)
                ahead = _moved(b, ahead, size, BYTE)
            for _ in range(steps):
                for half in range(kind.halves):
                    sums = _add_products(b, kind, half, a, rows, w, sums)
                    if kind.halves > 1:
                        load_again(b)       # else weights are kept from one half to the next, and spilled
                a, w = _moved(b, a, a_step, kind.a), _moved(b, w, w_step, kind.w)
            return [a, w, ahead, *(total for row in sums for total in row)]

        return repeat(b, times, values, body)

    steps = SIZE(kind.steps)
    size = b.mul(ahead_step, steps) if ahead_step is not None else None
    values = rounds(b.sdiv(depth, steps), kind.steps, [a, w, ahead, *[kind.zero] * (mr * nv)], size)
    if kind.steps > 1:
        values = rounds(b.srem(depth, steps), 1, values)
    return _by_rows(values[3:], nv)


def _by_rows(values: list[ir.Value], nv: int) -> Sums:
    return [values[i : i + nv] for i in range(0, len(values), nv)]


def multiply_pairs(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
                   ahead: ir.Value, ahead_step: ir.Value) -> Sums:
    """The same of bfloat16 weights [depth/2][nv*VL][2]. Where HALVES is 1 rows are padded to whole pairs, else not read
    beyond depth."""
    width = nv * PAIRS.vector

    def whole(pairs_of_steps: ir.Value) -> Sums:
        return multiply(b, mr, nv, pairs_of_steps, a, a_stride, SIZE(2), w, SIZE(width), ahead, ahead_step, PAIRS)

    def last(sums: Sums) -> Sums:
        k = b.sub(depth, SIZE(1))
        w_last = _moved(b, w, b.mul(k, SIZE(width // 2)), PAIRS.w)
        rows = [b.mul(a_stride, SIZE(i)) for i in range(4)]
        return _add_products(b, PAIRS, 0, _moved(b, a, k, PAIRS.a), rows, w_last, sums)

    if HALVES == 1:
        return whole(b.lshr(b.add(depth, SIZE(1)), SIZE(1)))
    sums = whole(b.lshr(depth, SIZE(1)))
    return either(b, b.trunc(depth, ir.IntType(1)), lambda: last(sums), lambda: sums)
