"""Measure the machine's peak FLOP/s and memory bandwidth with the vectors of the kernels; see roofline.pxi."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
from llvmlite import ir

from ..compiler.emit import VF, fma
from ..compiler.pointers import SIZE
from ..compiler.structs import Double, Float, Floats, Size
from ..compiler.vector import emits, fetch_near, v_add, v_load, v_set1, v_sum, vector
from ..target import AHEAD, MR, NV, VL


def in_rounds(b: ir.IRBuilder, n: ir.Value, starts: list[ir.Constant], step: Callable[[ir.Value], ir.Value],
              add: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """Apply `step` n times to each starting value, in one loop, and return the sum of the results; n is at least 1."""
    before, loop, after = b.block, b.append_basic_block(), b.append_basic_block()
    b.branch(loop)
    b.position_at_end(loop)
    left, *values = [b.phi(start.type) for start in (n, *starts)]
    fewer = b.sub(left, SIZE(1))
    results = [step(value) for value in values]
    for phi, start, result in zip([left, *values], [n, *starts], [fewer, *results], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(result, loop)
    b.cbranch(b.icmp_signed(">", fewer, SIZE(0)), loop, after)
    b.position_at_end(after)
    return reduce(add, results)


@emits(vector)
def fma_loop(b: ir.IRBuilder, n: ir.Value) -> ir.Value:
    """Run n rounds of MR*NV independent FMAs, one for each accumulator of a tile, and return the sum of all."""
    factor, summand = (ir.Constant(VF, [float(np.float32(x))] * VL) for x in (0.999, 1e-3))
    starts = [ir.Constant(VF, [float(i)] * VL) for i in range(MR * NV)]
    return in_rounds(b, n, starts, lambda x: fma(b, x, factor, summand), b.fadd)


def fma_rounds(n: Size, sink: Floats) -> Double:
    """Run n rounds of independent FMAs, and return their floating-point operations."""
    sink[0] = v_sum(fma_loop(n))
    return 2.0 * VL * MR * NV * n


def read(x: Floats, n: Size) -> Float:
    """Return the sum of x[n], n a multiple of 4*VL; with four sums the loop waits for loads, not additions."""
    a, b, c, d = v_set1(0.0), v_set1(0.0), v_set1(0.0), v_set1(0.0)
    for _ in range(n // (4 * VL)):
        fetch_near(x + AHEAD)
        fetch_near(x + (AHEAD + 2 * VL))
        a = v_add(a, v_load(x))
        b = v_add(b, v_load(x + VL))
        c = v_add(c, v_load(x + 2 * VL))
        d = v_add(d, v_load(x + 3 * VL))
        x += 4 * VL
    return v_sum(v_add(v_add(a, b), v_add(c, d)))
