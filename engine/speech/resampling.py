"""Change the rate of samples with the library soxr, block by block.

soxr filters with a linear phase, so audio keeps its times. The bits of its results do not depend on the blocks.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import numpy as np

from ..base.arguments import positive_int
from ..base.errors import UnsupportedError
from ..base.install import require_speech
from .samples import LOUDEST, GrowingSamples, check_samples

LOWEST, HIGHEST = 1000, 192_000
"""The limits of the rates, in Hz, that are resampled."""
_QUALITY = "VHQ"
"""soxr's best quality; docs/decisions.md has its errors."""
_BLOCK = 2**16
"""The number of samples that `resample` resamples together."""


class Resampler:
    """Resamples one recording that comes in blocks."""

    def __init__(self, rate: int, target: int):
        """Check the rates in Hz; raises `UnsupportedError` for one below 1,000 or above 192,000."""
        for each in (rate, target):
            if not LOWEST <= each <= HIGHEST:
                raise UnsupportedError(f"it has {each:,} samples in a second; rates from {LOWEST:,} to {HIGHEST:,} Hz "
                                       "are converted")
        rates = _rates(rate, target)
        self._streams: list[Any] = []
        if len(rates) > 1:
            soxr = require_speech("soxr", "resampling")
            self._streams = [soxr.ResampleStream(*pair, num_channels=1, dtype="float32", quality=_QUALITY)
                             for pair in pairwise(rates)]

    def add(self, block: np.ndarray) -> np.ndarray:
        """Return the resampled samples, float32, that are certain after one more block of float32 samples [k]."""
        for stream in self._streams:
            block = stream.resample_chunk(block)
        return block

    def end(self) -> np.ndarray:
        """Return the last resampled samples, which waited for more input; call it once, at the end."""
        block = np.empty(0, np.float32)
        for stream in self._streams:
            block = stream.resample_chunk(block, last=True)
        return block


def _rates(rate: int, target: int) -> list[int]:
    """Return the rates through which samples are resampled, from `rate` to `target`.

    For rates that are no multiples of each other, soxr dampens the upper end of the lower band a little: the error of
    44.1 to 16 kHz is -64 dB at 7 kHz. So `rate` is doubled until it is at least three times the target, and samples
    go from there to three times the target, whose band ends far above that of the target, and then to the target: the
    error is below -105 dB.
    """
    if rate == target:
        return [rate]
    if rate % target == 0 or target % rate == 0:
        return [rate, target]
    middle, fast = 3 * target, rate
    while fast < middle:
        fast *= 2
    return [each for each, _ in groupby([rate, fast, middle, target])]      # without equal neighbours


def resample(samples: Any, rate: int, target: int) -> np.ndarray:
    """Return samples [n] at another rate: float32 [n * target / rate, rounded], which begin at the same time.

    Samples before the first one and after the last one count as 0. It needs the extra [speech]. Raises
    `UnsupportedError` for rates in Hz that are below 1,000 or above 192,000, and `InputError` for what are no samples.
    """
    rate, target = positive_int("rate", rate), positive_int("target", target)
    resampler = Resampler(rate, target)
    samples = check_samples(samples, float("inf"), LOUDEST)
    resampled = GrowingSamples()
    for first in range(0, len(samples), _BLOCK):
        resampled.add(resampler.add(samples[first : first + _BLOCK].astype(np.float32)))
    resampled.add(resampler.end())
    return resampled.taken()
