"""What becomes of a name that another library, or an earlier version of the engine, has for an argument or an option.

An argument whose meaning is the same is accepted under the other name. For every other argument one line says which of
ours does it, or that there is nothing like it. `advice` is the table of all names, which `arguments.py`
reads for calls, and `engine.cli` for the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class OtherName:
    """What becomes of an argument under a name that the function does not have."""

    ours: str | None = None
    """The name of the same argument here, which gets the value; None if there is none."""
    values: tuple[tuple[Any, Any], ...] = ()
    """Pairs of a value and the value that means the same for `ours`; every other value stays as it is."""
    beside: tuple[Any, ...] = (None,)
    """Values that `ours` may have beside this argument, which says more."""
    earlier: bool = False
    """Whether it is a name of an earlier version of the engine, which gives a `FutureWarning`."""
    advice: str = ""
    """For a name without `ours`: what to do instead."""
    neutral: tuple[Any, ...] = (None,)
    """For a name without `ours`: the values that ask for nothing that the engine does not do; they are accepted."""


def same(ours: str, *values: tuple[Any, Any], beside: tuple[Any, ...] = ()) -> OtherName:
    """Return the row of an argument that has another name here. values: pairs (theirs, ours) that mean the same.

    beside: values of ours, besides None, that say less than this argument, so that both may be given.
    """
    return OtherName(ours, values, (None, *beside))


def instead(advice: str, *neutral: Any) -> OtherName:
    """Return the row of an argument that the engine lacks. neutral: values besides None that change nothing."""
    return OtherName(advice=advice, neutral=(None, *neutral))


def nothing(advice: str, *neutral: Any) -> OtherName:
    """Return the row of an argument that has no counterpart. neutral: values besides None that change nothing."""
    return instead(f"there is nothing like it; {advice}", *neutral)


def each(table: Mapping[str, Row]) -> dict[str, Row]:
    """Return a row for each name of a table whose keys are one name, or several with spaces between them."""
    return {name: row for names, row in table.items() for name in names.split()}
