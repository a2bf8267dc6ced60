"""Store machine code on disk: one file per kernel, in a folder whose name identifies everything the code depends on.

    ENGINE_CACHE_DIR, or $XDG_CACHE_HOME/encoder-engine/numba, or ~/.cache/encoder-engine/numba
        <hash of these sources, the kernel table, the versions of Numba, LLVM and Python, the CPU and its features>/
            linear.code             SHA-256 of the rest of the file, which is Numba's own pickle of the machine code

A user who can write to the folder can run code in this process, as with Numba's own cache. A kernel whose file is
damaged is compiled again. If the folder cannot be written, one warning says so, and everything works without it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import llvmlite
import numba
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from ...cpu.native.layout import TABLE_NAME
from ..target import CPU, FEATURES, TRIPLE

DIGEST = hashlib.sha256().digest_size


def cache_root() -> Path:
    """Return the folder that holds the caches of all versions; it may not exist yet."""
    if chosen := os.environ.get("ENGINE_CACHE_DIR"):
        return Path(chosen)
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        caches = os.devnull      # a user without a home folder has no cache: no file can be created below this path
    return Path(caches, "encoder-engine", "numba")


@cache
def generator_version(sources: Path = Path(__file__).parents[1]) -> str:
    """Return a hash of everything that machine code depends on, other than the kernel's name."""
    digest = hashlib.sha256()
    for source in sorted(sources.rglob("*.py")):
        digest.update(source.read_bytes())
    versions = numba.__version__, llvmlite.__version__, platform.python_version()
    for part in (TABLE_NAME.decode(), *versions, TRIPLE, CPU, FEATURES):
        digest.update(f"\0{part}".encode())
    return digest.hexdigest()[:32]


class KernelCache:
    """The cache of one kernel, with the methods that Numba requires."""

    def __init__(self, name: str):
        self.path = cache_root() / generator_version() / f"{name}.code"

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Return the compile result in the file, or None if the file is missing or damaged."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return None
        data = content[DIGEST:]
        if hashlib.sha256(data).digest() != content[:DIGEST]:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(data))

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        """Write the file in one step or not at all, so that other processes may read and write it at the same time."""
        content = dumps(data._reduce())
        temporary = self.path.with_suffix(f".{uuid4().hex}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(hashlib.sha256(content).digest() + content)
            os.replace(temporary, self.path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            _warn_once(f"{error.strerror}: {self.path.parent}")


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"compiled kernels cannot be kept ({reason}), so every process compiles them anew; "
                  f"point ENGINE_CACHE_DIR to a folder that can be written", stacklevel=2)
