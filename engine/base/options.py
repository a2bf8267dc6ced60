"""`Options`: the options of a method as a frozen dataclass, each with its default and its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any


def option(default: Any = MISSING, check: Callable[[str, Any], Any] | None = None) -> Any:
    """Return a field of `Options`.

    check: gets the name and the value of the caller, and returns the value that is used; it raises `InputError`.
    """
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Options:
    """The options of a method by the names that users give them, which are checked when they are made.

    Raises `InputError` for a wrong value.
    """

    def __post_init__(self) -> None:
        for name, check in _checks(type(self)):
            given = getattr(self, name)
            used = check(name, given)
            if used is not given:
                object.__setattr__(self, name, used)


_CHECKS: dict[type[Options], list[tuple[str, Callable[[str, Any], Any]]]] = {}


def _checks(options: type[Options]) -> list[tuple[str, Callable[[str, Any], Any]]]:
    """Return the name and the check of each option that has one."""
    if (known := _CHECKS.get(options)) is None:
        checks = [(one.name, one.metadata.get("check")) for one in fields(options)]
        known = _CHECKS[options] = [(name, check) for name, check in checks if check is not None]
    return known
