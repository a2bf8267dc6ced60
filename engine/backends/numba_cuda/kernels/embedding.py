"""Add, scale and normalise the embeddings of packed tokens in one pass.

The kernel reads a float32 row of each table and writes the result as float32, as bfloat16, or as both; memory
bandwidth limits it. It gathers whole rows of a table: runs of 3 KB at D = 768. As many threads as in `norm.py` share a
row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.copy import address
from ..toolchain import cuda, types
from .norm import BLOCK, KINDS, QUADS, THREADS, add_quad, finish_function, norm_function

WORDS, POSITIONS, TOKEN_TYPES = 1, 2, 4
"""Bits of the argument `parts`."""

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


def embedding_kernel(norm: str | None, threads: int) -> Kernel:
    """Make the kernel norm(scale word row + position row + type row) for rows that `threads` threads share.

    Arguments: (ids, position_ids, type_ids i32 [N], word f32 [V,P], position f32 [L,P], token_type f32 [Y,P], scale
    f32, parts i32, weight, bias f32 [P], eps f32, D i32, outputs i32, out32 f32 [N,P], out16 u16 [N,P]). Ids are below
    the sizes of their tables. parts: POSITIONS and TOKEN_TYPES if the model has these tables, and WORDS if `word` is a
    table; otherwise it holds the rows themselves, [N,P]. Missing arrays are dummies. norm: of `norm.KINDS`. The other
    arguments and the grid are those of `norm.norm_kernel`.
    """
    rows, block = max(1, BLOCK // threads), max(BLOCK, threads)
    warps = block // 32
    normalise, finish = norm_function(norm, threads), finish_function(norm is not None, threads)

    def embed(ids: Any, position_ids: Any, type_ids: Any, word: Any, position: Any, token_type: Any, scale: Any,
              parts: Any, weight: Any, bias: Any, eps: Any, D: Any, outputs: Any, out32: Any, out16: Any) -> None:
        scratch = cuda.shared.array(warps, np.float32)
        row = types.int64(cuda.blockIdx.x) * rows + types.int64(cuda.threadIdx.x // threads)
        first, width = types.int64(cuda.threadIdx.x % threads * 4), word.shape[1]
        if row >= ids.shape[0]:
            return
        values = cuda.local.array((QUADS, 4), np.float32)
        word_row = types.int64(ids[row]) if parts & WORDS else row
        for i in range(QUADS):
            for e in range(4):
                values[i, e] = _ZERO
            column = first + 4 * threads * i
            if column < width:
                add_quad(values, i, address(word) + (word_row * width + column) * 4, scale)
                if parts & POSITIONS:
                    add_quad(values, i, address(position) + (position_ids[row] * width + column) * 4, _ONE)
                if parts & TOKEN_TYPES:
                    add_quad(values, i, address(token_type) + (type_ids[row] * width + column) * 4, _ONE)
        normalise(values, D, first, eps, scratch)
        finish(values, first, row * width, width, weight, bias, types.int64(0), outputs, out32, out16)

    i32, f32, f32_rows = types.int32, types.float32[::1], types.float32[:, ::1]
    signature = (*[i32[::1]] * 3, *[f32_rows] * 3, types.float32, i32, f32, f32, types.float32, i32, i32, f32_rows,
                 types.uint16[:, ::1])
    return Kernel(f"embedding {norm or 'no'} norm, {threads} threads", embed, signature, threads=block, registers=96)


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every norm and number of threads."""
    yield from (embedding_kernel(norm, threads) for norm in KINDS for threads in THREADS)
