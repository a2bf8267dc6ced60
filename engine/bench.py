"""`engine bench`: how near a model comes to the limits of this machine, shape by shape (a roofline, as a table)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .engine import Engine
from .errors import UnsupportedError
from .peak import Peak, forward_flops, measure_peak, weight_bytes

SHAPES = ((1, 16), (1, 128), (1, 512), (8, 128), (32, 128))
"""Sequences and tokens of each."""

SECONDS = 1.0
"""Time spent on each shape, about."""


@dataclass(frozen=True)
class Measurement:
    """Forward passes over B sequences of T tokens, against the limits measured beside them."""

    B: int
    T: int
    seconds: float
    """Median of the passes."""
    flops: float
    weight_bytes: int
    peak: Peak

    @property
    def gflops(self) -> float:
        """GFLOP/s reached."""
        return self.flops / self.seconds / 1e9

    @property
    def compute_floor(self) -> float:
        """Seconds that the arithmetic takes at the measured peak of the engine's precision."""
        return self.flops / self.peak.gops / 1e9

    @property
    def memory_floor(self) -> float:
        """Seconds that reading every weight once takes at the measured bandwidth of the memory."""
        return self.weight_bytes / self.peak.dram_read_gbs / 1e9


def measure(engine: Engine, shapes: tuple[tuple[int, int], ...] = SHAPES) -> Iterator[Measurement]:
    """Time forward passes of each shape that the model's length limit allows, with random inputs.

    The limits are measured anew beside each shape, and the highest so far are used: a busy neighbour only lowers them.
    Raises `UnsupportedError` for an engine on a GPU, whose limits are not these.
    """
    if engine.backend == "cuda":
        raise UnsupportedError("engine bench measures CPUs; for a GPU run python -m asv_bench.gpu in the repository")
    peak = measure_peak(engine.threads, precision=engine.precision)
    limit = min(engine.max_tokens, engine.config.max_tokens or engine.max_tokens)
    for B, T in shapes:
        if limit < T:
            continue
        inputs = _random_inputs(engine, B, T)
        engine.forward(**inputs)
        times: list[float] = []
        while len(times) < 3 or sum(times) < SECONDS:
            start = time.perf_counter()
            engine.forward(**inputs)
            times.append(time.perf_counter() - start)
        peak = peak.or_higher(measure_peak(engine.threads, precision=engine.precision))
        yield Measurement(B, T, float(np.median(times)), forward_flops(engine.config, [T] * B),
                          weight_bytes(engine.config, engine.precision), peak)


def _random_inputs(engine: Engine, B: int, T: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    if engine.config.vocab_size:
        return {"input_ids": rng.integers(0, engine.config.vocab_size, (B, T))}
    return {"inputs_embeds": rng.standard_normal((B, T, engine.config.hidden_size), np.float32)}


HEADER = "   shape       time  tokens/s  GFLOP/s  of peak   floors: arithmetic     weights"


def row(m: Measurement) -> str:
    """One line of the table under `HEADER`; the higher floor, which no run can beat, is marked."""
    by_compute = m.compute_floor >= m.memory_floor
    return (
        f"{f'{m.B}x{m.T}':>8} {m.seconds * 1e3:7.2f} ms {m.B * m.T / m.seconds:9,.0f} {m.gflops:8.1f} "
        f"{m.gflops / m.peak.gops:8.1%}   {m.compute_floor * 1e3:13.2f} ms{'*' if by_compute else ' '} "
        f"{m.memory_floor * 1e3:8.2f} ms{' ' if by_compute else '*'}"
    )
