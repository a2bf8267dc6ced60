"""Tiles: mr rows by nv vectors of columns, accumulated in registers over the depth, then one of three epilogues.

What tile.pxi is to the compiled kernels, as a generator: each (mr, nv) becomes an LLVM function of its own, which no
Numba typing passes over, behind a switch. Each accumulator sees its products one after the other, in order of depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.cgutils import alloca_once
from numba.extending import intrinsic

from . import dot, pairs
from .emit import F32, VF, fetch, fma, greater, load, shift, splat
from .pointers import BYTE, POINTER, SIZE, Pointer, store
from .target import DOT, DOT_MR, HALVES, LINE, MR, NV, OPERAND_BYTES, VL
from .vector import with_parameters

Sums = list[list[ir.Value]]
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


def _broadcast(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    return splat(b, b.load(pointer, typ=F32, align=4))


FLOATS = Arithmetic(F32, F32, VL, ir.Constant(VF, [0.0] * VL), _broadcast, lambda b, p, half: load(b, p), fma)
INTEGERS = Arithmetic(BYTE, BYTE, VL * DOT, dot.NO_SUM, dot.load_codes,
                      lambda b, p, half: dot.load_weights(b, p), dot.dot)
PAIRS = Arithmetic(ir.IntType(8 * OPERAND_BYTES), ir.IntType(16), VL * 2, FLOATS.zero, pairs.load_operand,
                   pairs.load_weights, pairs.dot, HALVES)


def _moved(b: ir.IRBuilder, pointer: ir.Value, by: ir.Value, element: ir.Type) -> ir.Value:
    return b.gep(pointer, [by], source_etype=element)


def _add_products(b: ir.IRBuilder, kind: Arithmetic, half: int, a: ir.Value, rows: list[ir.Value], w: ir.Value,
                  sums: Sums) -> Sums:
    """The sums with the products of one step of depth, or of one half of it; rows: where in a each row is."""
    columns = [kind.column(b, _moved(b, w, SIZE(j * kind.vector), kind.w), half) for j in range(len(sums[0]))]
    a = _moved(b, a, SIZE(half), kind.a)
    results = []
    for row, offset in zip(sums, rows, strict=True):
        x = kind.row(b, _moved(b, a, offset, kind.a))
        results.append([kind.add(b, x, column, total) for total, column in zip(row, columns, strict=True)])
    return results


def multiply(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, a_step: ir.Value,
             w: ir.Value, w_step: ir.Value, ahead: ir.Value | None = None, ahead_step: ir.Value | None = None,
             kind: Arithmetic = FLOATS) -> Sums:
    """sums[i][j] = sum over k < depth of a[i*a_stride + k*a_step] * w[k*w_step + j*vector ...]; depth is at least 1.

    Meanwhile `ahead` is fetched into the second-level cache, ahead_step bytes further at each step.
    """
    before, loop, after = b.block, b.append_basic_block("depth"), b.append_basic_block("after")
    rows = [b.mul(a_stride, SIZE(i)) for i in range(mr)]
    b.branch(loop)
    b.position_at_end(loop)

    def carried(start: ir.Value) -> ir.PhiInstr:
        phi = b.phi(start.type)
        phi.add_incoming(start, before)
        return phi

    left, a_now, w_now = carried(depth), carried(a), carried(w)
    ahead_now = carried(ahead) if ahead is not None else None
    sums = [[carried(kind.zero) for _ in range(nv)] for _ in range(mr)]
    fewer = b.sub(left, SIZE(1))
    following = [(left, fewer), (a_now, _moved(b, a_now, a_step, kind.a)), (w_now, _moved(b, w_now, w_step, kind.w))]
    results = _add_products(b, kind, 0, a_now, rows, w_now, sums)
    if ahead_now is not None:
        # Between the halves: as it may write for all that LLVM knows, weights are loaded again, not kept and spilled.
        fetch(b, ahead_now, 2)
        following.append((ahead_now, _moved(b, ahead_now, ahead_step, BYTE)))
    for half in range(1, kind.halves):
        results = _add_products(b, kind, half, a_now, rows, w_now, results)
    for row, totals in zip(sums, results, strict=True):
        following += zip(row, totals, strict=True)
    for phi, value in following:
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed(">", fewer, SIZE(0)), loop, after)
    b.position_at_end(after)
    return results


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
        rows = [b.mul(a_stride, SIZE(i)) for i in range(mr)]
        return _add_products(b, PAIRS, 0, _moved(b, a, k, PAIRS.a), rows, w_last, sums)

    if HALVES == 1:
        return whole(b.lshr(b.add(depth, SIZE(1)), SIZE(1)))
    none: Sums = [[PAIRS.zero] * nv for _ in range(mr)]
    sums = _either(b, b.icmp_signed(">", depth, SIZE(1)), lambda: whole(b.lshr(depth, SIZE(1))), lambda: none)
    return _either(b, b.trunc(depth, ir.IntType(1)), lambda: last(sums), lambda: sums)


def _either(b: ir.IRBuilder, condition: ir.Value, then: Callable[[], Sums], otherwise: Callable[[], Sums]) -> Sums:
    """The sums of one function where the condition holds, else of the other."""
    ways = []
    blocks, after = [b.append_basic_block(), b.append_basic_block()], b.append_basic_block()
    b.cbranch(condition, *blocks)
    for block, function in zip(blocks, (then, otherwise), strict=True):
        b.position_at_end(block)
        ways.append((function(), b.block))
        b.branch(after)
    b.position_at_end(after)
    merged = [[b.phi(VF) for _ in row] for row in ways[0][0]]
    for values, block in ways:
        for phis, row in zip(merged, values, strict=True):
            for phi, value in zip(phis, row, strict=True):
                phi.add_incoming(value, block)
    return merged


def _if_set(b: ir.IRBuilder, pointer: ir.Value, sums: Sums, change: Callable[[int, int, ir.Value], ir.Value],
            otherwise: Callable[[int, int, ir.Value], ir.Value] = lambda i, j, x: x) -> Sums:
    """The sums changed by one function where the pointer is set, by the other where it is null."""

    def changed(function: Callable[[int, int, ir.Value], ir.Value]) -> Callable[[], Sums]:
        return lambda: [[function(i, j, x) for j, x in enumerate(row)] for i, row in enumerate(sums)]

    return _either(b, b.icmp_unsigned("!=", pointer, EMPTY), changed(change), changed(otherwise))


def _linear(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
            out: ir.Value, out_stride: ir.Value, columns: ir.Value, bias: ir.Value, residual: ir.Value, ahead: ir.Value,
            ahead_step: ir.Value) -> None:
    """out = a w + bias + residual.

    a [mr][depth] tokens, w [depth][nv*VL] a panel slice; columns: offset in out, and in the residual, of each vector
    of columns; bias: null after the first slice of depth, then out is added to; residual: null before the last one.
    """

    def product() -> Sums:
        return multiply(b, mr, nv, depth, a, a_stride, SIZE(1), w, SIZE(nv * VL), ahead, ahead_step)

    _write(b, mr, nv, product, out, out_stride, columns, bias, residual)


def _pairs(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
           out: ir.Value, out_stride: ir.Value, columns: ir.Value, bias: ir.Value, residual: ir.Value, ahead: ir.Value,
           ahead_step: ir.Value) -> None:
    """Likewise of bfloat16, two steps of depth side by side: w [depth/2][nv*VL][2]."""

    def product() -> Sums:
        return multiply_pairs(b, mr, nv, depth, a, a_stride, w, ahead, ahead_step)

    _write(b, mr, nv, product, out, out_stride, columns, bias, residual)


def _write(b: ir.IRBuilder, mr: int, nv: int, product: Callable[[], Sums], out: ir.Value, out_stride: ir.Value,
           columns: ir.Value, bias: ir.Value, residual: ir.Value) -> None:
    offsets = [b.load(b.gep(columns, [SIZE(j)], source_etype=SIZE), typ=SIZE) for j in range(nv)]
    places = [[b.add(b.mul(out_stride, SIZE(i)), offset) for offset in offsets] for i in range(mr)]
    for row in places:
        for j in range(0, nv, LINE // VL):
            fetch(b, shift(b, out, row[j]), 3)
    sums = product()
    biases = [lambda i, j, x: b.fadd(x, load(b, shift(b, bias, j * VL))),
              lambda i, j, x: b.fadd(x, load(b, shift(b, out, places[i][j])))]
    sums = _if_set(b, bias, sums, *biases)
    sums = _if_set(b, residual, sums, lambda i, j, x: b.fadd(x, load(b, shift(b, residual, places[i][j]))))
    for i in range(mr):
        for j in range(nv):
            store(b, shift(b, out, places[i][j]), sums[i][j], 4)


def _dot(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
         out: ir.Value, out_stride: ir.Value, columns: ir.Value, ranges: ir.Value, scale: ir.Value, sums: ir.Value,
         bias: ir.Value, residual: ir.Value, ahead: ir.Value, ahead_step: ir.Value) -> None:
    """out = scale (step a w + low sums) + bias + residual, of codes a and integers w: see int8.pxi, and _linear."""
    products = multiply(b, mr, nv, depth, a, a_stride, SIZE(DOT), w, SIZE(nv * INTEGERS.vector), ahead, ahead_step,
                        INTEGERS)
    offsets = [b.load(b.gep(columns, [SIZE(j)], source_etype=SIZE), typ=SIZE) for j in range(nv)]
    places = [[b.add(b.mul(out_stride, SIZE(i)), offset) for offset in offsets] for i in range(mr)]
    results: Sums = []
    for i, row in enumerate(products):
        low, step = (_broadcast(b, shift(b, ranges, 2 * i + part)) for part in (0, 1))
        results.append([])
        for j, x in enumerate(row):
            y = b.fmul(low, load(b, shift(b, sums, j * VL)))
            y = fma(b, step, b.sitofp(x, VF), y)
            results[-1].append(fma(b, y, load(b, shift(b, scale, j * VL)), load(b, shift(b, bias, j * VL))))
    results = _if_set(b, residual, results, lambda i, j, x: b.fadd(x, load(b, shift(b, residual, places[i][j]))))
    for i in range(mr):
        for j in range(nv):
            store(b, shift(b, out, places[i][j]), results[i][j], 4)


def _scores(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
            out: ir.Value, out_stride: ir.Value, maximum: ir.Value) -> None:
    """out = a w, and the running maximum [nv*VL] of each column; a [mr][depth] keys, w [depth][nv*VL] queries."""
    sums = multiply(b, mr, nv, depth, a, a_stride, SIZE(1), w, SIZE(nv * VL))
    for j in range(nv):
        highest = load(b, shift(b, maximum, j * VL))
        for i in range(mr):
            store(b, shift(b, shift(b, out, b.mul(out_stride, SIZE(i))), j * VL), sums[i][j], 4)
            highest = greater(b, highest, sums[i][j])
        store(b, shift(b, maximum, j * VL), highest, 4)


def _context(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
             w_stride: ir.Value, out: ir.Value, out_stride: ir.Value, correction: ir.Value) -> None:
    """out = correction out + a w; a [depth][mr] is P^T, w [depth][nv*VL] values; correction null: out holds nothing."""
    sums = multiply(b, mr, nv, depth, a, SIZE(1), a_stride, w, w_stride)
    places = [[shift(b, shift(b, out, b.mul(out_stride, SIZE(i))), j * VL) for j in range(nv)] for i in range(mr)]

    def corrected(i: int, j: int, x: ir.Value) -> ir.Value:
        factor = b.load(shift(b, correction, i), typ=F32, align=4)
        return fma(b, load(b, places[i][j]), splat(b, factor), x)

    sums = _if_set(b, correction, sums, corrected)
    for i in range(mr):
        for j in range(nv):
            store(b, places[i][j], sums[i][j], 4)


def _function(module: ir.Module, body: Callable[..., None], mr: int, nv: int, kinds: list[ir.Type]) -> ir.Function:
    """The tile as a function of its own: tiles are small functions so that each has the registers to itself."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), f"tile{body.__name__}_{mr}_{nv}")
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    body(b, mr, nv, *function.args)
    b.ret_void()
    return function


def _tile(body: Callable[..., None], highest: int = MR) -> Any:
    """The ladder from run-time sizes (mr, nv) to compiled ones, mr up to `highest`; other arguments are the body's."""

    def tile(typing: Any, mr: Any, nv: Any, *args: Any) -> Any:
        kinds = [arg if isinstance(arg, Pointer) else types.intp for arg in args]

        def build(context: Any, b: ir.IRBuilder, sig: Any, values: Any) -> ir.Value:
            rows, vectors, *rest = values
            number = b.add(b.mul(rows, SIZE(NV)), vectors)
            after, nowhere = b.append_basic_block(), b.append_basic_block()
            switch = b.switch(number, nowhere)
            for i in range(1, highest + 1):
                for j in range(1, NV + 1):
                    block = b.append_basic_block()
                    switch.add_case(SIZE(i * NV + j), block)
                    b.position_at_end(block)
                    b.call(_function(b.module, body, i, j, [value.type for value in rest]), rest)
                    b.branch(after)
            b.position_at_end(nowhere)
            b.unreachable()
            b.position_at_end(after)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, *kinds), build

    return with_parameters(tile, body)


@intrinsic
def columns(typing: Any) -> Any:
    """Room for the offsets of a panel's vectors, on the stack."""

    def build(context: Any, b: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return b.bitcast(alloca_once(b, SIZE, NV), POINTER)

    return Pointer(types.intp)(), build


linear_tile = _tile(_linear)
pairs_tile = _tile(_pairs)
dot_tile = _tile(_dot, DOT_MR)
scores_tile = _tile(_scores)
context_tile = _tile(_context)
