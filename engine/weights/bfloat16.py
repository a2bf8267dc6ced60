"""Convert between float32 and bfloat16, which NumPy lacks: uint16 holds the upper 16 bits of a float32."""

from __future__ import annotations

import numpy as np

from ..base.errors import WeightsError


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Round float32 numbers to bfloat16, half to even, and return the bits: uint16 of the same shape.

    Raises `WeightsError` for NaN, infinity and numbers that would round to infinity.
    """
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    # bits + 0x7FFF + the last bit that stays, shifted: a half is rounded up if that bit is 1, and otherwise down.
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    # An exponent of ones is NaN or infinity. The largest bits are those of negative NaN, which wraps when rounded.
    if np.any(rounded & 0x7F80 == 0x7F80) or bits.max(initial=0) > 0xFF800000:
        raise WeightsError("bfloat16 holds finite numbers up to 3.39e38, and an array has other values")
    return rounded.astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the float32 numbers whose bfloat16 bits are given as uint16; the conversion is exact."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def widened(array: np.ndarray) -> np.ndarray:
    """Return numbers as float32: uint16 is read as the bits of bfloat16, and float32 is not copied."""
    return from_bfloat16(array) if array.dtype == np.uint16 else array.astype(np.float32, copy=False)
