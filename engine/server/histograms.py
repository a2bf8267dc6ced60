"""`Histogram`: how many values lie in each bucket, for Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily

SECONDS = [1e-5 * 1.5**i for i in range(1, 36)]
"""The buckets of TEI's times."""


class Histogram:
    """How many values lie in each bucket. Any thread may add values and read them."""

    def __init__(self, bounds: Sequence[float], counts: Sequence[int] | None = None, total: float = 0.0):
        """bounds: the largest value of each bucket but the last, which has no bound. counts, total: what is known."""
        self.bounds, self.counts, self.total = bounds, [*(counts or [0] * (len(bounds) + 1))], total
        self._lock = threading.Lock()

    def add(self, value: float, times: int = 1) -> None:
        """Count a value that came so many times."""
        with self._lock:
            self.counts[bisect_left(self.bounds, value)] += times
            self.total += value * times

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        """Return the histogram as Prometheus has it: each bucket with all smaller ones."""
        total, buckets = 0, []
        for bound, count in zip([*map(repr, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self.total)


def sum_of(histograms: Sequence[Histogram]) -> Histogram:
    """Return the values of several histograms with the same buckets."""
    counts = [sum(some) for some in zip(*(one.counts for one in histograms), strict=True)]
    return Histogram(histograms[0].bounds, counts, sum(one.total for one in histograms))
