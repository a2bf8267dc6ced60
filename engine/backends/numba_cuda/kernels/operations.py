"""Compute the operations of one row or one number in float32, for `engine.ops` and for the heads of a model.

Widths of rows are arguments, so there are few kernels. A warp reads its row from memory again for each pass over it:
the rows of heads are few and short, and those of users pass through the caches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.warp import round_bf16, shuffle_xor, widen_bf16
from ..toolchain import cuda, device_function, types
from .float32 import ACTIVATIONS, TILE
from .norm import warp_sum

ROWS = 4
"""Number of warps of a block, each of which computes a row."""
THREADS = 128
"""Threads of a block whose threads compute a number each."""

_ZERO, _ONE, _LOWEST = np.float32(0.0), np.float32(1.0), np.float32(-math.inf)
_PITCH = TILE + 1   # with this pitch a column's elements lie in different banks of shared memory
_F32, _F32_ROWS = types.float32[::1], types.float32[:, ::1]


def row_grid(rows: int) -> tuple[int]:
    """Return the grid of a kernel whose warps compute a row each."""
    return (-(-rows // ROWS),)


def number_grid(count: int) -> tuple[int]:
    """Return the grid of a kernel whose threads compute a number each."""
    return (-(-count // THREADS),)


def unpadded_norm_kernel(*, rms: bool = False, weighted: bool = True, biased: bool = True) -> Kernel:
    """Make the kernel of LayerNorm or RMSNorm over rows of any width, which no zeros follow; the grid is `row_grid`.

    Arguments: (x f32 [N,D], weight f32 [D], bias f32 [D], eps f32, out f32 [N,D]). weighted, biased: False if the norm
    has none; the argument is then a dummy. Ba, Kiros and Hinton (2016), section 3; Zhang and Sennrich (2019).
    """

    def norm_rows(x: Any, weight: Any, bias: Any, eps: Any, out: Any) -> None:
        lane = cuda.threadIdx.x % 32
        row, D = cuda.blockIdx.x * ROWS + cuda.threadIdx.x // 32, x.shape[1]
        if row >= x.shape[0]:
            return
        mean, squares = _ZERO, _ZERO
        if not rms:
            for column in range(lane, D, 32):
                mean += x[row, column]
            mean = warp_sum(mean) / np.float32(D)
        for column in range(lane, D, 32):
            squares += (x[row, column] - mean) * (x[row, column] - mean)
        factor = _ONE / np.float32(math.sqrt(warp_sum(squares) / np.float32(D) + eps))
        for column in range(lane, D, 32):
            value = (x[row, column] - mean) * factor
            if weighted:
                value *= weight[column]
            if biased:
                value += bias[column]
            out[row, column] = value

    parts = [name for name, there in (("weight", weighted), ("bias", biased)) if there]
    return Kernel(" ".join(["rms_norm" if rms else "layer_norm", "of any width", *parts]), norm_rows,
                  (_F32_ROWS, _F32, _F32, types.float32, _F32_ROWS), threads=32 * ROWS, registers=40)


def softmax_kernel() -> Kernel:
    """Make the softmax of each row: (x f32 [N,D], out f32 [N,D]); the grid is `row_grid`.

    -inf gives 0, a row of -inf alone gives zeros, and a row that holds NaN becomes NaN.
    """

    def softmax_rows(x: Any, out: Any) -> None:
        lane = cuda.threadIdx.x % 32
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.x // 32
        if row >= x.shape[0]:
            return
        largest, total = _LOWEST, _ZERO
        for column in range(lane, x.shape[1], 32):
            largest = larger(largest, x[row, column])
        largest = warp_maximum(largest)
        base = largest if largest > _LOWEST else _ZERO      # -inf - -inf would be NaN
        for column in range(lane, x.shape[1], 32):
            total += np.float32(math.exp(x[row, column] - base))
        total = warp_sum(total)
        for column in range(lane, x.shape[1], 32):
            weight = np.float32(math.exp(x[row, column] - base))
            out[row, column] = weight if total == _ZERO else weight / total

    return Kernel("softmax", softmax_rows, (_F32_ROWS, _F32_ROWS), threads=32 * ROWS, registers=40)


@device_function
def larger(x: Any, y: Any) -> Any:
    """Return the larger of two numbers, and x if y is NaN."""
    return y if y > x else x


@device_function
def warp_maximum(x: Any) -> Any:
    """Return the largest number of the 32 lanes of a warp."""
    for step in (16, 8, 4, 2, 1):
        x = larger(x, shuffle_xor(x, step))
    return x


def activation_kernel(activation: str, gated: bool = False) -> Kernel:
    """Make the kernel activation(x), or activation(x) y if gated: (x, y, out f32 [n]); the grid is `number_grid`.

    y is a dummy unless gated.
    """
    activate = ACTIVATIONS[activation]

    def activate_numbers(x: Any, y: Any, out: Any) -> None:
        i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
        if i < out.shape[0]:
            value = activate(x[i])
            if gated:
                value *= y[i]
            out[i] = value

    return Kernel(f"{'gate' if gated else 'activation'} {activation}", activate_numbers, (_F32, _F32, _F32),
                  threads=THREADS, registers=40)


def rotation_kernel(interleaved: bool) -> Kernel:
    """Make the rotary embedding of rows; the grid is `number_grid` for all numbers of x.

    Arguments: (x f32 [B H T, d], cos, sin f32 [rows, r/2], H, T, batched i32, out f32 [B H T, d]). Row t of the tables
    is that of token t, or row b T + t if `batched` is 1. Columns beyond r are copied. Su et al. (2021), equation 34.
    """

    def rotate(x: Any, cos: Any, sin: Any, H: Any, T: Any, batched: Any, out: Any) -> None:
        i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
        d, half = x.shape[1], cos.shape[1]
        if i >= x.shape[0] * d:
            return
        row, column = i // d, i % d
        place = row % T + batched * (row // (H * T)) * T
        value = x[row, column]
        if column < 2 * half:
            if interleaved:
                pair, other, first = column // 2, column ^ 1, column % 2 == 0
            else:
                first = column < half
                pair, other = (column, column + half) if first else (column - half, column - half)
            turned = x[row, other] * sin[place, pair]
            value = value * cos[place, pair] + (-turned if first else turned)
        out[row, column] = value

    i32 = types.int32
    return Kernel(f"rotation of {'neighbours' if interleaved else 'halves'}", rotate,
                  (_F32_ROWS, _F32_ROWS, _F32_ROWS, i32, i32, i32, _F32_ROWS), threads=THREADS, registers=48)


def column_maxima_kernel() -> Kernel:
    """Make the kernel of the largest number of each column of x W^T + bias, over the rows of each part.

    Arguments: (x f32 [N,K], w f32 [M,K], bias f32 [M], starts i32 [B+1], out f32 [B,M]). The rows of part b begin at
    starts[b]. A part without rows gives -inf, and a NaN stays. The grid is `column_maxima_grid`: a block computes 16
    columns of a part, 16 rows at a time, with the sums of `float32.linear_kernel`.
    """

    def column_maxima(x: Any, w: Any, bias: Any, starts: Any, out: Any) -> None:
        down, across = cuda.threadIdx.x // TILE, cuda.threadIdx.x % TILE
        tiles = (w.shape[0] + TILE - 1) // TILE
        part, first = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles * TILE
        column, w_row, K, end = first + across, first + down, x.shape[1], starts[part + 1]
        rows = cuda.shared.array((TILE, TILE), np.float32)
        columns = cuda.shared.array((TILE, _PITCH), np.float32)
        largest = _LOWEST
        for start in range(starts[part], end, TILE):
            total, row = _ZERO, start + down
            for depth in range(0, K, TILE):
                inside = depth + across < K
                rows[down, across] = x[row, depth + across] if inside and row < end else _ZERO
                columns[down, across] = w[w_row, depth + across] if inside and w_row < w.shape[0] else _ZERO
                cuda.syncthreads()
                for k in range(TILE):
                    total += rows[down, k] * columns[across, k]
                cuda.syncthreads()
            if row < end and column < w.shape[0]:
                largest = _larger_or_nan(largest, total + bias[column])
        rows[down, across] = largest
        cuda.syncthreads()
        if down == 0 and column < w.shape[0]:
            for line in range(1, TILE):
                largest = _larger_or_nan(largest, rows[line, across])
            out[part, column] = largest

    signature = _F32_ROWS, _F32_ROWS, _F32, types.int32[::1], _F32_ROWS
    return Kernel("column maxima", column_maxima, signature, threads=TILE * TILE, registers=64)


@device_function
def _larger_or_nan(x: Any, y: Any) -> Any:
    """Return the larger of two numbers, or NaN if either is NaN."""
    return x if x >= y or x != x else y


def column_maxima_grid(parts: int, M: int) -> tuple[int]:
    """Return the grid for a number of parts and M columns."""
    return (parts * -(-M // TILE),)


@cache
def gather_kernel(kind: str) -> Kernel:
    """Make the copy of a view with any strides to a contiguous array; the grid is `number_grid` for out.

    Arguments: (x [m], layout i64 [2,n], out [count]), x and out of the dtype `kind`: "float32", "uint16" or "uint8".
    layout: the sizes of the view's axes, and their strides in elements.
    """

    def gather(x: Any, layout: Any, out: Any) -> None:
        i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
        if i >= out.shape[0]:
            return
        # From the last axis to the first, `rest` is the index of the element over the axes that are left.
        rest, place = types.int64(i), types.int64(0)
        for axis in range(layout.shape[1] - 1, -1, -1):
            place += rest % layout[0, axis] * layout[1, axis]
            rest //= layout[0, axis]
        out[i] = x[place]

    numbers = getattr(types, kind)[::1]
    return Kernel(f"gather {kind}", gather, (numbers, types.int64[:, ::1], numbers), threads=THREADS, registers=64)


def widen_kernel() -> Kernel:
    """Make the conversion of bfloat16 to float32: (x u16 [n], out f32 [n]); the grid is `number_grid`."""

    def widen(x: Any, out: Any) -> None:
        i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
        if i < out.shape[0]:
            out[i] = widen_bf16(x[i])

    return Kernel("widen", widen, (types.uint16[::1], _F32), threads=THREADS, registers=32)


def round_kernel() -> Kernel:
    """Make the conversion of float32 to bfloat16, half to even: (x f32 [n], out u16 [n]); the grid is `number_grid`."""

    def round_numbers(x: Any, out: Any) -> None:
        i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
        if i < out.shape[0]:
            out[i] = round_bf16(x[i])

    return Kernel("round", round_numbers, (_F32, types.uint16[::1]), threads=THREADS, registers=32)


def sum_kernel() -> Kernel:
    """Make the rounded sum of two arrays: (x f32 [n], y u16 [n], out u16 [n]), bfloat16; the grid is `number_grid`."""

    def add_numbers(x: Any, y: Any, out: Any) -> None:
        i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
        if i < out.shape[0]:
            out[i] = round_bf16(x[i] + widen_bf16(y[i]))

    halves = types.uint16[::1]
    return Kernel("sum", add_numbers, (_F32, halves, halves), threads=THREADS, registers=32)


def variants() -> Iterator[Kernel]:
    """Yield all kernels of this module."""
    for weighted, biased in product((False, True), repeat=2):
        yield unpadded_norm_kernel(weighted=weighted, biased=biased)
    for weighted in (False, True):
        yield unpadded_norm_kernel(rms=True, weighted=weighted, biased=False)
    yield softmax_kernel()
    for activation, gated in product(filter(None, ACTIVATIONS), (False, True)):
        yield activation_kernel(activation, gated)
    yield from map(rotation_kernel, (False, True))
    yield column_maxima_kernel()
    yield from map(gather_kernel, ("float32", "uint16", "uint8"))
    yield widen_kernel()
    yield round_kernel()
    yield sum_kernel()
