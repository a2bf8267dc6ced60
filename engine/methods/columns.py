"""Columns of Arrow for the results of `Engine.encode_stream`, which `engine embed` writes to Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.install import require_files


def fixed_lists(vectors: Any) -> Any:
    """Return an array [n, D] as a column of n lists of D numbers, without a copy if it is contiguous."""
    pa = require_files("pyarrow")
    vectors = np.ascontiguousarray(vectors)
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def lists(rows: Sequence[np.ndarray], values: Any) -> Any:
    """Return a column with a list for each row. rows: for their lengths. values: the items of all rows, in Arrow."""
    pa = require_files("pyarrow")
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return pa.LargeListArray.from_arrays(pa.array(ends), values)


def column(values: Any, kind: str = "") -> Any:
    """Return values of one type as an array of Arrow. kind: Arrow's name of the type; "" lets Arrow infer it."""
    pa = require_files("pyarrow")
    return pa.array(values, getattr(pa, kind)() if kind else None)
