"""Reduce the token vectors of each sequence to one vector, with the pooling modes of sentence-transformers.

Each sequence is reduced separately and its tokens are added in order, so that its vector never depends on the other
sequences of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby, repeat

import numpy as np

from ..backends.batch import lengths_of


def pool(tokens: np.ndarray, cu_seqlens: np.ndarray, modes: Sequence[str], skip: int | np.ndarray = 0) -> np.ndarray:
    """Pool token vectors into one vector for each sequence: float32 [B, len(modes)*D].

    tokens: float32 [N, D], packed; cu_seqlens: int [B+1]; modes: names of `engine.model.text_config.POOLINGS`. The
    results of several modes are concatenated. skip: number of tokens at the start of each sequence that are ignored
    (the tokens of a prompt), int [B] or one for all. A sequence without tokens gives zeros.

    Neighbours with equal lengths and skips are reduced in one call, which saves time for thousands of short texts.
    """
    lengths, width, first = lengths_of(cu_seqlens).tolist(), tokens.shape[1], 0
    skips = repeat(skip) if isinstance(skip, int) else skip.tolist()
    out = np.zeros((len(lengths), len(modes), width), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # finite vectors may be so large that their sums are not
        # Group neighbours; sequence `first` is the first one of a group.
        for (length, skipped), equals in groupby(zip(lengths, skips)):  # noqa: B905, because one skip repeats
            last = first + len([*equals])
            if length:
                rows = tokens[cu_seqlens[first] : cu_seqlens[last]].reshape(last - first, length, width)
                for m, mode in enumerate(modes):
                    out[first:last, m] = _POOL[mode](rows, skipped)
            first = last
    return out.reshape(len(out), len(modes) * width)


# Each function below reduces n sequences of one length. tokens, x: their token vectors, float32 [n, T, D]; skip: how
# many tokens at the start of each are those of a prompt. It returns one vector for each sequence, float32 [n, D], which
# (except for `_cls`) is zeros if no token follows the prompt.


def _cls(tokens: np.ndarray, skip: int) -> np.ndarray:
    """Return the vector of the first token after the prompt, or of the first token if nothing follows the prompt."""
    return tokens[:, skip if skip < tokens.shape[1] else 0]


def _weighted_mean(tokens: np.ndarray, skip: int) -> np.ndarray:
    """Return the mean of the tokens after the prompt, with weights skip + 1 ... T, as if the prompt counted, too."""
    weights = np.arange(skip + 1, tokens.shape[1] + 1)
    weighted = tokens[:, skip:] * weights.astype(np.float32)[:, None]
    return weighted.sum(axis=1) / max(1, int(weights.sum()))


_POOL: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "cls": _cls,
    "mean": lambda x, skip: x[:, skip:].sum(axis=1) / max(1, x.shape[1] - skip),
    "max": lambda x, skip: x[:, skip:].max(axis=1) if skip < x.shape[1] else np.zeros_like(x[:, 0]),
    "lasttoken": lambda x, skip: x[:, -1] if skip < x.shape[1] else np.zeros_like(x[:, 0]),
    "mean_sqrt_len_tokens": lambda x, skip: x[:, skip:].sum(axis=1) / math.sqrt(max(1, x.shape[1] - skip)),
    "weightedmean": _weighted_mean,
}
