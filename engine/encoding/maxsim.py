"""Compute MaxSim, the score of a query and a document by late interaction: Khattab and Zaharia 2020 (arXiv 2004.12832).

    maxsim(q, d)      = sum over the vectors q_t of a query of max over the vectors d_s of a document of q_t d_s
    meanmaxsim(q, d)  = maxsim(q, d) / number of vectors of the query

No array holds the products of all tokens: a kernel keeps the largest product of each vector of a query with each
document.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..backends.ops_interface import Ops
from ..base.arguments import as_array, warn_caller
from ..base.errors import InputError, shown
from ..base.ranges import ranges

EMPTY_DOCUMENT = np.float32(-1e9)
"""The score of a document without vectors, as in sentence-transformers: less than that of any other document."""
MAXIMA_AT_A_TIME = 2**22
"""The most maxima in memory at a time; one query and one document are computed even if they have more."""


def maxsim(ops: Ops, queries: Any, documents: Any, *, mean: bool = False) -> np.ndarray:
    """Return the score of each query and each document: float32 [n,m].

    queries, documents: a list of arrays [T_i,D]; an array [n,T,D], of which vectors of zeros are left out; or one array
    [T,D]. mean: whether to divide by the number of vectors of the query. Raises `InputError` for anything else.
    """
    a, b = vectors_of("queries", queries), vectors_of("documents", documents)
    check_widths(a, b)
    scores = np.zeros((len(a), len(b)), np.float32)
    # A group of queries has at most so many vectors, so that their maxima with 1024 documents fit in memory.
    most_vectors = max(1, MAXIMA_AT_A_TIME // max(1, min(len(b), 1024)))
    for group in ranges(map(len, a), most_vectors):
        queries_of_group = a[group.start : group.stop]
        ends = np.cumsum([0, *map(len, queries_of_group)])
        columns = ops.columns(np.concatenate(queries_of_group), bias=None)      # packed once for all documents
        most = max(1, MAXIMA_AT_A_TIME // max(1, int(ends[-1])))        # documents at a time
        for start in range(0, len(b), most):
            maxima = ops.column_maxima(b[start : start + most], columns)        # [documents, vectors of the queries]
            for i, (begin, end) in zip(group, pairwise(ends.tolist()), strict=True):
                scores[i, start : start + most] = _sum_in_order(maxima[:, begin:end])
    scores[:, _warn_of_empty(b)] = EMPTY_DOCUMENT
    return scores / _numbers_of_vectors(a)[:, None] if mean else scores


def pairwise_maxsim(ops: Ops, queries: Any, documents: Any, *, mean: bool = False) -> np.ndarray:
    """Return the score of each query and the document in the same place: float32 [n].

    queries, documents: lists of arrays [T_i,D], or arrays [n,T,D]. mean: as for `maxsim`. Raises `InputError`.
    """
    a, b = vectors_of("queries", queries), vectors_of("documents", documents)
    check_widths(a, b)
    if len(a) != len(b):
        raise InputError(f"the scores of pairs need as many queries as documents, not {len(a)} and {len(b)}")
    scores = np.array([_sum_in_order(ops.column_maxima([document], ops.columns(query, bias=None)))[0]
                       for query, document in zip(a, b, strict=True)], np.float32)
    scores[_warn_of_empty(b)] = EMPTY_DOCUMENT
    return scores / _numbers_of_vectors(a) if mean else scores


def vectors_of(name: str, given: Any) -> list[np.ndarray]:
    """Return the vectors of queries or documents (name) as a list of float32 [T_i,D]; raises `InputError`."""
    what = f"{name} must be a list of arrays [T,D], an array [n,T,D] or one array [T,D]"
    if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
        raise InputError(f"{what}, not {shown(given)}")
    axes = len(given.shape) if hasattr(given, "shape") else 0       # 0: a list of arrays
    rows = [_read_vectors(what, each) for each in ([given] if axes == 2 else given)]
    if axes == 3:
        rows = [row[row.any(axis=1)] for row in rows]       # vectors of zeros are padding
    return rows


def are_of_tokens(given: Any) -> bool:
    """Return whether vectors are of tokens: a list of arrays [T_i,D], or an array [n,T,D].

    One array [T,D] may as well be the vectors of T texts, so the answer for it is False.
    """
    if hasattr(given, "shape"):
        return len(given.shape) == 3
    depth = 0       # of lists, down to the first number or array
    while depth < 3 and isinstance(given, Sequence) and not isinstance(given, (str, bytes)) and len(given):
        given, depth = given[0], depth + 1
    return depth + len(getattr(given, "shape", ())) == 3


def _read_vectors(what: str, given: Any) -> np.ndarray:
    """Return vectors as float32 [T,D]; raises `InputError`. what: the start of its message, with what is expected."""
    array = as_array(given, what, np.float32)
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(f"{what}; one has the shape {list(array.shape)}")
    return array


def check_widths(queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> None:
    """Raise `InputError` unless all vectors have equally many numbers."""
    widths = {array.shape[1] for array in (*queries, *documents)}
    if len(widths) > 1:
        raise InputError(f"vectors of {' and of '.join(map(str, sorted(widths)))} dimensions cannot be compared; "
                         "compare vectors of one model")


def _sum_in_order(maxima: np.ndarray) -> np.ndarray:
    """Return the sum of each row [m, T], added up in order, so that it does not depend on the number of rows: [m]."""
    if not maxima.shape[1]:
        return np.zeros(len(maxima), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):      # products of large vectors may be infinite
        return np.cumsum(maxima, axis=1, dtype=np.float32)[:, -1]


def _warn_of_empty(documents: Sequence[np.ndarray]) -> np.ndarray:
    """Warn of documents without vectors, and return whether each document has none: bool [m]."""
    empty = np.array([not len(document) for document in documents], bool)
    if empty.any():
        warn_caller(f"{empty.sum()} documents have no vectors, such as number {int(empty.argmax())}; their score is "
                    f"{EMPTY_DOCUMENT:.0e}, less than that of any other", UserWarning)
    return empty


def _numbers_of_vectors(queries: Sequence[np.ndarray]) -> np.ndarray:
    """Return the number of vectors of each query, but at least 1, by which its scores are divided: float32 [n]."""
    return np.array([max(1, len(query)) for query in queries], np.float32)
