"""Compute LayerNorm: one warp for each row, which stays in registers between one read and one write.

A warp reads a row of D float32 once, 128 bytes at a time, and writes it as float32, for the residual stream, and as
bfloat16, for the next GEMM: 10 D bytes per row, which at D = 768 and 4 TB/s limits it to 0.5 G rows/s. A lane keeps
D/32 numbers: ptxas allocates 40 registers for D = 384, 54 for 768 and 62 for 1024 (sm_90a). Beyond D = 2048 or so
they spill.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.warp import round_bf16, shuffle_xor
from ..toolchain import cuda, device_function, types

ROWS = 4
"""Number of warps, and thus of rows, per block."""

COMMON_WIDTHS = (384, 768, 1024)
"""Widths of rows whose kernels are stored."""

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@device_function
def warp_sum(x: Any) -> Any:
    """Return the sum over the 32 lanes of a warp, with the same bits in each lane."""
    for step in (16, 8, 4, 2, 1):
        x += shuffle_xor(x, step)
    return x


def norm_function(D: int) -> Any:
    """Make a device function norm(values, lane, eps) that normalises a row of D numbers in place.

    Lane l of the warp holds element l + 32 i of the row in values[i]. Elements beyond D must be 0, and they stay 0.
    """
    per_lane, exact = -(-D // 32), D % 32 == 0
    one_over_D = np.float32(1.0 / D)

    @device_function
    def norm(values: Any, lane: Any, eps: Any) -> None:
        total = _ZERO
        for i in range(per_lane):
            total += values[i]
        mean = warp_sum(total) * one_over_D
        for i in range(per_lane):
            if exact or lane + 32 * i < D:
                values[i] -= mean
        squares = _ZERO
        for i in range(per_lane):
            squares += values[i] * values[i]
        factor = _ONE / np.float32(math.sqrt(warp_sum(squares) * one_over_D + eps))
        for i in range(per_lane):
            values[i] *= factor

    return norm


def layer_norm_kernel(D: int, *, bfloat16: bool = True) -> Kernel:
    """Make the LayerNorm kernel: (x f32 [N,D], weight, bias f32 [D], eps f32, out32 f32 [N,D], out16 u16 [N,D]).

    bfloat16: whether out16 is written; if False, out16 is a dummy. Ba, Kiros and Hinton (2016), section 3.
    """
    per_lane = -(-D // 32)
    norm = norm_function(D)

    def norm_rows(x: Any, weight: Any, bias: Any, eps: Any, out32: Any, out16: Any) -> None:
        lane = cuda.threadIdx.x % 32
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.x // 32
        if row >= x.shape[0]:
            return
        values = cuda.local.array(per_lane, np.float32)
        for i in range(per_lane):
            column = lane + 32 * i
            values[i] = x[row, column] if column < D else _ZERO
        norm(values, lane, eps)
        for i in range(per_lane):
            column = lane + 32 * i
            if column < D:
                value = values[i] * weight[column] + bias[column]
                out32[row, column] = value
                if bfloat16:
                    out16[row, column] = round_bf16(value)

    f32, f32_rows = types.float32[::1], types.float32[:, ::1]
    signature = (f32_rows, f32, f32, types.float32, f32_rows, types.uint16[:, ::1])
    name = f"layer_norm D={D}{'' if bfloat16 else ' float32'}"
    return Kernel(name, norm_rows, signature, threads=32 * ROWS, registers=32 + 2 * per_lane)


def norm_grid(rows: int) -> tuple[int]:
    """Return the grid for a number of rows."""
    return (-(-rows // ROWS),)


def variants() -> Iterator[Kernel]:
    """Yield the kernels of the widths of common models."""
    yield from (layer_norm_kernel(D, bfloat16=bfloat16) for D in COMMON_WIDTHS for bfloat16 in (True, False))
