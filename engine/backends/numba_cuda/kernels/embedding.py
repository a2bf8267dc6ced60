"""Add and normalise the embeddings of packed tokens in one pass: one warp for each token.

The kernel reads a float32 row of each table and writes the result twice, as float32 and as bfloat16; memory bandwidth
limits it. It gathers whole rows of a table: runs of 3 KB at D = 768.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.warp import round_bf16
from ..toolchain import cuda, types
from .norm import COMMON_WIDTHS, ROWS, norm_function, norm_grid

embedding_grid = norm_grid
"""The grid for a number of tokens."""

_ZERO = np.float32(0.0)


def embedding_kernel(D: int, *, words: bool = True, positions: bool = True, token_types: bool = True,
                     norm: bool = True, bfloat16: bool = True) -> Kernel:
    """Make the kernel that computes norm(word row + position row + type row) of each token.

    Arguments: (ids, position_ids, type_ids i32 [N], word f32 [V,D], position f32 [P,D], token_type f32 [Y,D], weight,
    bias f32 [D], eps f32, out32 f32 [N,D], out16 u16 [N,D]). Ids are below the sizes of their tables. words: True if
    `word` is a table; if False, it holds the rows themselves, f32 [N,D], and `ids` is a dummy. positions, token_types,
    norm, bfloat16: whether the model has these parts; the arguments of a missing part are dummies.
    """
    per_lane = -(-D // 32)
    normed = norm_function(D)

    def embed(ids: Any, position_ids: Any, type_ids: Any, word: Any, position: Any, token_type: Any, weight: Any,
              bias: Any, eps: Any, out32: Any, out16: Any) -> None:
        lane = cuda.threadIdx.x % 32
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.x // 32
        if row >= out32.shape[0]:
            return
        values = cuda.local.array(per_lane, np.float32)
        for i in range(per_lane):
            column = lane + 32 * i
            value = _ZERO
            if column < D:
                value = word[ids[row] if words else row, column]
                if positions:
                    value += position[position_ids[row], column]
                if token_types:
                    value += token_type[type_ids[row], column]
            values[i] = value
        if norm:
            normed(values, lane, eps)
        for i in range(per_lane):
            column = lane + 32 * i
            if column < D:
                value = values[i]
                if norm:
                    value = value * weight[column] + bias[column]
                out32[row, column] = value
                if bfloat16:
                    out16[row, column] = round_bf16(value)

    i32, f32, f32_rows = types.int32[::1], types.float32[::1], types.float32[:, ::1]
    signature = (i32, i32, i32, f32_rows, f32_rows, f32_rows, f32, f32, types.float32, f32_rows, types.uint16[:, ::1])
    parts = [name for name, there in (("words", words), ("positions", positions), ("types", token_types),
                                      ("norm", norm), ("bf16", bfloat16)) if there]
    name = f"embedding D={D} {' '.join(parts)}"
    return Kernel(name, embed, signature, threads=32 * ROWS, registers=48 + 2 * per_lane)


def variants() -> Iterator[Kernel]:
    """Yield the kernels of the widths of common models, with all parts and without token types."""
    for D in COMMON_WIDTHS:
        for bfloat16 in (True, False):
            for token_types in (True, False):
                yield embedding_kernel(D, token_types=token_types, bfloat16=bfloat16)
