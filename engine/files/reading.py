"""Open, map and parse files, with errors that name the file, for every file format and the readers of model folders."""

from __future__ import annotations

import json
import mmap
import os
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ..base.errors import HubError, TimedOut, UnsupportedError, WeightsError, shown

MAX_JSON = 8_000_000
"""Limit on the bytes of one JSON text: Python needs up to 30 bytes of memory for each of its bytes."""
_MAX_DEPTH = 64
"""Limit on lists and objects inside each other; files of models have fewer than 10."""
_JSON_ADVICE = "copy the model's folder again from its source"

_LFS = b"version https://git-lfs.github.com/spec/"
"""The beginning of a pointer: the small file that stands in a repository in place of a file in Git LFS."""


class FormatError(Exception):
    """The contents of a file are wrong; `naming` converts this error to a `WeightsError` that names the file."""


class FileState(NamedTuple):
    """The state of a file, which changes if somebody writes to it."""

    device: int
    inode: int
    size: int
    """Bytes."""
    changed_at: int
    """The time of the last change, in nanoseconds since 1970."""

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """Return the state of a file from the result of `os.stat`."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


_MAPPED: WeakKeyDictionary[mmap.mmap, tuple[Path, FileState]] = WeakKeyDictionary()
"""The path and the state of the file behind each map that is alive."""


def mapped_files() -> dict[Path, FileState]:
    """Return the files that this process maps now, and their states when they were mapped."""
    return dict(_MAPPED.values())


@contextmanager
def naming(path: object, advice: str) -> Iterator[None]:
    """Convert a `FormatError` or `OSError` of the block to a `WeightsError` with the file, the fault and the advice."""
    try:
        yield
    except (HubError, TimedOut):    # these are OSErrors, but not about this file
        raise
    except FormatError as error:
        raise WeightsError(f"{path}: {error}; {advice}") from None
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {_reason(error)}; {advice}") from None


@contextmanager
def within(path: Path) -> Iterator[None]:
    """Put the path in front of the message of an `UnsupportedError` or `WeightsError`, unless it is there already."""
    try:
        yield
    except (UnsupportedError, WeightsError) as error:
        if str(error).startswith((f"{path}: ", f"{path}{os.sep}")):
            raise
        raise type(error)(f"{path}: {error}") from None


def has_file(path: Path) -> bool:
    """Return whether a regular file is at `path`; raises `WeightsError` for anything else, and if nobody can know."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise WeightsError(f"{shown(str(path), 300)}: cannot be read: {_reason(error)}; {_JSON_ADVICE}") from None
    if not stat.S_ISREG(mode):
        raise WeightsError(f"{path}: is not a regular file; {_JSON_ADVICE}")
    return True


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; raises `FormatError` for any other file, such as a FIFO, and never waits."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FormatError("cannot be read: it is not a regular file")
    return open(descriptor, "rb")


def open_given(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a user's path, which must be a regular file; raises `FileNotFoundError`, or `FormatError` for the rest."""
    try:
        return open_regular(Path(os.fsdecode(os.fspath(path))))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:      # ValueError: a null byte in a path
        raise FormatError(f"cannot be read: {_reason(error)}") from None


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a user's path for messages: as it is if it is printable, otherwise quoted and shortened."""
    name = os.fsdecode(os.fspath(path))
    return name if name.isprintable() else shown(name, 300)


def refuse_pointer(start: bytes) -> None:
    """Raise `FormatError` if a file with this start is a pointer of Git LFS."""
    if start.startswith(_LFS):
        raise FormatError("is a pointer of Git LFS, and not the file itself: run git lfs pull in its repository")


def _reason(error: OSError | ValueError) -> str:
    """Return the text of an error, without the path and the number of an `OSError`."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def map_file(path: Path, memory: str = "map") -> mmap.mmap:
    """Map a whole file read-only, or with memory="copy" read it into private memory; arrays over it keep it alive.

    If another process shortens a mapped file in place, reading it kills this process with SIGBUS, and if it overwrites
    the file, the numbers change. No check can prevent that: replace model files by renaming, as `replacing` does, or
    read a copy, which nothing changes.
    """
    with open_regular(path) as file:
        state = FileState.of(os.fstat(file.fileno()))
        size = state.size
        if size == 0:
            raise FormatError("the file is empty")
        if memory == "map":
            # Older versions of Python keep a descriptor of the file open for as long as it is mapped.
            if sys.version_info >= (3, 13):
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, trackfd=False)
            else:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            refuse_pointer(mapped[: len(_LFS)])
            _MAPPED[mapped] = path, state
            return mapped
        copy = _PrivateMemory(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with memoryview(copy) as view:
            if file.readinto(view) != size or file.read(1):
                raise FormatError("the file changed its length while it was read")
        refuse_pointer(copy[: len(_LFS)])
        return copy


class _PrivateMemory(mmap.mmap):
    """Memory without a file: its pages cannot be released and read again."""


def wanted_names(names: Iterable[str], rename: Callable[[str], str | None], taken: Container[str] = (),
                 what: str = "tensors") -> dict[str, str]:
    """Return the names in a file of the tensors to read, by the new names that `rename` returns for them.

    rename: returns None for a tensor to leave out. taken: new names that tensors of other files already have. what: the
    noun for messages. Raises `FormatError` for two tensors with one new name.
    """
    wanted: dict[str, str] = {}
    for old in names:
        name = rename(old)
        if name in wanted or (name is not None and name in taken):
            raise FormatError(f"two {what} are both {name}, the second is {shown(old)}")
        if name is not None:
            wanted[name] = old
    return wanted


def read_only(view: np.ndarray, kept: bool) -> np.ndarray:
    """Return an array of a file read-only; kept: whether its dtype stays, otherwise it becomes float32.

    It is the view itself if that is aligned, C-contiguous and of the dtype, and otherwise a copy. Numbers that float32
    cannot hold become infinity or NaN, which a later check reports.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.require(view, view.dtype.newbyteorder("=") if kept else np.float32, ["C", "A"])
    array.flags.writeable = False
    return array


def release_pages(arrays: Iterable[np.ndarray]) -> None:
    """Return the memory of mapped arrays to the system, which reads their pages from the files again when needed."""
    maps = {id(mapped): mapped for mapped in map(_map_behind, arrays) if mapped is not None}
    if hasattr(mmap, "MADV_DONTNEED"):
        for mapped in maps.values():
            with suppress(OSError):  # pages that are locked in memory stay there
                mapped.madvise(mmap.MADV_DONTNEED)


def release_freed() -> None:
    """Give freed memory back to the system: glibc keeps arrays of up to 32 MB for later arrays of this process."""
    import ctypes  # here: few callers need it

    with suppress(AttributeError, OSError, TypeError):  # another C library has no malloc_trim, and keeps less
        ctypes.CDLL(None).malloc_trim(0)


def _map_behind(array: np.ndarray) -> mmap.mmap | None:
    """Return the map of a file that holds the numbers of an array; None if they lie elsewhere."""
    owner: Any = array
    while isinstance(owner, np.ndarray):        # views of views, down to the object that owns the memory
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    return owner if isinstance(owner, mmap.mmap) and not isinstance(owner, _PrivateMemory) else None


def parse_json(data: bytes, limit: int = MAX_JSON) -> Any:
    """Return the value of a UTF-8 JSON text; raises `FormatError`.

    A text is refused for wrong syntax, for duplicate keys, for more than `limit` bytes and for too deep nesting.
    """
    if len(data) > limit:
        raise FormatError(f"the JSON has {len(data):,} bytes; at most {limit:,} are allowed")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_distinct)
    except RecursionError:
        raise FormatError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"not valid UTF-8 JSON: {error}") from None
    if data.count(b"[") + data.count(b"{") > _MAX_DEPTH and _is_deeper(value, _MAX_DEPTH):
        raise FormatError(f"the JSON is nested too deeply; at most {_MAX_DEPTH} levels are allowed")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether a JSON value has more than `depth` lists and objects inside each other."""
    level = [value]     # all values at one depth
    for _ in range(depth):
        containers = [item for item in level if isinstance(item, (list, dict))]
        level = [item for one in containers for item in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return any(isinstance(item, (list, dict)) for item in level)


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the value of a UTF-8 JSON text that must be an object; raises `FormatError`."""
    value = parse_json(data)
    if not isinstance(value, dict):
        raise FormatError(f"expected a JSON object, found {type(value).__name__}")
    return value


def parse_list(data: bytes) -> list[Any]:
    """Return the value of a UTF-8 JSON text that must be a list; raises `FormatError`."""
    value = parse_json(data)
    if not isinstance(value, list):
        raise FormatError(f"expected a JSON list, found {type(value).__name__}")
    return value


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the contents of a regular file; raises `FormatError` if it has more than `limit` bytes."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    refuse_pointer(data)
    if len(data) > limit:
        raise FormatError(f"the file has more than the {limit:,} bytes that are allowed")
    return data


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object from its keys and values; raises `FormatError` for a key that occurs twice."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise FormatError(f"the JSON key {shown(key)} occurs twice")
        values[key] = value
    return values
