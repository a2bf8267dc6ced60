"""Turn columns of texts in Arrow into columns of vectors, for the adapters of Spark and Ray, which pass Arrow data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.errors import InputError, shown
from ..base.install import needs_package
from ..encoding.vector_precision import PRECISIONS
from ..jobs.columns import plain, text_type

with needs_package("pyarrow", __name__):
    import pyarrow as pa

METHODS = ("encode", "encode_query", "encode_document")
"""The methods of an `Engine` that give each text one vector."""
SLICE_ROWS = 4096
"""How many texts become Python strings at a time; the other texts of a column take only their bytes in Arrow."""


def check_encode(method: Any, options: dict[str, Any]) -> None:
    """Raise `InputError` for a method or options that do not give each row one vector, which depends on it alone."""
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, not {shown(method)}")
    precision = options.get("precision") or "float32"
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, not {shown(precision)}")
    if precision in ("int8", "uint8") and options.get("ranges") is None:
        raise InputError(f"precision={precision!r} needs ranges=np.stack([v.min(axis=0), v.max(axis=0)]) of many "
                         "float32 vectors v; without them a vector would depend on the other rows of its batch")
    if unknown := {"output_value", "convert_to_numpy"} & options.keys():
        raise InputError(f"{', '.join(sorted(unknown))} changes the shape of the result; leave it out, as a column "
                         "holds one vector a row")


def encode_column(encode: Callable[[list[str]], np.ndarray], column: Any) -> pa.FixedSizeListArray:
    """Return the vectors of a column of texts, as one column of lists of a fixed size.

    column: a pyarrow Array or ChunkedArray of strings [n], also in a dictionary, in runs, or of nulls alone; a null
    gives a null. encode: from a list of m texts to an array [m,D]. The numbers of the result are those of one NumPy
    array [n,D], which is not copied. Raises `InputError` for a column of another type.
    """
    kind = text_type(column.type)
    if kind is None or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        raise InputError(f"the column of texts must hold strings, not {column.type}")
    parts, has_text = [], []
    for start in range(0, max(len(column), 1), SLICE_ROWS):     # an empty column is encoded once, for the width D
        texts = plain(column.slice(start, SLICE_ROWS)).to_pylist()
        has_text += [text is not None for text in texts]
        parts.append(encode([text for text in texts if text is not None]))
    vectors = parts[0] if len(parts) == 1 else np.concatenate(parts)
    mask = None
    if not all(has_text):
        valid = np.array(has_text, bool)
        with_gaps = np.zeros((len(column), vectors.shape[1]), vectors.dtype)    # a row of zeros for each null
        with_gaps[valid] = vectors
        vectors, mask = with_gaps, pa.array(~valid)
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1], mask=mask)
