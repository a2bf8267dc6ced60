"""Compare the speed of a model that generates with the limits of this machine: `engine bench`.

A step of few sequences reads all weights and the keys and values of its context, each for few products, so that the
rate of reading memory bounds it. A prompt uses each weight for many tokens, so that the rate of products bounds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..backends.interfaces import Decoder
from ..backends.peak import measure_dram, measure_rate, prompt_flops, step_bytes
from ..backends.steps import Row
from ..backends.wants import GREEDY
from ..interface.generator import Generator
from ..model.precision import cached_bytes
from .bench import Timed, timed

STEPS = ((1, 32), (8, 32), (32, 32), (1, 1024))
"""Steps to measure: (sequences, tokens of each one's context)."""
PROMPTS = (128, 1024)
"""Tokens of a prompt."""
SOURCE = 32
"""Tokens of the source of each sequence, for a model with an encoder."""


@dataclass(frozen=True)
class DecodingMeasurement(Timed):
    """The time of one step, which has one new token of each sequence, or of one prompt."""

    name: str
    unit: str
    """The unit of `amount`: "GB" for a step, which reading memory bounds, and "GOP" for a prompt."""


def measure(generator: Generator) -> Iterator[DecodingMeasurement]:
    """Time steps of greedy search, and prompts, on random tokens; those beyond the model's limits are left out."""
    decoder, config, cache = generator._model.decoder, generator.config, generator._model.cache
    longest = min(decoder.longest or 2**62, generator.max_batch_tokens)
    rng = np.random.default_rng(0)
    for sequences, context in STEPS:
        if context < longest:
            with _Sequences(decoder, sequences, config.memory_size) as open_ones:
                open_ones.read(rng.integers(0, decoder.vocab_size, (sequences, context)))
                tokens = rng.integers(0, decoder.vocab_size, (sequences, 1))
                times = timed(partial(open_ones.read, tokens, keep=False),
                              partial(measure_dram, generator.threads, repeats=1))
            keys = sequences * (context + bool(config.memory_size) * SOURCE)        # of one layer and one key head
            vectors = 2 * config.num_layers * config.kv_heads * keys        # 2: a key vector and a value vector
            read = step_bytes(config, generator.precision) + cached_bytes(vectors, config.head_width, cache)
            yield DecodingMeasurement(sequences, 1, read / 1e9, *times, name=f"step after {context}", unit="GB")
    for length in PROMPTS:
        if length <= longest:
            with _Sequences(decoder, 1, config.memory_size) as open_ones:
                prompt = rng.integers(0, decoder.vocab_size, (1, length))
                times = timed(partial(open_ones.read, prompt, keep=False),
                              partial(measure_rate, generator.threads, generator.precision, repeats=1, decodes=True))
            yield DecodingMeasurement(1, length, prompt_flops(config, length) / 1e9, *times, name="prompt", unit="GOP")


class _Sequences:
    """Requests of a decoder, all with contexts of one length: the block opens them, and its end closes them."""

    def __init__(self, decoder: Decoder, count: int, memory_size: int):
        """memory_size: the width of the vectors of sources; 0 for a decoder without them."""
        self._decoder, self._requests = decoder, list[int]()
        self._count, self._memory_size = count, memory_size
        self._contexts: list[int | None] = [None] * count

    def __enter__(self) -> _Sequences:
        """Open the requests, and cache keys and values of random sources if the decoder reads them."""
        for _ in range(self._count):
            request = self._decoder.open()
            assert request is not None      # nothing else uses this decoder
            self._requests.append(request)
        if self._memory_size:
            vectors = np.random.default_rng(1).standard_normal((self._count * SOURCE, self._memory_size), np.float32)
            ends = np.arange(self._count + 1, dtype=np.int32) * SOURCE
            self._decoder.cache_sources(self._requests, vectors, ends)
        return self

    def __exit__(self, *_: object) -> None:
        for request in self._requests:
            self._decoder.close(request)

    def read(self, tokens: np.ndarray, keep: bool = True) -> None:
        """Run one step: append `tokens` [count, n] to the contexts, and choose the best next token of each.

        keep: whether the contexts stay that long for the next step; otherwise the new part is released.
        """
        rows = [Row(request, parent, row_tokens.astype(np.int64), wants=GREEDY)
                for request, parent, row_tokens in zip(self._requests, self._contexts, tokens, strict=True)]
        hypotheses = self._decoder.step(rows).hypotheses.tolist()
        if keep:
            self._contexts = hypotheses
        else:
            self._decoder.release(hypotheses)


LEGEND = ("GB/s: weights and cache that a step reads; GOP/s: products and attention of a prompt\n"
          "of moment: of the rate of reading memory, or of products alone, measured on all threads between the runs")
HEADER = "  sequences                 time   tokens/s         rate   of moment"


def row(m: DecodingMeasurement) -> str:
    """Return one line of the table under `HEADER`."""
    name = m.name if m.tokens == 1 else f"{m.name} of {m.tokens}"
    return (f"{m.sequences:>4}  {name:<16} {m.seconds * 1e3:9.2f} ms {m.tokens_per_second:10,.1f} {m.rate:7.1f} "
            f"{f'{m.unit}/s':<5} {m.of_the_moment:8.1%}")
