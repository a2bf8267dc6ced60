"""Similarities of vectors, by the names of sentence-transformers: the larger, the nearer.

    cosine      a b / (|a| |b|)
    dot         a b
    euclidean   -|a - b|
    manhattan   -sum |a_i - b_i|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.ops_interface import Ops
from ..base.errors import InputError
from ..weights.modules import normalize


def similarity(name: str, a: Any, b: Any, ops: Ops | None = None) -> np.ndarray:
    """Return the similarity of each vector of a, [n,D] or [D], with each vector of b, [m,D] or [D]: float32 [n,m].

    name: one of `engine.model.text_config.SIMILARITIES`. ops: the operations of a backend, which give the same bits
    whatever the other vectors are; None for NumPy. Raises `InputError` for vectors that cannot be compared.
    """
    a, b = _rows(a, b)
    if name == "cosine":
        a, b, name = normalize(a), normalize(b), "dot"
    if name == "dot":
        return a @ b.T if ops is None or not a.size or not b.size else ops.linear(a, b, None, None, None)
    return np.array([_PAIRWISE[name](row[None], b) for row in a], np.float32).reshape(len(a), len(b))


def pairwise_similarity(name: str, a: Any, b: Any) -> np.ndarray:
    """Return the similarity of each vector of a, [n,D] or [D], with the vector of b in the same place: float32 [n]."""
    a, b = _rows(a, b)
    if len(a) != len(b):
        raise InputError(f"the similarities of pairs need as many vectors on both sides, not {len(a)} and {len(b)}")
    if name == "cosine":
        a, b, name = normalize(a), normalize(b), "dot"
    return _PAIRWISE[name](a, b)


_PAIRWISE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "dot": lambda a, b: (a * b).sum(axis=1),
    "euclidean": lambda a, b: -np.sqrt(((a - b) ** 2).sum(axis=1)),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=1),
}


def _rows(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return both collections of vectors as float32 [n, D]."""
    rows = []
    for vectors in (a, b):
        try:
            array = np.atleast_2d(np.asarray(vectors, np.float32))
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"vectors must be numbers [n,D] or [D]; NumPy cannot read them: {error}") from error
        if array.ndim != 2:
            raise InputError(f"vectors must have the shape [n,D] or [D], not {list(array.shape)}")
        rows.append(array)
    if rows[0].shape[1] != rows[1].shape[1]:
        raise InputError(
            f"vectors of {rows[0].shape[1]} and of {rows[1].shape[1]} dimensions cannot be compared; compare vectors "
            "of one model, with one truncate_dim"
        )
    return rows[0], rows[1]
