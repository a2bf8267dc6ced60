"""What this machine can do at most, measured: the yardstick of every speed that the project states.

A time means nothing on a machine that is shared, or of another kind; a fraction of the peak measured beside it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .backends.cython_cpu import isa
from .config import ModelConfig

ROUNDS = 10_000_000
"""FMA rounds of one measurement: about 20 ms, long against the start of a thread."""

BUFFER = 64 * 2**20
"""Floats read in one measurement of the memory: 256 MB, far beyond the caches."""


@dataclass(frozen=True)
class Peak:
    """Measured limits of `threads` threads together."""

    gops: float
    """Multiply-adds of a precision in the engine's own vectors, both operations counted, in 10^9 a second."""
    dram_read_gbs: float
    """Sequential reading of memory, in GB/s."""
    threads: int

    def or_higher(self, other: Peak) -> Peak:
        """The higher of two measurements, limit by limit."""
        return Peak(max(self.gops, other.gops), max(self.dram_read_gbs, other.dram_read_gbs), self.threads)


def measure_peak(threads: int, repeats: int = 5, precision: str = "float32") -> Peak:
    """Measure both limits with `threads` threads at work together; the best of `repeats` runs each. About 0.5 s."""
    return Peak(RATES[precision](threads, repeats), measure_dram(threads, repeats), threads)


def measure_fma(threads: int, repeats: int = 5) -> float:
    """GFLOP/s of independent float32 FMAs on `threads` threads together: the best of `repeats` runs."""
    return _best_rate(isa.chosen().fma_rounds, threads, repeats)


def measure_pairs(threads: int, repeats: int = 5) -> float:
    """GFLOP/s of independent products of bfloat16, likewise; of FMAs where the CPU has no instruction for them."""
    return _best_rate(isa.chosen().pair_rounds, threads, repeats)


def measure_dot(threads: int, repeats: int = 5) -> float:
    """10^9 operations a second of independent products of 8-bit integers, likewise."""
    return _best_rate(isa.chosen().dot_rounds, threads, repeats)


RATES = {"float32": measure_fma, "bfloat16": measure_pairs, "int8": measure_dot}
"""By precision: what measures the machine's peak."""


def measure_dram(threads: int, repeats: int = 5) -> float:
    """GB/s of reading 256 MB from start to end, each of `threads` threads its part: the best of `repeats` runs."""
    kernels = isa.chosen()
    buffer = np.ones(BUFFER, np.float32)
    return buffer.nbytes / _best_time(lambda: kernels.read(buffer, threads), repeats) / 1e9


def _best_rate(rounds: Callable[[int, int], float], threads: int, repeats: int) -> float:
    operations = rounds(ROUNDS, threads)
    return operations / _best_time(lambda: rounds(ROUNDS, threads), repeats) / 1e9


def _best_time(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def forward_flops(config: ModelConfig, lengths: Iterable[int]) -> float:
    """Floating-point operations of one forward pass over sequences of these lengths.

    2*m*n*k for each product: the six linear maps of a layer, and 4*T*T*d*H for attention. Norms, activations and
    softmax are not counted.
    """
    D, F, width = config.hidden_size, config.ffn_size, config.num_heads * config.head_width
    per_token = 2 * (4 * D * width + 2 * D * F)
    return float(config.num_layers * sum(T * per_token + 4 * T * T * width for T in lengths))


def weight_bytes(config: ModelConfig, precision: str = "float32") -> int:
    """Bytes of the weights that every forward pass reads: those of all layers, not the embedding tables."""
    D, F, width = config.hidden_size, config.ffn_size, config.num_heads * config.head_width
    matrices, vectors = 4 * D * width + 2 * D * F, 3 * width + 6 * D + F
    return config.num_layers * ({"float32": 4, "bfloat16": 2, "int8": 1}[precision] * matrices + 4 * vectors)
