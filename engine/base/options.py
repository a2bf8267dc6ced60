"""`Options`: the options of a method as a frozen dataclass, each with its default and its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from operator import is_
from typing import Any


def option(default: Any = MISSING, check: Callable[[str, Any], Any] | None = None) -> Any:
    """Return a field of a dataclass whose values are checked, such as `Options`.

    check: gets the option's name and the caller's value, and returns the value to use; raises `InputError` for a wrong
    one. None for no check.
    """
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Options:
    """The options of a method by the names that users give them; a new object checks them, and raises `InputError`."""

    def __post_init__(self) -> None:
        """Replace each value by the one that its check returns."""
        checks, defaults = _checks(type(self))
        if defaults is not None and all(map(is_, self.__dict__.values(), defaults)):        # all have their defaults
            return
        for name, check in checks:
            given = getattr(self, name)
            used = check(name, given)
            if used is not given:
                object.__setattr__(self, name, used)        # the dataclass is frozen


_CHECKS: dict[type[Options], tuple[list[tuple[str, Callable[[str, Any], Any]]], list[Any] | None]] = {}


def _checks(options: type[Options]) -> tuple[list[tuple[str, Callable[[str, Any], Any]]], list[Any] | None]:
    """Return ([(name, check)] of the options that have a check, defaults of all options); `_CHECKS` keeps the result.

    The defaults are None if the check of an option replaces its default, such as no date by the date of today.
    """
    if (known := _CHECKS.get(options)) is None:
        every = fields(options)
        checks = [(one, check) for one in every if (check := one.metadata.get("check")) is not None]
        defaults_pass = all(one.default is MISSING or check(one.name, one.default) is one.default
                            for one, check in checks)
        known = _CHECKS[options] = ([(one.name, check) for one, check in checks],
                                    [one.default for one in every] if defaults_pass else None)
    return known
