"""Read the rows of a job's files, for job.py: JSON lines, CSV, text, Parquet, and batches of requests to an API.

A file is divided into ranges: bytes in which lines begin, or rows of a row group. They are found before the rows are
read, and are the same in every run.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Any, Protocol, cast

import numpy as np

from ..base.errors import InputError, listed, nearest, shown
from ..base.install import require_files
from ..files.reading import FormatError, refuse_pointer
from ..images.sources import ENDINGS
from ..model.config_checks import is_unicode
from .batch_api import read_request
from .columns import copied, distinct, is_image_type, text_type, value_type, without_views
from .rows import ColumnNames, JobRows, Unreadable, readable
from .storage import InputFile

MOST_LINE = 2**24
"""Limit on the bytes of a line, and of a row of CSV, so that a file without line ends does not fill the memory."""
MORE_LINES = 4
"""A range of lines may have this many times the rows of other ranges, so a megabyte of lines is mostly one range."""
MOST_UNPACKED = 2**28
"""Limit on the bytes that a range of Parquet needs in memory, by the sizes that the file states."""
MOST_RATIO = 100
"""Limit on the bytes that the values of a large column of Parquet need in memory, for each of its bytes in the file."""
MOST_NAMES = 20
"""How many fields of JSON a message about a missing one names."""
_BOM = b"\xef\xbb\xbf"      # the byte order mark of UTF-8, which some programs write at the start of a file


@dataclass(frozen=True)
class Range:
    """A range of a file: the lines that begin in bytes `first` to `last` - 1, or these rows of row group `group`."""

    first: int
    last: int
    group: int = 0
    row: int = 0
    """The number in the file of the row group's row `first`."""


class Format(Protocol):
    """Divides files of one format into ranges, and reads the rows of a range."""

    def ranges(self, file: InputFile, columns: ColumnNames) -> list[Range]:
        """Return the ranges of a file, in order; raises `InputError` if it lacks a column."""

    def types(self, file: InputFile, columns: ColumnNames) -> dict[str, Any]:
        """Return the Arrow type of each column that is copied, by name."""

    def rows(self, file: InputFile, part: Range, columns: ColumnNames) -> JobRows:
        """Read the rows of a range."""


class _Strings:
    """The base of each `Format` whose fields are all strings."""

    def types(self, file: InputFile, columns: ColumnNames) -> dict[str, Any]:
        return {name: require_files("pyarrow").string() for name in columns.kept}


class Lines(_Strings):
    """A `Format` with one row on each line."""

    def __init__(self, parse: Callable[[bytes, ColumnNames], tuple[Any, dict[str, Any]]], most: int, size: int):
        """parse: returns the text and the copied columns of a line. most, size: the most lines and bytes of a range."""
        self._parse, self._most, self._size = parse, most, size

    def ranges(self, file: InputFile, columns: ColumnNames) -> list[Range]:
        if self._parse is parse_text and columns.kept:
            raise InputError(f"{file.label} is text, whose lines have no column {shown(columns.kept[0])}; leave --id "
                             "and --keep out, or give files of text a job of their own")
        # Ranges of a file in a store are by bytes alone: to count its lines, all of it would have to be downloaded.
        borders = _borders(file, self._most, self._size) if file.is_local else range(0, file.size, self._size)
        return [Range(first, last) for first, last in pairwise([*borders, file.size])]

    def rows(self, file: InputFile, part: Range, columns: ColumnNames) -> JobRows:
        rows = JobRows(columns={name: [] for name in columns.kept}, types=columns.types, images=columns.images)
        for position, line in lines(file, part):
            check_count(file, part, len(rows.texts), self._most)
            if line is None:
                reason = Unreadable(f"the line has more than {MOST_LINE:,} bytes")
                rows.add(position, reason, dict.fromkeys(columns.kept))
            elif line.strip() or self._parse is parse_text:     # an empty line is a text, but no JSON
                rows.add(position, *self._parse(line, columns))
        return rows


def _borders(file: InputFile, most: int, size: int) -> Iterator[int]:
    """Yield the first byte of each range of a file of lines: every `size` bytes, and after `most` lines between these.

    Bytes alone would not bound the rows: a megabyte of empty lines has a million rows, each with a vector.
    """
    # A line begins after each line end, so the byte before a block says whether one begins with the block.
    before, count, position = b"\n", 0, 0
    with file.open() as stream:
        while position < file.size:
            if position % size == 0:
                yield position
                count = 0
            block = before + stream.read(min(2**20, size - position % size))        # the byte before, and new bytes
            if len(block) == 1:
                return                  # the file has become shorter, which `InputFile.check` reports
            begun = block.count(b"\n", 0, len(block) - 1)       # lines that begin in the new bytes
            if count + begun > most:
                begins = np.flatnonzero(np.frombuffer(block, np.uint8)[:-1] == ord("\n"))
                yield from (position + begins[most - count :: most]).tolist()
                count = (count + begun - 1) % most + 1      # lines after the newest border, from 1 to `most`
            else:
                count += begun
            position, before = position + len(block) - 1, block[-1:]


def check_count(file: InputFile, part: Range, count: int, most: int) -> None:
    """Raise `InputError` if a range that already has `count` rows may have no further row, as `most` is the limit."""
    if count >= most:
        raise InputError(f"{file.label} has more than {most:,} rows in its bytes {part.first:,} to {part.last:,}, and "
                         "a unit may have no more; give a smaller --unit-bytes, or a larger --unit-rows")


def lines(file: InputFile, part: Range) -> Iterator[tuple[int, bytes | None]]:
    """Yield (offset of the first byte, contents without the line end) of each line that begins in a range.

    The contents are None for a line of `MOST_LINE` bytes or more.
    """
    with file.open() as stream:
        position = part.first
        if position:        # a line that begins before the range belongs to the range before; skip the rest of it
            # From the byte before `first`: if that is a line end, the skip ends there, and a line begins at `first`.
            stream.seek(position - 1)
            position += _skip_line(stream, part.last - position + 1) - 1
        while position < part.last and (line := stream.readline(MOST_LINE)):
            size = len(line)
            if size == MOST_LINE and not line.endswith(b"\n"):
                size, line = size + _skip_line(stream, part.last - position - size), None
            elif position == 0:
                line = line.removeprefix(_BOM)
            yield position, None if line is None else line.removesuffix(b"\n").removesuffix(b"\r")
            position += size


def _skip_line(stream: Any, most: int) -> int:
    """Read up to the end of a line, but no more than `most` bytes, and return how many bytes were read."""
    size = 0
    while size < most and (line := stream.readline(min(2**20, most - size))):
        size += len(line)
        if line.endswith(b"\n"):
            break
    return size


def parse_text(line: bytes, columns: ColumnNames) -> tuple[Any, dict[str, Any]]:
    """Return a line as its text, or as the path of an image, and no copied fields."""
    return os.fsdecode(line) if columns.images else line, {}


def parse_json(line: bytes, columns: ColumnNames) -> tuple[Any, dict[str, Any]]:
    """Return the text on a line of JSON, or why there is none, and the copied fields as strings."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:       # a UnicodeDecodeError is a ValueError too
        return Unreadable(f"the line is no JSON: {error}"), dict.fromkeys(columns.kept)
    if not isinstance(row, dict):
        return Unreadable(f"the line is no JSON object but {shown(row)}"), dict.fromkeys(columns.kept)
    text = row.get(columns.text, Unreadable(f"the object has no field {columns.text!r}"))
    copies: dict[str, str | None] = dict.fromkeys(columns.kept)
    for name in copies:
        try:
            copies[name] = _as_string(row.get(name))
        except RecursionError:      # Python reads deeper nesting than it writes
            text = Unreadable(f"the field {name!r} has too many lists or objects inside each other")
    return text, copies


def check_fields(files: Sequence[InputFile], columns: ColumnNames) -> None:
    """Raise `InputError` if no object in files of JSON lines has the field of a column: its name is then wrong.

    Objects are read until each field was there once, which is mostly after the first object.
    """
    missing, names = {columns.text, *columns.kept}, list[str]()
    for row in _objects(files):
        missing -= row.keys()
        names += [name for name in row if len(names) < MOST_NAMES and name not in names]
        if not missing:
            return
    if any(file.size for file in files):
        which = files[0].label if len(files) == 1 else f"{len(files):,} files"
        name = next(name for name in (columns.text, *columns.kept) if name in missing)
        lacks = (f" with the field {shown(name)}{nearest(name, names)}; the fields are {listed(names)}"
                 f"{_hint(name, columns)}" if names else "")
        raise InputError(f"no line of {which} is a JSON object{lacks}")


def _objects(files: Sequence[InputFile]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in files; the other lines become rejected rows later."""
    for file in files:
        for _, line in lines(file, Range(0, file.size)):
            with suppress(ValueError, RecursionError):
                if isinstance(row := json.loads(line or b"null"), dict):
                    yield row


class Csv(_Strings):
    """The `Format` CSV with a header. Quoted fields may hold line ends, so a reader of CSV finds where rows begin."""

    def __init__(self, most: int, size: int):
        """most, size: the most rows and the bytes of a range."""
        self._most, self._size = most, size

    def ranges(self, file: InputFile, columns: ColumnNames) -> list[Range]:
        """Divide a file by reading the whole of it once; raises `InputError` for a missing column."""
        starts: list[int] = []      # the offset of the first row of each range
        begun, count = False, 0     # whether the column names are read; the rows of the last range so far
        for position, row, fault in self._rows(file, Range(0, file.size)):
            if not begun:       # the row of column names
                wanted = {columns.text, *columns.kept}
                if (fault or not wanted <= {*row}) and (separator := _other_separator(file)):
                    raise InputError(f"{file.label}: its columns are separated by {separator!r}, and only commas are "
                                     f"read; pandas.read_csv(path, sep={separator!r}).to_csv(other, index=False) "
                                     "writes it with commas")
                if fault:
                    raise InputError(f"{file.label}: the line of column names cannot be read: {fault}")
                _check_columns(file, columns, row)
                begun = True
                continue
            if not starts or position >= starts[-1] + self._size or count == self._most:
                starts.append(position)
                count = 0
            count += 1
        if not begun:
            raise InputError(f"{file.label}: expected CSV with a line of column names, and the file is empty")
        return [Range(first, last) for first, last in pairwise([*starts, file.size])]

    def rows(self, file: InputFile, part: Range, columns: ColumnNames) -> JobRows:
        [header] = ([*row] for _, row, _ in islice(self._rows(file, Range(0, file.size)), 1))
        rows = JobRows(columns={name: [] for name in columns.kept}, types=columns.types, images=columns.images)
        for position, row, fault in self._rows(file, part):
            if fault:
                rows.add(position, Unreadable(fault), dict.fromkeys(columns.kept))
                continue
            fields = dict(zip(header, row, strict=False))
            text: Any = fields.get(columns.text)
            if text is None or any(row[len(header) :]):     # a comma without quotes may have cut the text
                text = Unreadable(f"the row has {len(row)} fields, and not {len(header)}")
            elif not columns.images:        # paths of images stay strings, in which Python escapes bytes this way, too
                text = text.encode("utf-8", "surrogateescape")      # the bytes of the file again
            rows.add(position, text, {name: _readable(fields.get(name)) for name in columns.kept})
        return rows

    def _rows(self, file: InputFile, part: Range) -> Iterator[tuple[int, list[str], str]]:
        """Yield (offset of the first byte, fields, fault) of each row; fault: why it could not be read, mostly ""."""
        csv.field_size_limit(MOST_LINE)
        with file.open() as stream:
            stream.seek(part.first)
            read = position = part.first        # the offset up to which lines were read, and that of the row at hand

            def decoded() -> Iterator[str | None]:
                """Yield the lines of the range; None in place of one with which a row is longer than `MOST_LINE`."""
                nonlocal read
                while read < part.last and (line := stream.readline(MOST_LINE)):
                    text = line.removeprefix(_BOM) if read == 0 else line
                    read += len(line)
                    if len(line) == MOST_LINE and not line.endswith(b"\n"):
                        read += _skip_line(stream, part.last - read)
                    # The csv module refuses None, as no string, and begins a new row after it.
                    yield text.decode("utf-8", "surrogateescape") if read - position <= MOST_LINE else None

            # If not strict, csv would read all rows after an open quote as its text.
            reader = csv.reader(cast(Iterator[str], decoded()), strict=True)
            while True:
                try:
                    row, fault = next(reader), ""
                except StopIteration:
                    return
                except csv.Error as error:
                    reason = error if read - position <= MOST_LINE else f"the limit is {MOST_LINE:,} bytes"
                    row, fault = [""], f"the {read - position:,} bytes of the row are no CSV: {reason}"
                if row:         # an empty line is no row
                    yield position, row, fault
                position = read


class Parquet:
    """The `Format` Parquet, by pyarrow: a range is a row group, or a part of a large one."""

    def __init__(self, size: int):
        """size: the most rows of a range."""
        self._size = size
        self._open: tuple[InputFile, int, int, Iterator[Any]] | None = None
        """The file and the row group that were read last, the next row of the group, and an iterator of its batches.

        One thread reads a job's ranges in order, so the next range of a group goes on where the last one ended.
        """

    def ranges(self, file: InputFile, columns: ColumnNames) -> list[Range]:
        """Divide a file by its footer alone; raises `InputError` for a missing column, or one that holds no strings."""
        with self._parquet(file) as parquet:
            _check_columns(file, columns, parquet.schema_arrow.names)
            kind = parquet.schema_arrow.field(columns.text).type
            if text_type(kind) is None and not (columns.images and is_image_type(kind)):
                expected = "paths, bytes, or objects with both" if columns.images else "strings"
                raise InputError(f"{file.label}: column {columns.text!r} holds {value_type(kind)}, and not {expected}")
            groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
            limits = [self._rows_of(file, group, i, columns) for i, group in enumerate(groups)]
        sizes = [group.num_rows for group in groups]
        starts = [0, *accumulate(sizes)]
        return [Range(first, min(first + most, size), group, row=starts[group] + first)
                for group, (size, most) in enumerate(zip(sizes, limits, strict=True)) for first in range(0, size, most)]

    def _rows_of(self, file: InputFile, group: Any, number: int, columns: ColumnNames) -> int:
        """Return the most rows of a range of a row group; raises `InputError` for one that unpacks to far more bytes.

        What a row needs in memory is estimated from the sizes that the file states for the columns that are read. A
        dictionary, with equal values once, stays a dictionary.
        """
        total = 0
        for i in range(group.num_columns):
            column = group.column(i)
            if column.path_in_schema.partition(".")[0] in (columns.text, *columns.kept):
                size, packed = column.total_uncompressed_size, column.total_compressed_size
                total += size
                if size > MOST_UNPACKED and size > MOST_RATIO * packed:
                    raise InputError(f"{file.label}: {packed:,} bytes of column {shown(column.path_in_schema)} in row "
                                     f"group {number} unpack to {size:,}, and the limit is {MOST_UNPACKED:,} where it "
                                     f"is more than {MOST_RATIO} times as much; write smaller row groups")
        return max(1, min(self._size, MOST_UNPACKED * group.num_rows // max(1, total)))

    def types(self, file: InputFile, columns: ColumnNames) -> dict[str, Any]:
        with self._parquet(file) as parquet:
            return {name: without_views(parquet.schema_arrow.field(name).type) for name in columns.kept}

    def rows(self, file: InputFile, part: Range, columns: ColumnNames) -> JobRows:
        table = self._read(file, part, columns)
        types = {name: columns.types.get(name, without_views(table.column(name).type)) for name in columns.kept}
        rows = JobRows(columns={name: copied(table.column(name), kind, f"{file.label}: column {shown(name)}")
                             for name, kind in types.items()}, images=columns.images)
        if columns.images:
            for image in table.column(columns.text):
                rows.add(part.row + len(rows.texts), image.as_py(), {})
            return rows
        for values, indices in distinct(table.column(columns.text)):
            texts = [*map(_text_of_scalar, values)]
            for i in indices.to_pylist():
                rows.add_text(part.row + len(rows.texts), texts[i] if i is not None else readable(None))
        return rows

    def _read(self, file: InputFile, part: Range, columns: ColumnNames) -> Any:
        """Return the Arrow table of a range; consecutive ranges share one pass over their row group."""
        pa = require_files("pyarrow")
        names = list(dict.fromkeys((columns.text, *columns.kept)))
        if part.first == part.last:
            with self._parquet(file) as parquet:
                return parquet.schema_arrow.empty_table().select(names)
        if self._open is None or self._open[:3] != (file, part.group, part.first):
            size = max(1, part.last - part.first)
            self._open = (file, part.group, 0, self._batches(file, part.group, names, size))
        _, _, next_row, batches = self._open        # next_row: of the group, with which the next batch begins
        pieces, missing = [], part.last - part.first
        for batch in batches:
            if next_row + len(batch) > part.first:      # otherwise the batch lies before the range
                piece = batch[max(0, part.first - next_row) :][: missing]
                pieces.append(piece)
                missing -= len(piece)
            next_row += len(batch)
            if not missing:
                break
        if missing:
            raise InputError(f"{file.label}: row group {part.group} has {missing:,} rows fewer than the file says")
        # If the last batch goes beyond the range, its other rows are gone, and the next range opens the group again.
        self._open = (file, part.group, next_row, batches) if next_row == part.last else None
        return pa.Table.from_batches(pieces)

    def _batches(self, file: InputFile, group: int, names: list[str], size: int) -> Iterator[Any]:
        """Yield the rows of a row group in record batches of `size` rows, or fewer, with these columns."""
        with self._parquet(file) as parquet:
            schema = parquet.schema_arrow
            strings = [name for name in names if text_type(schema.field(name).type) is not None]
        with self._parquet(file, strings) as parquet:
            # A thread of Arrow may still hold an object of Python when Python ends, and then aborts the process.
            yield from parquet.iter_batches(batch_size=size, row_groups=[group], columns=names, use_threads=False)

    @contextmanager
    def _parquet(self, file: InputFile, strings: Sequence[str] = ()) -> Iterator[Any]:
        """Open a file while the block runs. strings: the string columns to read as dictionaries, each value once."""
        pq = require_files("pyarrow.parquet")
        with file.open() as stream:
            try:
                yield pq.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True,
                                     read_dictionary=[*strings])
            except InputError:      # an error of the block about the rows; it is a ValueError, but none of pyarrow's
                raise
            except (ValueError, OSError, NotImplementedError) as error:
                raise InputError(f"{file.label}: cannot be read as Parquet: {error}") from error


def _text_of_scalar(value: Any) -> str | Unreadable:
    """Return a value of Arrow, a string or bytes, as the text of a row, or the reason why there is none."""
    size = value.as_buffer().size if value.is_valid else 0
    if size > MOST_LINE:
        return Unreadable(f"the text has {size:,} bytes, and the limit is {MOST_LINE:,}")
    return readable(value.as_buffer().to_pybytes() if value.is_valid else None)


class BatchRequests(Lines):
    """The `Format` of batches of requests to /v1/embeddings: one request on each line, and one row for each text."""

    def __init__(self, most: int, size: int):
        """most, size: the most lines and the bytes of a range, and the most texts, of which a line may have several."""
        super().__init__(parse_text, most, size)

    def rows(self, file: InputFile, part: Range, columns: ColumnNames) -> JobRows:
        """Read a range; the column "request" holds the `BatchRequest` of each row."""
        rows = JobRows(columns={"request": []})
        for position, line in lines(file, part):
            if line is not None and not line.strip():
                continue
            request = read_request(line)
            # Before the request's rows: a request is never cut, so that the last one may go beyond the limit.
            check_count(file, part, len(rows.texts), self._most)
            for text in request.texts or [Unreadable(request.reason)]:
                rows.add(position, text, {"request": request})
        return rows


def _other_separator(file: InputFile) -> str:
    """Return the separator that the first line of a file has more often than commas, such as ";"; "" if none."""
    with file.open() as stream:
        line = stream.readline(MOST_LINE)
    likely = max(";\t|", key=lambda separator: line.count(separator.encode()))
    return likely if line.count(likely.encode()) > line.count(b",") else ""


def _check_columns(file: InputFile, columns: ColumnNames, names: list[str]) -> None:
    """Raise `InputError` unless a file has each column that is read once."""
    for name in (columns.text, *columns.kept):
        if name not in names:
            raise InputError(f"{file.label} has no column {shown(name)}{nearest(name, names)}; it has {listed(names)}"
                             f"{_hint(name, columns)}")
        if names.count(name) > 1:
            raise InputError(f"{file.label} has {names.count(name)} columns of the name {shown(name)}; give each a "
                             "name of its own")


def _hint(name: str, columns: ColumnNames) -> str:
    """Return the end of a message about a missing column: the option that names the text column, if it is that."""
    what = "images" if columns.images else "text"
    return f"; --column names the one with the {what}" if name == columns.text else ""


def _as_string(value: Any) -> str | None:
    """Return a value of JSON as a string, or None for null, so that a column has one type in all parts."""
    if value is None:
        return None
    return _readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True))


def _readable(text: str | None) -> str | None:
    """Return a string that UTF-8 can hold: each undecoded byte or half of a surrogate pair becomes U+FFFD."""
    if text is None or is_unicode(text):
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


FORMATS: dict[str, Callable[[int, int], Format]] = {
    "jsonl": lambda rows, size: Lines(parse_json, MORE_LINES * rows, size),
    "csv": lambda rows, size: Csv(MORE_LINES * rows, size),
    "text": lambda rows, size: Lines(parse_text, MORE_LINES * rows, size),
    "parquet": lambda rows, size: Parquet(rows),
    "openai": lambda rows, size: BatchRequests(MORE_LINES * rows, size),
}
"""Functions that make the reader of each format from the most rows and the most bytes of a range."""
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".txt": "text", ".parquet": "parquet"}
"""The format of a file, by the end of its name."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""Ends of the names of compressed files: a unit is a range of bytes, and there reading cannot start in the middle."""


def refuse_compressed(file: InputFile) -> None:
    """Raise `InputError` for a name of a compressed file, and for a local file that is only a pointer of Git LFS."""
    if file.is_local:
        with file.open() as stream:
            try:
                refuse_pointer(stream.read(64))
            except FormatError as error:
                raise InputError(f"{file.label} {error}") from None
    if file.name.endswith(COMPRESSED):
        raise InputError(f"{file.label} is compressed, and such files are not read; decompress it first, or write its "
                         "rows as Parquet, which compresses its columns itself")


def format_of(file: InputFile) -> str:
    """Return the format of a file by the end of its name; raises `InputError` for an unknown end."""
    suffix = next((suffix for suffix in SUFFIXES if file.name.endswith(suffix)), None)
    if file.name.lower().endswith(ENDINGS):
        raise InputError(f"{file.label} is an image, and a job reads paths or bytes from a table, or paths from text; "
                         "write them into a file, one on each line, as with: ls photos/*.jpg > photos.txt. engine "
                         "encode and engine classify read images themselves")
    if suffix is None:
        raise InputError(f"{file.label}: the name does not end in {listed(SUFFIXES)}; say --format "
                         f"{', '.join(FORMATS)}")
    return SUFFIXES[suffix]
