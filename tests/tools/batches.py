"""Batches of random tokens; and, as a definition, how the texts of one call are grouped into batches."""

from collections.abc import Iterator, Sequence

import numpy as np

from engine.backends.batch import Batch
from engine.model.config import ModelConfig


def make_batch(config: ModelConfig, lengths: Sequence[int], seed: int = 0) -> Batch:
    """Return sequences of these lengths, with random token types and words, or vectors for a model without words."""
    rng, N = np.random.default_rng(seed), sum(lengths)
    words = rng.integers(0, config.vocab_size, N, np.int32) if config.vocab_size else None
    embeds = None if config.vocab_size else rng.standard_normal((N, config.table_width), np.float32)
    positions = np.concatenate([[], *map(np.arange, lengths)]).astype(np.int32) + np.int32(config.position_offset)
    return Batch(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), words, embeds, positions,
                 rng.integers(0, max(1, config.token_types), N, np.int32))


def batches(lengths: list[int], max_tokens: int, batch_size: int | None) -> Iterator[list[int]]:
    """Group the texts of a call into batches of at most `max_tokens` tokens and `batch_size` texts, the longest first.

    Yields lists of indices into `lengths`. A sequence longer than `max_tokens` is a batch by itself.
    """
    batch: list[int] = []
    tokens = 0
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (tokens + lengths[i] > max_tokens or len(batch) == batch_size):
            yield batch
            batch, tokens = [], 0
        batch.append(i)
        tokens += lengths[i]
    if batch:
        yield batch
