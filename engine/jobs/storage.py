"""The files that a job reads, and the folder that it writes: of this machine, or of a store such as S3 by pyarrow."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from io import BufferedReader
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from ..base.errors import InputError, listed, shown, without_credentials
from ..base.install import require_files
from ..files.claims import claim
from ..files.writing import replacing

CLAIMS = ".claims"
"""The folder, inside the one of the parts, of the files that processes lock while they work on a unit."""
OBJECT_STORES = ("s3", "gcs", "abfs")
"""The file systems of pyarrow where a file is there whole or not at all."""
RETRY_SECONDS = 15
"""How long Google's client tries again, unless the URI has retry_limit_seconds; its own default is 15 minutes."""
_WILD = re.compile(r"[*?\[]")
"""Matches a character that makes a name in a path a pattern."""


@dataclass(frozen=True)
class InputFile:
    """A file of rows, and its size and time of change when the job found it."""

    name: str
    """Its path from the last folder of the pattern that has no wildcard, so that a folder may lie elsewhere."""
    size: int
    modified: int
    """When it was last changed, in nanoseconds since 1970."""
    open: Callable[[], Any]
    """Opens it for reading: a binary file that can seek."""
    state: Callable[[], tuple[int, int]] | None = None
    """Returns its `size` and `modified` as they are now; None where nobody asks."""
    place: str = ""
    """The identity of the file, by which two names of it are found: device and inode, or URI; empty if unknown."""
    path: str = ""
    """Its path without links, or its URI; empty if unknown."""

    @property
    def label(self) -> str:
        """Return its name for messages, without characters that a terminal would obey."""
        return shown(self.name, 300)[1:-1]

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, and not in a store."""
        return not _is_remote(self.path)

    def check(self) -> None:
        """Raise `InputError` if it is no longer in the state in which it was found."""
        if self.state is not None and self.state() != (self.size, self.modified):
            raise InputError(f"{self.label} changed while the job ran; once nothing writes into it, run the command "
                             "again with --prune, which deletes the parts of its old rows")


class Folder(Protocol):
    """The folder of the parts of a job."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names of the files in it, or in one of its folders, without those in the folders below."""

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def claim(self, name: str) -> Callable[[], None] | None:
        """Claim the right to write a file, and return a function that gives it up; None if another process has it.

        It ends with the process. Without locks, as on an object store, everybody has it, so writers write equal bytes.
        """


class LocalFolder:
    """A `Folder` of this machine, or of a shared disk."""

    def __init__(self, path: str, make: bool = True):
        """make: whether to create the folder; otherwise `InputError` is raised where it is missing."""
        self._path = Path(path)
        if make:
            self._path.mkdir(parents=True, exist_ok=True)
        elif not self._path.is_dir():
            raise InputError(f"there is no folder {shown(path)}; expected one into which a job wrote")

    def names(self, folder: str = "") -> list[str]:
        if folder and not (self._path / folder).is_dir():
            return []
        with os.scandir(self._path / folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def has(self, name: str) -> bool:
        return (self._path / name).is_file()

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self._path / name
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as file:
            file.write(data)

    def delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def claim(self, name: str) -> Callable[[], None] | None:
        """Claim a unit by a lock on a file, and return a function that gives it up; None if another process has it.

        On a disk without locks everybody gets it: two processes may then do the same work, and write the same bytes.
        """
        path = self._path / CLAIMS / name
        path.parent.mkdir(exist_ok=True)
        return claim(path, without_locks=True)


class ArrowFolder:
    """A `Folder` of an object store, where an object appears when its upload is completed, and never a part of it."""

    def __init__(self, files: Any, path: str):
        self._files, self._path = files, path.rstrip("/")
        self._place = f"{files.type_name}://{self._path}"

    def names(self, folder: str = "") -> list[str]:
        fs = require_files("pyarrow.fs")
        with _explain_errors(self._place):
            entries = self._files.get_file_info(fs.FileSelector(self._at(folder).rstrip("/"), allow_not_found=True))
        return sorted(info.base_name for info in entries if info.type == fs.FileType.File)

    def has(self, name: str) -> bool:
        fs = require_files("pyarrow.fs")
        with _explain_errors(self._place):
            return bool(self._files.get_file_info(self._at(name)).type == fs.FileType.File)

    def read(self, name: str) -> bytes:
        with _explain_errors(self._place), self._files.open_input_stream(self._at(name)) as file:
            return bytes(file.read())

    def write(self, name: str, data: bytes) -> None:
        with _explain_errors(self._place):
            file = self._files.open_output_stream(self._at(name))
            file.write(data)
            file.close()            # completes the upload; an error before this leaves no object

    def delete(self, name: str) -> None:
        with _explain_errors(self._place), suppress(FileNotFoundError):
            self._files.delete_file(self._at(name))

    def claim(self, name: str) -> Callable[[], None] | None:
        """Let everybody claim a unit: object stores have no locks, and shards divide the work instead."""
        return lambda: None

    def _at(self, name: str) -> str:
        """Return the path of a file in the store."""
        return f"{self._path}/{name}"


def open_folder(place: str, make: bool = True) -> Folder:
    """Return the folder at a path or a URI such as s3://bucket/folder. make: whether to create a missing local folder.

    Raises `InputError` for a URI of a file system that is no object store: there a stop could leave half a file.
    """
    place = _local(place)
    if not _is_remote(place):
        return LocalFolder(place, make)
    files, path = _arrow_files(place)
    if files.type_name not in OBJECT_STORES:
        raise InputError(f"parts cannot be written to {shown(without_credentials(place))}: expected a folder of this "
                         f"machine, or of an object store ({listed(OBJECT_STORES)}), where no file is ever there in "
                         "half; mount it as a folder")
    return ArrowFolder(files, path)


def find_inputs(patterns: Sequence[str]) -> list[InputFile]:
    """Return the files that match patterns such as "in/*.parquet" or "s3://bucket/in/*.jsonl", ordered by name.

    Raises `InputError` for a pattern without a file, for two files of one name, and for one file of two names.
    """
    inputs: list[InputFile] = []
    for pattern in patterns:
        path = _local(pattern)
        files = _find_remote(path) if _is_remote(path) else _find_local(path)
        if not files:
            raise InputError(f"no file matches {shown(without_credentials(pattern))}; expected files such as "
                             "in/*.parquet, in quotes")
        inputs += files
    inputs.sort(key=lambda file: file.name)
    if twice := [one.name for one, other in pairwise(inputs) if one.name == other.name]:
        raise InputError(f"two inputs are called {listed(twice)}; give one pattern that matches both, such as "
                         "'in/**/*.parquet', so that their folders tell them apart")
    names: dict[str, str] = {}
    for file in inputs:
        if file.place and (other := names.setdefault(file.place, file.name)) != file.name:
            raise InputError(f"{shown(other)} and {shown(file.name)} are one file, by a link or by two patterns, and "
                             "its rows would be there twice; give patterns that match it once")
    return inputs


def _is_remote(place: str) -> bool:
    return "://" in place


def _local(place: str) -> str:
    """Return the path in a URI of this machine, such as file:///in/*.parquet; return paths and other URIs unchanged."""
    return _arrow_files(place)[1] if place.startswith("file:") else place


def refuse_own_patterns(patterns: Sequence[str], place: str, names: Sequence[str]) -> None:
    """Raise `InputError` if a pattern matches one of these names in the output folder: parts would become inputs.

    place: the output folder. names: names, below that folder, as the job gives them to its files.
    """
    output = PurePosixPath(_resolved(place))
    for pattern in patterns:
        for start, below in _starts(_local(pattern)):       # a folder, and the names of the pattern that follow it
            if output.is_relative_to(start):
                folder = output.relative_to(start)
                if matching := [name for name in names if _matches(str(folder / name), below)]:
                    raise _own_input(pattern, place, matching[0])


def refuse_own_files(files: Sequence[InputFile], place: str, is_own: Callable[[str], bool]) -> None:
    """Raise `InputError` if an input is a file that a job wrote into the output folder `place`.

    is_own: returns whether a job wrote a file, from its path below the output folder.
    """
    output = PurePosixPath(_resolved(place))
    for file in files:
        path = PurePosixPath(file.path)
        if file.path and path.is_relative_to(output) and is_own(name := str(path.relative_to(output))):
            raise _own_input(file.name, place, name)


def _own_input(pattern: str, place: str, name: str) -> InputError:
    """Return the error of inputs that match a file `name` in the output folder `place`."""
    inputs, output = shown(without_credentials(pattern)), shown(without_credentials(place))
    return InputError(f"{inputs} also matches what the job writes into {output}, such as {name}, so that the next run "
                      "would read it; give an output folder elsewhere, or a pattern that does not match its files")


def _resolved(place: str) -> str:
    """Return a name of a folder that is equal for all spellings: without links, or without a URI's options and keys."""
    place = _local(place)
    return without_credentials(place).rstrip("/") if _is_remote(place) else os.path.realpath(place)


def _starts(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield (folder, rest of the pattern below it) for each folder that the first names of a pattern lead to.

    For "in/*/x.csv" these are ("in", "*/x.csv") and, for each folder in it, such as "in/a", ("in/a", "x.csv").

    The folder is named as by `_resolved`. On this machine these are also the folders that wildcards match, as some may
    be links to other places; a path without wildcards, which names a file, yields nothing.
    """
    if _is_remote(pattern):
        place = pattern.partition("?")[0]
        start = _root(place)
        yield _resolved(start), place[len(start) :].lstrip("/")
    elif _is_wild(pattern):
        names = pattern.split("/")
        first_wild = next(i for i, name in enumerate(names) if _WILD.search(name))
        for i in range(first_wild, len(names) + 1):
            before, after = names[:i], names[i:]
            start = "/".join(before) or ("/" if before else ".")
            # The last name is that of files; `**` at the end stands for folders, too.
            for folder in glob.glob(f"{start}/", recursive=True) if after or before[-1] == "**" else ():
                yield os.path.realpath(folder), "/".join(after)
                if before and before[-1] == "**":       # `**` may stand for more folders below this one
                    yield os.path.realpath(folder), "/".join(["**", *after])


def _is_wild(pattern: str) -> bool:
    """Return whether a path has wildcards; a path that exists is a plain name, whatever brackets it has."""
    return _WILD.search(pattern) is not None and not os.path.lexists(pattern)


def _find_local(pattern: str) -> list[InputFile]:
    """Return the files of this machine that match, named by their paths below the last folder without a wildcard."""
    if os.path.isdir(pattern):
        raise InputError(f"{pattern} is a folder; name its files by a pattern such as {pattern.rstrip('/')}/*.parquet")
    wild = _is_wild(pattern)
    paths = glob.glob(pattern, recursive=True) if wild else [pattern]
    root = _root(pattern) if wild else os.path.dirname(pattern)
    inputs = []
    for path in paths:
        if os.path.isfile(path):
            status = os.stat(path)
            name = os.fsencode(os.path.relpath(path, root or ".")).decode("utf-8", "backslashreplace")
            inputs.append(InputFile(name, status.st_size, status.st_mtime_ns, open=partial(open, path, "rb", 2**20),
                                    state=partial(_local_state, path), place=f"{status.st_dev}:{status.st_ino}",
                                    path=os.path.realpath(path)))
        elif os.path.lexists(path):
            _refuse_no_file(path, pattern)
    return inputs


def _local_state(path: str) -> tuple[int, int]:
    """Return the size of a file and when it was modified, in nanoseconds."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _refuse_no_file(path: str, pattern: str) -> None:
    """Raise `InputError` for a match of a pattern that is no file, such as a dead link: its rows would be lost.

    A folder that matches is no error, and is left out, where the pattern ends with a bare `*` or has a `**`.
    """
    if not os.path.exists(path):
        raise InputError(f"{shown(path)} is a link to a file that is not there; mend or delete the link")
    if not os.path.isdir(path):
        raise InputError(f"{shown(path)} is a pipe, a socket or a device, which cannot be read again after a stop; "
                         "write its rows into a file")
    if "**" not in pattern and not pattern.endswith("/*"):
        raise InputError(f"{shown(path)} is a folder; name its files by a pattern such as "
                         f"{shown(path.rstrip('/') + '/*.parquet')}, or give a pattern that does not match it")


def _find_remote(pattern: str) -> list[InputFile]:
    """Return the files of an object store that match, after a listing of all below the last folder without wildcard."""
    fs = require_files("pyarrow.fs")
    place, _, query = pattern.partition("?")
    start = _root(place)
    files, root = _arrow_files(f"{start}?{query}" if query else start)
    below = place[len(start) :].lstrip("/")
    with _explain_errors(start):
        entries = files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    names = [(os.path.relpath(info.path, root), info) for info in entries if info.type == fs.FileType.File]
    matching = [(name, info, f"{start.partition('://')[0]}://{info.path}") for name, info in names
                if _matches(name, below)]
    return [InputFile(name, info.size, info.mtime_ns or 0, open=partial(_open_remote, files, info.path),
                      state=partial(_remote_state, files, info.path), place=uri, path=uri)
            for name, info, uri in matching]


def _remote_state(files: Any, path: str) -> tuple[int, int]:
    """Return the size of an object in a file system of pyarrow, and when it was modified, in nanoseconds."""
    with _explain_errors(f"{files.type_name}://{path}"):
        info = files.get_file_info(path)
    return info.size or 0, info.mtime_ns or 0


def _open_remote(files: Any, path: str) -> BufferedReader:
    with _explain_errors(f"{files.type_name}://{path}"):
        return BufferedReader(files.open_input_file(path), 2**20)


def _matches(name: str, pattern: str) -> bool:
    """Return whether a path matches a pattern, where `*` matches within one name and `**` any number of folders."""
    if pattern == "**":
        return True
    if pattern.startswith("**/"):
        return any(_matches(name[i:], pattern[3:]) for i in (0, *(m.end() for m in re.finditer("/", name))))
    name_pattern, _, pattern_below = pattern.partition("/")
    name_here, _, below = name.partition("/")
    if not fnmatchcase(name_here, name_pattern) or bool(pattern_below) != bool(below):
        return False
    return not pattern_below or _matches(below, pattern_below)


def _root(pattern: str) -> str:
    """Return the last folder of a pattern that has no wildcard."""
    parts = pattern.split("/")[:-1]
    wild = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return "/".join(parts[:wild]) or ("/" if pattern.startswith("/") else "")


def _arrow_files(uri: str) -> tuple[Any, str]:
    """Return the file system of pyarrow that a URI names, and the path in it; raises `InputError` if it is unknown."""
    fs = require_files("pyarrow.fs")
    if uri.startswith(("gs://", "gcs://")) and "retry_limit_seconds=" not in uri:
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={RETRY_SECONDS}"
    with _explain_errors(uri):
        files, path = fs.FileSystem.from_uri(uri)
    return files, str(PurePosixPath(path))


@contextmanager
def _explain_errors(place: str) -> Iterator[None]:
    """Turn an exception of pyarrow in the block into an `InputError` of one line about `place`, a path or a URI.

    Not every store raises an `OSError`.
    """
    pa = require_files("pyarrow")
    try:
        yield
    except (ValueError, OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0].partition(" error_info=")[0].rstrip(".")
        raise InputError(f"{shown(without_credentials(place))} cannot be reached: {without_credentials(reason)}; check "
                         "the name, the network and the credentials") from error
