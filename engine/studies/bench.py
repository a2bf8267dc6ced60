"""Compare a model's speed with the limits of this machine for several input shapes: `engine bench`, a roofline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..backends.peak import Peak, forward_flops, measure_peak, measure_rate, weight_bytes
from ..base.errors import UnsupportedError
from ..interface.engine import Engine

SHAPES = ((1, 16), (1, 128), (1, 512), (8, 128), (32, 128))
"""Shapes to measure: (number of sequences, tokens per sequence)."""
SECONDS = 1.0
"""Approximate time spent on each shape, in seconds."""
RATES = 10
"""Approximate number of measurements of the machine's rate between the calls of one shape."""


@dataclass(frozen=True)
class Timed:
    """The time of one piece of work, and the machine's rates of the operations that bound it, measured between runs."""

    sequences: int
    tokens: int
    """Tokens of each sequence."""
    amount: float
    """The operations of the work, or the bytes that it reads, in units of 10^9."""
    seconds: float
    """Median time of one run."""
    rates: tuple[float, ...]
    """Rates of the machine, in the same unit a second: of the products alone, or of reading memory."""

    @property
    def rate(self) -> float:
        """Return the speed reached, in 10^9 operations or bytes a second."""
        return self.amount / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Return how many tokens, of all sequences, are computed in one second."""
        return self.sequences * self.tokens / self.seconds

    @property
    def of_the_moment(self) -> float:
        """Return the speed as a fraction of the median of `rates`, which other users of the machine lower as well."""
        return self.rate / float(np.median(self.rates))


@dataclass(frozen=True)
class Measurement(Timed):
    """The time of forward passes, and the machine's limits measured at the same time."""

    weight_bytes: int
    peak: Peak
    """The highest limits of the machine that were measured so far."""

    @property
    def of_peak(self) -> float:
        """Return the speed as a fraction of the highest rate of products that was measured."""
        return self.rate / self.peak.gops

    @property
    def compute_floor(self) -> float:
        """Return the seconds that the arithmetic takes at the measured peak of the engine's precision."""
        return self.amount / self.peak.gops

    @property
    def memory_floor(self) -> float:
        """Return the seconds that reading every weight once takes at the measured memory bandwidth."""
        return self.weight_bytes / self.peak.dram_read_gbs / 1e9


def measure(engine: Engine, shapes: tuple[tuple[int, int], ...] = SHAPES) -> Iterator[Measurement]:
    """Time forward passes of each shape that the model's length limit allows, with random inputs.

    The machine's limits are measured again after each shape, and the highest values so far are used, because other
    processes can only lower them. Raises `UnsupportedError` for an engine on a GPU: the limits are those of the CPU.
    """
    if engine.backend == "cuda":
        raise UnsupportedError("engine bench measures CPUs; for a GPU run python -m asv_bench.gpu in the repository")
    peak = measure_peak(engine.threads, precision=engine.precision)
    limit = min(engine.max_batch_tokens, engine.config.longest_sequence or engine.max_batch_tokens)
    for B, T in shapes:
        if limit < T:
            continue
        seconds, rates = timed(partial(engine.forward, **_random_inputs(engine, B, T)),
                               partial(measure_rate, engine.threads, engine.precision, repeats=1))
        peak = peak.or_higher(measure_peak(engine.threads, precision=engine.precision))
        peak = peak.or_higher(replace(peak, gops=max(rates)))
        yield Measurement(B, T, forward_flops(engine.config, [T] * B) / 1e9, seconds, rates,
                          weight_bytes(engine.config, engine.precision), peak)


def timed(work: Callable[[], object], rate: Callable[[], float]) -> tuple[float, tuple[float, ...]]:
    """Return the median seconds of a call of `work`, and the machine's rates, which `rate` measures between the calls.

    The calls take about `SECONDS` in all; the first call, which warms caches up, does not count.
    """
    work()
    times: list[float] = []
    rates: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        if sum(times) >= len(rates) * SECONDS / RATES:
            rates.append(rate())        # about RATES times, at even distances in time
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), tuple(rates)


def _random_inputs(engine: Engine, B: int, T: int) -> dict[str, Any]:
    """Return arguments of `Engine.forward`: random ids [B, T], or vectors [B, T, D] if the model reads no ids."""
    rng = np.random.default_rng(0)
    if engine.config.vocab_size:
        return {"input_ids": rng.integers(0, engine.config.vocab_size, (B, T))}
    return {"inputs_embeds": rng.standard_normal((B, T, engine.config.table_width), np.float32)}


LEGEND = ("of peak: of the highest rate of the products alone; of moment: of their median rate between the passes\n"
          "* is the higher floor, which no run can beat; the limits are measured again for each shape")
HEADER = "   shape       time  tokens/s  GFLOP/s  of peak  of moment   floors: arithmetic     weights"


def row(m: Measurement) -> str:
    """Return one line of the table under `HEADER`; `*` marks the higher of the two floors, which no run can beat."""
    by_compute = m.compute_floor >= m.memory_floor
    shape = f"{m.sequences}x{m.tokens}"
    return (f"{shape:>8} {m.seconds * 1e3:7.2f} ms {m.tokens_per_second:9,.0f} {m.rate:8.1f} {m.of_peak:8.1%}   "
            f"{m.of_the_moment:8.1%}   {m.compute_floor * 1e3:13.2f} ms{'*' if by_compute else ' '} "
            f"{m.memory_floor * 1e3:8.2f} ms{' ' if by_compute else '*'}")
