"""Compute the packed GEMM y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]); see linear.pxi."""

from __future__ import annotations

from typing import Any

from ..compiler.compiling import inline
from ..compiler.pointers import as_floats, null
from ..compiler.structs import Floats, Linear, Output, Size
from ..target import KC, MR, NR, VL
from .elementwise import IDENTITY, activate_rows
from .tile import columns, linear_tile


@inline
def place_of(column: Size, out: Output) -> Size:
    """Return the offset of a column in the first row of the result; see Output in table.pxd."""
    return column // out.width * out.block + column % out.width


def product(step: int, tile: Any) -> Any:
    """Return the loops of a GEMM around a tile that takes `step` steps of depth at a time.

    The types of the panels and of the rows `a` are the tile's. The loops, from the outermost: K blocks (slices), whole
    steps each; panels p of NR columns, whose K block stays in cache; tiles of rows of nearly equal height. The first K
    block adds the bias, the last one residual and activation. A tile prefetches its share of the next panel's K block
    (ahead).
    """
    deepest = step * KC

    @inline
    def multiply_panels(y: Linear, panels: Any, a: Any, a_stride: Size, M: Size, residual: Floats, out: Output,
                        panel: Size, last: Size) -> None:
        K = (y.K + step - 1) // step * step
        slices = (K + deepest - 1) // deepest
        tiles = (M + MR - 1) // MR
        offsets = columns()
        # Bytes: a tile's share of `step` rows of a panel, which are 4 bytes a column, a float or two bfloat16 numbers.
        ahead_step = (NR * 4 + tiles - 1) // max(tiles, 1)
        for s in range(slices):
            final = s == slices - 1
            k = K // step * s // slices * step
            depth = (y.K if final else K // step * (s + 1) // slices * step) - k
            for p in range(panel, last):
                nv = min(y.N - p * NR, NR) // VL
                for j in range(nv):
                    offsets[j] = place_of(p * NR + j * VL, out)
                w = panels + (p * NR * K + k * nv * VL)
                bias = y.bias + p * NR if s == 0 else null()
                row = 0
                for i in range(tiles):
                    next_row = M * (i + 1) // tiles
                    extra = residual + row * out.stride if final and residual else null()
                    ahead = w + NR * (K + depth * i // tiles)       # in the next panel, which begins NR * K numbers on
                    target = out.data + row * out.stride
                    tile(next_row - row, nv, depth, a + (row * a_stride + k), a_stride, w, target, out.stride,
                         offsets, bias, extra, ahead, ahead_step)
                    if final and y.activation != IDENTITY:      # then columns lie side by side
                        activate_rows(y.activation, target + offsets[0], out.stride, next_row - row, nv * VL)
                    row = next_row

    return multiply_panels


multiply_floats = product(step=1, tile=linear_tile)


def linear(y: Linear, a: Floats, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output, panel: Size,
           last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of a."""
    multiply_floats(y, as_floats(y.panels), a, a_stride, M, residual, out, panel, last)


def pack(y: Linear, panels: Floats, sums: Floats, column: Size, w: Floats, n: Size) -> None:
    """Pack the rows of w[n,K] into columns [column, column + n) of the panels, which the caller has zeroed."""
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
