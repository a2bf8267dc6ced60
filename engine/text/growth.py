"""Read the steps of a tokenizer.json, and limit how many characters they make of one character; safety.py calls this.

The normalizers of a tokenizer change a text one after the other, then its pre-tokenizers; its decoders change the
tokens of a generated text. A step that replaces "a" by "aa" doubles a text, and 26 of them make 67 million characters
of one. Real tokenizers replace a character by another one, or add a mark.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, TypeAlias

from ..base.errors import UnsupportedError, WeightsError, shown

MAX_GROWTH = 8
"""The most characters that the steps of one kind (normalizers, pre-tokenizers, decoders) may make of one character,
apart from Unicode's own normal forms."""
MAX_STEPS = 64
"""The most steps of one kind, also in sequences inside of sequences; real tokenizers have fewer than ten."""
MAX_TABLE = 1_000_000
"""The most bytes of a precompiled_charsmap; the tables that SentencePiece makes have 240,000 to 330,000."""

_UNICODE_GROWTH = 18
"""NFKC expands one character to at most 18 (U+FDFA); SentencePiece's tables do the same."""
_LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders",
          "post_processor": "processors"}
"""{place of steps in a tokenizer.json: the key under which a Sequence has its list of steps there}."""
_HARMLESS = {
    "normalizer": {"Strip", "StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt"},
    "pre_tokenizer": {"BertPreTokenizer", "CharDelimiterSplit", "Digits", "FixedLength", "Punctuation", "Split",
                      "UnicodeScripts", "Whitespace", "WhitespaceSplit"},
    "decoder": {"ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Strip"},
}
"""The kinds of steps that lengthen no text: pre-tokenizers that only divide it, decoders that do not lengthen a token,
and normalizers that do not lengthen it when they run a second time (`_length` counts a text that another step puts in
at the length that they give it)."""
_REPEATED = {
    "normalizer": {"BertNormalizer": 3, "ByteLevel": 4},
    "pre_tokenizer": {"ByteLevel": 4, "Metaspace": 2},      # a character in front of each part of a text
    "decoder": {"WordPiece": 2},        # a space in front of each token
}
"""How many times longer a text or a token becomes when a step of this kind runs a second time; every tokenizer of its
family has one such step."""
_CLASS = re.compile(r"\[[^\]]*\]")
"""A class of a pattern, such as [a-z], which matches one character."""
_MAY_MATCH_NOTHING = re.compile(r"[*?|^$()]|\\[^dDsSwWpPnrt\W_]|\{ *[0,]")
"""Finds what may let a pattern match an empty text: repeats from 0 on, alternatives, groups, anchors such as \\b."""

Steps: TypeAlias = dict[str, list[dict[str, Any]]]
"""The steps of a tokenizer.json by their place in it: normalizer, pre_tokenizer, decoder and post_processor."""


def read_steps(document: dict[str, Any]) -> Steps:
    """Return all steps of a tokenizer.json, in order; raises `WeightsError` for a step without a known form."""
    return {place: list(steps(document.get(place), key)) for place, key in _LISTS.items()}


def steps(step: Any, key: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer, pre-tokenizer, decoder or processor, in order: a Sequence yields its own steps.

    key: the key of the list of a Sequence. depth: how many Sequences this one is inside of. Raises `WeightsError` for
    anything that is no step.
    """
    if step is None:
        return
    if not isinstance(step, dict):
        raise WeightsError(f"a step of the model's tokenizer.json must be an object, not {shown(step)}")
    if not isinstance(step.get("type", ""), str):
        raise WeightsError(f"the type of a step of the model's tokenizer.json must be text, not {shown(step['type'])}")
    if step.get("type") != "Sequence":
        yield step
        return
    inner = step.get(key)
    if not isinstance(inner, list) or len(inner) > MAX_STEPS or depth > 3:
        raise WeightsError(f"a Sequence in the model's tokenizer.json must have at most {MAX_STEPS} steps")
    count = 0
    for inner_step in inner:
        for step_inside in steps(inner_step, key, depth + 1):
            if (count := count + 1) > MAX_STEPS:
                raise WeightsError(f"the {key} of the model's tokenizer.json must have at most {MAX_STEPS} steps")
            yield step_inside


def check_growth(steps: Steps) -> None:
    """Refuse steps of a tokenizer.json that can multiply a text, with a `WeightsError` or `UnsupportedError`."""
    for place in _HARMLESS:
        growth, seen = 1.0, set()
        for step in steps[place]:
            kind = step.get("type")
            growth *= _growth_of(place, kind, step, kind in seen)
            seen.add(kind)
        if growth > MAX_GROWTH:
            raise WeightsError(f"the {place.replace('_', '-')}s of the model's tokenizer.json can make {growth:.3g} "
                               f"characters of one character; at most {MAX_GROWTH} are allowed")


def _growth_of(place: str, kind: Any, step: dict[str, Any], again: bool) -> float:
    """Return the most characters that a step makes of one. again: whether a step of its kind came before it."""
    if kind in _HARMLESS[place]:
        return 1.0
    if kind in _REPEATED[place]:
        return _REPEATED[place][kind] if again else 1.0
    pattern = step.get("pattern")
    match place, kind:
        case "normalizer" | "decoder", "Replace":
            return _growth_of_replace(step, pattern)
        case "normalizer", "Prepend" | "Append" if pattern is None:
            return 1.0 + _length(step, step.get("content", step.get("prepend", "")))
        case "normalizer", "Precompiled" if pattern is None:
            longest = _longest_replacement(step.get("precompiled_charsmap"))
            # The first table may expand characters as Unicode's forms do; only growth beyond that counts.
            return max(1.0, longest if again else longest / _UNICODE_GROWTH)
        case "decoder", "BPEDecoder":
            return 1.0 if step.get("suffix") else 2.0   # an empty suffix is found, and replaced, before each character
        case "decoder", "CTC":
            return 1.0 if step.get("word_delimiter_token") else 2.0     # the same holds for an empty delimiter
    raise _unsupported(place, kind)


def _unsupported(name: str, kind: Any) -> UnsupportedError:
    """Return the error for a step of a kind that the engine does not support. name: the place of the step."""
    return UnsupportedError(f"the {name} {shown(kind)} of the model's tokenizer.json is not supported")


def _growth_of_replace(step: dict[str, Any], pattern: Any) -> float:
    """Return the most characters that a step Replace, which replaces texts that match a pattern, makes of one."""
    length = _length(step, step.get("content"))
    match pattern:
        case {"String": str(text)}:
            return max(1.0, length / len(text)) if text else 1.0 + length
        case {"Regex": str(text)}:
            # A pattern that may match an empty text puts its text beside each character, and not in its place.
            consumes = bool(text) and not _MAY_MATCH_NOTHING.search(_CLASS.sub("x", text))
            return max(1.0, length) if consumes else 1.0 + length
    raise _unsupported("pattern", pattern)


def _length(step: dict[str, Any], content: Any) -> int:
    """Return the number of characters of a text (content) that a step puts in, in the longest form that later steps
    may give it."""
    if not isinstance(content, str):
        raise WeightsError(f"the step {shown(step.get('type'))} of the model's tokenizer.json has the impossible text "
                           f"{shown(content)}")
    return _expanded(content)


def _expanded(text: str) -> int:
    """Return the most characters that Unicode's normal forms and lower case make of a text."""
    if text.isascii() or len(text) > MAX_TABLE:
        return len(text)
    return max(len(text), len(_longest_form(text)))


def _longest_form(text: str) -> str:
    """Return the longest of the Unicode forms of a text: decomposed (NFKD), in lower case, and decomposed again."""
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).lower())


def _longest_replacement(table: Any) -> int:
    """Return the length of the longest text of a SentencePiece table.

    The table is in base64: the size of a trie (4 bytes, little-endian), the trie, and texts that end with zero bytes.
    """
    try:
        data = base64.b64decode(table, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise WeightsError("precompiled_charsmap of the model's tokenizer.json is not in base64") from None
    start = 4 + int.from_bytes(data[:4], "little")
    if start > len(data) or start % 4:  # `tokenizers` would reserve this much memory
        raise WeightsError(f"precompiled_charsmap of the model's tokenizer.json has {len(data):,} bytes, and says that "
                           f"its texts start at byte {start:,}")
    if len(data) > MAX_TABLE:
        raise WeightsError(f"precompiled_charsmap of the model's tokenizer.json has {len(data):,} bytes; at most "
                           f"{MAX_TABLE:,} are allowed")
    texts = data[start:].decode(errors="replace")       # all at once, because a zero byte keeps forms of texts apart
    return max(len(text) for form in (texts, _longest_form(texts)) for text in form.split("\0"))
