"""Check what every decoder is asked for in a step, and choose the best of its logits."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, shown
from ..model.config import ModelConfig
from ..programs.observe import Head
from .steps import Row, Top


def check_vectors(vectors: np.ndarray, width: int) -> None:
    """Raise `InputError` unless these are an encoder's vectors that a decoder of this memory_size reads."""
    if not width:
        raise InputError("this decoder reads no encoder, so its requests have no source")
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise InputError(f"the vectors of sources must be [N, {width}], not {list(vectors.shape)}")


def check_sources(rows: Sequence[Row], known: Container[int]) -> None:
    """Raise `InputError` if the source of a row's request is not known yet."""
    for row in rows:
        if row.request not in known:
            raise InputError(f"request {row.request} has no source; give its vectors to cache_sources first")


def check_heads(heads: Sequence[Head], config: ModelConfig | None) -> None:
    """Raise `InputError` unless these are heads of a decoder's cross-attention; config: None if it has none."""
    if config is None:
        raise InputError("this decoder has no cross-attention, so it gives no weights of it")
    for layer, head in heads:
        if not (0 <= layer < config.num_layers and 0 <= head < config.num_heads):
            raise InputError(f"cross-attention has {config.num_layers} layers with {config.num_heads} heads; "
                             f"{shown((layer, head))} is no pair (layer, head) of them")


def top_of(hypotheses: NDArray[np.int64], logits: np.ndarray, k: int) -> Top:
    """Return the k best of each row of logits, best first, the lowest id first among equals."""
    check_k(k, logits.shape[1])
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(logits, ids, 1)
    total = np.exp(logits - values[:, :1]).sum(axis=1)
    return Top(hypotheses, values, ids, (values[:, 0] + np.log(total)).astype(np.float32))


def check_k(k: int, vocab_size: int) -> None:
    """Raise `InputError` unless k logits can be chosen."""
    if not 1 <= k <= vocab_size:
        raise InputError(f"k must be from 1 to {vocab_size:,}, the size of the vocabulary, not {k}")
