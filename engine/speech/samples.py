"""Check samples of audio at 16 kHz, and collect them in an array that grows while a recording is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.arguments import as_array, is_number
from ..base.errors import InputError, shown

RATE = 16000
"""Samples in a second."""
MAX_SECONDS = 4 * 3600
"""The longest recording by default: 4 hours have 230 million samples, which take 920 MB."""
LOUDEST = 2.0**31
"""Limit on the absolute value of a sample in a file or in `resample`: 32-bit integers that were never divided pass,
damaged floats do not."""
HEARD = 100.0
"""Limit on the absolute value of a sample that a model reads. Audio is from -1 to 1, and a little beyond if it is too
loud. If it is far beyond, somebody forgot to divide integers, and the model would write text that nobody said."""
_INTEGERS = {8: 2**7, 16: 2**15, 24: 2**23, 32: 2**31}
"""{bits of an integer: the number by which such samples are divided}."""
_FIRST = 2**18
"""The number of samples for which a growing array has room at first: 16 s, 1 MB."""


def check_samples(samples: Any, max_seconds: float = MAX_SECONDS, loudest: float = HEARD) -> np.ndarray:
    """Return samples as an array [n]; raises `InputError` unless they are finite floats, at most `max_seconds`.

    loudest: the largest absolute value that they may have.
    """
    if (isinstance(samples, tuple) and len(samples) == 2) or isinstance(samples, Mapping):
        raise InputError("a recording is an array of samples at 16 kHz, without its rate; engine.resample(samples, "
                         "rate, 16000) converts samples of another rate")
    samples = as_array(samples, "samples must be finite floats in one axis")
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise _no_samples(f"{samples.dtype} of shape {list(samples.shape)}")
    check_length(len(samples), max_seconds)
    peak = max(-float(samples.min()), float(samples.max())) if len(samples) else 0.0
    if not peak <= LOUDEST:
        raise _no_samples("NaN, infinity or numbers beyond 2^31")
    if peak > loudest:
        bits, divisor = next((bits, divisor) for bits, divisor in _INTEGERS.items() if peak <= divisor)
        raise InputError(f"samples must be from -1 to 1, and the largest of these is {peak:,.0f}, as of integers of "
                         f"{bits} bits; divide them: samples / {divisor}")
    return samples


def check_limit(max_seconds: Any) -> float:
    """Return the argument max_seconds, the longest recording; raises `InputError` unless it is a number above 0."""
    if not is_number(max_seconds) or not max_seconds > 0:
        raise InputError(f"max_seconds must be a number above 0, not {shown(max_seconds)}")
    return max_seconds


def check_length(count: int, max_seconds: float) -> None:
    """Raise `InputError` if this number of samples at 16 kHz is more than `max_seconds` have."""
    if count > max_seconds * RATE:
        raise InputError(f"the recording has more than {max_seconds:,g} s; cut it where nobody speaks, or allow more "
                         "with max_seconds=")


def _no_samples(given: str) -> InputError:
    """Return the error for a value that is no samples. given: the description of the value."""
    return InputError(f"samples must be finite floats in one axis, not {given}: the mean of the channels, divided by "
                      "32768 if they are 16-bit integers; a file is given by its path, its bytes or an open file")


class GrowingSamples:
    """An array of samples that grows block by block, without a second copy of all samples at the end."""

    def __init__(self) -> None:
        self._count = 0
        self._samples = np.empty(_FIRST, np.float32)

    def add(self, block: np.ndarray) -> None:
        """Append float32 samples [k]."""
        end = self._count + len(block)
        if end > len(self._samples):
            # Grow by an eighth: the system moves the pages of a large array without a copy, so small steps are cheap,
            # and little room is unused at the end. refcheck=False is safe, because nobody else has the array.
            self._samples.resize(max(end, len(self._samples) * 9 // 8), refcheck=False)
        self._samples[self._count : end] = block
        self._count = end

    def taken(self) -> np.ndarray:
        """Return the samples, float32 [n], which the caller owns; this object is empty afterwards."""
        samples, self._samples = self._samples, np.empty(0, np.float32)
        samples.resize(self._count, refcheck=False)
        self._count = 0
        return samples
