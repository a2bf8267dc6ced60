"""The parts that a job writes: the same bytes for the same rows, results and version of pyarrow."""

from __future__ import annotations

import hashlib
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
from .columns import as_json
from .results import Computed, Recipe
from .rows import JobRows

COUNTS = ("rows", "rejected", "empty", "tokens")
"""What is counted of a part: its rows, those that could not be encoded, those with an empty text, and tokens."""
KEY = b"engine"
"""The entry of a Parquet file's metadata that holds what the manifest says about a part, as JSON."""
_NO_CHECKSUM = "0" * 64
"""What stands in the place of the checksum while the checksum is computed."""
_MARK = b'"checksum": "'
"""What stands in front of the checksum in the last bytes of a part, and nowhere else: JSON escapes quotes in values."""
_FOOTER = 2**24
"""The last bytes of a part in which its checksum is searched; they hold the metadata, which Parquet writes last."""
PLACE = ("input", "first", "last", "group")
"""The entries of the metadata that say which rows a part holds."""

DAMAGED = (ValueError, OSError, KeyError, TypeError, IndexError, NotImplementedError, MemoryError)
"""What pyarrow raises for damaged files."""


@dataclass(frozen=True)
class JobPart:
    """A part, ready to be written."""

    data: bytes
    rejected: bytes
    """A line of JSON for each row that could not be encoded; empty if there is none."""
    counts: dict[str, int]
    """Those of `COUNTS`; answers to requests have no count of empty texts."""


def unique_texts(rows: JobRows) -> tuple[list[Any], np.ndarray, list[int]]:
    """Return the different texts, for each row with a text its place among them, and the places of these rows.

    They may be images, which differ if their paths or bytes do.
    """
    places: dict[Any, int] = {}
    used, owners = [], []
    for i, text in enumerate(rows.texts):
        if text is not None:
            owners.append(places.setdefault(text, len(places)))
            used.append(i)
    return list(places), np.array(owners, np.int64), used


def make_part(name: str, rows: JobRows, computed: Computed, empty: Callable[[], dict[str, Any]], recipe: Recipe,
              metadata: dict[str, Any]) -> JobPart:
    """Return the part of some rows, from the results of their unique texts.

    name: the name of the file of the rows. empty: returns the columns of no results. metadata: of the part.
    """
    texts, owners, used = unique_texts(rows)
    reasons = dict(rows.reasons)
    reasons |= {i: computed.reasons[text] for i, text in zip(used, owners.tolist(), strict=True)
                if text in computed.reasons}
    good = [i for i in used if i not in reasons]
    has_result = np.ones(len(texts), bool)
    has_result[list(computed.reasons)] = False
    result_of_text = np.cumsum(has_result) - 1      # the results leave out refused texts
    places = dict(zip(used, result_of_text[owners].tolist(), strict=True))      # by row, the place of its result
    if "request" in rows.columns:
        return _answers(rows, reasons, places, computed)
    indices = np.array([places[i] for i in good], np.int64)
    tokens = int(np.array(computed.tokens, np.int64)[indices].sum())
    empty_texts = sum(rows.texts[i] == "" for i in good)
    counts = {"rows": len(good), "rejected": len(reasons), "empty": empty_texts, "tokens": tokens}
    columns = {key: _rows_of_column(column, good, rows.types.get(key)) for key, column in rows.columns.items()}
    if metadata["id"] is None:
        pa = require_files("pyarrow")
        columns = {"id": pa.array([f"{name}:{rows.positions[i]}" for i in good], pa.string()), **columns}
    results: Any = computed.results
    of_rows = results[indices] if isinstance(results, np.ndarray) else [results[i] for i in indices]
    columns |= recipe.columns(of_rows) if good else empty()
    rejected = [{"input": name, "position": rows.positions[i], **_ids(rows, i), "reason": reason}
                for i, reason in sorted(reasons.items())]
    return JobPart(_parquet(columns, metadata | counts), _json_lines(rejected), counts)


def _answers(rows: JobRows, reasons: dict[int, str], places: dict[int, int], computed: Computed) -> JobPart:
    """Return the answers to the requests of a batch; a request with one bad text is refused as a whole."""
    requests, vectors = rows.columns["request"], np.asarray(computed.results, np.float32)
    answers, refusals, tokens = [], [], 0
    for _, group in groupby(range(len(requests)), lambda i: id(requests[i])):  # the rows of a request share it
        members = list(group)
        request, reason = requests[members[0]], next((reasons[i] for i in members if i in reasons), None)
        width = vectors.shape[1] if vectors.ndim == 2 else 0
        if reason is None and (request.dimensions or 0) > width:
            reason = f"the vectors of this model have {width} dimensions, and not {request.dimensions}"
        if reason is not None:
            refusals.append(refusal(request, reason))
            continue
        indices = [places[i] for i in members]
        request_tokens = sum(computed.tokens[i] for i in indices)
        tokens += request_tokens
        answers.append(answer(request, vectors[indices], request_tokens))
    counts = {"rows": len(answers), "rejected": len(refusals), "tokens": tokens}
    return JobPart(_json_lines(answers), _json_lines(refusals), counts)


def _rows_of_column(column: Any, rows: list[int], kind: Any) -> Any:
    """Return some rows of a copied column as an array of Arrow. kind: the type of a list; None for strings."""
    pa = require_files("pyarrow")
    if isinstance(column, list):
        return pa.array([column[i] for i in rows], kind or pa.string())
    return column.take(pa.array(rows, pa.int64()))


def _ids(rows: JobRows, i: int) -> dict[str, Any]:
    """Return the copied values of a row for JSON. "columns" has those whose names are those of fields of its line."""
    plain = {name: _json_value(column[i]) for name, column in rows.columns.items()}
    hidden = {name: plain.pop(name) for name in ("input", "position", "reason", "columns") if name in plain}
    return plain | ({"columns": hidden} if hidden else {})


def _json_value(value: Any) -> Any:
    """Return a string, None or a value of Arrow as JSON can hold it; what it cannot hold, such as NaN, as a string."""
    try:
        value = value if isinstance(value, (str, type(None))) else as_json(value)
        in_json = isinstance(value, (int, str, type(None))) or (isinstance(value, float) and isfinite(value))
        return value if in_json else str(value)
    except RecursionError:
        return "<too many lists or objects inside each other>"


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
    described = json.dumps({**metadata, "checksum": _NO_CHECKSUM}, sort_keys=True)
    table = pa.table(columns).replace_schema_metadata({KEY: described})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=max(1, len(table)), version="2.6", data_page_version="1.0",
                   compression="none", use_dictionary=False, write_statistics=False, write_page_checksum=True,
                   data_page_size=2**20, store_schema=True)
    with out.getbuffer() as data:
        digest, place = _checksum(data)
        data[place : place + len(digest)] = digest
    return out.getvalue()


def _checksum(data: Any) -> tuple[bytes, int]:
    """Return the checksum of a part, computed as if zeros stood in its place, and the place; -1 where it has none."""
    tail = bytes(data[-_FOOTER:])
    place = tail.rfind(_MARK)
    if place < 0:
        return b"", -1
    place += len(data) - len(tail) + len(_MARK)
    digest = hashlib.sha256(data[:place])
    digest.update(_NO_CHECKSUM.encode())
    digest.update(data[place + len(_NO_CHECKSUM) :])
    return digest.hexdigest().encode(), place


def is_part(data: bytes) -> bool:
    """Return whether the metadata of a file says that it is the part of a job."""
    pa, pq = require_files("pyarrow"), require_files("pyarrow.parquet")
    try:
        return KEY in (pq.read_metadata(pa.BufferReader(data)).metadata or {})
    except DAMAGED:
        return False


def read_part(data: bytes, name: str, check: bool = True) -> tuple[Any, dict[str, Any]]:
    """Return the table of a part and its metadata; raises `WeightsError` for a damaged file.

    check: whether each byte must be the one that was written, of which the file has a checksum.
    It starts no thread of Arrow: such a thread may still hold `data` when Python ends, and then aborts the process.
    """
    pa, pq = require_files("pyarrow"), require_files("pyarrow.parquet")
    if check:
        digest, place = _checksum(memoryview(data))
        if place < 0 or data[place : place + len(digest)] != digest:
            raise WeightsError(f"{name}: is damaged: its bytes are not those that the job wrote; delete it, and run "
                               "the job again")
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True)
        table = file.read(use_threads=False)
        return table, dict(json.loads(table.schema.metadata[KEY]))
    except DAMAGED as error:
        raise WeightsError(f"{name}: is damaged: {error}; delete it, and run the job again") from error
