"""Check a caller's score function, and find its constants and its run-time arguments, for the compilers of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, shown
from .global_names import global_names

SCORED = 5
"""Number of arguments that every score function has: score, b, h, q_index, kv_index."""

LARGEST_CONSTANT = 65536
"""Largest size in bytes of an array that is compiled in as a constant.

A larger array takes LLVM long to compile, and each later call long to compare.
"""

CACHED = 64
"""Number of compiled functions that the cache keeps; it drops the least recently used one."""


def split_score_mod(score_mod: Callable[..., float]) -> tuple[FunctionType, dict[str, Any]]:
    """Return the plain function of a score_mod, and its arguments after (score, b, h, q_index, kv_index) by name."""
    keywords: Mapping[str, Any] = {}
    function: Any = score_mod
    if isinstance(function, functools.partial):
        if function.args:
            raise InputError("score_mod: functools.partial must give its arguments by name, not by position")
        function, keywords = function.func, function.keywords
    function = getattr(function, "py_func", function)  # numba.njit stores the plain function as py_func
    if not isinstance(function, FunctionType):
        raise InputError(f"score_mod: expected a plain function or a functools.partial of one, got {shown(score_mod)}")

    parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    further = {p.name: keywords.get(p.name, p.default) for p in parameters[SCORED:]}
    plain = len(parameters) >= SCORED and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    missing = any(value is inspect.Parameter.empty for value in further.values())
    if not plain or missing or keywords.keys() - further.keys():
        raise InputError(
            "score_mod: expected a function of (score, b, h, q_index, kv_index), any further parameters with defaults "
            f"or given by functools.partial; got {function.__name__}{inspect.signature(function)}"
            + (f" with {', '.join(keywords)} given" if keywords else "")
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


def surroundings(function: FunctionType) -> tuple:
    """Return the name and the fingerprint of every global and closure variable of a function; they are compiled in."""
    namespace = function.__globals__
    values = {name: namespace[name] for name in global_names(function.__code__) & namespace.keys()}
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
