"""Convert vectors to fewer bits, by the formulas of sentence-transformers' `quantize_embeddings`.

    uint8       floor((x - min) / ((max - min) / 255)), from 0 to 255, with the min and max of each dimension
    int8        the number of uint8, minus 128
    ubinary     one bit for each dimension, 1 where x > 0, eight in a byte
    binary      the byte of ubinary, minus 128
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.arguments import warn_caller
from ..base.errors import InputError, shown

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
"""The precisions of vectors that `Engine.encode` returns."""


def quantize_vectors(vectors: np.ndarray, precision: str, ranges: Any = None) -> np.ndarray:
    """Return float32 vectors [n,D] in fewer bits: int8 or uint8 [n,D], or [n, D/8] with one bit for each dimension.

    precision: one of `PRECISIONS` but "float32". ranges: [2,D]: the smallest and the largest number of each dimension;
    None for those of these vectors, with which the result of a vector depends on the others. Raises `InputError`.
    """
    if precision in ("binary", "ubinary"):
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)   # uint8 would wrap
    low, high = _ranges(vectors, ranges)
    step = (high - low) / np.float32(255)
    step = np.where(step == 0, np.float32(1), step)     # a dimension that never changes has code 0
    codes = np.clip(np.floor((vectors - low) / step), 0, 255)
    return codes.astype(np.uint8) if precision == "uint8" else (codes - 128).astype(np.int8)


def _ranges(vectors: np.ndarray, ranges: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest number of each dimension, float32 [D] each; raises `InputError`."""
    if ranges is None:
        if len(vectors) == 1:
            raise InputError("a single vector has no ranges; pass ranges=np.stack([v.min(axis=0), v.max(axis=0)]) of "
                             "many float32 vectors v")
        if not len(vectors):
            return np.zeros(vectors.shape[1], np.float32), np.zeros(vectors.shape[1], np.float32)
        warn_caller("the ranges of int8 and uint8 are those of the vectors of this call, so that a vector depends on "
                    "the others; pass ranges=np.stack([v.min(axis=0), v.max(axis=0)]) of many float32 vectors v",
                    UserWarning)
        return vectors.min(axis=0), vectors.max(axis=0)
    try:
        array = np.asarray(ranges, np.float32)
    except (TypeError, ValueError, RuntimeError):
        array = np.zeros(0, np.float32)     # whose shape is refused below
    if array.shape != (2, vectors.shape[1]) or not np.isfinite(array).all() or (array[0] > array[1]).any():
        raise InputError("ranges must be the smallest and the largest number of each dimension, "
                         f"[2, {vectors.shape[1]}], not {shown(ranges)}")
    return array[0], array[1]
