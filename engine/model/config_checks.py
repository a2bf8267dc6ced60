"""Checks of values for all configurations, and messages about impossible options of a `ModelConfig`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..base.errors import shown
from ..base.functions import power
from .attention import AttentionKind, RelativePositions

LARGEST = 2**24
"""Limit on sizes and on ids."""
LOGITS_KINDS = (None, "tied", "own")
"""The weights that make logits: none, the word table, or a matrix of their own."""


def wrong(config: Any, names: Iterable[str], holds: Callable[[Any], bool], expected: str) -> list[str]:
    """Return a message for each of these fields of a config whose value is wrong.

    holds: returns whether a value is right. expected: the words of the message for right values, such as "a bool".
    """
    return [f"{name} must be {expected}, not {shown(value)}" for name in names
            if not holds(value := getattr(config, name))]


def optional(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check that a value is None or passes the check `holds`."""
    return lambda value: value is None or holds(value)


def is_bool(value: Any) -> bool:
    """Return whether a value is True or False, and no number."""
    return type(value) is bool


def is_int(value: Any, least: int = 0, most: float = LARGEST) -> bool:
    """Return whether a value is an int (and no bool) from `least` to `most`, by default as an id is."""
    return type(value) is int and least <= value <= most


def are_ids(value: Any) -> bool:
    """Return whether a value is a tuple of ids."""
    return isinstance(value, tuple) and all(map(is_int, value))


def is_unicode(text: Any) -> bool:
    """Return whether a value is a string without half of a surrogate pair, which cannot be printed or tokenized."""
    if not isinstance(text, str):
        return False
    try:
        str.encode(text)
    except UnicodeEncodeError:
        return False
    return True


def impossible_decoder(config: Any) -> Iterator[str]:
    """Yield a message for each impossible option of decoders in a `ModelConfig`, whose options have the right types."""
    if config.logits not in LOGITS_KINDS:
        yield f"logits must be one of {', '.join(map(str, LOGITS_KINDS))}, not {shown(config.logits)}"
    if not 1e-6 < config.logits_scale < 1e6:
        yield f"logits_scale must be a float between 1e-6 and 1e6, not {shown(config.logits_scale)}"
    if config.logits is None and (config.logits_bias or config.logits_scale != 1.0 or config.logits_softcap
                                  or config.memory_size):
        yield "logits_bias, logits_scale, logits_softcap and memory_size need logits"
    # Only BART's decoder gives vectors for heads in place of logits: it has an encoder, and an identity as its matrix.
    if config.logits_size and (config.logits != "own" or not config.memory_size):
        yield "logits_size needs logits 'own' and a memory_size"
    if config.logits is None:
        return
    if not config.vocab_size:
        yield "logits need a vocab_size of at least 1"
    if config.logits == "tied" and config.embedding_width not in (0, config.hidden_size):
        yield f"tied logits need embeddings of width {config.hidden_size}, not {config.embedding_width}"
    if not all(getattr(kind, "causal", True) for kind in config.attention_kinds):   # config.py refuses other types
        yield "all attention_kinds of a model with logits must be causal"
    if config.relative is not None:     # attention to cached keys has no such terms
        yield "a model with logits cannot have the option relative"
    if config.memory_size and config.norm_place not in ("post", "pre"):     # programs have cross-attention in these two
        yield "memory_size needs norm_place 'post' or 'pre'"


def impossible_tokens(config: Any) -> Iterator[str]:
    """Yield a message for an impossible `dropped_id` of a `ModelConfig`, and for one or `dense_tokens` in a decoder."""
    dropped = config.dropped_id
    if dropped is not None and (type(dropped) is not int or not 0 <= dropped < config.vocab_size):
        yield f"dropped_id must be None or one of the {config.vocab_size} tokens, not {shown(dropped)}"
    if config.logits is not None and (dropped is not None or config.dense_tokens):
        yield "a model with logits cannot have the options dropped_id and dense_tokens"


_MOST_ROTARY_POSITIONS = 2**20
_LARGEST_FREQUENCY = 1000       # the angle of one position; the cosines and sines of all positions are then exact


def impossible_kind(kind: AttentionKind, head_width: int, max_positions: int) -> Iterator[str]:
    """Yield a message for each impossible option of a kind of attention, in a model with this head width and number of
    positions."""
    if kind.window is not None and not is_int(kind.window):
        yield f"window must be None or an int from 0 to {LARGEST:,}, not {shown(kind.window)}"
    theta, frequencies, width = kind.rotary_theta, kind.rotary_frequencies, kind.rotary_width
    if width is not None and (type(width) is not int or theta is None or width % 2 or not 0 < width <= head_width):
        yield (f"rotary_width must be None or, with a rotary_theta, an even number from 2 to {head_width}, not "
               f"{shown(width)}")
        return
    width = head_width if width is None else width
    if theta is not None and (not isinstance(theta, float) or not 0.0 < theta < 1e15):
        yield f"rotary_theta must be None or a float above 0 and below 1e15, not {theta!r}"
    if not isinstance(kind.rotary_scale, float) or not 1e-6 < kind.rotary_scale < 1e6:
        yield f"rotary_scale must be a float between 1e-6 and 1e6, not {kind.rotary_scale!r}"
    if not isinstance(frequencies, tuple) or (frequencies and (
            theta is None or len(frequencies) != width // 2
            or not all(isinstance(value, float) and 0.0 <= value <= _LARGEST_FREQUENCY for value in frequencies))):
        yield (f"rotary_frequencies must be empty or, with a rotary_theta, {width // 2} floats from 0 to "
               f"{_LARGEST_FREQUENCY}, not {shown(frequencies)}")
    if not isinstance(kind.rotary_factor, float) or not 1e-3 < kind.rotary_factor < 1e3:
        yield f"rotary_factor must be a float between 1e-3 and 1e3, not {kind.rotary_factor!r}"
    yield from wrong(kind, ("rotary_interleaved", "causal"), is_bool, "a bool")
    if theta is not None and not frequencies and (
            (fastest := _largest_turn(theta, width, kind.rotary_scale)) > _LARGEST_FREQUENCY):
        yield (f"rotary_theta {theta} and rotary_scale {kind.rotary_scale} turn columns by {fastest:.3g} from one "
               f"position to the next; at most {_LARGEST_FREQUENCY:,} is allowed")
    if theta is not None and (width % 2 or not 0 < max_positions <= _MOST_ROTARY_POSITIONS):
        yield ("a rotary embedding needs heads of an even width and max_positions from 1 to "
               f"{_MOST_ROTARY_POSITIONS:,}, not {width} and {max_positions}")


def _largest_turn(theta: Any, width: int, scale: Any) -> float:
    """Return the largest angle (radians) by which one position turns a pair of columns; 0 for refused numbers."""
    if not isinstance(theta, float) or not 0.0 < theta < 1e15 or not isinstance(scale, float) or not (
            scale > 0.0 and width >= 2):
        return 0.0
    return max(1.0, float(power(theta, -(width - 2) / width))) / scale


_MOST_DISTANCES = 2**16


def impossible_relative(relative: Any) -> Iterator[str]:
    """Yield a message for each impossible option of a table of relative positions; None has none."""
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
