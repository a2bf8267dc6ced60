"""The packed matrix product: y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]); see linear.pxi."""

from __future__ import annotations

from .elementwise import IDENTITY, activate_rows
from .pointers import null
from .structs import Floats, Linear, Output, Size
from .target import KC, MR, NR, VL
from .tile import columns, linear_tile


def linear(y: Linear, a: Floats, a_stride: Size, M: Size, residual: Floats, out: Output, panel: Size,
           last: Size) -> None:
    """Loops, outermost first: slices of K; panels, whose slice stays in cache; tiles of rows of nearly equal height."""
    slices = (y.K + KC - 1) // KC
    tiles = (M + MR - 1) // MR
    offsets = columns()
    ahead_step = (NR * 4 + tiles - 1) // max(tiles, 1)
    for s in range(slices):
        k = y.K * s // slices
        depth = y.K * (s + 1) // slices - k
        final = s == slices - 1
        for p in range(panel, last):
            nv = min(y.N - p * NR, NR) // VL
            for j in range(nv):
                column = p * NR + j * VL
                offsets[j] = column // out.width * out.block + column % out.width
            w = y.panels + p * NR * y.K + k * nv * VL
            bias = y.bias + p * NR if s == 0 else null()
            row = 0
            for i in range(tiles):
                next_row = M * (i + 1) // tiles
                extra = residual + row * out.stride if final and residual else null()
                ahead = w + NR * y.K + depth * NR * i // tiles
                target = out.data + row * out.stride
                linear_tile(next_row - row, nv, depth, a + row * a_stride + k, a_stride, w, target, out.stride,
                            offsets, bias, extra, ahead, ahead_step)
                if final and y.activation != IDENTITY:
                    activate_rows(y.activation, target + offsets[0], out.stride, next_row - row, nv * VL)
                row = next_row


def pack(y: Linear, panels: Floats, column: Size, w: Floats, n: Size) -> None:
    """Columns [column, column + n) of the panels, from the rows of w[n,K]; the caller zeroes the panels beforehand."""
    c = 0
    while c < n:
        first = (column + c) // NR * NR
        width = min(y.N - first, NR)
        count = min(n - c, first + width - column - c)
        panel = panels + (first * y.K + column + c - first)
        for k in range(y.K):
            for i in range(count):
                panel[k * width + i] = w[(c + i) * y.K + k]
        c += count
