"""Open the source of a recording (a path, the bytes of a file, or an open file) as a file of the system."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from ..base.errors import FileMissing, InputError, WeightsError
from ..base.stop import NEVER, Stop
from ..files.reading import FormatError, open_given, shown_path

MAX_STREAM = 2**32
"""Limit on the bytes that are read from an open file, which may be endless; a WAV file has at most as many."""
_BLOCK = 2**20
"""The number of bytes that are copied together."""


def is_source(value: Any) -> bool:
    """Return whether a value is a source that `opened` can open."""
    return isinstance(value, (str, os.PathLike, bytes, bytearray, memoryview)) or callable(getattr(value, "read", None))


def name_of(source: Any) -> str:
    """Return the name of a source for messages: its path, the name of an open file, or "the recording"."""
    if isinstance(source, (str, os.PathLike)):
        return shown_path(source)
    given = getattr(source, "name", None)
    return given if isinstance(given, str) and given.isprintable() else "the recording"


def check_path(source: Any) -> None:
    """Raise `WeightsError` if a source is a path at which there is no regular file that can be opened."""
    if isinstance(source, (str, os.PathLike)):
        _open_path(source).close()


@contextmanager
def opened(source: Any, stop: Stop = NEVER) -> Iterator[IO[bytes]]:
    """Open a source as a file of the system, for C libraries and commands, in a `with` block that closes it.

    Bytes and open files are copied to a temporary file without a name; an open file is read from its position on.
    stop: when copying has to stop.
    """
    if isinstance(source, (str, os.PathLike)):
        with _open_path(source) as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        if isinstance(source, (bytes, bytearray, memoryview)):
            copy.write(source if memoryview(source).c_contiguous else bytes(source))
        else:
            _copy_stream(source, copy, stop)
        copy.flush()
        yield copy


@contextmanager
def opened_behind(file: IO[bytes], offset: int) -> Iterator[IO[bytes]]:
    """Open a file with the bytes of `file` from an offset on: the same file for 0, otherwise a temporary copy."""
    if offset == 0:
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        file.seek(offset)
        shutil.copyfileobj(file, copy, _BLOCK)
        copy.flush()
        yield copy


def _open_path(source: str | os.PathLike[str]) -> IO[bytes]:
    """Open an audio file; raises `FileMissing`, or `WeightsError` for one that is no regular file or cannot be read."""
    try:
        return open_given(source)
    except FileNotFoundError:
        raise FileMissing(f"{name_of(source)}: cannot be read: No such file or directory; give the path of an audio "
                          "file") from None
    except FormatError as error:
        raise WeightsError(f"{name_of(source)}: {error}; give the path of an audio file") from None


def _copy_stream(source: Any, copy: IO[bytes], stop: Stop) -> None:
    """Copy the rest of an open file of the caller, in blocks, into a file of the system; raises errors."""
    total = 0
    while True:
        stop.check()
        try:
            data = source.read(_BLOCK)
        except (OSError, ValueError) as error:      # ValueError: a closed file, or one in text mode with other bytes
            raise WeightsError(f"{name_of(source)}: cannot be read: {error}; open it with mode 'rb'") from None
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            raise InputError(f"{name_of(source)} is read as {type(data).__name__} and not as bytes; open it with mode "
                             "'rb'")
        if not data:
            return
        total += len(data)
        if total > MAX_STREAM:
            raise InputError(f"{name_of(source)} has more than {MAX_STREAM:,} bytes, which is the limit of an open "
                             "file; give the path of a file")
        copy.write(data)
