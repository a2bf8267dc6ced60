"""Find the k best tokens of each row, and the log-sum-exp of its scores.

Every result of a row depends on the row alone, so that a request gives the same result in any batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..base.functions import log

Exp: TypeAlias = Callable[[Any], Any]
"""The function e^x for a float32 array: `np.exp`, which takes a quarter of the time, or `engine.base.functions.exp`,
which has the same bits on every CPU and in every version of NumPy."""
BLOCKS = 64
"""To find k tokens, V is cut into k times this number of interleaved blocks. More blocks mean a tighter bound."""
PART = 65536
"""Arrays are computed in parts of about this number of float32 values (256 KiB), which stay in a core's cache."""


def parts(R: int, n: int) -> Iterator[slice]:
    """Yield slices of the rows of an array [R, n], each of about PART values and at least one row."""
    rows = max(1, PART // max(1, n))
    return (slice(start, start + rows) for start in range(0, R, rows))


def log_sum_exp(scores: NDArray[np.float32], exp: Exp = np.exp) -> NDArray[np.float32]:
    """Return log(sum(exp(scores))) of each row of [R, V]; -inf for a row of -inf."""
    top = scores.max(axis=1)
    top[np.isneginf(top)] = 0       # -inf - -inf would be NaN
    sums = np.empty_like(top)
    for part in parts(*scores.shape):
        sums[part] = exp(scores[part] - top[part, None]).sum(axis=1)
    return top + log(sums)


def best(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the k largest scores of each row of [R, V] and their ids: [R, k], best first, the lowest id among equals.

    Scores of -inf count as absent; where a row has fewer than k others, -inf and the id 0 fill it up.
    """
    R, V = scores.shape
    values, ids = np.full((R, k), -np.inf, np.float32), np.zeros((R, k), np.int64)
    for part in parts(R, V):
        here = scores[part]
        if k == 1:
            order = here.argmax(axis=1)[:, None]
        elif 2 * BLOCKS * k < V:        # a block has at least two scores, so that few scores reach the bound
            order = _sparse_order(here, k)
        else:
            order = np.argsort(-here, axis=1, kind="stable")[:, :k]
        values[part, : order.shape[1]] = np.take_along_axis(here, order, axis=1)
        ids[part, : order.shape[1]] = order
    ids[np.isneginf(values)] = 0
    return values, ids


def _sparse_order(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Return the ids [R, k] of the k largest scores of each row of [R, V], best first; it sorts only a few scores."""
    R, width = len(scores), BLOCKS * k
    # Block i has the ids i, i + width, ... At least k scores reach the k-th largest of the blocks' maxima, the bound.
    maxima = scores[:, : scores.shape[1] // width * width].reshape(R, -1, width).max(axis=1)
    bound = np.partition(maxima, width - k, axis=1)[:, width - k, None]
    rows, columns = np.nonzero(scores >= bound)
    order = np.lexsort((columns, -scores[rows, columns], rows))
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)  # rows ascend, and the order keeps them so
    return columns[order[rank < k]].reshape(R, k)
