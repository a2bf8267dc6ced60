"""The options of a table of relative positions, through which scores depend on the distance of two tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from .errors import WeightsError, shown

_MOST_DISTANCES = 2**16


@dataclass(frozen=True)
class RelativePositions:
    """Scores that also depend on the distance of two tokens, through a table of relative positions, as in DeBERTa.

    The score of a query q and a key k that lies x tokens before it is (q.k + q.K[b] + k.Q[b]) / sqrt(n d), where b is
    the row of distance x, n the number of terms in the sum, and K and Q are maps of the table's rows.
    """

    limit: int
    """Distances of this size and larger ones share a row."""
    buckets: int = 0
    """Half of the table's rows, an even number: distances up to half of it have a row each, and farther ones share rows
    by their logarithm; 0 for a row for each distance, 2 * limit in all."""
    terms: tuple[str, ...] = ("c2p", "p2c")
    """"c2p" for the term q.K[b] (content to position), "p2c" for the term k.Q[b] (position to content)."""
    norm: bool = True
    """Whether the table has a LayerNorm."""
    own_maps: bool = False
    """Whether each layer has maps of its own for the table; if not, its key and query maps make K and Q."""

    @property
    def rows(self) -> int:
        """Return the number of rows of the table."""
        return 2 * (self.buckets or self.limit)


def read_relative(entry: Any) -> RelativePositions:
    """Return the options that a JSON object describes; raises `WeightsError` for unknown names."""
    names = {f.name for f in fields(RelativePositions)}
    if not isinstance(entry, dict) or not {"limit"} <= entry.keys() <= names:
        raise WeightsError(f"relative must be null or an object with limit and perhaps {', '.join(sorted(names))}, not "
                           f"{shown(entry)}")
    options: dict[str, Any] = dict(entry)
    if isinstance(options.get("terms"), list):
        options["terms"] = tuple(options["terms"])
    return RelativePositions(**options)


def impossible_relative(relative: Any) -> Iterator[str]:
    """Describe what is impossible about a table of relative positions."""
    if relative is None:
        return
    if not isinstance(relative, RelativePositions):
        yield f"relative must be None or RelativePositions, not {shown(relative)}"
        return
    for name, least in (("limit", 1), ("buckets", 0)):
        value = getattr(relative, name)
        if type(value) is not int or not least <= value <= _MOST_DISTANCES:
            yield f"{name} of relative must be an int from {least} to {_MOST_DISTANCES:,}, not {shown(value)}"
            return
    if relative.buckets and not (relative.buckets % 2 == 0 and relative.buckets // 2 < relative.limit - 1):
        yield (f"buckets of relative must be an even number whose half is below limit - 1, not {relative.buckets} with "
               f"the limit {relative.limit}")
    if relative.terms not in (("c2p",), ("p2c",), ("c2p", "p2c")):
        yield f"terms of relative must be ('c2p',), ('p2c',) or ('c2p', 'p2c'), not {shown(relative.terms)}"
    for name in ("norm", "own_maps"):
        if type(getattr(relative, name)) is not bool:
            yield f"{name} of relative must be a bool, not {shown(getattr(relative, name))}"
