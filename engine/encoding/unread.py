"""`UnreadText`: the short text of a call, which whoever computes it tokenizes together with those of other calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..text.cuts import reported
from ..text.sentences import Sentence, characters_of
from ..text.tokenizer import Tokenizer
from ..text.tokens import Tokens

SHORT = 1024
"""A text with more characters is tokenized by its own call, while others compute."""
CHARACTERS_OF_A_TOKEN = 5
"""About how many there are."""


class UnreadText(Tokens):
    """The tokens of one text, which `read_all` makes with those of other calls, or this object when they are read.

    The thread of the call makes the object, and calls `report` at the end; any thread may make the tokens.
    """

    __slots__ = ("_cuts", "_mark", "_read", "_text", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, text: Sentence, skips: list[int] | None = None):
        self._tokenizer, self._text, self._cuts = tokenizer, text, reported()
        self._read: Tokens | None = None
        self._mark: bool | None = None      # whether the text was cut, until it is reported
        self.skips, self.reads, self.asked, self.embeds = skips, None, None, None

    def _tokens(self) -> Tokens:
        """Return the tokens, which are made and reported now unless they are there."""
        if self._read is None:
            read_all([self])
            self.report()
        assert self._read is not None
        return self._read

    @property
    def input_ids(self) -> list[np.ndarray]:    # type: ignore[override]
        """The ids of each text, for which the texts are tokenized now."""
        return self._tokens().input_ids

    @property
    def token_type_ids(self) -> list[np.ndarray]:   # type: ignore[override]
        """The token types of each text, for which the texts are tokenized now."""
        return self._tokens().token_type_ids

    @property
    def lengths(self) -> list[int]:
        """The number of tokens, or about how many before they are made."""
        if self._read is not None:
            return self._read.lengths
        return [2 + characters_of(self._text) // CHARACTERS_OF_A_TOKEN]

    def report(self) -> None:
        """Report to the call whether the text was cut, once; raises `TextTooLong` if it wants no cuts."""
        mark, self._mark = self._mark, None
        if mark is not None and self._cuts is not None:
            self._cuts.add([self._text], [mark], self._tokenizer.limit, self._tokenizer.count)


def read_all(calls: Sequence[Tokens]) -> None:
    """Make the tokens of several calls of one encoder that are not there yet, at one time."""
    unread = [call for call in calls if isinstance(call, UnreadText) and call._read is None]
    if not unread:
        return
    tokens, marks = unread[0]._tokenizer.read_together([call._text for call in unread])
    for call, ids, types, mark in zip(unread, tokens.input_ids, tokens.token_type_ids, marks, strict=True):
        call._mark = mark
        call._read = Tokens([ids], [types])


def may_wait(tokenizer: Tokenizer, texts: Sequence[Sentence]) -> bool:
    """Return whether texts are one short text, of whose tokens nobody wants to know before it is computed."""
    cuts = reported()
    return (len(texts) == 1 and characters_of(texts[0]) <= SHORT and tokenizer.is_quick
            and (cuts is None or cuts.marks is None))
