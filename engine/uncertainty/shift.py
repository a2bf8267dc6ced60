"""Do two samples come from one distribution? The exact two-sample test of Kolmogorov and Smirnov."""

from __future__ import annotations

import numpy as np

MOST_COMPARED = 1024
"""The most numbers of each sample that the test reads: its time grows with the product of both."""


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return D, the largest distance between the distribution functions of samples a [n] and b [m], and its p-value.

    The p-value is the probability that two samples of one continuous distribution are at least so far apart, over all
    orders of the n + m numbers. It is exact, and no limit for large samples; with equal numbers it is too large. So a
    test that calls p <= r a difference errs with probability r at most.
    """
    n, m = len(a), len(b)
    both = np.concatenate([a, b])
    below_a = np.searchsorted(np.sort(a), both, side="right")
    below_b = np.searchsorted(np.sort(b), both, side="right")
    apart = int(np.abs(below_a * m - below_b * n).max())            # integers: D n m, without rounding
    return apart / (n * m), _p_value(n, m, apart)


def _p_value(n: int, m: int, apart: int) -> float:
    """Return the probability that a random order of n and m numbers gets so far apart: |i m - j n| >= apart.

    After k numbers, i are of the first sample and j = k - i of the second. The next one is of the first with
    probability (n - i) / (n + m - k). Orders that were far apart once are counted, and leave.
    """
    if apart == 0:
        return 1.0
    i = np.arange(n + 1)
    chances = np.zeros(n + 1)
    chances[0], left = 1.0, 0.0
    for k in range(n + m):
        j, rest = k - i, n + m - k
        to_first = chances * ((n - i) / rest)
        chances = chances * (np.clip(m - j, 0, m) / rest)
        chances[1:] += to_first[:-1]
        outside = np.abs(i * m - (k + 1 - i) * n) >= apart
        left += float(chances[outside].sum())
        chances[outside] = 0
    return min(1.0, left)
