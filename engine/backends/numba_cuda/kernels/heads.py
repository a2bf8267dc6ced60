"""Norm the heads of queries and keys, each or together, and rotate each head by the position of its token, in place.

A block has one token and its queries or its keys; each of its warps computes one head after the other. RMSNorm: Zhang
and Sennrich (2019), equation 4. Rotation: a pair (a, b) of columns becomes (a cos - b sin, a sin + b cos); Su et al.,
"RoFormer" (arXiv 2104.09864), equation 34. Lanes own pairs, so that no lane reads what another one writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.warp import round_bf16, widen_bf16
from ..toolchain import cuda, device_function, types
from .norm import sum_over, warp_sum

THREADS = 128
NORMS = (None, "each", "joint")
"""The norms: none, one of each head by the same weight, or one of all heads of a row together."""

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


def heads_kernel(norm: str | None, bfloat16: bool) -> Kernel:
    """Make the kernel for one kind of norm; grid (N, 2) for queries and keys, or (N, 1) for queries alone.

    - x: [N, (H+2G) P], uint16 (bfloat16) or float32: heads of P columns, of which the first d are used
    - heads, key_heads, d: i32; H, G and d. P follows from the width of x
    - weights: f32 [2, d], or joint [2, H d]: of queries and of keys; a dummy without a norm
    - eps: f32
    - cos, sin: f32 [L, half], by position; dummies if half is 0
    - half: i32, number of pairs; columns from 2 half on are not rotated
    - neighbours: i32, 1 if pair i is columns 2i and 2i + 1, 0 if it is columns i and i + half
    - positions: i32 [N], below L
    """
    warps, joint, each = THREADS // 32, norm == "joint", norm == "each"
    row_sum = sum_over(THREADS)

    @device_function
    def read(x: Any, row: Any, column: Any) -> Any:
        return widen_bf16(x[row, column]) if bfloat16 else x[row, column]

    @device_function
    def squares_of(x: Any, row: Any, first: Any, d: Any) -> Any:
        """Return the lane's part of the sum of the squares of a head."""
        squares = _ZERO
        for column in range(types.int32(cuda.threadIdx.x % 32), d, 32):
            value = read(x, row, first + column)
            squares += value * value
        return squares

    @device_function
    def write(x: Any, row: Any, column: Any, value: Any) -> None:
        x[row, column] = round_bf16(value) if bfloat16 else value

    def norm_and_rotate(x: Any, heads: Any, key_heads: Any, d: Any, weights: Any, eps: Any, cos: Any, sin: Any,
                        half: Any, neighbours: Any, positions: Any) -> None:
        scratch = cuda.shared.array(warps, np.float32)
        lane, warp = types.int32(cuda.threadIdx.x % 32), types.int32(cuda.threadIdx.x // 32)
        token, of_keys = cuda.blockIdx.x, cuda.blockIdx.y
        padded = types.int32(x.shape[1] // (heads + 2 * key_heads))
        own = key_heads if of_keys else heads
        begin = types.int32(heads * padded if of_keys else 0)
        factor = _ONE
        if joint:
            squares = _ZERO
            for head in range(warp, own, warps):
                squares += squares_of(x, token, begin + head * padded, d)
            factor = _ONE / np.float32(math.sqrt(row_sum(squares, scratch) / np.float32(own * d) + eps))
        position = positions[token]
        step, apart = (2, 1) if neighbours else (1, half)      # columns from a pair to the next, and of a pair
        for head in range(warp, own, warps):
            first = types.int32(begin + head * padded)
            place = types.int32(head * d if joint else 0)        # of the head's weights
            if each:
                squares = warp_sum(squares_of(x, token, first, d))
                factor = _ONE / np.float32(math.sqrt(squares / np.float32(d) + eps))
            for pair in range(lane, half, 32):
                low = types.int32(step * pair)
                high = types.int32(low + apart)
                a, b = read(x, token, first + low), read(x, token, first + high)
                if joint or each:
                    a *= factor * weights[of_keys, place + low]
                    b *= factor * weights[of_keys, place + high]
                cosine, sine = cos[position, pair], sin[position, pair]
                write(x, token, first + low, a * cosine - b * sine)
                write(x, token, first + high, a * sine + b * cosine)
            if joint or each:
                for column in range(2 * half + lane, d, 32):
                    value = read(x, token, first + column) * (factor * weights[of_keys, place + column])
                    write(x, token, first + column, value)

    i32, f32, f32_rows = types.int32, types.float32, types.float32[:, ::1]
    matrix = types.uint16[:, ::1] if bfloat16 else f32_rows
    signature = (matrix, i32, i32, i32, f32_rows, f32, f32_rows, f32_rows, i32, i32, i32[::1])
    return Kernel(f"heads, {norm or 'no'} norm{'' if bfloat16 else ' float32'}", norm_and_rotate, signature,
                  threads=THREADS, registers=128, blocks_per_sm=4)


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every norm and precision."""
    yield from (heads_kernel(norm, bfloat16) for norm in NORMS for bfloat16 in (True, False))
