"""Check arguments that many methods of users have (numbers, flags, names), and accept other names of arguments."""

from __future__ import annotations

import operator
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .advice.calls import CALLS, CHAT, POSITIONAL
from .errors import CallError, InputError, UnsupportedError, listed, nearest, shown

P = ParamSpec("P")
R = TypeVar("R")
_PACKAGE = __name__.split(".")[0]


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
    """Return None for None, and an integer of at least 1 as an int; raises `InputError` for any other value."""
    return None if value is None else positive_int(name, value, "None or an int of at least 1")


def count_or_none(name: str, value: Any) -> int | None:
    """Return None for None, and an integer of at least 0 as an int; raises `InputError` for any other value."""
    if value is None or (isinstance(value, (int, np.integer)) and value is not False and value == 0):
        return None if value is None else 0
    return positive_int(name, value, "None or an int of at least 0")


def is_number(value: Any, *others: type) -> bool:
    """Return whether a value is an int, a float, or of another type that counts as a number here; no bool is."""
    return isinstance(value, (int, float, *others)) and not isinstance(value, bool)


def positive_seconds(name: str, value: Any, expected: str = "a number of seconds above 0") -> float:
    """Return a number of seconds above 0 and below 1e9; raises `InputError` for any other value."""
    if not is_number(value) or not 0 < value < 1e9:
        raise InputError(f"{name} must be {expected}, not {shown(value)}")
    return value


def has_no_axes(value: Any) -> bool:
    """Return whether a value is an array of any library without axes, which counts as Iterable."""
    return getattr(value, "shape", None) == ()


def flag(name: str, value: Any) -> bool:
    """Return a flag as a bool: True, False, NumPy's bools, 1 or 0; raises `InputError` for every other value."""
    if value is True or value is False:
        return value
    if not isinstance(value, (bool, int, np.bool_, np.integer)) or value not in (0, 1):
        raise InputError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def as_array(value: Any, expected: str, dtype: type[np.generic] | None = None) -> np.ndarray:
    """Return an argument as an array; raises `InputError` for a value that NumPy cannot convert to one.

    expected: the start of the message, such as "ids must be an array [T]". dtype: None for the value's own.
    """
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{expected}, not {shown(value, 60)}") from error


def is_one_of(value: Any, names: Iterable[str | None]) -> bool:
    """Return whether a value of any type is None or a string, and among the names."""
    return (value is None or isinstance(value, str)) and value in names


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn about a call of the engine, at the line that made the call."""
    level, frame = 2, sys._getframe(1)
    # Find the first frame outside of the engine; contextlib, which calls context managers of the engine, counts inside.
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in (_PACKAGE, "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@dataclass(frozen=True)
class _Renamed:
    """An argument that the caller gave under another name than ours."""

    typed: str
    """The name that the caller typed."""
    value: Any
    """The value that the caller gave."""
    changed: bool
    """Whether another value means the same under our name."""

    def named_in(self, message: str, ours: str, value: Any) -> str:
        """Return an error message with the typed name in place of our name (ours). value: the one under our name."""
        # A name that is also a word, such as "path" or "texts", is replaced only if the message is about it.
        pattern = rf"(?<![\w.'/-]){ours}" + (r"(?!\w)" if "_" in ours else r"(?=(?: must | is |=| '))")
        if re.search(pattern, message) is None or " has no argument " in message:    # that message lists our names
            return message
        if self.changed:
            return f"{message} ({self.typed}={shown(self.value)} is {ours}={shown(value)} here)"
        return re.sub(pattern, self.typed, message)


def use_our_names(function: str, arguments: dict[str, Any], parameters: Collection[str]) -> dict[str, _Renamed]:
    """Replace the names of other libraries, and of earlier versions, by ours in the arguments of a call, in place.

    function: its name, under which `CALLS` has its rows. arguments: the keyword arguments, which this changes.
    parameters: the names that the function has, which are never replaced. Returns the renamed arguments, by our names.
    Raises `InputError` for an argument that the engine lacks, unless its value changes nothing.
    """
    rows, renamed = CALLS.get(function, {}), {}
    for name in [name for name in arguments if name in rows and name not in parameters]:
        row, value = rows[name], arguments.pop(name)
        if row.ours is None:
            if not any(_same_value(value, known) for known in row.neutral):
                raise InputError(f"{_spoken(function)} has no argument {name}; {row.advice}")
            continue
        if row.earlier:
            warn_caller(f"{name} is now called {row.ours}, and the next version drops the old name", FutureWarning)
        if value is None:       # as if it were not given
            continue
        if row.ours in arguments and not any(_same_value(arguments[row.ours], known) for known in row.beside):
            raise InputError(f"{row.ours} is given twice, the second time by its other name {name}")
        translated = [ours for theirs, ours in row.values if _same_value(value, theirs)]
        arguments[row.ours] = translated[0] if translated else value
        renamed[row.ours] = _Renamed(name, value, bool(translated))
    return renamed


def renamed_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to accept the other names of its arguments that `CALLS` has, or to say what to do instead.

    Calls raise `InputError` for a keyword argument that neither the function nor the table has, and `CallError` for too
    few or too many arguments. The message of an error about an argument has the name that the caller typed.
    """
    parameters = signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind.name != "VAR_KEYWORD"]
    takes_all = len(names) < len(parameters)        # it has **options
    positional = [parameter.name for parameter in parameters if parameter.kind.name == "POSITIONAL_OR_KEYWORD"]
    needed = [parameter.name for parameter in parameters
              if parameter.name in positional and parameter.default is Parameter.empty]
    most = len(positional)
    # free[n]: the names of arguments that a call may give if it gives n arguments without a name.
    free = [frozenset(names) - {*positional[:count], "self", "cls"} for count in range(most + 1)]

    @wraps(function)
    def renaming(*args: P.args, **kwargs: P.kwargs) -> R:
        count = len(args)
        if len(needed) <= count <= most and kwargs.keys() <= free[count]:       # a plain call, as nearly all are
            return function(*args, **kwargs)
        renamed = use_our_names(function.__name__, kwargs, names)
        if count > most or any(name not in kwargs for name in needed[count:]):
            raise _wrong_call(function.__name__, positional, needed, args, kwargs)
        if twice := [name for name in positional[:count] if name in kwargs]:
            named = f"as {renamed[twice[0]].typed}" if twice[0] in renamed else "with one"
            raise CallError(f"{_spoken(function.__name__)} got {twice[0]} twice, without a name and {named}")
        if not takes_all:
            refuse_unknown(function.__name__, kwargs, [name for name in names if name not in ("self", "cls")])
        if not renamed:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except (InputError, UnsupportedError) as error:
            message = str(error)
            for ours, one in renamed.items():
                message = one.named_in(message, ours, kwargs[ours])
            error.args = (message, *error.args[1:])
            raise

    return renaming


def refuse_unknown(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `InputError` for given names of arguments that are not among the known names of a function."""
    if unknown := [name for name in given if name not in known]:
        raise InputError(f"{_spoken(function)} has no argument {listed(unknown)}{nearest(unknown[0], known)}; it has "
                         f"{', '.join(known)}")


def _wrong_call(function: str, positional: Sequence[str], needed: Sequence[str], args: Sequence[Any],
                given: Collection[str]) -> CallError:
    """Return the error for a call with too few or too many arguments.

    positional, needed: the names of arguments that may come without a name, and must come. args: those without a name,
    self or cls included. given: the names of the others.
    """
    named = [name for name in positional if name not in ("self", "cls")]
    shift = len(positional) - len(named)        # 1 for self or cls
    advice = f"; {POSITIONAL[function]}" if function in POSITIONAL else ""
    if len(args) > len(positional):
        taken = f"only {', '.join(named)}" if named else "nothing"
        return CallError(f"{_spoken(function)} takes {taken} without a name, and {len(args) - shift} arguments came; "
                         f"give the others by their names{advice}")
    missing = [name for name in needed[len(args) :] if name not in given]
    return CallError(f"{_spoken(function)} needs {' and '.join(missing)}{advice}")


def refuse_chat(value: Any, advice: str = CHAT) -> None:
    """Raise `InputError` if a value that should be a text is one message of a chat, or a list of them.

    advice: the part of the error that says what to do instead.
    """
    items = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(item, Mapping) and "role" in item for item in items):
        raise InputError(f"messages of a chat are no text; {advice}")


def _same_value(value: Any, known: Any) -> bool:
    """Return whether a value of any type equals a known one; 1 and 1.0 are equal here, 1 and True are not."""
    if isinstance(known, (list, dict)):  # compare only texts in it, because a comparison of arrays has no truth value
        return type(value) is type(known) and all(isinstance(item, str) for item in value) and value == known
    kinds = (bool, str, list, dict, type(None))
    if isinstance(known, kinds) or isinstance(value, kinds):
        return type(value) is type(known) and bool(value == known)
    return isinstance(value, (int, float)) and bool(value == known)


def _spoken(function: str) -> str:
    """Return the name of a function for messages: "load" for __init__, which gets its arguments from load."""
    return "load" if function == "__init__" else function
