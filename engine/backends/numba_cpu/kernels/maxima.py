"""Compute the largest number of each column of a GEMM, without writing its results; maxima.pxi explains it."""

from __future__ import annotations

from ..compiler.compiling import inline
from ..compiler.pointers import as_floats, null
from ..compiler.structs import Floats, Linear, Size
from ..target import KC, MR, NR, VL
from .tile import ROWS, columns, linear_tile, maxima_tile, sums_of_rows


@inline
def multiply_block(y: Linear, a: Floats, a_stride: Size, rows: Size, panel: Size, last: Size, maximum: Floats,
                   next: Floats, waiting: Floats, offsets: Floats) -> None:
    """Update the maxima with at most ROWS rows; each tile prefetches its share of the rows from `next` on.

    waiting [ROWS][NR]: the sums of a panel after some K blocks (slices). offsets: of the NV vectors of columns in it.
    """
    slices, tiles = (y.K + KC - 1) // KC, (rows + MR - 1) // MR
    shares = (last - panel) * slices        # calls for one tile of rows
    for p in range(panel, last):
        nv = min(y.N - p * NR, NR) // VL
        for s in range(slices):
            k = y.K * s // slices
            depth = y.K * (s + 1) // slices - k
            w = as_floats(y.panels) + (p * NR * y.K + k * nv * VL)
            # Without a bias, the tile adds the sums of the slices before, which wait in `target`.
            bias = y.bias + p * NR if s == 0 else null()
            row = 0
            for i in range(tiles):
                next_row = rows * (i + 1) // tiles
                x, target = a + (row * a_stride + k), waiting + row * NR
                share = max(0, (next_row - row) * a_stride) // shares       # floats that this call prefetches
                ahead = next + (row * a_stride + ((p - panel) * slices + s) * share)
                step = max(1, (4 * share + depth - 1) // depth)     # bytes a step of depth; `fetch_lines` takes no 0
                if s == slices - 1:
                    maxima_tile(next_row - row, nv, depth, x, a_stride, w, target, bias, maximum + p * NR, ahead, step)
                else:
                    linear_tile(next_row - row, nv, depth, x, a_stride, w, target, NR, offsets, bias, null(), ahead,
                                step)
                row = next_row


def column_maxima(y: Linear, a: Floats, a_stride: Size, M: Size, maximum: Floats, panel: Size, last: Size,
                  ahead: Floats) -> None:
    """Update maximum[N] with each column of a[M,K] w[N,K]^T + bias, for panels [panel, last).

    Without rows in `ahead`, those at the start are prefetched again.
    """
    waiting, offsets = sums_of_rows(), columns()
    for j in range(NR // VL):
        offsets[j] = j * VL
    for first in range(0, M, ROWS):
        end = first + ROWS
        next = a + end * a_stride if end < M else ahead if ahead else a
        multiply_block(y, a + first * a_stride, a_stride, min(M - first, ROWS), panel, last, maximum, next, waiting,
                       offsets)
