"""Pool the token vectors of each sequence to one vector, as `engine/encoding/pooling.py` defines it.

One thread handles one column of one sequence and adds its tokens in order. The warps of a block read whole lines of
memory, and the order of the sum, and so its bits, depend on the sequence alone. Memory bandwidth limits the kernel;
every token is read once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..toolchain import cuda, types

THREADS = 128

MODES = ("cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")
"""The names of `engine.model.text_config.POOLINGS`, which are those of sentence-transformers."""

_ZERO = np.float32(0.0)


def pooling_kernel(mode: str) -> Kernel:
    """Make the pooling kernel: (x f32 [N,D], cu_seqlens i32 [B+1], skips i32 [B], out f32 [B,D]).

    skips: number of tokens at the start of each sequence that are ignored. A sequence with no other tokens gives zeros;
    but for cls it then gives its first token. The grid is `pooling_grid`.
    """
    first_only, last_only, largest = (mode == name for name in ("cls", "lasttoken", "max"))
    weighted, by_root = mode == "weightedmean", mode == "mean_sqrt_len_tokens"

    def pool(x: Any, cu_seqlens: Any, skips: Any, out: Any) -> None:
        column = cuda.blockIdx.y * THREADS + cuda.threadIdx.x
        sequence = cuda.blockIdx.x
        if column >= out.shape[1]:
            return
        start, end, skip = cu_seqlens[sequence], cu_seqlens[sequence + 1], skips[sequence]
        result = _ZERO
        if first_only:
            if start < end:
                result = x[start + skip if start + skip < end else start, column]
        elif start + skip < end:
            if last_only:
                result = x[end - 1, column]
            else:
                result = x[start + skip, column] * np.float32(skip + 1 if weighted else 1)
                weights = skip + 1
                for token in range(start + skip + 1, end):
                    value = x[token, column]
                    if largest:
                        # NaN is kept: no comparison with it is true.
                        result = result if result >= value or result != result else value
                    elif weighted:
                        result += value * np.float32(token - start + 1)
                        weights += token - start + 1
                    else:
                        result += value
                count = np.float32(weights if weighted else end - start - skip)
                if by_root:
                    result /= np.float32(math.sqrt(count))
                elif not largest:
                    result /= count
        out[sequence, column] = result

    f32 = types.float32[:, ::1]
    signature = f32, types.int32[::1], types.int32[::1], f32
    return Kernel(f"pooling {mode}", pool, signature, threads=THREADS, registers=48)


def pooling_grid(sequences: int, D: int) -> tuple[int, int]:
    """Return the grid for a number of sequences of width D."""
    return (sequences, -(-D // THREADS))


def variants() -> Iterator[Kernel]:
    """Yield the kernel of every mode."""
    yield from map(pooling_kernel, MODES)
