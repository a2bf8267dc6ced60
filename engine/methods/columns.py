"""Columns of Arrow for results of methods that are streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.install import require_files


def fixed_lists(vectors: Any) -> Any:
    """Return an array [n, D] as lists of D numbers in Arrow, without a copy."""
    pa = require_files("pyarrow")
    vectors = np.ascontiguousarray(vectors)
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def lists(rows: Sequence[np.ndarray], values: Any) -> Any:
    """Return `values`, an array of Arrow with the items of all rows, as one list for each row."""
    pa = require_files("pyarrow")
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return pa.LargeListArray.from_arrays(pa.array(ends), values)


def column(values: Any, kind: str = "") -> Any:
    """Return values of one type as an array of Arrow. kind: the type, as Arrow calls it; "" for that of an array."""
    pa = require_files("pyarrow")
    return pa.array(values, getattr(pa, kind)() if kind else None)
