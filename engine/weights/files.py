"""Map, parse and replace files, for both weight formats and for the readers of model folders."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import UnsupportedError, WeightsError

_MAX_JSON = 64_000_000
_JSON_ADVICE = "copy the model's folder again from its source"


class FormatError(Exception):
    """The contents of a file are wrong; `naming` converts this error to a `WeightsError` that names the file."""


@contextmanager
def naming(path: Path, advice: str) -> Iterator[None]:
    """Convert a `FormatError` or `OSError` of the block to a `WeightsError` with the file, the fault and the advice."""
    try:
        yield
    except FormatError as error:
        raise WeightsError(f"{path}: {error}; {advice}") from None
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}; {advice}") from None


@contextmanager
def within(path: Path) -> Iterator[None]:
    """Put the file's name in front of the message of an `UnsupportedError` or `WeightsError` that the block raises."""
    try:
        yield
    except (UnsupportedError, WeightsError) as error:
        raise type(error)(f"{path}: {error}") from None


def map_file(path: Path) -> mmap.mmap:
    """Map a whole file read-only; arrays over the map keep it alive, and replacing the file leaves them unchanged.

    If another process shortens the file in place while it is mapped, reading it kills this process with SIGBUS. No
    check can prevent that: replace model files by renaming, as `replacing` does, and never overwrite them.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError("the file is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def release_pages(arrays: Iterable[np.ndarray]) -> None:
    """Return the memory of mapped arrays to the system, which reads their pages from the files again when needed."""
    maps = {id(mapped): mapped for mapped in map(_map_behind, arrays) if mapped is not None}
    if hasattr(mmap, "MADV_DONTNEED"):
        for mapped in maps.values():
            mapped.madvise(mmap.MADV_DONTNEED)


def _map_behind(array: np.ndarray) -> mmap.mmap | None:
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    return owner if isinstance(owner, mmap.mmap) else None


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` if the block succeeds, and is deleted if it fails."""
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def parse_json(data: bytes) -> Any:
    """Return the value of a UTF-8 JSON text; wrong syntax, too deep nesting and duplicate keys raise `FormatError`."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_distinct)
    except RecursionError:
        raise FormatError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"not valid UTF-8 JSON: {error}") from None


def parse_object(data: bytes) -> dict[str, Any]:
    """Return the value of a UTF-8 JSON text that must be an object, as `parse_json` does."""
    value = parse_json(data)
    if not isinstance(value, dict):
        raise FormatError(f"expected a JSON object, found {type(value).__name__}")
    return value


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; raises `WeightsError`."""
    with naming(path, _JSON_ADVICE):
        return parse_object(read_bytes(path, _MAX_JSON))


def read_list(path: Path) -> list[Any]:
    """Return the JSON list that a file holds; raises `WeightsError`."""
    with naming(path, _JSON_ADVICE):
        value = parse_json(read_bytes(path, _MAX_JSON))
        if not isinstance(value, list):
            raise FormatError(f"expected a JSON list, found {type(value).__name__}")
        return value


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the contents of a file of at most `limit` bytes."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FormatError(f"the file has more than the {limit:,} bytes that are allowed")
    return data


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        raise FormatError(f"the JSON key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return values
