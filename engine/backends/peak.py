"""Measure the machine's peak operations per second and memory bandwidth, and count the work of a model.

Benchmarks state a speed as a fraction of the peak that is measured beside it, because a time alone means nothing on a
machine that is shared, or of another kind.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..model.config import ModelConfig
from ..model.precision import FORMATS
from ..programs import program_of, programs_of
from ..programs.operations import Attend, Linear
from .cython_cpu import isa

ROUNDS = 10_000_000
"""FMA rounds of one measurement: about 20 ms, long against the start of a thread."""

BUFFER = 64 * 2**20
"""Floats read in one measurement of the memory: 256 MB, far beyond the caches."""


@dataclass(frozen=True)
class Peak:
    """Measured limits of `threads` threads together."""

    gops: float
    """10^9 operations a second of a precision in the engine's own vectors; a multiply-add counts as two."""
    dram_read_gbs: float
    """Sequential reading of memory, in GB/s, 10^9 bytes a second."""
    threads: int

    def or_higher(self, other: Peak) -> Peak:
        """Return each limit as the higher one of this measurement and another of as many threads."""
        return Peak(max(self.gops, other.gops), max(self.dram_read_gbs, other.dram_read_gbs), self.threads)


def measure_peak(threads: int, repeats: int = 5, precision: str = "float32") -> Peak:
    """Measure both limits with `threads` threads at work together; the best of `repeats` runs each. About 0.5 s."""
    return Peak(measure_rate(threads, precision, repeats), measure_dram(threads, repeats), threads)


def measure_rate(threads: int, precision: str = "float32", repeats: int = 5, decodes: bool = False) -> float:
    """Return the 10^9 operations a second of a precision's independent products, on `threads` threads together.

    float32 has FMAs, int8 dot products, bfloat16 the CPU's own product of it, or FMAs where there is none. The best of
    `repeats` runs counts. decodes: the products are those of a decoder, whose int8 has inputs of 12 bits.
    """
    run_rounds = isa.chosen().product(precision, decodes).rounds       # returns how many operations it has run
    operations = run_rounds(ROUNDS, threads)        # the first run also warms up
    return operations / _best_time(lambda: run_rounds(ROUNDS, threads), repeats) / 1e9


def measure_dram(threads: int, repeats: int = 5) -> float:
    """Return the GB/s of `threads` threads that read 256 MB once, each a part: the best of `repeats` runs."""
    kernels = isa.chosen()
    buffer = np.ones(BUFFER, np.float32)
    return buffer.nbytes / _best_time(lambda: kernels.read(buffer, threads), repeats) / 1e9


def _best_time(work: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the fastest of `repeats` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def forward_flops(config: ModelConfig, lengths: Iterable[int]) -> float:
    """Return the floating-point operations of one forward pass over sequences of these lengths.

    A product [m,k] x [k,n] counts 2*m*n*k: all linear maps, the two products of attention over the keys that each query
    sees, and the products with the rows of relative positions that a sequence uses. Nothing else counts.
    """
    lengths = list(lengths)
    total = 0.0
    for operation, shapes in program_of(config).steps():
        if isinstance(operation, Linear):
            total += 2.0 * shapes[operation.x].width * sum(part.width for part in operation.parts) * sum(lengths)
        elif isinstance(operation, Attend):
            width = shapes[operation.q].width + shapes[operation.out].width
            total += 2.0 * width * sum(visible_pairs(operation, T) for T in lengths)
            if operation.relative is not None:
                terms = (operation.relative.key is not None) + (operation.relative.query is not None)
                rows = operation.relative.table.rows        # a sequence of T tokens has 2T - 1 distances, each a row
                total += 2.0 * terms * shapes[operation.q].width * sum(T * min(2 * T - 1, rows) for T in lengths)
    return total


def visible_pairs(operation: Attend, T: int) -> int:
    """Return the number of (query, key) pairs of a sequence of T tokens in which the query sees the key."""
    left, right = (T - 1 if side is None else min(side, T - 1) for side in operation.window)
    # Each query sees left + 1 + right keys, but none before the first token and none behind the last one.
    return T * (left + right + 1) - (left * (left + 1) + right * (right + 1)) // 2


def weight_bytes(config: ModelConfig, precision: str = "float32") -> int:
    """Return the bytes of the weights that every forward pass reads: those of all layers, but not the embeddings."""
    program = program_of(config)
    row_bytes = FORMATS[precision].row_bytes
    layers = [parameter for name, parameter in program.parameters.items() if not name.startswith("embeddings.")]
    return sum(parameter.shape[0] * row_bytes(parameter.shape[1]) if parameter.kind == "linear"
               else 4 * math.prod(parameter.shape) for parameter in layers)


def step_bytes(config: ModelConfig, precision: str = "float32") -> int:
    """Return the bytes of the weights that a step of a decoder reads: those of all layers, and the map to the logits.

    That map is stored in the finer format of the precision (8 bits where the others have 4).
    """
    logits = next(operation for operation in programs_of(config)[-1].operations if isinstance(operation, Linear))
    row_bytes = FORMATS[FORMATS[precision].finer].row_bytes(config.hidden_size)
    return weight_bytes(config, precision) + sum(part.width for part in logits.parts) * row_bytes


def prompt_flops(config: ModelConfig, length: int) -> float:
    """Return the operations of a prompt as `forward_flops` counts them, and those of the logits of its last token."""
    return forward_flops(config, [length]) + 2.0 * config.hidden_size * config.vocab_size
