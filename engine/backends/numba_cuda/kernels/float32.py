"""Compute linear maps and attention in float32, without tensor cores: plain and slow, to check the fast kernels.

Their arguments are those of the kernels of the same names, with float32 instead of bfloat16, so that one plan can use
either. linear: a block of 16x16 threads computes 16x16 results from tiles of both operands in 2 KB of shared memory.
attention: a warp for each query and head iterates over the keys; the softmax statistics and the weighted sum of values
stay in registers (Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv 1805.02867)).
Activations have the formulas of `backends/reference/formulas.py`, with libdevice's erfc, tanh and exp (2 ulp and less).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..toolchain import cuda, device_function, types
from .norm import warp_sum

TILE = 16
"""Rows and columns of a block's results, and the depth of one step."""
_PITCH = TILE + 1   # with this pitch a column's elements lie in different banks of shared memory
TILE_ROWS = 4
"""Queries per entry of attention's work list; each has one warp."""

_HALF, _ONE, _ZERO, _LOWEST = np.float32(0.5), np.float32(1.0), np.float32(0.0), np.float32(-math.inf)
_SQRT_HALF = np.float32(math.sqrt(0.5))
_SQRT_2_OVER_PI, _CUBE = np.float32(math.sqrt(2.0 / math.pi)), np.float32(0.044715)


@device_function
def gelu(x: Any) -> Any:
    """Return x Phi(x), with erfc, which loses no digits where x is far below zero."""
    return _HALF * x * np.float32(math.erfc(-x * _SQRT_HALF))


@device_function
def gelu_tanh(x: Any) -> Any:
    """Return the tanh approximation of GELU."""
    return _HALF * x * (_ONE + np.float32(math.tanh(_SQRT_2_OVER_PI * (x + _CUBE * x * x * x))))


@device_function
def relu(x: Any) -> Any:
    """Return max(x, 0), and NaN for NaN."""
    return _ZERO if x < _ZERO else x


@device_function
def silu(x: Any) -> Any:
    """Return x / (1 + e^-x), computed with e^-|x|, which does not overflow."""
    decay = np.float32(math.exp(-abs(x)))
    return x * (decay if x < _ZERO else _ONE) / (_ONE + decay)


@device_function
def identity(x: Any) -> Any:
    """Return x."""
    return x


ACTIVATIONS: dict[str | None, Callable[[Any], Any]] = {
    None: identity, "gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu, "silu": silu}
"""The device function of each of `engine.model.config.ACTIVATIONS`; None leaves a number unchanged."""


def linear_kernel(activation: str | None = None, residual: bool = False, gate: bool = False) -> Kernel:
    """Make the kernel activation(x W^T + bias) + residual, or activation(x G^T + g) (x W^T + bias) with a gate.

    Arguments: (x f32 [N,K], w f32 [M,K], bias f32 [M], residual f32 [N,M], out f32 [N,M]). residual: whether the
    residual is added; if False, the argument is a dummy. gate: whether w and bias have the rows of the gate and of the
    other map in turns (`ptx.epilogue.interleave`), [2M,K] and [2M]. The grid is `linear_grid`. With a third size of the
    grid, z, the kernel computes z maps: the columns z K of x on, by the rows z M of w on.
    """
    activate = ACTIVATIONS[activation]
    maps = 2 if gate else 1

    @device_function
    def channel(column: Any, number: Any) -> Any:
        """Return the row of w that belongs to a column of the result, of map `number`."""
        return column // 2 * 4 + column % 2 + 2 * number if gate else column

    def linear(x: Any, w: Any, bias: Any, addend: Any, out: Any) -> None:
        down, across = cuda.threadIdx.x // TILE, cuda.threadIdx.x % TILE
        row, column = cuda.blockIdx.y * TILE + down, cuda.blockIdx.x * TILE + across
        K, M = w.shape[1], out.shape[1] // cuda.gridDim.z
        x_first, first = cuda.blockIdx.z * K, cuda.blockIdx.z * M
        rows = cuda.shared.array((TILE, TILE), np.float32)
        columns = cuda.shared.array((maps, TILE, _PITCH), np.float32)
        loaded = cuda.blockIdx.x * TILE + down      # the column of the result whose weights this thread loads
        totals = cuda.local.array(maps, np.float32)
        for number in range(maps):
            totals[number] = _ZERO
        for depth in range(0, K, TILE):
            inside = depth + across < K
            rows[down, across] = x[row, x_first + depth + across] if inside and row < x.shape[0] else _ZERO
            for number in range(maps):
                there = inside and loaded < M
                columns[number, down, across] = w[channel(first + loaded, number), depth + across] if there else _ZERO
            cuda.syncthreads()
            for number in range(maps):
                for k in range(TILE):
                    totals[number] += rows[down, k] * columns[number, across, k]
            cuda.syncthreads()
        if row < x.shape[0] and column < M:
            column += first
            value = activate(totals[0] + bias[channel(column, 0)])
            if gate:
                value *= totals[1] + bias[channel(column, 1)]
            if residual:
                value += addend[row, column]
            out[row, column] = value

    f32 = types.float32[:, ::1]
    name = (f"float32 linear{f' {activation}' if activation else ''}{' residual' if residual else ''}"
            f"{' gate' if gate else ''}")
    return Kernel(name, linear, (f32, f32, types.float32[::1], f32, f32), threads=TILE * TILE,
                  registers=72 if gate else 64)


def linear_grid(rows: int, M: int) -> tuple[int, int]:
    """Return the grid for a number of rows of M results."""
    return (-(-M // TILE), -(-rows // TILE))


def attention_kernel(d: int, *, capped: bool = False, biased: bool = False, relative: bool = False) -> Kernel:
    """Make the kernel softmax(scale q k^T) v for heads of d columns, a multiple of 32, in packed sequences.

    Arguments: (qkv f32 [N,(H+2G)d], out f32 [N,H d], cu_seqlens i32 [B+1], tiles i32 [n,3], H i32, G i32, scale
    f32, left i32, right i32, rate f32, cap f32, line f32 [H,2R+1], slopes f32 [H], terms f32 [N,2HL], numbers i32
    [2R+1]); from `left` on they are those of `attention.attention_kernel`. An entry of `tiles` is a sequence, the
    first of TILE_ROWS queries, and the sequence's number of keys; queries beyond the sequence's end are skipped.
    Query head h reads key head h // (H/G). A query sees `left` keys before and `right` keys after its own; it gets
    zeros if it sees none. The grid is `attention_grid`. The scores have their scale when they are capped, and the
    cap and the biases are multiplied by the scale here.
    """
    per_lane = d // 32

    def attention(qkv: Any, out: Any, cu_seqlens: Any, tiles: Any, H: Any, G: Any, scale: Any, left: Any, right: Any,
                  rate: Any, cap: Any, line: Any, slopes: Any, terms: Any, numbers: Any) -> None:
        lane = cuda.threadIdx.x % 32
        sequence, head = tiles[cuda.blockIdx.x, 0], cuda.blockIdx.y
        start, end = cu_seqlens[sequence], cu_seqlens[sequence + 1]
        row = start + tiles[cuda.blockIdx.x, 1] + cuda.threadIdx.x // 32
        if row >= end:
            return
        k_column, v_column = (H + head // (H // G)) * d + lane, (H + G + head // (H // G)) * d + lane
        q, total = cuda.local.array(per_lane, np.float32), cuda.local.array(per_lane, np.float32)
        for i in range(per_lane):
            q[i] = qkv[row, head * d + lane + 32 * i] * scale
            total[i] = _ZERO
        largest, normalizer = _LOWEST, _ZERO
        for s in range(max(start, row - left), min(start + tiles[cuda.blockIdx.x, 2], row + right + 1)):
            product = _ZERO
            for i in range(per_lane):
                product += q[i] * qkv[s, k_column + 32 * i]
            score = warp_sum(product)
            distance = row - s
            if relative:
                radius, rows = numbers.shape[0] // 2, terms.shape[1] // (2 * H)
                number = numbers[min(max(distance, -radius), radius) + radius]
                score += (terms[row, head * rows + number] + terms[s, (H + head) * rows + number]) * scale
            if capped:
                score = cap * scale * np.float32(math.tanh(score / (cap * scale)))
            if biased:
                radius = line.shape[1] // 2
                near = line[head, min(max(distance, -radius), radius) + radius]
                score += (near + slopes[head] * np.float32(abs(distance))) * scale
            previous, largest = largest, max(largest, score)
            shrink = np.float32(math.exp(previous - largest))
            weight = np.float32(math.exp(score - largest))
            normalizer = normalizer * shrink + weight
            for i in range(per_lane):
                total[i] = total[i] * shrink + weight * qkv[s, v_column + 32 * i]
        for i in range(per_lane):
            out[row, head * d + lane + 32 * i] = total[i] / normalizer if normalizer != _ZERO else _ZERO

    f32, i32 = types.float32[:, ::1], types.int32
    signature = (f32, f32, i32[::1], i32[:, ::1], i32, i32, types.float32, i32, i32, *[types.float32] * 2,
                 f32, types.float32[::1], f32, i32[::1])
    name = f"float32 attention d={d}{' capped' * capped}{' biased' * biased}{' relative' * relative}"
    return Kernel(name, attention, signature, threads=32 * TILE_ROWS, registers=64 + 6 * per_lane)


def attention_grid(tiles: int, H: int) -> tuple[int, int]:
    """Return the grid for a number of work list entries and H heads."""
    return (tiles, H)


def variants() -> Iterator[Kernel]:
    """Yield the linear maps with every epilogue, and attention of heads of up to 256 columns with every change."""
    yield from (linear_kernel(activation, gate=gate) for activation in ACTIVATIONS for gate in (False, True))
    yield from (linear_kernel(activation, residual=True) for activation in ACTIVATIONS)
    yield from (attention_kernel(d, **options) for d in range(32, 257, 32)
                for options in ({}, {"capped": True}, {"biased": True}, {"relative": True}))
