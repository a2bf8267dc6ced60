"""Change the rate of samples with a low-pass filter: a sinc under a Kaiser window, for each phase of the output.

With up / down = target / rate in lowest terms, output m lies at the time m * down in units of 1 / (rate * up), where
input j lies at j * up. So output m is the sum over j of x[j] h(m * down - j * up), and the filter h has one row of
values for each phase m * down mod up. Oppenheim and Schafer, "Discrete-Time Signal Processing", section 4.6.
"""

from __future__ import annotations

import math

import numpy as np

from ..base.errors import UnsupportedError

LOWEST, HIGHEST = 1000, 192_000
"""The rates in Hz that are resampled."""
_CROSSINGS = 48
"""Half the length of the filter, in samples of the lower of the two rates."""
_BETA = 8.96
"""The Kaiser window's parameter for a stop band of 90 dB: aliases are at least this much quieter."""
_CUTOFF = 0.94
"""Where the filter has half of its gain, as a part of half the lower rate. It passes 0.88 and stops 1.0 of it."""
_BLOCK = 2**14
"""Outputs that are computed together, at least, so that temporary arrays stay small."""


def resample(samples: np.ndarray, rate: int, target: int) -> np.ndarray:
    """Return samples [n] at another rate: float32 [ceil(n * target / rate)], which begin at the same time.

    Samples before the first one and after the last one count as 0. Raises `UnsupportedError` for rates in Hz that
    are below 1,000 or above 192,000.
    """
    for each in (rate, target):
        if not LOWEST <= each <= HIGHEST:
            raise UnsupportedError(f"it has {each:,} samples in a second; rates from {LOWEST:,} to {HIGHEST:,} Hz are "
                                   "converted")
    if rate == target:
        return samples.astype(np.float32)
    common = math.gcd(rate, target)
    up, down = target // common, rate // common
    taps = _taps(up, down)
    reach = taps.shape[1] // 2
    out = np.empty(-(-len(samples) * up // down), np.float32)
    size = up * max(256, -(-_BLOCK // up))      # a multiple of up, so that each block begins with phase 0
    for start in range(0, len(out), size):
        here = out[start : start + size]
        first = start * down // up - reach
        last = (start + len(here) - 1) * down // up + reach + 1
        x = np.zeros(last - first)
        inside = samples[max(first, 0) : last]
        x[max(0, -first) : max(0, -first) + len(inside)] = inside
        windows = np.lib.stride_tricks.sliding_window_view(x, taps.shape[1])
        for m in range(min(up, len(here))):
            here[m::up] = windows[m * down // up :: down] @ taps[m * down % up]
    return out


def _taps(up: int, down: int) -> np.ndarray:
    """Return the filter's values of each phase, float64 [up, 2w + 1], for the inputs from w before to w after."""
    slow = max(up, down)
    half = _CROSSINGS * slow
    reach = half // up + 1
    times = np.arange(up)[:, None] - np.arange(-reach, reach + 1) * up      # of the output less that of the input
    inside = np.abs(times) <= half
    window = np.i0(_BETA * np.sqrt(np.where(inside, 1 - (times / half) ** 2, 0.0)))
    taps = np.where(inside, np.sinc(times * (_CUTOFF / slow)) * window, 0.0)
    scaled: np.ndarray = taps * (up / taps.sum())       # so that a constant keeps its value
    return scaled
