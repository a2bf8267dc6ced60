"""`Options`: the options of a method as a frozen dataclass, each with its default and its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from operator import is_
from typing import Any


def option(default: Any = MISSING, check: Callable[[str, Any], Any] | None = None) -> Any:
    """Return a field of a dataclass whose values are checked, such as `Options`.

    check: gets the name and the value of the caller, and returns the value that is used; it raises `InputError`.
    """
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Options:
    """The options of a method by the names that users give them, which are checked when they are made.

    Raises `InputError` for a wrong value.
    """

    def __post_init__(self) -> None:
        checks, defaults = _checks(type(self))
        if defaults is not None and all(map(is_, self.__dict__.values(), defaults)):
            return
        for name, check in checks:
            given = getattr(self, name)
            used = check(name, given)
            if used is not given:
                object.__setattr__(self, name, used)


_CHECKS: dict[type[Options], tuple[list[tuple[str, Callable[[str, Any], Any]]], list[Any] | None]] = {}


def _checks(options: type[Options]) -> tuple[list[tuple[str, Callable[[str, Any], Any]]], list[Any] | None]:
    """Return the name and the check of each option that has a check, and the defaults of all options.

    The defaults are None where the check of one replaces it, such as the date of today for no date.
    """
    if (known := _CHECKS.get(options)) is None:
        own = fields(options)
        checks = [(one, check) for one in own if (check := one.metadata.get("check")) is not None]
        stay = all(one.default is MISSING or check(one.name, one.default) is one.default for one, check in checks)
        known = _CHECKS[options] = ([(one.name, check) for one, check in checks],
                                    [one.default for one in own] if stay else None)
    return known
