"""Convert a user-written Python score function to a C function that the attention kernels call.

This module needs no Numba: it checks the function, separates its run-time arguments from its constants, and caches
compiled functions. The module score_walk.py compiles them.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ....base.errors import BackendUnavailable, InputError, UnsupportedError, shown
from ....base.install import install_command
from ...global_names import global_names

SCORED = 5
"""Number of arguments that every score function has: score, b, h, q_index, kv_index."""

LARGEST_CONSTANT = 65536
"""Largest size in bytes of an array that is compiled in as a constant.

A larger array takes LLVM long to compile, and each later call long to compare.
"""

CACHED = 64
"""Number of compiled functions that the cache keeps; it drops the least recently used one."""


@dataclass(frozen=True, eq=False)
class ScoreModCode:
    """A compiled score function with its run-time arguments. Keep it for as long as its addresses are in use."""

    address: int
    """Address of a C function `ScoreMod` (see table.pxd), which any number of threads may call."""
    captured: int
    """The value of its argument `captured`."""
    words: np.ndarray
    """The int64 words at the address `captured`; see score_walk.py."""
    kept: tuple
    """The other objects that own the memory at these addresses."""

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
    function, arguments = split(score_mod)
    arrays = [run_time_array(name, value) for name, value in arguments.items()]
    walk = compiled(function, tuple((array.dtype, array.ndim) for array in arrays))
    words = np.array([0] + [word for array in arrays for word in (array.ctypes.data, *array.shape)], np.int64)
    return ScoreModCode(walk.address, words.ctypes.data, words, (walk, arrays))


def split(score_mod: Callable[..., float]) -> tuple[FunctionType, dict[str, Any]]:
    """Return the plain function of a score_mod, and its arguments after (score, b, h, q_index, kv_index) by name."""
    given: Mapping[str, Any] = {}
    function: Any = score_mod
    if isinstance(function, functools.partial):
        if function.args:
            raise InputError("score_mod: functools.partial must give its arguments by name, not by position")
        function, given = function.func, function.keywords
    function = getattr(function, "py_func", function)  # numba.njit stores the plain function as py_func
    if not isinstance(function, FunctionType):
        raise InputError(f"score_mod: expected a plain function or a functools.partial of one, got {shown(score_mod)}")

    parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    further = {p.name: given.get(p.name, p.default) for p in parameters[SCORED:]}
    plain = len(parameters) >= SCORED and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    missing = any(value is inspect.Parameter.empty for value in further.values())
    if not plain or missing or given.keys() - further.keys():
        raise InputError(
            "score_mod: expected a function of (score, b, h, q_index, kv_index), any further parameters with defaults "
            f"or given by functools.partial; got {function.__name__}{inspect.signature(function)}"
            + (f" with {', '.join(given)} given" if given else "")
        )
    return function, further


def run_time_array(name: str, value: Any) -> np.ndarray:
    """Convert a run-time argument for the compiled code: a C-contiguous array; a scalar becomes an array of rank 0."""
    if not isinstance(value, bool | int | float | np.ndarray | np.generic):
        raise InputError(f"score_mod: expected {name} to be a number or a NumPy array, got {type(value).__name__}")
    array = np.require(value, requirements=("C", "A"))
    if array.dtype.kind not in "biuf" or not array.dtype.isnative:
        raise InputError(f"score_mod: expected {name} to hold bools, integers or floats, got {array.dtype}")
    return array


@dataclass(frozen=True)
class CacheKey:
    """The cache key of a compiled function: everything that its machine code depends on."""

    code: CodeType
    surroundings: tuple
    arguments: tuple[tuple[np.dtype, int], ...]
    function: FunctionType = field(compare=False)
    """A reference that keeps the objects alive which `surroundings` identifies by their id."""


_lock = threading.RLock()
# A fork waits until no other thread compiles, because the child would find Numba's own lock taken.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def compiled(function: FunctionType, arguments: tuple[tuple[np.dtype, int], ...]) -> Any:
    """Return the compiled form of a function, from the cache if code, surroundings and argument types are the same."""
    request = CacheKey(function.__code__, surroundings(function), arguments, function)
    with _lock:
        return _compiled(request)


@functools.lru_cache(CACHED)
def _compiled(request: CacheKey) -> Any:
    from .score_walk import compile_walk

    return compile_walk(request.function, request.arguments)


def surroundings(function: FunctionType) -> tuple:
    """Return the name and the fingerprint of every global and closure variable of a function; they are compiled in."""
    known = function.__globals__
    values = {name: known[name] for name in global_names(function.__code__) & known.keys()}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            raise InputError(f"score_mod {function.__name__}: {name}, which it uses, has no value yet") from None
    return tuple((name, fingerprint(name, values[name])) for name in sorted(values))


def fingerprint(name: str, value: Any) -> tuple:
    """Return a key that is equal for values that compile to the same code.

    The key holds the content of arrays and numbers, and the identity of all other objects.
    """
    if isinstance(value, np.ndarray | np.generic):
        if value.nbytes > LARGEST_CONSTANT:
            raise UnsupportedError(
                f"score_mod: {name} has {value.nbytes} bytes; at most {LARGEST_CONSTANT} of an array are compiled in; "
                f"make it a parameter, given by functools.partial(function, {name}={name})"
            )
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple):
        return ("tuple", *(fingerprint(name, item) for item in value))
    if isinstance(value, bool | int | float | str):
        return (type(value), repr(value))  # 1, True and 1.0 are equal but compile differently, as do 0.0 and -0.0
    return (type(value), id(value))
