"""Make the parts of a job, which job.py writes, and read them again: Parquet, or JSON lines for batches of requests.

A part has the same bytes for the same rows, results and version of pyarrow.
"""

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
"""The counts of a part: rows with a result, rows that could not be encoded, rows with an empty text, and tokens."""
KEY = b"engine"
"""The entry of a Parquet file's metadata that holds what the manifest says about a part, as JSON."""
_NO_CHECKSUM = "0" * 64
"""The digits that hold the place of the checksum, a SHA-256 in hexadecimal, while it is computed."""
_MARK = b'"checksum": "'
"""The bytes in front of the checksum at the end of a part, and nowhere else: JSON escapes quotes in values."""
_FOOTER = 2**24
"""How many bytes at the end of a part are searched for its checksum: Parquet writes the metadata last."""
PLACE = ("input", "first", "last", "group")
"""The entries of the metadata that say which rows a part holds."""

DAMAGED = (ValueError, OSError, KeyError, TypeError, IndexError, NotImplementedError, MemoryError)
"""The exceptions that pyarrow raises for damaged files."""


@dataclass(frozen=True)
class JobPart:
    """The contents of a part and of the file of its rejected rows, ready to be written."""

    data: bytes
    rejected: bytes
    """A line of JSON for each row that could not be encoded; empty if there is none."""
    counts: dict[str, int]
    """The number of each of `COUNTS`, by name; answers to requests have no count of empty texts."""


def unique_texts(rows: JobRows) -> tuple[list[Any], np.ndarray, list[int]]:
    """Return the U distinct texts, for each of R rows with a text its index among them [R], and these rows' indices.

    A text may be an image: two images are one if they have the same path, or the same bytes.
    """
    indices: dict[Any, int] = {}        # in the order of first use, which the results will have
    with_text, text_of_row = [], []
    for i, text in enumerate(rows.texts):
        if text is not None:
            text_of_row.append(indices.setdefault(text, len(indices)))
            with_text.append(i)
    return list(indices), np.array(text_of_row, np.int64), with_text


def make_part(name: str, rows: JobRows, computed: Computed, empty: Callable[[], dict[str, Any]], recipe: Recipe,
              metadata: dict[str, Any]) -> JobPart:
    """Return the part of some rows, from the results of their distinct texts, in the order of `unique_texts`.

    name: the name of the rows' file. empty: returns the result columns with no row, for a part where no row has a
    result. metadata: of the part, which gets the counts as well; its "id" is None if the rows have no column of ids.
    """
    texts, text_of_row, with_text = unique_texts(rows)
    reasons = dict(rows.reasons)        # by row: why it is rejected
    reasons |= {i: computed.reasons[text] for i, text in zip(with_text, text_of_row.tolist(), strict=True)
                if text in computed.reasons}
    good = [i for i in with_text if i not in reasons]
    has_result = np.ones(len(texts), bool)
    has_result[list(computed.reasons)] = False
    result_of_text = np.cumsum(has_result) - 1      # the results leave out refused texts
    result_of_row = dict(zip(with_text, result_of_text[text_of_row].tolist(), strict=True))
    if "request" in rows.columns:
        return _answers(rows, reasons, result_of_row, computed)
    indices = np.array([result_of_row[i] for i in good], np.int64)
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


def _answers(rows: JobRows, reasons: dict[int, str], result_of_row: dict[int, int], computed: Computed) -> JobPart:
    """Return the part of answers to the requests of a batch; a request with one bad text is refused as a whole.

    reasons: why a row is rejected, by its index. result_of_row: the index of its result, by the index of the row.
    """
    requests, vectors = rows.columns["request"], np.asarray(computed.results, np.float32)
    answers, refusals, tokens = [], [], 0
    for _, group in groupby(range(len(requests)), lambda i: id(requests[i])):  # the rows of a request share it
        of_request = list(group)
        request, reason = requests[of_request[0]], next((reasons[i] for i in of_request if i in reasons), None)
        width = vectors.shape[1] if vectors.ndim == 2 else 0
        if reason is None and (request.dimensions or 0) > width:
            reason = f"the vectors of this model have {width} dimensions, and not {request.dimensions}"
        if reason is not None:
            refusals.append(refusal(request, reason))
            continue
        indices = [result_of_row[i] for i in of_request]
        request_tokens = sum(computed.tokens[i] for i in indices)
        tokens += request_tokens
        answers.append(answer(request, vectors[indices], request_tokens))
    counts = {"rows": len(answers), "rejected": len(refusals), "tokens": tokens}
    return JobPart(_json_lines(answers), _json_lines(refusals), counts)


def _rows_of_column(column: Any, rows: list[int], kind: Any) -> Any:
    """Return some rows of a copied column as an Arrow array. kind: the type that a list gets; None for strings."""
    pa = require_files("pyarrow")
    if isinstance(column, list):
        return pa.array([column[i] for i in rows], kind or pa.string())
    return column.take(pa.array(rows, pa.int64()))


def _ids(rows: JobRows, i: int) -> dict[str, Any]:
    """Return the copied values of row i by column, for its line of the rejected rows.

    Columns named like a field that each line has, such as "reason", go into an object "columns" of their own.
    """
    plain = {name: _json_value(column[i]) for name, column in rows.columns.items()}
    hidden = {name: plain.pop(name) for name in ("input", "position", "reason", "columns") if name in plain}
    return plain | ({"columns": hidden} if hidden else {})


def _json_value(value: Any) -> Any:
    """Return a string, None or a value of Arrow as JSON can hold it: NaN and the like become strings."""
    try:
        value = value if isinstance(value, (str, type(None))) else as_json(value)
        in_json = isinstance(value, (int, str, type(None))) or (isinstance(value, float) and isfinite(value))
        return value if in_json else str(value)
    except RecursionError:
        return "<too many lists or objects inside each other>"


def _json_lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(_json_line(row) for row in rows)


def _json_line(row: dict[str, Any]) -> bytes:
    """Return one line of JSON in UTF-8, with escapes in place of letters only where UTF-8 cannot hold one."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:      # half a surrogate pair, which JSON can hold and UTF-8 cannot
        return json.dumps(row).encode() + b"\n"


def _parquet(columns: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    """Return a Parquet file of the columns, with its checksum; every setting that could change its bytes is fixed."""
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
    """Return the SHA-256 of a part, computed with zeros in the place of its checksum, and the offset of this place.

    The offset is -1 for a file without the mark of a checksum.
    """
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
    """Return the Arrow table of a Parquet part and its metadata; raises `WeightsError` for a damaged file.

    check: whether to compare the checksum in the file with its bytes. No thread of Arrow may be started here: it could
    still hold `data` when Python ends, and would then abort the process.
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
