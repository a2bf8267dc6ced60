"""Convert a user-written Python score function to a C function that the attention kernels call.

This module needs no Numba: it caches compiled functions, and score_walk.py compiles them.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import numpy as np

from ....base.errors import BackendUnavailable
from ....base.install import install_command
from ...score_functions import CACHED, CacheKey, run_time_array, split_score_mod, surroundings


@dataclass(frozen=True, eq=False)
class ScoreModCode:
    """A compiled score function with its run-time arguments. Keep it for as long as its addresses are in use."""

    address: int
    """Address of a C function `ScoreMod` (see table.pxd), which any number of threads may call."""
    captured: int
    """The value of its argument `captured`."""
    words: np.ndarray
    """The int64 words at the address `captured`; see score_walk.py."""
    owners: tuple
    """The other objects that own the code and the memory at these addresses."""

    @property
    def failed(self) -> bool:
        """Whether the function has failed for any score: a subscript outside its array, or an exception."""
        return bool(self.words[0])


def compile_score_mod(score_mod: Callable[..., float]) -> ScoreModCode:
    """Compile a function (score, b, h, q_index, kv_index) -> score, or return it from the cache.

    Constants, which are compiled in: the values of the function's closure and globals (scalars, arrays of up to 64 KiB,
    functions by numba.njit). Run-time arguments, which may change without another compilation: parameters after the
    first five, given by name with `functools.partial` or by their defaults. They are scalars or arrays; an array is
    copied if it is not C-contiguous. The score is passed as float32, the indices as int64; the result, any real number,
    is rounded to float32.

    Raises `InputError` if `score_mod` is not such a function, `UnsupportedError` with the line that Numba cannot
    compile, and `BackendUnavailable` if Numba is not installed.
    """
    if find_spec("numba") is None:
        raise BackendUnavailable(
            f"score_mod needs Numba here; {install_command('numba')}, or pass backend='reference', which needs none"
        )
    function, arguments = split_score_mod(score_mod)
    arrays = [run_time_array(name, value) for name, value in arguments.items()]
    walk = compiled(function, tuple((array.dtype, array.ndim) for array in arrays))
    words = np.array([0] + [word for array in arrays for word in (array.ctypes.data, *array.shape)], np.int64)
    return ScoreModCode(walk.address, words.ctypes.data, words, (walk, arrays))


_lock = threading.RLock()
# A fork waits until no other thread compiles, because the child would find Numba's own lock taken.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def compiled(function: FunctionType, arguments: tuple[tuple[np.dtype, int], ...]) -> Any:
    """Return a function's loop, a `CFunc`, from the cache if code, surroundings and argument types are the same."""
    request = CacheKey(function.__code__, surroundings(function), arguments, function)
    with _lock:
        return _compiled(request)


@functools.lru_cache(CACHED)
def _compiled(request: CacheKey) -> Any:
    from .score_walk import compile_walk

    return compile_walk(request.function, request.arguments)
