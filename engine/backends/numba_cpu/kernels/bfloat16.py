"""Compute the GEMM with bfloat16 weights, which are widened, and pack panels; see bfloat16.pxi and linear.pxi."""

from __future__ import annotations

from ..compiler.pointers import as_bits
from ..compiler.structs import Bits, Floats, Linear, Output, Size
from ..target import NR
from .linear import product
from .tile import widened_tile

multiply_widened = product(step=2, tile=widened_tile)


def linear_widened(y: Linear, a: Floats, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                   panel: Size, last: Size) -> None:
    """Compute panels [panel, last) of a linear map of M rows of floats; bfloat16 weights are widened to float32."""
    multiply_widened(y, as_bits(y.panels), a, a_stride, M, residual, out, panel, last)


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
