"""The options of attention that may differ between the layers of one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from .errors import WeightsError, shown

_BOOLS = ("rotary_interleaved", "causal")
_LARGEST = 2**24
_MOST_ROTARY_POSITIONS = 2**17


@dataclass(frozen=True)
class AttentionKind:
    """What differs between the attention of one layer and another's in the same model."""

    window: int | None = None
    """How many keys a token sees on each side, beside its own; None for the whole sequence."""
    rotary_theta: float | None = None
    """Base of the rotary embedding of queries and keys; None for no rotation."""
    rotary_scale: float = 1.0
    """The rotary embedding divides positions by this number."""
    rotary_interleaved: bool = False
    """Whether the rotary embedding turns columns 2i and 2i+1 of a head together; else columns i and i + d/2."""
    causal: bool = False
    """Whether a token sees no key on its right."""
    rotary_frequencies: tuple[float, ...] = ()
    """The angle by which one position turns each pair of columns, d/2 numbers, in place of the angles that
    `rotary_theta` and `rotary_scale` give."""
    rotary_factor: float = 1.0
    """Rotated queries and keys are multiplied by this number."""


def impossible_kind(kind: AttentionKind, head_width: int, max_positions: int) -> Iterator[str]:
    """Describe what is impossible about a kind of attention in a model of this head width and number of positions."""
    if kind.window is not None and (type(kind.window) is not int or not 0 <= kind.window <= _LARGEST):
        yield f"window must be None or an int from 0 to {_LARGEST:,}, not {shown(kind.window)}"
    theta, frequencies = kind.rotary_theta, kind.rotary_frequencies
    if theta is not None and (not isinstance(theta, float) or not 0.0 < theta < 1e15):
        yield f"rotary_theta must be None or a float above 0, not {theta!r}"
    if not isinstance(kind.rotary_scale, float) or not 1e-6 < kind.rotary_scale < 1e6:
        yield f"rotary_scale must be a float between 1e-6 and 1e6, not {kind.rotary_scale!r}"
    if not isinstance(frequencies, tuple) or (frequencies and (
            theta is None or len(frequencies) != head_width // 2
            or not all(isinstance(value, float) and 0.0 <= value <= 1000.0 for value in frequencies))):
        yield (f"rotary_frequencies must be empty or, with a rotary_theta, {head_width // 2} floats from 0 to 1000, "
               f"not {shown(frequencies)}")
    if not isinstance(kind.rotary_factor, float) or not 1e-3 < kind.rotary_factor < 1e3:
        yield f"rotary_factor must be a float between 1e-3 and 1e3, not {kind.rotary_factor!r}"
    for name in _BOOLS:
        if type(getattr(kind, name)) is not bool:
            yield f"{name} must be a bool, not {getattr(kind, name)!r}"
    if theta is not None and (head_width % 2 or not 0 < max_positions <= _MOST_ROTARY_POSITIONS):
        yield ("a rotary embedding needs heads of an even width and max_positions from 1 to "
               f"{_MOST_ROTARY_POSITIONS:,}, not {head_width} and {max_positions}")


def without_defaults(kind: AttentionKind) -> dict[str, Any]:
    """Return the options of a kind of attention that do not have their defaults."""
    return {f.name: getattr(kind, f.name) for f in fields(kind) if getattr(kind, f.name) != f.default}


def read_kinds(entries: Any) -> tuple[AttentionKind, ...]:
    """Return the kinds that a list of JSON objects describes; raises `WeightsError` for unknown names."""
    names = {f.name for f in fields(AttentionKind)}
    if not isinstance(entries, tuple) or not all(isinstance(e, dict) and e.keys() <= names for e in entries):
        raise WeightsError(f"attention_kinds must be a list of objects with {', '.join(sorted(names))}, "
                           f"not {str(entries)[:80]}")
    kinds: list[dict[str, Any]] = [
        {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
        for entry in entries
    ]
    return tuple(AttentionKind(**kind) for kind in kinds)
