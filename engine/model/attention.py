"""The options of attention that may differ between the layers of one model, and tables of relative positions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..base.errors import WeightsError, shown
from .json_values import with_tuples


@dataclass(frozen=True)
class AttentionKind:
    """The options of attention in some layers of a model, which may differ from those of other layers."""

    window: int | None = None
    """How many keys a token sees on each side, beside its own; None for the whole sequence."""
    rotary_theta: float | None = None
    """Base of the rotary embedding of queries and keys; None for no rotation."""
    rotary_scale: float = 1.0
    """The rotary embedding divides positions by this number."""
    rotary_interleaved: bool = False
    """Whether the rotary embedding turns columns 2i and 2i+1 of a head together; else columns i and i + r/2, where r
    is `rotary_width`."""
    causal: bool = False
    """Whether a token sees no key on its right."""
    rotary_frequencies: tuple[float, ...] = ()
    """The angle by which one position turns each pair of columns, a number for each pair, in place of the angles that
    `rotary_theta` and `rotary_scale` give."""
    rotary_factor: float = 1.0
    """Rotated queries and keys are multiplied by this number."""
    rotary_width: int | None = None
    """How many columns of a head the rotary embedding turns, the first ones, an even number; None for all d."""


def without_defaults(kind: AttentionKind) -> dict[str, Any]:
    """Return {name: value} of the options of a kind of attention that do not have their defaults."""
    return {f.name: getattr(kind, f.name) for f in fields(kind) if getattr(kind, f.name) != f.default}


def read_kinds(entries: Any) -> tuple[AttentionKind, ...]:
    """Return the kinds of attention that JSON objects describe; raises `WeightsError` for anything else.

    entries: a tuple of these objects, because `with_tuples` has converted the list.
    """
    names = {f.name for f in fields(AttentionKind)}
    if not isinstance(entries, tuple) or not all(isinstance(e, dict) and e.keys() <= names for e in entries):
        raise WeightsError(f"attention_kinds must be a list of objects with {', '.join(sorted(names))}, "
                           f"not {str(entries)[:80]}")
    return tuple(AttentionKind(**with_tuples(entry)) for entry in entries)


@dataclass(frozen=True)
class RelativePositions:
    """The options of a table of relative positions, through which scores depend on distances, as in DeBERTa.

    The score of a query q and a key k that lies x tokens before it is (q.k + q.K[b] + k.Q[b]) / sqrt(n d). There b is
    the row of distance x, n the number of terms in the sum, and K and Q are linear maps of the table's rows.
    """

    limit: int
    """All distances of at least this size share a row."""
    buckets: int = 0
    """Half of the table's rows, an even number: distances up to `buckets` / 2 have a row each, and larger ones share
    rows by their logarithm; 0 for a row for each distance, 2 * limit in all."""
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
    """Return the table of relative positions that a JSON object describes; raises `WeightsError` for unknown names."""
    names = {f.name for f in fields(RelativePositions)}
    if not isinstance(entry, dict) or not {"limit"} <= entry.keys() <= names:
        raise WeightsError(f"relative must be null or an object with limit and perhaps {', '.join(sorted(names))}, not "
                           f"{shown(entry)}")
    return RelativePositions(**with_tuples(entry))
