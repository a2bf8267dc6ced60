"""`Excerpts`: cut long texts before they are tokenized, so that the tokens that truncation keeps stay the same.

`tokenizers` reads the whole text before it truncates. Here the start of a long text is tokenized (or its end if
truncation keeps that), and then a part of twice the size, until the tokens that are kept are certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import InputError, shown
from .sentences import Sentence

Encode: TypeAlias = Callable[[str], Any]
"""Returns the encoding by `tokenizers` of a text without special tokens."""

START_CHARACTERS = 8
"""How many characters of a long text are tokenized first, for each token that is kept."""
MAX_CHARACTERS = 2**18
"""The most characters of a text that are tokenized to find the tokens that are kept; each takes 260 bytes of memory."""
CUT_MARGIN = 64
"""Within how many characters of a cut tokens are uncertain, beyond the longest added token and pattern of a
normalizer."""


@dataclass(frozen=True)
class _Excerpt:
    """The start of a text, or its end if truncation keeps the end, and how many of its tokens are certain."""

    text: str
    tokens: int
    """The number of its tokens."""
    certain: int
    """How many of its tokens the whole text certainly has, too: those of the two words at the cut do not count."""
    whole: bool
    """Whether this is all of the text."""


@dataclass(frozen=True)
class Excerpts:
    """The part of a long text that is tokenized in place of the whole."""

    limit: int
    """The most tokens of a sentence."""
    from_right: bool
    """Whether truncation keeps the end of a text."""
    even: bool
    """Whether `limit` without the special tokens of a pair is an even number."""
    margin: int
    """Within how many characters of a cut tokens are uncertain."""

    @property
    def start(self) -> int:
        """The most characters of a text that is never cut, and the size of the first excerpt of a longer one."""
        return START_CHARACTERS * self.limit

    def cut(self, sentence: Sentence, encode: Encode) -> Sentence:
        """Return a sentence without the text that truncation would remove: the tokens that are kept stay the same.

        Raises `InputError` for a text with too few tokens in its first `MAX_CHARACTERS`, and for a pair if its first
        characters do not show which text has more tokens.
        """
        start = self.start
        texts = (sentence,) if isinstance(sentence, str) else sentence
        if max(map(len, texts)) <= start:
            return sentence
        parts: list[list[_Excerpt]] = [[] for _ in texts]       # for each text its excerpts, each larger than the last
        size = start        # characters of each text that are tokenized; doubled until they suffice
        while not self._give_all_tokens([excerpts[-1] for excerpts in parts if excerpts]):
            if parts[0] and size > max(MAX_CHARACTERS, 4 * start):      # `size` is twice that of the last excerpts
                longest = max(texts, key=len)
                if all(self._reaches_limit(excerpts[-1]) for excerpts in parts):
                    raise InputError(f"this pair is too long to truncate: in the first {size // 2:,} characters of "
                                     "each text we cannot tell which has more tokens; shorten one of them, such as "
                                     f"{shown(longest[:100])} of {len(longest):,} characters")
                raise _too_few(longest, size // 2)
            for excerpts, text in zip(parts, texts, strict=True):
                if not (excerpts and excerpts[-1].whole):
                    excerpts.append(self._excerpt(text, size, encode))
            size *= 2
        if len(texts) == 1:
            return parts[0][-1].text
        # Return the shortest excerpts that give the same tokens: both have enough, and the same text has more tokens.
        longer = parts[0][-1].tokens > parts[1][-1].tokens
        pairs = sorted(product(*parts), key=lambda pair: len(pair[0].text) + len(pair[1].text))
        first, second = next(pair for pair in pairs if all(self._reaches_limit(part) for part in pair)
                             and (pair[0].tokens > pair[1].tokens) == longer)
        return first.text, second.text

    def least_tokens(self, text: str, most: int | None, encode: Encode) -> int:
        """Return 0 for a text that may be tokenized whole, and for most=None; for a longer text, a number above `most`
        of tokens that it has at least. Raises `InputError` if its start does not show that it has so many."""
        if most is None or len(text) <= (size := max(MAX_CHARACTERS, 4 * START_CHARACTERS * most)):
            return 0
        part = self._excerpt(text, size, encode)
        if part.certain <= most:
            raise _too_few(text, size)
        return part.certain

    def _give_all_tokens(self, parts: list[_Excerpt]) -> bool:
        """Return whether these parts of all texts of a sentence give the tokens that the whole texts give."""
        if not parts or not all(self._reaches_limit(part) for part in parts):
            return False
        if len(parts) == 1 or self.even or all(part.whole for part in parts):
            return True
        # Of an odd number of tokens, the text with more tokens gets one more. So it must be certain which has more.
        one, other = parts
        return (one.whole and other.certain > one.tokens) or (other.whole and one.certain > other.tokens)

    def _reaches_limit(self, part: _Excerpt) -> bool:
        """Return whether a part shows all tokens of its text that truncation may keep."""
        return part.whole or part.certain >= self.limit

    def _excerpt(self, text: str, size: int, encode: Encode) -> _Excerpt:
        """Tokenize `size` characters of a text, from the side that truncation keeps.

        The tokens of the two words at the cut, and those within the margin of it, are not certain.
        """
        part = text[-size:] if self.from_right else text[:size]
        encoding = encode(part)
        encodings = (encoding, *encoding.overflowing)       # the tokens that truncation keeps, and those it cuts off
        words = np.array([-1 if word is None else word for one in encodings for word in one.word_ids], np.int64)
        places = np.array([place for one in encodings for place in one.offsets], np.int64).reshape(-1, 2)
        if self.from_right:
            certain = (words >= 2) & (places[:, 0] >= self.margin)
        else:
            certain = (words <= words.max(initial=0) - 2) & (places[:, 1] <= len(part) - self.margin)
        return _Excerpt(part, tokens=len(words), certain=int(certain.sum()), whole=len(part) == len(text))


def _too_few(text: str, size: int) -> InputError:
    """Return the error for a long text whose first `size` characters have too few tokens to fill the limit."""
    return InputError(f"a text of {len(text):,} characters, {shown(text[:100])}, has too few tokens in its first "
                      f"{size:,} characters, which is the limit; shorten it")
