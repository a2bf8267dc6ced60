"""Generate tiles of a GEMM: mr rows by nv vectors of columns, accumulated in registers, then one of four epilogues.

This module generates as LLVM code what tile.pxi contains. Each (mr, nv) is a separate LLVM function, which Numba does
not have to type, and a switch selects it. Each accumulator adds its products in order of depth, so that the bits of a
result do not depend on the tile. b is an LLVM builder; strides count elements, and `shift` moves a pointer by floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from ..compiler.emit import F32, VF, fetch, fma, greater, load, shift, splat
from ..compiler.flow import Sums, either
from ..compiler.pointers import SIZE, Pointer, on_stack, store
from ..compiler.vector import with_parameters
from ..target import DOT, DOT_MR, LINE, MR, NV, VL
from .depth import EMPTY, INTEGERS, broadcast, multiply, multiply_widened


def _if_set(b: ir.IRBuilder, pointer: ir.Value, sums: Sums, change: Callable[[int, int, ir.Value], ir.Value],
            otherwise: Callable[[int, int, ir.Value], ir.Value] = lambda i, j, x: x) -> Sums:
    """Apply one function to the sums if the pointer is set, and another if it is null."""

    def changed(function: Callable[[int, int, ir.Value], ir.Value]) -> Callable[[], Sums]:
        return lambda: [[function(i, j, x) for j, x in enumerate(row)] for i, row in enumerate(sums)]

    return either(b, b.icmp_unsigned("!=", pointer, EMPTY), changed(change), changed(otherwise))


def _linear(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
            out: ir.Value, out_stride: ir.Value, columns: ir.Value, bias: ir.Value, residual: ir.Value, ahead: ir.Value,
            ahead_step: ir.Value) -> None:
    """Compute out = a w + bias + residual.

    a [mr][depth] tokens, w [depth][nv*VL] a panel's K block. columns: offset of each vector of columns in out and in
    the residual. bias: null after the first K block; then out is added instead. residual: null before the last K block.
    ahead: what to prefetch, ahead_step bytes in each step of depth.
    """
    def product() -> Sums:
        a_step, w_step = SIZE(1), SIZE(nv * VL)
        return multiply(b, mr, nv, depth, a, a_stride, a_step, w, w_step, ahead, ahead_step)

    _write(b, mr, nv, product, out, out_stride, columns, bias, residual)


def _widened(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
             out: ir.Value, out_stride: ir.Value, columns: ir.Value, bias: ir.Value, residual: ir.Value,
             ahead: ir.Value, ahead_step: ir.Value) -> None:
    """Compute as _linear with weights in bfloat16, two steps of depth side by side: w [depth/2][nv*VL][2]."""
    def product() -> Sums:
        return multiply_widened(b, mr, nv, depth, a, a_stride, w, ahead, ahead_step)

    _write(b, mr, nv, product, out, out_stride, columns, bias, residual)


def _write(b: ir.IRBuilder, mr: int, nv: int, product: Callable[[], Sums], out: ir.Value, out_stride: ir.Value,
           columns: ir.Value, bias: ir.Value, residual: ir.Value) -> None:
    """Write out = product() + bias + residual for [mr][nv] vectors; see _linear.

    Without a bias, `out` is added: the sums of the K blocks before. It is prefetched ahead of the product.
    """
    offsets = [b.load(b.gep(columns, [SIZE(j)], source_etype=SIZE), typ=SIZE) for j in range(nv)]
    places = [[b.add(b.mul(out_stride, SIZE(i)), offset) for offset in offsets] for i in range(mr)]
    for row in places:
        for j in range(0, nv, LINE // VL):
            fetch(b, shift(b, out, row[j]), locality=3)
    sums = product()
    sums = _if_set(b, bias, sums,
                   lambda i, j, x: b.fadd(x, load(b, shift(b, bias, j * VL))),
                   otherwise=lambda i, j, x: b.fadd(x, load(b, shift(b, out, places[i][j]))))
    sums = _if_set(b, residual, sums, lambda i, j, x: b.fadd(x, load(b, shift(b, residual, places[i][j]))))
    for i in range(mr):
        for j in range(nv):
            store(b, shift(b, out, places[i][j]), sums[i][j], align=4)


def _dot(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
         out: ir.Value, out_stride: ir.Value, columns: ir.Value, ranges: ir.Value, scale: ir.Value, sums: ir.Value,
         bias: ir.Value, residual: ir.Value, ahead: ir.Value, ahead_step: ir.Value) -> None:
    """Compute out = scale (step a w + low sums) + bias + residual, for codes a and integers w; see int8.pxi.

    ranges: (low, step) of each row. sums: of the integers of each column. The other arguments are those of _linear.
    """
    products = multiply(b, mr, nv, depth, a, a_stride, SIZE(DOT), w, SIZE(nv * INTEGERS.vector), ahead, ahead_step,
                        INTEGERS)
    offsets = [b.load(b.gep(columns, [SIZE(j)], source_etype=SIZE), typ=SIZE) for j in range(nv)]
    places = [[b.add(b.mul(out_stride, SIZE(i)), offset) for offset in offsets] for i in range(mr)]
    results: Sums = []
    for i, row in enumerate(products):
        low, step = (broadcast(b, shift(b, ranges, 2 * i + part)) for part in (0, 1))
        results.append([])
        for j, x in enumerate(row):
            y = b.fmul(low, load(b, shift(b, sums, j * VL)))
            y = fma(b, step, b.sitofp(x, VF), y)
            results[-1].append(fma(b, y, load(b, shift(b, scale, j * VL)), load(b, shift(b, bias, j * VL))))
    results = _if_set(b, residual, results, lambda i, j, x: b.fadd(x, load(b, shift(b, residual, places[i][j]))))
    for i in range(mr):
        for j in range(nv):
            store(b, shift(b, out, places[i][j]), results[i][j], align=4)


def _scores(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
            out: ir.Value, out_stride: ir.Value, maximum: ir.Value) -> None:
    """Compute out = a w, and update the maximum [nv*VL] of each column.

    a [mr][depth] keys, w [depth][nv*VL] queries.
    """
    sums = multiply(b, mr, nv, depth, a, a_stride, SIZE(1), w, SIZE(nv * VL))
    for j in range(nv):
        highest = load(b, shift(b, maximum, j * VL))
        for i in range(mr):
            store(b, shift(b, shift(b, out, b.mul(out_stride, SIZE(i))), j * VL), sums[i][j], align=4)
            highest = greater(b, highest, sums[i][j])
        store(b, shift(b, maximum, j * VL), highest, align=4)


def _maxima(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
            out: ir.Value, bias: ir.Value, maximum: ir.Value, ahead: ir.Value, ahead_step: ir.Value) -> None:
    """Update the maximum [nv*VL] of each column with a w + bias; NaN becomes the maximum.

    a [mr][depth] tokens, w [depth][nv*VL] a panel's K block. bias: null after the first K block; out [mr][NR] is added.
    """
    sums = multiply(b, mr, nv, depth, a, a_stride, SIZE(1), w, SIZE(nv * VL), ahead, ahead_step)
    sums = _if_set(b, bias, sums, lambda i, j, x: b.fadd(x, load(b, shift(b, bias, j * VL))),
                   lambda i, j, x: b.fadd(x, load(b, shift(b, out, i * NV * VL + j * VL))))
    for j in range(nv):
        highest = load(b, shift(b, maximum, j * VL))
        for i in range(mr):
            x = sums[i][j]
            highest = b.select(b.fcmp_ordered("ord", x, x), greater(b, x, highest), x)
        store(b, shift(b, maximum, j * VL), highest, align=4)


def _context(b: ir.IRBuilder, mr: int, nv: int, depth: ir.Value, a: ir.Value, a_stride: ir.Value, w: ir.Value,
             w_stride: ir.Value, out: ir.Value, out_stride: ir.Value, correction: ir.Value) -> None:
    """Continue the sums of attention of mr queries: out[i] = correction[i] out[i] + (a^T w)[i].

    a: [depth][mr], the weights of `depth` keys. w: [depth][nv * VL], their values. correction: [mr], what a new maximum
    makes of the sums so far; null for the first keys, when `out` is not initialized yet: the result is a^T w then.
    """
    sums = multiply(b, mr, nv, depth, a, SIZE(1), a_stride, w, w_stride)
    places = [[shift(b, shift(b, out, b.mul(out_stride, SIZE(i))), j * VL) for j in range(nv)] for i in range(mr)]

    def corrected(i: int, j: int, x: ir.Value) -> ir.Value:
        factor = b.load(shift(b, correction, i), typ=F32, align=4)
        return fma(b, load(b, places[i][j]), splat(b, factor), x)

    sums = _if_set(b, correction, sums, corrected)
    for i in range(mr):
        for j in range(nv):
            store(b, places[i][j], sums[i][j], align=4)


def _function(module: ir.Module, body: Callable[..., None], mr: int, nv: int, kinds: list[ir.Type]) -> ir.Function:
    """Emit the tile of mr rows by nv vectors as a function of its own, so that it has all registers to itself."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), f"tile{body.__name__}_{mr}_{nv}")
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    body(b, mr, nv, *function.args)
    b.ret_void()
    return function


def tile_of(body: Callable[..., None], highest: int = MR) -> Any:
    """Return an intrinsic that calls the tile for sizes (mr, nv) known at run time, mr being at most `highest`.

    Its other arguments are those of `body`.
    """

    def tile(typing: Any, mr: Any, nv: Any, *args: Any) -> Any:
        kinds = [arg if isinstance(arg, Pointer) else types.intp for arg in args]

        def build(context: Any, b: ir.IRBuilder, sig: Any, values: Any) -> ir.Value:
            rows, width, *arguments = values
            number = b.add(b.mul(rows, SIZE(NV)), width)
            after, nowhere = b.append_basic_block(), b.append_basic_block()
            switch = b.switch(number, nowhere)
            for i in range(1, highest + 1):
                for j in range(1, NV + 1):
                    block = b.append_basic_block()
                    switch.add_case(SIZE(i * NV + j), block)
                    b.position_at_end(block)
                    b.call(_function(b.module, body, i, j, [value.type for value in arguments]), arguments)
                    b.branch(after)
            b.position_at_end(nowhere)
            b.unreachable()
            b.position_at_end(after)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, *kinds), build

    return with_parameters(tile, body)


columns = on_stack(types.intp, NV)
"""Allocate space for the offsets of a panel's NV vectors."""

ROWS = 64
"""Rows whose sums wait for the next K block; see maxima.pxi."""
sums_of_rows = on_stack(types.float32, ROWS * NV * VL)
"""Allocate space for the sums of these rows and of a panel's columns."""

linear_tile = tile_of(_linear)
widened_tile = tile_of(_widened)
dot_tile = tile_of(_dot, DOT_MR)
scores_tile = tile_of(_scores)
maxima_tile = tile_of(_maxima)
context_tile = tile_of(_context)
