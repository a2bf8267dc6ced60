"""Parse a multipart/form-data body while it arrives: its one file goes to a temporary file, its fields to memory."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from ..base.errors import Cancelled, listed, shown
from .admission import Memory, Room
from .refusals import Refusal
from .settings import MAX_FIELDS, check_size

_PLAIN = (b"", b"7bit", b"8bit", b"binary")
"""The transfer encodings that leave bytes as they are."""
_FIELD_BYTES = 1024
"""The bytes that a field counts beside those of its value, for its name and its headers."""


class Upload:
    """A file that a client sends, which lies on disk without a name, and the count of the bytes that it takes there.

    The request that made it closes it. A worker that has taken the file closes the file itself: it may still read it
    after the request has ended, when the number of its descriptor must not go to another file.
    """

    def __init__(self, disk: Memory, key: str):
        """disk: counts the bytes of all requests on disk. key: the name of the client, by its API key."""
        self.room = Room(disk, key)
        self.size = 0
        """The bytes of the file so far."""
        self._file: IO[bytes] | None = temporary()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the file, unless a worker has taken it, and give the bytes back."""
        if (file := self._remove_file()) is not None:
            file.close()
        self.room.close()

    def write(self, data: bytes) -> None:
        """Append bytes; raises `Limit` and `Overloaded` where the limit on disk has no room for them."""
        self.room.hold(self.size + len(data))
        assert self._file is not None
        write(self._file, data)
        self.size += len(data)

    def take(self) -> IO[bytes]:
        """Return the file, at its start, which the caller closes; raises `Cancelled` if the request has ended."""
        if (file := self._remove_file()) is None:
            raise Cancelled
        file.seek(0)
        return file

    def _remove_file(self) -> IO[bytes] | None:
        """Return the file to its one new owner, the first caller, and None to later ones. Any thread may call it."""
        with self._lock:
            file, self._file = self._file, None
        return file


def temporary() -> IO[bytes]:
    """Return a new temporary file without a name, to write and read; raises `Refusal` if the disk is full."""
    with _on_disk():
        return tempfile.TemporaryFile(prefix="engine-")


def write(file: IO[bytes], data: bytes) -> None:
    """Append bytes to a temporary file; raises `Refusal` if the disk is full."""
    with _on_disk():
        file.write(data)


@contextmanager
def _on_disk() -> Iterator[None]:
    """Turn an `OSError` of the block into a `Refusal`."""
    try:
        yield
    except OSError as error:
        raise Refusal("full", f"the server has no room on its disk for a recording ({error.strerror}); try again later",
                      retry_after=1.0) from None


class FormParts:
    """The parser of one body: `feed` it each piece, then call `end`, and read `fields`."""

    def __init__(self, content_type: bytes, name: str, upload: Upload):
        """content_type: the header of the body. name: the field with the file. upload: gets the bytes of the file.

        Raises `Refusal` for another type of body.
        """
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data":
            raise Refusal("type", "the body must be a form with a file; send the header content-type: "
                          "multipart/form-data, as curl does with -F file=@FILE")
        self.fields: dict[str, list[str]] = {}
        """The values of each field, in their order."""
        self.has_file = False       # whether the file has begun
        self._name, self._upload, self._ended = name, upload, False
        # Of the part that is read now: the header that is read (name, value), those before by their names, the field
        # (None for the file), and the bytes of its value so far.
        self._header = b"", b""
        self._headers: dict[bytes, bytes] = {}
        self._field: str | None = None
        self._data = b""
        self._size = 0      # bytes that all fields count
        callbacks = {"on_part_begin": self._begin, "on_header_field": self._header_name,
                     "on_header_value": self._header_value, "on_header_end": self._end_header,
                     "on_headers_finished": self._open, "on_part_data": self._add, "on_part_end": self._close,
                     "on_end": self._end}
        try:
            self._parser = MultipartParser(options.get(b"boundary", b""), callbacks)    # type: ignore[arg-type]
        except FormParserError as error:
            raise Refusal("wrong", f"the header content-type has a wrong boundary: {error}") from None

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the body; raises `Refusal` for wrong ones, `Limit`, and `Overloaded`."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise Refusal("wrong", f"the body is no multipart/form-data that can be read: {error}") from None

    def end(self) -> None:
        """Check that the body was whole and had its file; raises `Refusal`."""
        if not self._ended:
            raise Refusal("wrong", "the body ends before its last boundary")
        if not self.has_file:
            raise Refusal("wrong", f"{self._name}: the field is missing; send a file in it", self._name)

    # The parser calls the methods below, those of headers with a slice of its buffer: data[start:end].

    def _begin(self) -> None:
        self._headers = {}

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header = self._header[0] + data[start:end], self._header[1]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header = self._header[0], self._header[1] + data[start:end]

    def _end_header(self) -> None:
        """Keep the header that is whole now, by its name in lower case."""
        (name, value), self._header = self._header, (b"", b"")
        self._headers[name.lower()] = value.strip()

    def _open(self) -> None:
        """Begin the value of a part whose headers are whole: the file or a field; raises `Refusal` and `Limit`."""
        options = parse_options_header(self._headers.get(b"content-disposition"))[1]
        name = _text("the name of a part", options.get(b"name", b""))
        if self._headers.get(b"content-transfer-encoding", b"").lower() not in _PLAIN:      # base64, for one
            raise Refusal("wrong", f"the part {listed([name])} has a transfer encoding; send its bytes as they are")
        is_file = b"filename" in options or name == self._name
        if is_file and (name != self._name or self.has_file):
            raise Refusal("wrong", f"a request has one file, in the field {self._name}, and this one has another in "
                          f"{shown(name)}", listed([name]))
        self.has_file |= is_file
        self._field, self._data = None if is_file else name, b""
        if not is_file:
            self._count(_FIELD_BYTES)

    def _add(self, data: bytes, start: int, end: int) -> None:
        """Add bytes to the value of the part that is read."""
        if self._field is None:
            self._upload.write(data[start:end])
            return
        self._count(end - start)
        self._data += data[start:end]

    def _count(self, size: int) -> None:
        """Add bytes to the size of all fields; raises `Limit` beyond `MAX_FIELDS`."""
        self._size += size
        check_size("the form, beside its file,", self._size, MAX_FIELDS, "send less")

    def _close(self) -> None:
        """End the part that is read; the value of a field is added to `fields`."""
        if self._field is not None:
            self.fields.setdefault(self._field, []).append(_text(f"the field {listed([self._field])}", self._data))

    def _end(self) -> None:
        self._ended = True


def _text(what: str, data: bytes) -> str:
    """Return bytes as text; raises `Refusal` if they are no UTF-8. what: their name in the message."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refusal("wrong", f"{what} is no UTF-8") from None
