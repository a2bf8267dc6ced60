"""bfloat16, which NumPy lacks: the upper 16 bits of a float32, kept as uint16."""

from __future__ import annotations

import numpy as np

from ..errors import WeightsError


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """The bits of float32 numbers rounded to bfloat16, half to even: uint16 of the same shape.

    Raises `WeightsError` for NaN, infinity and what would round to it.
    """
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    if np.any(rounded & 0x7F80 == 0x7F80):
        raise WeightsError("bfloat16 is for finite numbers up to 3.39e38, and an array holds others")
    return rounded.astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers, exactly, whose bfloat16 bits are given as uint16."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)
