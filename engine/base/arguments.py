"""Check arguments that several modules have: numbers, flags, names and timeouts; accept old argument names."""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import InputError, TimedOut, shown

P = ParamSpec("P")
R = TypeVar("R")


def positive_int(name: str, value: Any, expected: str = "an int of at least 1") -> int:
    """Return a Python or NumPy integer of at least 1 as an int.

    Raises `InputError` for every other value, also for True, which is hardly meant as a number.
    """
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise InputError(f"{name} must be {expected}, not {shown(value)}")
    return number


def positive_int_or_none(name: str, value: Any) -> int | None:
    """Return None for None, and any other value as `positive_int` does."""
    return None if value is None else positive_int(name, value, "None or an int of at least 1")


def flag(name: str, value: Any) -> bool:
    """Return True or False, also for NumPy's and for 1 and 0; raises `InputError` for every other value."""
    if not isinstance(value, (bool, int, np.bool_, np.integer)) or value not in (0, 1):
        raise InputError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def is_one_of(value: Any, names: Iterable[str | None]) -> bool:
    """Return whether a value of any type is None or a string, and among the names."""
    return (value is None or isinstance(value, str)) and value in names


def deadline_of(timeout: Any) -> float:
    """Return the time.monotonic() at which a call with this timeout in seconds has to stop; 0 for None."""
    if timeout is None:
        return 0.0
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e9:
        raise InputError(f"timeout must be None or a number of seconds above 0, not {shown(timeout)}")
    return time.monotonic() + timeout


def check_deadline(deadline: float) -> None:
    """Raise `TimedOut` if the time.monotonic() of `deadline_of` has passed; 0 is no deadline."""
    if deadline and time.monotonic() > deadline:
        raise TimedOut


RENAMED = {"max_tokens": "max_batch_tokens", "sounds": "audio"}
"""The new names of arguments that had another name in an earlier version, which is accepted with a warning."""


def rename(arguments: dict[str, Any], names: Mapping[str, str]) -> None:
    """Give the arguments of the caller's caller their new names, with a `FutureWarning` for each old one."""
    for old, new in names.items():
        if old in arguments:
            warnings.warn(f"{old} is now called {new}, and the next version drops the old name", FutureWarning,
                          stacklevel=3)
            if new in arguments:
                raise InputError(f"{new} is given twice, the second time by its old name {old}")
            arguments[new] = arguments.pop(old)


def renamed_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function accept the old names of `RENAMED` for its own arguments, with a `FutureWarning`."""
    own = {old: new for old, new in RENAMED.items() if new in signature(function).parameters}

    @wraps(function)
    def renaming(*args: P.args, **kwargs: P.kwargs) -> R:
        rename(kwargs, own)
        return function(*args, **kwargs)

    return renaming


def explain_arguments(**advice: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function answer keyword arguments that other libraries have with `InputError` and the advice for each."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def explaining(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in advice:
                    raise InputError(f"{function.__name__} has no argument {name}; {advice[name]}")
            return function(*args, **kwargs)

        return explaining

    return decorate
