"""Choose the best logits of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..generation.steps import Top


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
