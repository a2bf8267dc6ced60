"""Where a job reads and writes: folders of this machine, and object stores such as S3 through pyarrow."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from io import BufferedReader
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from ..base.errors import InputError, listed, shown
from ..base.install import require_files
from ..files.writing import replacing

CLAIMS = ".claims"
"""The folder, in that of the parts, of the files that processes lock while they work on a unit."""
OBJECT_STORES = ("s3", "gcs", "abfs")
"""The file systems of pyarrow where a file is there whole or not at all."""
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class InputFile:
    """A file of rows, and the state in which it was found."""

    name: str
    """Its path from the last folder of the pattern that has no wildcard, so that a folder may lie elsewhere."""
    size: int
    modified: int
    """In nanoseconds."""
    open: Callable[[], Any]
    """Opens it for reading: a binary file that can seek."""


class Folder(Protocol):
    """The folder of the parts of a job."""

    def names(self) -> list[str]:
        """Return the names of the files in it, without those in its folders."""

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def claim(self, name: str) -> Callable[[], None] | None:
        """Return a function that gives up the claim on a unit; None if another process has it."""


class LocalFolder:
    """A folder of this machine, or of a shared disk."""

    def __init__(self, path: str):
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """See `Folder`."""
        with os.scandir(self._path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def has(self, name: str) -> bool:
        """See `Folder`."""
        return (self._path / name).is_file()

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        return (self._path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """See `Folder`."""
        path = self._path / name
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as file:
            file.write(data)

    def delete(self, name: str) -> None:
        """See `Folder`."""
        (self._path / name).unlink(missing_ok=True)

    def claim(self, name: str) -> Callable[[], None] | None:
        """See `Folder`. The system gives a lock up when its process dies, so that no claim outlives its owner."""
        path = self._path / CLAIMS / name
        path.parent.mkdir(exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError as error:
                # A disk without locks: two processes may then do the same work, and write the same bytes.
                if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                    os.close(descriptor)
                    raise
            with suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == path.stat().st_ino:     # else its owner deleted it meanwhile
                    break
            os.close(descriptor)

        def give_up() -> None:
            path.unlink(missing_ok=True)
            os.close(descriptor)

        return give_up


class ArrowFolder:
    """A folder of an object store, where an object appears when its upload is completed, and never a part of it."""

    def __init__(self, files: Any, path: str):
        self._files, self._path = files, path.rstrip("/")

    def names(self) -> list[str]:
        """See `Folder`."""
        fs = require_files("pyarrow.fs")
        found = self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.File)

    def has(self, name: str) -> bool:
        """See `Folder`."""
        fs = require_files("pyarrow.fs")
        return bool(self._files.get_file_info(self._at(name)).type == fs.FileType.File)

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        with self._files.open_input_stream(self._at(name)) as file:
            return bytes(file.read())

    def write(self, name: str, data: bytes) -> None:
        """See `Folder`."""
        file = self._files.open_output_stream(self._at(name))
        file.write(data)
        file.close()            # which completes the upload; an error before this leaves no object

    def delete(self, name: str) -> None:
        """See `Folder`."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._at(name))

    def claim(self, name: str) -> Callable[[], None] | None:
        """See `Folder`. Object stores have no locks: everybody gets a claim, and shards divide the work instead."""
        return lambda: None

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


def open_folder(place: str) -> Folder:
    """Return the folder at a path or a URI such as s3://bucket/folder; a local one is made.

    Raises `InputError` for a URI of another file system than an object store's, where a stop could leave half a file.
    """
    if "://" not in place:
        return LocalFolder(place)
    files, path = _arrow_files(place)
    if files.type_name == "local":
        return LocalFolder(path)
    if files.type_name not in OBJECT_STORES:
        raise InputError(f"parts cannot be written to {shown(place)}: expected a folder of this machine, or of an "
                         f"object store ({listed(OBJECT_STORES)}), where no file is ever there in half; mount it as a "
                         "folder")
    return ArrowFolder(files, path)


def find_inputs(patterns: Sequence[str]) -> list[InputFile]:
    """Return the files that match patterns such as "in/*.parquet" or "s3://bucket/in/*.jsonl", ordered by name.

    Raises `InputError` for a pattern without a file, and for two files of one name.
    """
    found: list[InputFile] = []
    for pattern in patterns:
        own = _find_remote(pattern) if "://" in pattern else _find_local(pattern)
        if not own:
            raise InputError(f"no file matches {shown(pattern)}; expected files such as in/*.parquet, in quotes")
        found += own
    found.sort(key=lambda file: file.name)
    if twice := [one.name for one, other in pairwise(found) if one.name == other.name]:
        raise InputError(f"two inputs are called {listed(twice)}; give one pattern that matches both, such as "
                         "'in/**/*.parquet', so that their folders tell them apart")
    return found


def _find_local(pattern: str) -> list[InputFile]:
    if os.path.isdir(pattern):
        raise InputError(f"{pattern} is a folder; name its files by a pattern such as {pattern.rstrip('/')}/*.parquet")
    paths = glob.glob(pattern, recursive=True) if _WILD.search(pattern) else [pattern]
    root = _root(pattern)
    found = []
    for path in paths:
        if os.path.isfile(path):
            status = os.stat(path)
            found.append(InputFile(os.path.relpath(path, root or "."), status.st_size, status.st_mtime_ns,
                                   partial(open, path, "rb", 2**20)))
    return found


def _find_remote(pattern: str) -> list[InputFile]:
    fs = require_files("pyarrow.fs")
    place, _, query = pattern.partition("?")
    start = _root(place)
    files, root = _arrow_files(f"{start}?{query}" if query else start)
    below = place[len(start) :].lstrip("/")
    found = files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    names = [(os.path.relpath(info.path, root), info) for info in found if info.type == fs.FileType.File]
    return [InputFile(name, info.size, info.mtime_ns or 0,
                      partial(_open_remote, files, info.path))
            for name, info in names if _matches(name, below)]


def _open_remote(files: Any, path: str) -> BufferedReader:
    return BufferedReader(files.open_input_file(path), 2**20)


def _matches(name: str, pattern: str) -> bool:
    """Return whether a path matches a pattern, of which `*` stays in a folder and `**/` stands for any folders."""
    if pattern.startswith("**/"):
        return any(_matches(name[i:], pattern[3:]) for i in (0, *(m.end() for m in re.finditer("/", name))))
    first, _, rest = pattern.partition("/")
    own, _, below = name.partition("/")
    return fnmatchcase(own, first) and (bool(rest) == bool(below)) and (not rest or _matches(below, rest))


def _root(pattern: str) -> str:
    """Return the last folder of a pattern that has no wildcard."""
    parts = pattern.split("/")[:-1]
    wild = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return "/".join(parts[:wild]) or ("/" if pattern.startswith("/") else "")


def _arrow_files(uri: str) -> tuple[Any, str]:
    fs = require_files("pyarrow.fs")
    try:
        files, path = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError) as error:
        raise InputError(f"{shown(uri)} cannot be opened: {str(error).partition(chr(10))[0]}") from error
    return files, str(PurePosixPath(path))
