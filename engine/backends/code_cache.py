"""Store machine code on disk, in files that start with a SHA-256 of the rest, by which `read` finds damage.

    ENGINE_CACHE_DIR, or $XDG_CACHE_HOME/encoder-engine/<kind>, or ~/.cache/encoder-engine/<kind>
        <hash of all that the code depends on>/
            <name>.code

A user who can write to the folder can run code in this process, as with Numba's own cache. If the folder cannot be
written, one warning says so, and everything works without it.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

DIGEST_BYTES = hashlib.sha256().digest_size


def cache_root(kind: str) -> Path:
    """Return the folder that holds the caches of all versions of this kind; it may not exist yet."""
    if chosen := os.environ.get("ENGINE_CACHE_DIR"):
        return Path(chosen)
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        caches = os.devnull      # a user without a home folder has no cache: no file can be created below this path
    return Path(caches, "encoder-engine", kind)


def hash_of(sources: Iterable[Path], parts: Iterable[str] = ()) -> str:
    """Return a hash of the contents of files and of texts, in order: 32 hexadecimal digits, to name a folder."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    for part in parts:
        digest.update(f"\0{part}".encode())
    return digest.hexdigest()[:32]


def read(path: Path) -> bytes | None:
    """Return the data that `write` stored in a file, or None if the file is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    data = content[DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == content[:DIGEST_BYTES] else None


def write(path: Path, data: bytes) -> None:
    """Store data in a file in one step, so that other processes may read and write it; warn if that is impossible."""
    temporary = path.with_suffix(f".{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(data).digest() + data)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        warn_once(f"{error.strerror}: {path.parent}")


@cache
def warn_once(reason: str) -> None:
    """Warn that compiled code cannot be stored; the cache makes it one warning for each reason."""
    warnings.warn(f"compiled kernels cannot be kept ({reason}), so every process compiles them anew; "
                  f"point ENGINE_CACHE_DIR to a folder that can be written", stacklevel=2)
