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
class Measurement:
    """The time of forward passes over B sequences of T tokens, and the machine's limits measured at the same time."""

    B: int
    T: int
    seconds: float
    """Median time of one pass."""
    flops: float
    weight_bytes: int
    peak: Peak
    """The highest limits so far."""
    rates: tuple[float, ...]
    """10^9 operations a second of the same products alone, measured between the passes."""

    @property
    def gflops(self) -> float:
        """Return the speed reached, in GFLOP/s."""
        return self.flops / self.seconds / 1e9

    @property
    def of_peak(self) -> float:
        """Return the speed as a fraction of the highest peak."""
        return self.gflops / self.peak.gops

    @property
    def of_the_moment(self) -> float:
        """Return the speed as a fraction of the median of `rates`, which other users of the machine lower as well."""
        return self.gflops / float(np.median(self.rates))

    @property
    def compute_floor(self) -> float:
        """Return the seconds that the arithmetic takes at the measured peak of the engine's precision."""
        return self.flops / self.peak.gops / 1e9

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
        yield Measurement(B, T, seconds, forward_flops(engine.config, [T] * B),
                          weight_bytes(engine.config, engine.precision), peak, rates)


def timed(work: Callable[[], object], rate: Callable[[], float]) -> tuple[float, tuple[float, ...]]:
    """Return the median seconds of a call, and the rates of the machine that `rate` measures between the calls."""
    work()
    times: list[float] = []
    rates: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        if sum(times) >= len(rates) * SECONDS / RATES:
            rates.append(rate())        # about RATES times
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), tuple(rates)


def _random_inputs(engine: Engine, B: int, T: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    if engine.config.vocab_size:
        return {"input_ids": rng.integers(0, engine.config.vocab_size, (B, T))}
    return {"inputs_embeds": rng.standard_normal((B, T, engine.config.table_width), np.float32)}


LEGEND = ("of peak: of the highest rate of the products alone; of moment: of their median rate between the passes\n"
          "* is the higher floor, which no run can beat; the limits are measured again for each shape")
HEADER = "   shape       time  tokens/s  GFLOP/s  of peak  of moment   floors: arithmetic     weights"


def row(m: Measurement) -> str:
    """Format one line of the table under `HEADER`; `*` marks the higher of the two floors, which no run can beat."""
    by_compute = m.compute_floor >= m.memory_floor
    return (f"{f'{m.B}x{m.T}':>8} {m.seconds * 1e3:7.2f} ms {m.B * m.T / m.seconds:9,.0f} {m.gflops:8.1f} "
            f"{m.of_peak:8.1%}   {m.of_the_moment:8.1%}   {m.compute_floor * 1e3:13.2f} ms{'*' if by_compute else ' '} "
            f"{m.memory_floor * 1e3:8.2f} ms{' ' if by_compute else '*'}")
