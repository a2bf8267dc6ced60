"""`OtherName`: a row of the tables in `advice`, for an argument of another library or of an earlier version.

An argument whose meaning is the same is accepted under the other name. For every other argument, a line says which of
our arguments does it, or that there is nothing like it. `arguments.py` reads the tables for calls, and `engine.cli` for
the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class OtherName:
    """The row of an argument whose name the function does not have."""

    ours: str | None = None
    """The name of the same argument here, which gets the value; None if there is none."""
    values: tuple[tuple[Any, Any], ...] = ()
    """Pairs (value, value of `ours` that means the same); every other value stays as it is."""
    beside: tuple[Any, ...] = (None,)
    """The values that `ours` may have in a call that has this argument, too, which replaces them."""
    earlier: bool = False
    """Whether it is a name of an earlier version of the engine, which gives a `FutureWarning`."""
    advice: str = ""
    """For a name without `ours`: what to do instead."""
    neutral: tuple[Any, ...] = (None,)
    """For a name without `ours`: the values that ask for nothing that the engine does not do; they are accepted."""


def same(ours: str, *values: tuple[Any, Any], beside: tuple[Any, ...] = ()) -> OtherName:
    """Return the row of an argument that has another name here. values: pairs (theirs, ours) that mean the same.

    beside: values of ours, besides None, that this argument replaces if a call has both.
    """
    return OtherName(ours, values, (None, *beside))


def instead(advice: str, *neutral: Any) -> OtherName:
    """Return the row of an argument that the engine lacks. neutral: its values, besides None, that change nothing."""
    return OtherName(advice=advice, neutral=(None, *neutral))


def nothing(advice: str, *neutral: Any) -> OtherName:
    """Return the row of an argument that has no counterpart at all; neutral: as for `instead`."""
    return instead(f"there is nothing like it; {advice}", *neutral)


def each(table: Mapping[str, Row]) -> dict[str, Row]:
    """Return a table with a row for each name. table: its keys are one name, or several with spaces between them."""
    return {name: row for names, row in table.items() for name in names.split()}
