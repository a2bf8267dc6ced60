"""Compute LayerNorm or RMSNorm of rows, then add a residual; 32, 128 or 512 threads share a row.

The row stays in registers between one read and one write: a thread keeps QUADS pieces of four neighbouring numbers,
4 `threads` columns apart. A row is written as float32, for the residual stream, as bfloat16, for the next GEMM, or as
both: at most 10 bytes of a number, which at D = 768 and 4 TB/s limits the kernel to 0.5 G rows/s. The width of a row is
an argument, so that three kernels of each norm serve all widths. Rows end with zeros up to a multiple of 8 numbers,
and so do weights and biases, so that results do, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.copy import address, load_quad, store_pairs, store_quad
from ..ptx.warp import pack_bf16, shuffle_xor
from ..toolchain import cuda, device_function, types

QUADS = 8
"""Number of pieces of four numbers that a thread keeps."""
THREADS = (32, 128, 512)
"""Numbers of threads that may share a row."""
BLOCK = 128
"""Least number of threads of a block, which has several rows if fewer threads share a row."""
KINDS = (None, "layer", "rms")
"""The norms; None leaves a row as it is, which the embeddings may ask for."""
TO_FLOAT32, TO_BFLOAT16 = 1, 2
"""Bits of the argument `outputs`: which of the two results are written."""

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


def row_threads(D: int) -> int:
    """Return the number of threads that share a row of D numbers, D <= `support.LARGEST_ROW`."""
    return next(threads for threads in THREADS if 4 * QUADS * threads >= D)


def row_grid(rows: int, threads: int) -> tuple[int]:
    """Return the grid for a number of rows that `threads` threads share each."""
    return (-(-rows // max(1, BLOCK // threads)),)


@device_function
def warp_sum(x: Any) -> Any:
    """Return the sum over the 32 lanes of a warp, with the same bits in each lane."""
    for step in (16, 8, 4, 2, 1):
        x += shuffle_xor(x, step)
    return x


def sum_over(threads: int) -> Any:
    """Make a device function (x, scratch) that returns the sum of x over the `threads` threads of a row.

    All of them have the same bits. scratch: shared float32 [threads / 32], which a single warp does not use.
    """
    warps = threads // 32

    @device_function
    def row_sum(x: Any, scratch: Any) -> Any:
        x = warp_sum(x)
        if warps > 1:
            if cuda.threadIdx.x % 32 == 0:
                scratch[cuda.threadIdx.x // 32] = x
            cuda.syncthreads()
            x = _ZERO
            for warp in range(warps):
                x += scratch[warp]
            cuda.syncthreads()      # before another sum overwrites the scratch
        return x

    return row_sum


def norm_function(kind: str | None, threads: int) -> Any:
    """Make a device function (values, D, first, eps, scratch) that normalises a row of D numbers in place.

    values [QUADS, 4] holds the thread's columns first + 4 threads i + e in values[i, e]. Ba, Kiros and Hinton (2016),
    section 3; Zhang and Sennrich (2019), equation 4.
    """
    row_sum, centred, plain = sum_over(threads), kind == "layer", kind is None

    @device_function
    def normalise(values: Any, D: Any, first: Any, eps: Any, scratch: Any) -> None:
        if not plain:
            width = np.float32(D)
            if centred:
                total = _ZERO
                for i in range(QUADS):
                    for e in range(4):
                        total += values[i, e]
                mean = row_sum(total, scratch) / width
                for i in range(QUADS):
                    for e in range(4):
                        if first + 4 * threads * i + e < D:
                            values[i, e] -= mean
            squares = _ZERO
            for i in range(QUADS):
                for e in range(4):
                    squares += values[i, e] * values[i, e]
            factor = _ONE / np.float32(math.sqrt(row_sum(squares, scratch) / width + eps))
            for i in range(QUADS):
                for e in range(4):
                    values[i, e] *= factor

    return normalise


@device_function
def add_quad(values: Any, i: Any, start: Any, factor: Any) -> None:
    """Add the four numbers at an address, times a factor, to piece i."""
    a, b, c, d = load_quad(start)
    values[i, 0] += a * factor
    values[i, 1] += b * factor
    values[i, 2] += c * factor
    values[i, 3] += d * factor


def finish_function(affine: bool, threads: int) -> Any:
    """Make a device function that applies the weight and the bias, adds the residual and stores a row.

        finish(values, first, place, width, weight, bias, residual, outputs, out32, out16)

    affine: whether there is a weight and a bias. values: QUADS x 4 numbers of the thread, normalised. first: the column
    of the first one. outputs: which of out32 and out16 are written; the other one is a dummy. place: number of the
    row's first element in the outputs and in the residual, each of `width` columns; residual: an address, 0 for none.
    """

    @device_function
    def finish(values: Any, first: Any, place: Any, width: Any, weight: Any, bias: Any, residual: Any, outputs: Any,
               out32: Any, out16: Any) -> None:
        for i in range(QUADS):
            column = first + 4 * threads * i
            if column < width:
                if affine:
                    for e in range(4):
                        values[i, e] = values[i, e] * weight[column + e] + bias[column + e]
                at = place + column
                if residual != 0:
                    add_quad(values, i, residual + at * 4, _ONE)
                if outputs & TO_FLOAT32:
                    store_quad(address(out32) + at * 4, values[i, 0], values[i, 1], values[i, 2], values[i, 3])
                if outputs & TO_BFLOAT16:
                    store_pairs(address(out16) + at * 2, pack_bf16(values[i, 0], values[i, 1]),
                                pack_bf16(values[i, 2], values[i, 3]))

    return finish


def norm_kernel(kind: str, threads: int) -> Kernel:
    """Make the kernel out = norm(x) weight + bias + residual for rows that `threads` threads share.

    Arguments: (x f32 [N,P], weight, bias f32 [P], eps f32, D i32, residual f32 [N,P], adds i32, outputs i32,
    out32 f32 [N,P], out16 u16 [N,P]). D <= P: the width of a row, followed by zeros. adds: 1 if the residual is added,
    0 if it is a dummy. outputs: TO_FLOAT32, TO_BFLOAT16 or their sum; an output that is not written is a dummy. P is a
    multiple of 4. out32 may be x or the residual. The grid is `row_grid`.
    """
    rows, block = max(1, BLOCK // threads), max(BLOCK, threads)
    warps = block // 32
    normalise, finish = norm_function(kind, threads), finish_function(True, threads)

    def norm_rows(x: Any, weight: Any, bias: Any, eps: Any, D: Any, residual: Any, adds: Any, outputs: Any, out32: Any,
                  out16: Any) -> None:
        scratch = cuda.shared.array(warps, np.float32)
        row = types.int64(cuda.blockIdx.x) * rows + types.int64(cuda.threadIdx.x // threads)
        first, width = types.int64(cuda.threadIdx.x % threads * 4), x.shape[1]
        if row >= x.shape[0]:
            return
        values = cuda.local.array((QUADS, 4), np.float32)
        for i in range(QUADS):
            for e in range(4):
                values[i, e] = _ZERO
            if first + 4 * threads * i < width:
                add_quad(values, i, address(x) + (row * width + first + 4 * threads * i) * 4, _ONE)
        normalise(values, D, first, eps, scratch)
        finish(values, first, row * width, width, weight, bias, address(residual) * adds, outputs, out32, out16)

    i32, f32, f32_rows = types.int32, types.float32[::1], types.float32[:, ::1]
    signature = (f32_rows, f32, f32, types.float32, i32, f32_rows, i32, i32, f32_rows, types.uint16[:, ::1])
    return Kernel(f"{kind}_norm {threads} threads", norm_rows, signature, threads=block, registers=96)


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every norm and number of threads."""
    yield from (norm_kernel(kind, threads) for kind in KINDS if kind is not None for threads in THREADS)
