"""Emit loops and branches of LLVM code, for the generators of tiles."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from .pointers import SIZE

Sums = list[list[ir.Value]]
"""The sums of a tile, or other vectors, by row and by vector of columns."""


def repeat(b: ir.IRBuilder, times: ir.Value, values: list[ir.Value],
           body: Callable[[list[ir.Value]], list[ir.Value]]) -> list[ir.Value]:
    """Emit a loop of `times` iterations, and return the values after the last one.

    The body computes the values of the next iteration from the present ones. If times is 0 the values stay unchanged.
    """
    before, head, inside, after = b.block, *(b.append_basic_block(name) for name in ("head", "round", "after"))
    b.branch(head)
    b.position_at_end(head)
    left, *present = phis = [b.phi(value.type) for value in (times, *values)]
    b.cbranch(b.icmp_signed(">", left, SIZE(0)), inside, after)
    b.position_at_end(inside)
    following = [b.sub(left, SIZE(1)), *body(present)]
    for phi, first, value in zip(phis, (times, *values), following, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(after)
    return present


def either(b: ir.IRBuilder, condition: ir.Value, then: Callable[[], Sums], otherwise: Callable[[], Sums]) -> Sums:
    """Emit a branch: return the sums of `then` if the condition is true, otherwise those of `otherwise`."""
    branches = []
    blocks, after = [b.append_basic_block(), b.append_basic_block()], b.append_basic_block()
    b.cbranch(condition, *blocks)
    for block, function in zip(blocks, (then, otherwise), strict=True):
        b.position_at_end(block)
        branches.append((function(), b.block))
        b.branch(after)
    b.position_at_end(after)
    merged = [[b.phi(x.type) for x in row] for row in branches[0][0]]
    for values, block in branches:
        for phis, row in zip(merged, values, strict=True):
            for phi, value in zip(phis, row, strict=True):
                phi.add_incoming(value, block)
    return merged
