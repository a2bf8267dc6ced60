"""The parts that a job writes: the same bytes for the same rows, results and version of pyarrow."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np

from ..base.errors import WeightsError
from ..base.install import require_files
from .batch_api import answer, refusal
from .readers import Rows
from .results import Computed, Recipe

KEY = b"engine"
"""The entry of a Parquet file's metadata that holds what the manifest says about a part, as JSON."""
PLACE = ("input", "first", "last", "group")
"""The entries of the metadata that say which rows a part holds."""

DAMAGED = (ValueError, OSError, KeyError, TypeError, IndexError, NotImplementedError, MemoryError)
"""What pyarrow raises for damaged files."""


@dataclass(frozen=True)
class Part:
    """A part, ready to be written."""

    data: bytes
    rejected: bytes
    """A line of JSON for each row that could not be encoded; empty if there is none."""
    counts: dict[str, int]
    """rows, rejected and tokens."""


def unique_texts(rows: Rows) -> tuple[list[str], np.ndarray, list[int]]:
    """Return the different texts, for each row with a text its place among them, and the places of these rows."""
    places: dict[str, int] = {}
    used, owners = [], []
    for i, text in enumerate(rows.texts):
        if text is not None:
            owners.append(places.setdefault(text, len(places)))
            used.append(i)
    return list(places), np.array(owners, np.int64), used


def make_part(name: str, rows: Rows, computed: Computed, empty: Callable[[], dict[str, Any]], recipe: Recipe,
              metadata: dict[str, Any]) -> Part:
    """Return the part of some rows, from the results of their unique texts.

    name: the name of the file of the rows. empty: returns the columns of no results. metadata: of the part.
    """
    _, owners, used = unique_texts(rows)
    reasons = dict(rows.reasons)
    reasons |= {i: computed.reasons[text] for i, text in zip(used, owners.tolist(), strict=True)
                if text in computed.reasons}
    good = [i for i in used if i not in reasons]
    refused = np.zeros(len(owners) + 1, np.int64)       # how many texts before each were refused
    refused[[text + 1 for text in computed.reasons]] = 1
    places = {i: text - int(before) for i, text, before in zip(used, owners.tolist(), np.cumsum(refused)[owners],
                                                               strict=True)}
    if "request" in rows.columns:
        return _answers(rows, reasons, places, computed)
    indices = np.array([places[i] for i in good], np.int64)
    tokens = int(np.array(computed.tokens, np.int64)[indices].sum())
    counts = {"rows": len(good), "rejected": len(reasons), "tokens": tokens}
    columns = {key: _taken(column, good) for key, column in rows.columns.items()}
    if metadata["id"] is None:
        pa = require_files("pyarrow")
        columns = {"id": pa.array([f"{name}:{rows.positions[i]}" for i in good], pa.string()), **columns}
    found: Any = computed.found
    columns |= empty() if not good else recipe.columns(
        found[indices] if isinstance(found, np.ndarray) else [found[i] for i in indices])
    rejected = [{"input": name, "position": rows.positions[i], **_ids(rows, i), "reason": reason}
                for i, reason in sorted(reasons.items())]
    return Part(_parquet(columns, metadata | counts), _json_lines(rejected), counts)


def _answers(rows: Rows, reasons: dict[int, str], places: dict[int, int], computed: Computed) -> Part:
    """Return the answers to the requests of a batch; a request with one bad text is refused as a whole."""
    requests, found = rows.columns["request"], np.asarray(computed.found, np.float32)
    answers, refusals, tokens = [], [], 0
    for _, group in groupby(range(len(requests)), lambda i: id(requests[i])):
        own = list(group)
        request, reason = requests[own[0]], next((reasons[i] for i in own if i in reasons), None)
        width = found.shape[1] if found.ndim == 2 else 0
        if reason is None and (request.dimensions or 0) > width:
            reason = f"the vectors of this model have {width} dimensions, and not {request.dimensions}"
        if reason is not None:
            refusals.append(refusal(request, reason))
            continue
        indices = [places[i] for i in own]
        used = sum(computed.tokens[i] for i in indices)
        tokens += used
        answers.append(answer(request, found[indices], used))
    counts = {"rows": len(answers), "rejected": len(refusals), "tokens": tokens}
    return Part(_json_lines(answers), _json_lines(refusals), counts)


def _taken(column: Any, rows: list[int]) -> Any:
    pa = require_files("pyarrow")
    if isinstance(column, list):
        return pa.array([column[i] for i in rows], pa.string())
    return column.take(pa.array(rows, pa.int64()))


def _ids(rows: Rows, i: int) -> dict[str, Any]:
    """Return the copied values of a row as JSON can hold them."""
    values = {name: column[i] if isinstance(column, list) else column[i].as_py()
              for name, column in rows.columns.items()}
    return {name: value if isinstance(value, (int, str, type(None))) or (isinstance(value, float) and isfinite(value))
            else str(value) for name, value in values.items()}


def _json_lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(_json_line(row) for row in rows)


def _json_line(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:      # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return json.dumps(row).encode() + b"\n"


def _parquet(columns: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    """Return a Parquet file; every setting that could change its bytes is fixed here."""
    pa, pq = require_files("pyarrow"), require_files("pyarrow.parquet")
    table = pa.table(columns).replace_schema_metadata({KEY: json.dumps(metadata, sort_keys=True)})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=max(1, len(table)), version="2.6", data_page_version="1.0",
                   compression="none", use_dictionary=False, write_statistics=False, write_page_checksum=True,
                   data_page_size=2**20, store_schema=True)
    return out.getvalue()


def is_part(data: bytes) -> bool:
    """Return whether the metadata of a file says that it is the part of a job."""
    pa, pq = require_files("pyarrow"), require_files("pyarrow.parquet")
    try:
        return KEY in (pq.read_metadata(pa.BufferReader(data)).metadata or {})
    except DAMAGED:
        return False


def read_part(data: bytes, name: str) -> tuple[Any, dict[str, Any]]:
    """Return the table of a part and its metadata; raises `WeightsError` for a damaged file.

    It starts no thread of Arrow: such a thread may still hold `data` when Python ends, and then aborts the process.
    """
    pa, pq = require_files("pyarrow"), require_files("pyarrow.parquet")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True)
        table = file.read(use_threads=False)
        return table, dict(json.loads(table.schema.metadata[KEY]))
    except DAMAGED as error:
        raise WeightsError(f"{name}: is damaged: {error}; delete it, and run the job again") from error
