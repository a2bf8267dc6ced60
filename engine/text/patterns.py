"""Find out which regular expressions of a tokenizer.json certainly read a text once, and which may take minutes.

`tokenizers` searches with Oniguruma, which backtracks: the time of `a+a+b` grows with the third power of the number of
letters. Nothing ends such a search, so `Tokenizer` runs it in another thread, while the call looks at its timeout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from .growth import Steps

MAX_ADDED_BESIDE_PATTERN = 256
"""The most characters of an added token that a pattern which may backtrack normalizes while the file is loaded."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"       # the alternatives for white space


def words_pattern(digits: str) -> str:
    """Return the pattern of Llama 3 and Qwen 2. digits: the part in which they differ, for the digits of one token."""
    return (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _END)


# Letters that may be upper case, and letters that may be lower case: both have letters without case, and marks.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDINGS = _CONTRACTIONS + "?|"
GPT_4O = (
    r"[^\r\n\p{L}\p{N}]?" + _UPPER + "*" + _LOWER + "+" + _ENDINGS
    + r"[^\r\n\p{L}\p{N}]?" + _UPPER + "+" + _LOWER + "*" + _ENDINGS
    + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _END)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"       # this and `GPT_4O` are the patterns of the models of these names
_PUBLISHED = frozenset({
    words_pattern(r"\p{N}{1,3}"), words_pattern(r"\p{N}"),
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",                       # GPT-2
    GPT_4O, BLOOM,
})
"""Patterns of many models. Each reads a run of characters once or twice: if one alternative fails at the end of the
run, another one matches it."""

_CLASS_OR_ESCAPE = re.compile(r"\[\^?\]?(?:\\.|[^\[\]\\])*\]|\\[pP]\{\^?\w+\}|\\[^\W\d]|\\[\W_]")
"""A class without classes in it, or an escape: it reads one character, as a letter does, and holds no operators."""
_CHARACTER = r"[^()\[\]{}*+?\\^$]"
_PLAIN = re.compile(rf"""
    \^?                                                        # the beginning of a line
    (?:{_CHARACTER}\??)*                                       # characters, of which some may be left out
    (?:{_CHARACTER}(?:[*+]|{{\d{{0,3}}(?:,\d{{0,3}})?}}))?     # one repeated character: nothing behind it can fail
    """, re.VERBOSE)
"""An alternative whose search reads a text once, such as `ab?c+`, unlike `a+b`, if few characters may be left out."""
_FEW_LEFT_OUT = 3
"""The most optional characters of a `_PLAIN` alternative. Each doubles the ways to read a text: `a?a?a?b` tries eight
where there is no b."""


def may_backtrack(pattern: str) -> bool:
    """Return whether a search for a pattern may read a text many times; False only if it certainly does not."""
    if pattern in _PUBLISHED:
        return False
    alternatives = _CLASS_OR_ESCAPE.sub("x", pattern).split("|")    # the | and ? of a class are no operators
    return not all(_PLAIN.fullmatch(part) and part.count("?") <= _FEW_LEFT_OUT for part in alternatives)


def check_patterns(steps: Steps, added: Iterable[str]) -> bool:
    """Return whether a tokenizer.json has a pattern that may backtrack, so that it must run beside a call that waits.

    added: the added tokens. Raises `UnsupportedError` for such a pattern in a decoder, and `WeightsError` for one that
    normalizes a long added token: these run in the thread of the call itself, so that its timeout could not end them.
    """
    patterns = {place: [pattern for step in steps[place] if (pattern := _pattern(step)) is not None
                        and may_backtrack(pattern)] for place in ("normalizer", "pre_tokenizer", "decoder")}
    if patterns["decoder"]:
        raise UnsupportedError(f"the decoder of the model's tokenizer.json replaces the regular expression "
                               f"{shown(patterns['decoder'][0])}, which may take minutes for one text; a plain text, "
                               "or one character that is repeated at its end, is supported")
    for text in added if patterns["normalizer"] else ():
        if len(text) > MAX_ADDED_BESIDE_PATTERN:
            raise WeightsError(f"an added token of the model's tokenizer.json has {len(text):,} characters; beside the "
                               f"normalizer {shown(patterns['normalizer'][0])} at most {MAX_ADDED_BESIDE_PATTERN} are "
                               "allowed")
    return bool(patterns["normalizer"] or patterns["pre_tokenizer"])


def _pattern(step: dict[str, Any]) -> str | None:
    """Return the regular expression of a step; None if it has none, or one that `tokenizers` will refuse."""
    pattern = step.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    return regex if isinstance(regex, str) else None
