"""Do two samples come from one distribution? The exact two-sample test of Kolmogorov and Smirnov."""

from __future__ import annotations

import numpy as np

MOST_COMPARED = 4096
"""The most numbers of each sample that the test should read: its time grows with the product of both."""


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
    probability (n - i) / (n + m - k). Orders that were far apart once are counted, and leave; the others have
    |i (n + m) - k n| < apart, so that there are few i for each k.
    """
    if apart == 0:
        return 1.0
    places = np.arange(n + 1)
    chances = np.zeros(n + 2)               # of i numbers of the first sample, and after the last one a place for none
    chances[0], left = 1.0, 0.0
    low = high = 0                          # the first and the last i that orders are at
    for k in range(n + m):
        rest = n + m - k
        in_range = chances[low : high + 1]
        to_first = in_range * ((n - places[low : high + 1]) / rest)
        in_range *= np.maximum(m - k + places[low : high + 1], 0) / rest
        chances[low + 1 : high + 2] += to_first
        high = min(high + 1, n)
        # The first i inside: i (n + m) > (k + 1) n - apart. The last one: i (n + m) < (k + 1) n + apart.
        first = max(low, ((k + 1) * n - apart) // (n + m) + 1)
        last = min(high, ((k + 1) * n + apart - 1) // (n + m))
        for outside in (slice(low, first), slice(last + 1, high + 1)):
            left += float(chances[outside].sum())
            chances[outside] = 0
        low, high = first, last
        if low > high:
            break
    return min(1.0, left)
