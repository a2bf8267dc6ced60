"""Comparison of results of any kind, bit for bit."""

from typing import Any

import numpy as np

from engine.heads.sparse import SparseVectors


def same(found: Any, expected: Any) -> bool:
    """Return whether two results are equal in type, shape and every bit."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, np.ndarray):
        return bool((found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes()))
    if isinstance(expected, SparseVectors):
        return all(same(getattr(found, name), getattr(expected, name))
                   for name in ("shape", "indices", "values", "indptr"))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], value) for key, value in expected.items())
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)
