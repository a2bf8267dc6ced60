"""`Histogram`: counts values in buckets, for the Prometheus metrics of `metrics.py`."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily

SECONDS = [1e-5 * 1.5**i for i in range(1, 36)]
"""The upper bounds of the buckets for times, in seconds: those of TEI, from 15 microseconds to 15 seconds."""


class Histogram:
    """The number of values in each bucket, and their sum. Any thread may add values and read them."""

    def __init__(self, bounds: Sequence[float], counts: Sequence[int] | None = None, total: float = 0.0):
        """bounds: the largest value of each bucket but the last, which has none. counts, total: to start with."""
        self.bounds, self.counts, self.total = bounds, [*(counts or [0] * (len(bounds) + 1))], total
        self._lock = threading.Lock()

    def add(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        with self._lock:
            self.counts[bisect_left(self.bounds, value)] += times
            self.total += value * times

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        """Return the histogram as Prometheus reads it: the count of a bucket includes all smaller values.

        name, text: the metric's, and its line of help.
        """
        below, buckets = 0, []
        for bound, count in zip([*map(repr, self.bounds), "+Inf"], self.counts, strict=True):
            below += count
            buckets.append((bound, below))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self.total)


def sum_of(histograms: Sequence[Histogram]) -> Histogram:
    """Return the sum of several histograms with the same buckets, at least one."""
    counts = [sum(bucket) for bucket in zip(*(histogram.counts for histogram in histograms), strict=True)]
    return Histogram(histograms[0].bounds, counts, sum(histogram.total for histogram in histograms))
