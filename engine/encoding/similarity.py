"""Compute similarities of vectors, by the names of sentence-transformers: the larger, the nearer.

    cosine      a b / (|a| |b|)
    dot         a b
    euclidean   -|a - b|
    manhattan   -sum |a_i - b_i|

Packed vectors, with one bit for each dimension (`encode(precision="binary")` and "ubinary"), have another function:

    1 - 2 h / n     h of the n bits of a and b differ: the cosine of the vectors whose numbers are 1 and -1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.ops_interface import Ops
from ..base.arguments import as_array
from ..base.errors import InputError, shown
from ..model.precision import canonical_name
from ..weights.modules import normalize
from .vector_precision import PRECISIONS

PACKED = ("binary", "ubinary")
"""The precisions of vectors that have eight dimensions in a byte."""
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
"""uint8 [256]: how many bits of each byte are 1."""


def packed_precision(width: Callable[[], int], a: Any, b: Any, precision: Any = None) -> str | None:
    """Return the one of `PACKED` in which two collections of vectors are; None for vectors of numbers.

    width: returns the number D of dimensions of the model's vectors. int8 and uint8 arrays with D columns have numbers,
    and those with D/8 columns have bits. precision: the caller's statement, one of `PRECISIONS`; None to decide by the
    columns. Raises `InputError` if they do not show it, and if a and b differ.
    """
    if precision is not None:
        precision = canonical_name(precision) if isinstance(precision, str) else precision
        if precision not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, not {shown(precision)}")
        return precision if precision in PACKED else None
    kinds = [_precision_of(vectors, width) for vectors in (a, b)]
    if kinds[0] == kinds[1] or {*kinds} == {"float32", "int8"}:     # float32 queries rank documents in int8
        return kinds[0] if kinds[0] in PACKED else None
    raise InputError(f"vectors in {kinds[0]} and in {kinds[1]} cannot be compared; encode both with one precision")


def _precision_of(vectors: Any, width_of: Callable[[], int]) -> str:
    """Return the one of `PRECISIONS` in which vectors are; "float32" stands for numbers of all other types, too."""
    try:
        array = np.asarray(vectors)
    except (TypeError, ValueError, RuntimeError):
        return "float32"        # `_as_rows` explains what is wrong
    if array.dtype.kind not in "iu" or not array.size:
        return "float32"
    columns, width = array.shape[-1] if array.ndim else 1, width_of()
    eighth = -(-width // 8)     # the bytes of a vector with a bit for each dimension
    if array.dtype in (np.int8, np.uint8):
        if columns == width:
            return array.dtype.name
        if columns == eighth:
            return "binary" if array.dtype == np.int8 else "ubinary"
    elif columns == width or columns != eighth:     # else they may be bytes that were converted to another type
        return "float32"
    raise InputError(f"vectors of {columns} {array.dtype.name} numbers may have a dimension or eight in each number, "
                     f'and this model\'s have {width} dimensions; say what they are: precision="int8", "uint8", '
                     '"binary" or "ubinary"')


def packed_similarity(precision: str, a: Any, b: Any) -> np.ndarray:
    """Return the cosine of each packed vector of a, [n,D/8] or [D/8], and each of b: float32 [n,m].

    A bit stands for 1 or -1, so the cosine is 1 - 2 h / D if h bits differ. precision: the one of `PACKED` of both.
    Raises `InputError` for vectors that cannot be compared.
    """
    a, b = _as_bytes(precision, a, b)
    return np.array([_cosine_of_bits(row[None], b) for row in a], np.float32).reshape(len(a), len(b))


def packed_pairwise(precision: str, a: Any, b: Any) -> np.ndarray:
    """Return the cosine of each packed vector of a, [n,D/8], and the vector of b in the same place: float32 [n]."""
    a, b = _as_bytes(precision, a, b)
    _check_lengths(a, b)
    return _cosine_of_bits(a, b)


def _cosine_of_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return 1 - 2 h / D of each pair of rows, of which h bits differ. a: uint8 [m or 1, D/8]; b: uint8 [m, D/8]."""
    differing = _ONES[a ^ b].sum(axis=1, dtype=np.int64)
    return (1 - 2 * differing / max(1, 8 * b.shape[1])).astype(np.float32)


def _as_bytes(precision: str, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a and b in "ubinary", uint8 [n, D/8] each; "binary" has 128 added to it. Raises `InputError`."""
    low, arrays = (-128 if precision == "binary" else 0), []
    for array in _as_rows(a, b):
        if not ((array == np.floor(array)) & (array >= low) & (array <= low + 255)).all():
            raise InputError(f"vectors in {precision} are whole numbers from {low} to {low + 255}, and these are "
                             f'not; encode(..., precision="{precision}") returns them')
        arrays.append((array - low).astype(np.uint8))
    return arrays[0], arrays[1]


def similarity(name: str, a: Any, b: Any, ops: Ops | None = None) -> np.ndarray:
    """Return the similarity of each vector of a, [n,D] or [D], with each vector of b, [m,D] or [D]: float32 [n,m].

    name: one of `engine.model.text_config.VECTOR_SIMILARITIES`. ops: the operations of a backend, whose bits do not
    depend on the other vectors; None for NumPy. Raises `InputError` for vectors that cannot be compared.
    """
    a, b = _as_rows(a, b)
    if name == "cosine":
        a, b, name = normalize(a), normalize(b), "dot"
    if name == "dot":
        if ops is None or not a.size or not b.size:
            return a @ b.T
        return ops.linear(a, b, bias=None, activation=None, residual=None)
    return np.array([_PAIRWISE[name](row[None], b) for row in a], np.float32).reshape(len(a), len(b))


def pairwise_similarity(name: str, a: Any, b: Any) -> np.ndarray:
    """Return the similarity of each vector of a, [n,D] or [D], with the vector of b in the same place: float32 [n]."""
    a, b = _as_rows(a, b)
    _check_lengths(a, b)
    if name == "cosine":
        a, b, name = normalize(a), normalize(b), "dot"
    return _PAIRWISE[name](a, b)


_PAIRWISE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "dot": lambda a, b: (a * b).sum(axis=1),
    "euclidean": lambda a, b: -np.sqrt(((a - b) ** 2).sum(axis=1)),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=1),
}


def _check_lengths(a: np.ndarray, b: np.ndarray) -> None:
    """Raise `InputError` unless a and b have equally many vectors."""
    if len(a) != len(b):
        raise InputError(f"the similarities of pairs need as many vectors on both sides, not {len(a)} and {len(b)}")


def _as_rows(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return both collections of vectors as float32 [n, D], with one D; raises `InputError` if that is not possible."""
    rows = []
    for vectors in (a, b):
        array = np.atleast_2d(as_array(vectors, "vectors must be numbers [n,D] or [D]", np.float32))
        if array.ndim != 2:
            raise InputError(f"vectors must have the shape [n,D] or [D], not {list(array.shape)}")
        rows.append(array)
    if rows[0].shape[1] != rows[1].shape[1]:
        raise InputError(f"vectors of {rows[0].shape[1]} and of {rows[1].shape[1]} dimensions cannot be compared; "
                         "compare vectors of one model, with one truncate_dim")
    return rows[0], rows[1]
