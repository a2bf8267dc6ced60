"""Store Numba's machine code on disk (`backends/code_cache.py`): one file per kernel.

The name of their folder is a hash of these sources, the kernel table, the versions of Numba, LLVM and Python, the CPU
and its features. The file holds Numba's own pickle of the machine code. A kernel whose file is damaged is compiled
again.
"""

from __future__ import annotations

import pickle
import platform
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from ... import code_cache
from ...cpu.native.layout import TABLE_NAME
from ..target import CPU, FEATURES, TRIPLE


@cache
def generator_version(sources: Path = Path(__file__).parents[1]) -> str:
    """Return a hash of everything that machine code depends on, other than the kernel's name."""
    versions = numba.__version__, llvmlite.__version__, platform.python_version()
    return code_cache.hash_of(sorted(sources.rglob("*.py")), (TABLE_NAME.decode(), *versions, TRIPLE, CPU, FEATURES))


class KernelCache:
    """The file with the machine code of one kernel, with the two methods that Numba calls on a cache."""

    def __init__(self, name: str):
        self.path = code_cache.cache_root("numba") / generator_version() / f"{name}.code"

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Return the compile result in the file, or None if the file is missing or damaged."""
        if (data := code_cache.read(self.path)) is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(data))

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        """Write the file, from which other processes load the code."""
        code_cache.write(self.path, dumps(data._reduce()))
