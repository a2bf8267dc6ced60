"""Test whether two samples come from one distribution, by the exact two-sample test of Kolmogorov and Smirnov."""

from __future__ import annotations

import numpy as np

MOST_COMPARED = 4096
"""The most numbers of each sample that callers should pass: the time grows with the product of both counts."""


def kolmogorov_smirnov(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return D, the largest distance between the distribution functions of samples a [n] and b [m], and its p-value.

    The p-value is the probability that two samples of one continuous distribution are at least so far apart, over all
    orders of the n + m numbers. It is exact, and no limit for large samples; with equal numbers it is too large. So a
    test that calls p <= r a difference errs with probability r at most.
    """
    n, m = len(a), len(b)
    both = np.concatenate([a, b])
    count_a = np.searchsorted(np.sort(a), both, side="right")       # how many of a are at most each number
    count_b = np.searchsorted(np.sort(b), both, side="right")
    distance = int(np.abs(count_a * m - count_b * n).max())         # D n m, an integer, so that nothing is rounded
    return distance / (n * m), _p_value(n, m, distance)


def _p_value(n: int, m: int, distance: int) -> float:
    """Return the probability that a random order of n and m numbers gets so far apart: |i m - j n| >= distance.

    After k numbers, i are of the first sample and j = k - i of the second. The next one is of the first with
    probability (n - i) / (n + m - k). An order is counted as soon as it is so far apart, and leaves; the others have
    |i (n + m) - k n| < distance, so that there are few i for each k.
    """
    if distance == 0:
        return 1.0
    counts = np.arange(n + 1)
    chances = np.zeros(n + 2)               # of i numbers of the first sample; entry n + 1 stays 0
    chances[0], p_value = 1.0, 0.0
    low = high = 0                          # the least and the largest i of the orders that have not left
    for k in range(n + m):
        remaining = n + m - k
        in_range, i = chances[low : high + 1], counts[low : high + 1]
        to_first = in_range * ((n - i) / remaining)             # orders whose next number is of the first sample
        in_range *= np.maximum(m - k + i, 0) / remaining        # of the second sample: i stays as it is
        chances[low + 1 : high + 2] += to_first
        high = min(high + 1, n)
        # The first i inside: i (n + m) > (k + 1) n - distance. The last one: i (n + m) < (k + 1) n + distance.
        first = max(low, ((k + 1) * n - distance) // (n + m) + 1)
        last = min(high, ((k + 1) * n + distance - 1) // (n + m))
        for outside in (slice(low, first), slice(last + 1, high + 1)):
            p_value += float(chances[outside].sum())
            chances[outside] = 0
        low, high = first, last
        if low > high:
            break
    return min(1.0, p_value)      # sums of rounded probabilities can exceed 1
