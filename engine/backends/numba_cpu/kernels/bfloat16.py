"""Compute the GEMM with bfloat16 weights, convert operands, and pack panels; see bfloat16.pxi and linear.pxi."""

from __future__ import annotations

from llvmlite import ir

from ..compiler.emit import VF, VI
from ..compiler.pointers import as_bits
from ..compiler.structs import Bits, Double, Floats, Linear, Operands, Output, Size
from ..compiler.vector import emits, v_load, v_loadn, v_sum, vector
from ..target import MR, NR, NV, PAIR_STEPS, VL
from . import pairs
from .linear import product
from .roofline import fma_rounds, in_rounds
from .tile import pairs_tile, widened_tile

multiply_pairs = product(step=2, tile=pairs_tile)
multiply_widened = product(step=2, tile=widened_tile)


def linear_bfloat16(y: Linear, a: Operands, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                    panel: Size, last: Size) -> None:
    """Compute as `linear` does, with bfloat16 weights; `a` has been converted if the CPU has a bfloat16 instruction."""
    multiply_pairs(y, as_bits(y.panels), a, a_stride, M, residual, out, panel, last)


def linear_widened(y: Linear, a: Floats, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                   panel: Size, last: Size) -> None:
    """Compute as `linear` does, with bfloat16 weights, which are widened; the rows of `a` are floats on every CPU."""
    multiply_widened(y, as_bits(y.panels), a, a_stride, M, residual, out, panel, last)


@emits()
def store_operands(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> None:
    """Store the lanes of x to p as VL operands."""
    pairs.store_operands(b, p, x)


def to_operands(x: Floats, x_stride: Size, M: Size, K: Size, operands: Operands, operands_stride: Size, first: Size,
                ranges: Floats) -> None:
    """Round M rows of x to bfloat16, and pad them to VL with zeros."""
    whole = K // VL * VL
    for row in range(first, first + M):
        out = operands + row * operands_stride
        for i in range(0, whole, VL):
            store_operands(out + i, v_load(x + i))
        if whole < K:
            store_operands(out + whole, v_loadn(x + whole, K - whole))
        x += x_stride


def pack_bfloat16(y: Linear, panels: Bits, sums: Floats, column: Size, w: Bits, n: Size) -> None:
    """Pack the rows of w[n,K] into columns [column, column + n) of the panels, which the caller has zeroed."""
    K = (y.K + 1) // 2 * 2      # a panel is [K/2][width][2]
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, NR)
        panel = panels + (first * K + (c - first) * 2)
        for k in range(y.K):
            panel[k // 2 * width * 2 + k % 2] = w[i * y.K + k]


@emits(vector)
def pair_loop(b: ir.IRBuilder, n: ir.Value) -> ir.Value:
    """Run n rounds of MR*NV independent products of pairs, with sums as weights, and return the sum of all."""
    starts = [ir.Constant(VF, [float(i)] * VL) for i in range(MR * NV)]
    return in_rounds(b, n, starts, lambda x: pairs.dot(b, VI(None), b.bitcast(x, VI), x), b.fadd)


def _pair_rounds(n: Size, sink: Floats) -> Double:
    """Run n rounds of independent products of pairs, and return their floating-point operations."""
    sink[0] = v_sum(pair_loop(n))
    return 4.0 * VL * MR * NV * n


pair_rounds = _pair_rounds if PAIR_STEPS == 1 else fma_rounds
"""Runs rounds as `fma_rounds` does, with bfloat16 products if the CPU has an instruction for them."""
