"""Weights in the blocks of llama.cpp's GGUF files, each of 32 successive numbers of a row.

    q8_0    w = scale * code             code -128 to 127
    q4_0    w = scale * (code - 8)       code 0 to 15
    q4_1    w = scale * code + minimum   code 0 to 15

scale and minimum are float16. Byte i of the codes of 4 bits holds number i in its lower half and number i + 16 in its
upper half. A matrix [N, K] is an array [N, K/32] of the structs of `engine.model.precision`. Kernels multiply these
blocks (`blocks.pxi` and `nibbles.pxi` in `backends/cython_cpu/kernels`), so that a model from such a file is not
rounded a second time.
"""

from __future__ import annotations

import numpy as np

from ..base.errors import InputError, WeightsError
from ..model.precision import BLOCKS, FORMATS, STORED
from .bfloat16 import widened

BLOCK = FORMATS["q8_0"].block      # 32 numbers
_RANGE = 127 * float(np.finfo(np.float16).max)
"""The largest |w| of q8_0, whose scales are float16."""


def quantize_q8_0(w: np.ndarray, heads: int = 1) -> np.ndarray:
    """Round a matrix [N, K] to blocks q8_0 [N, blocks of a row]. heads: how many heads the K inputs come from.

    No block spans two heads: the inputs of each are padded with zeros to whole blocks. A block's scale is the float16
    next to its largest |w| / 127. Raises `InputError` for anything but a finite float32 matrix, and `WeightsError` for
    numbers beyond the range of the scales.
    """
    if w.ndim != 2 or w.dtype != np.float32 or w.size == 0 or not np.isfinite(w).all():
        raise InputError(f"only a finite float32 matrix [N, K] can be quantized, not {w.dtype} of shape "
                         f"{list(w.shape)}, or it holds NaN or infinity")
    N, K = w.shape
    stored = np.empty(FORMATS["q8_0"].shape(w.shape, heads), FORMATS["q8_0"].dtype)
    width = stored.shape[1] // heads * BLOCK        # inputs of a head with its padding
    step = max(1, 2**18 // K)       # rows at a time, so that temporary arrays stay in the cache
    for first in range(0, N, step):
        rows = np.zeros((min(step, N - first), heads, width), np.float32)
        rows[:, :, : K // heads] = w[first:first + step].reshape(len(rows), heads, K // heads)
        rows = rows.reshape(len(rows), -1, BLOCK)
        largest = np.abs(rows).max(axis=2)
        if largest.max() > _RANGE:
            raise WeightsError(f"q8_0 holds numbers up to {_RANGE:,.0f}, and an array has larger ones")
        part = stored[first:first + step]
        part["scale"] = largest / np.float32(127)
        scale = part["scale"].astype(np.float32)[:, :, None]
        ratio = np.divide(rows, scale, out=np.zeros_like(rows), where=scale > 0)
        part["codes"] = np.clip(np.rint(ratio), -127, 127)
    return stored


def plain_numbers(stored: np.ndarray) -> np.ndarray:
    """Return stored numbers as float32, from float32, bfloat16, float16, or blocks without padding [N, blocks]."""
    if STORED.get(stored.dtype) not in BLOCKS:
        return widened(stored)
    return widen_blocks(stored, stored.shape[1] * FORMATS["q8_0"].block)


def widen_blocks(stored: np.ndarray, K: int, heads: int = 1) -> np.ndarray:
    """Return blocks [N, blocks of a row] of any of the formats as a float32 matrix [N, K], as llama.cpp computes it.

    heads: how many heads the K inputs come from. A scale that is infinite or NaN gives infinite numbers or NaN, which
    later checks report.
    """
    with np.errstate(invalid="ignore"):
        wide = stored["scale"].astype(np.float32)[..., None] * _integers(stored)
        if "minimum" in (stored.dtype.names or ()):
            wide += stored["minimum"].astype(np.float32)[..., None]
    wide = wide.reshape(len(stored), heads, -1)[:, :, : K // heads]
    return np.ascontiguousarray(wide.reshape(len(stored), K))


def to_q8_0(stored: np.ndarray) -> np.ndarray:
    """Return blocks as blocks of q8_0, with the same numbers; those with a minimum, such as q4_1, are rounded."""
    if STORED[stored.dtype] == "q8_0":
        return stored
    if "minimum" in (stored.dtype.names or ()):
        return quantize_q8_0(widen_blocks(stored, stored.shape[1] * BLOCK))
    blocks = np.empty(stored.shape, FORMATS["q8_0"].dtype)
    blocks["scale"], blocks["codes"] = stored["scale"], _integers(stored)
    return blocks


def impossible_blocks(stored: np.ndarray) -> str | None:
    """Return a description of forbidden scales or minima in stored blocks; None if there are none."""
    halves = [name for name in stored.dtype.names or () if stored.dtype[name] == np.float16]
    return None if all(np.isfinite(stored[name]).all() for name in halves) else "a scale that is NaN or infinite"


def _integers(stored: np.ndarray) -> np.ndarray:
    """Return the integers by which blocks multiply their scales: int8 [N, blocks, 32]."""
    codes = stored["codes"]
    if codes.dtype == np.int8:
        return codes
    codes = np.concatenate([codes & 15, codes >> 4], axis=-1).view(np.int8)
    return codes - np.int8(8) if STORED[stored.dtype] == "q4_0" else codes
