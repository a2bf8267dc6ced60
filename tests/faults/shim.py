"""Compile, preload and steer the library that makes calls of the C library fail (tests/native/faults.c)."""

import ctypes
import errno
import gc
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tools.paths import TESTS

SOURCE = TESTS / "native" / "faults.c"

ERRORS = {"malloc": errno.ENOMEM, "mmap": errno.ENOMEM, "madvise": errno.EINVAL, "open": errno.EMFILE,
          "read": errno.EIO, "write": errno.ENOSPC, "fsync": errno.EIO, "rename": errno.EACCES,
          "pthread_create": errno.EAGAIN}
"""The functions that can fail, and the error of each."""


def unavailable() -> str | None:
    """Return the reason why this machine cannot run the library, or None."""
    if platform.libc_ver()[0] != "glibc":
        return "needs glibc, whose allocator the library calls"
    if not shutil.which("cc"):
        return "needs a C compiler called cc"
    if "LD_PRELOAD" in os.environ:
        return "another library is preloaded"
    return None


def environment(folder: Path) -> dict[str, str]:
    """Compile the library into a folder, and return the environment of a Python process that has it.

    With PYTHONMALLOC=malloc the C library allocates every object of Python, so that none escapes.
    """
    library = folder / "faults.so"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-ftls-model=initial-exec",
                    "-o", library, SOURCE, "-ldl"], check=True)  # fmt: skip
    return os.environ | {"LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc", "TOKENIZERS_PARALLELISM": "false",
                         "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Shim:
    """The library in this process, which must have been started with `environment`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_heap_blocks.restype = ctypes.c_long
        self._library.faults_disarm.restype = ctypes.c_long

    def arm(self, function: str, n: int, forever: bool) -> None:
        """Let the n-th call of a function from now on fail, 0 being the next; with `forever`, all later ones too."""
        self._library.faults_arm(function.encode(), ctypes.c_long(n), ERRORS[function], int(forever))

    def disarm(self) -> int:
        """Stop failing, and return how many calls of the function there were."""
        return int(self._library.faults_disarm())

    def was_direct(self) -> bool:
        """Return whether the engine's native code itself made the allocation that failed."""
        return bool(self._library.faults_direct())

    def held(self) -> dict[str, int]:
        """Return how much this process holds of what can leak, after it has dropped what Python merely caches."""
        # Python keeps the names of attributes that C code has looked up. The first name is that of Python 3.13.
        (getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache)()
        gc.collect()
        with open("/proc/self/maps", "rb") as file:
            maps = sum(b".npz" in line or b".safetensors" in line for line in file)
        return {"descriptors": len(os.listdir("/proc/self/fd")), "maps": maps,
                "native blocks": int(self._library.faults_live_blocks()),
                "blocks": int(self._library.faults_heap_blocks())}
