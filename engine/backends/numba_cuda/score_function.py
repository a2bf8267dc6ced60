"""Turn a caller's score function into a device function that the kernel of attention calls for each score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product, starmap
from typing import Any, cast

import numpy as np

from ...base.errors import InputError, UnsupportedError
from ..ops_interface import A_SCORE, AttentionCall
from ..score_functions import CACHED, CacheKey, run_time_array, split_score_mod, surroundings
from .shared_array import SharedArray
from .toolchain import ArrayType, device_function, types


@dataclass(frozen=True, eq=False)
class ScoreFunction:
    """A score function with its arguments after (score, b, h, q_index, kv_index)."""

    function: Callable[..., Any]
    """The device function; equal score functions have the same one."""
    types: tuple[Any, ...]
    """The types of the further arguments."""
    arrays: list[np.ndarray]
    """The values of the further arguments; a scalar is an array without axes."""


def score_function(call: AttentionCall, capability: tuple[int, int]) -> ScoreFunction:
    """Return the score function of a call, compiled once for equal code, constants and types of its arguments.

    Raises `InputError` for what is no such function, or fails at the corners of the scores, and `UnsupportedError` for
    one that Numba cannot compile for a GPU.
    """
    assert call.score_mod is not None
    function, arguments = split_score_mod(call.score_mod)
    arrays = [run_time_array(name, value) for name, value in arguments.items()]
    key = CacheKey(function.__code__, surroundings(function), tuple((a.dtype, a.ndim) for a in arrays), function)
    compiled, kinds = _compiled(key, capability)
    _check_corners(call, partial(function, **arguments))
    return ScoreFunction(compiled, kinds, arrays)


@lru_cache(CACHED)
def _compiled(key: CacheKey, capability: tuple[int, int]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the device function of a score function, and the types of its further arguments, after a test of both."""
    from .compiler import score_type  # raises `BackendUnavailable` where there is no compiler

    kinds, name = tuple(starmap(_type, key.arguments)), key.function.__name__
    try:
        result, is_number = score_type(key.function, kinds, capability)
    except Exception as error:      # Numba has errors of many types, and each means that there is no code
        raise UnsupportedError(f"score_mod {name} cannot be compiled for a GPU: {_reason(error)}; numbers, arrays and "
                               'functions of math can be, and backend="reference" calls any function') from error
    if not is_number:
        raise InputError(f"score_mod {name} must return a number, not {result}; {A_SCORE}")
    return device_function(key.function), kinds


def _type(dtype: np.dtype, ndim: int) -> Any:
    """Return the kernel type of a further argument; raises `UnsupportedError` for a dtype that kernels lack."""
    scalar = getattr(types, "boolean" if dtype.kind == "b" else dtype.name, None)
    if scalar is None:
        raise UnsupportedError(f"score_mod: a GPU takes no numbers of {dtype}; convert them to float32 or float64")
    return ArrayType(scalar, ndim) if ndim else scalar


def _reason(error: Exception) -> str:
    """Return an error of Numba on one line of at most 300 characters, without lines that only point to its source."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("Failed in", "-", "^")))[:300]


def _check_corners(call: AttentionCall, function: Callable[..., Any]) -> None:
    """Call a score function in Python for the first and the last of all indices that a query sees.

    A GPU reports no exception, and a subscript outside an array would read other memory; most show at a corner.
    """
    for b, h, t, s in _corners(call):
        try:
            function(0.0, b, h, t, s)
        except Exception as error:
            raise InputError(f"score_mod failed at b={b}, h={h}, q_index={t}, kv_index={s}: {type(error).__name__}: "
                             f"{error}") from error


def _corners(call: AttentionCall) -> Iterator[tuple[int, int, int, int]]:
    """Yield the first and the last of all indices (b, h, t, s) that a call sees; none if a mask lies on the GPU."""
    (B, H, T, _), mask = call.q.shape, cast(Any, call.mask)
    if isinstance(mask, SharedArray):
        return
    for b, h, t in product(*({0, n - 1} for n in (B, H, T))):
        first, end = max(0, t + int(call.low[b])), min(int(call.lengths[b]), t + int(call.high[b]))
        for s in {first, end - 1} if first < end else ():
            if mask is None or mask[b, h, t, s]:
                yield b, h, t, s
