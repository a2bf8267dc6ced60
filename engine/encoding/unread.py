"""`UnreadText`: the short text of a call, which is tokenized together with those of other calls in its batch.

The thread that computes a batch of several calls tokenizes their texts at once (`read_all`), which takes less time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..text.cuts import report_of_cuts
from ..text.sentences import Sentence, characters_of
from ..text.tokenizer import Tokenizer
from ..text.tokens import Tokens

SHORT = 1024
"""A text with more characters is tokenized by the thread of its call, while another thread computes a batch."""
CHARACTERS_OF_A_TOKEN = 5
"""About how many characters a token has, to estimate the length of an unread text."""


class UnreadText(Tokens):
    """The tokens of one text, which is not tokenized until `read_all` does it, or until somebody reads a property here.

    The thread of the call makes the object, and calls `report` when the call ends; any thread may make the tokens.
    """

    __slots__ = ("_cuts", "_mark", "_read", "_text", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, text: Sentence, skips: list[int] | None = None):
        """tokenizer: that of the encoder. skips: as `Tokens.skips`, one number."""
        # The fields `input_ids` and `token_type_ids` are properties here, so Tokens.__init__ cannot set them.
        self.skips, self.reads, self.asked, self.embeds = skips, None, None, None
        self._tokenizer, self._text = tokenizer, text
        self._cuts = report_of_cuts()       # asked here, in the thread of the call: another may tokenize the text
        self._read: Tokens | None = None
        self._mark: bool | None = None      # whether the text was cut; None before it is read and after `report`

    def _tokens(self) -> Tokens:
        """Return the tokens; the first call tokenizes the text and reports a cut, unless `read_all` has read it."""
        if self._read is None:
            read_all([self])
            self.report()
        assert self._read is not None
        return self._read

    @property
    def input_ids(self) -> list[np.ndarray]:    # type: ignore[override]
        """The ids of the text, in a list of one array; the first look tokenizes the text."""
        return self._tokens().input_ids

    @property
    def token_type_ids(self) -> list[np.ndarray]:   # type: ignore[override]
        """The token types of the text, in a list of one array; the first look tokenizes the text."""
        return self._tokens().token_type_ids

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of the text; an estimate before it is tokenized."""
        if self._read is not None:
            return self._read.lengths
        return [2 + characters_of(self._text) // CHARACTERS_OF_A_TOKEN]

    def report(self) -> None:
        """Report to the call whether the text was cut, once; raises `TextTooLong` if the call allows no cut."""
        mark, self._mark = self._mark, None
        if mark is not None and self._cuts is not None:
            self._cuts.add([self._text], [mark], self._tokenizer.limit, self._tokenizer.count)


def read_all(calls: Sequence[Tokens]) -> None:
    """Tokenize all unread texts among the tokens of these calls at once; all calls are of one encoder."""
    unread = [call for call in calls if isinstance(call, UnreadText) and call._read is None]
    if not unread:
        return
    tokens, marks = unread[0]._tokenizer.read_together([call._text for call in unread])
    for call, ids, types, mark in zip(unread, tokens.input_ids, tokens.token_type_ids, marks, strict=True):
        call._mark = mark
        call._read = Tokens([ids], [types])


def may_wait(tokenizer: Tokenizer, texts: Sequence[Sentence]) -> bool:
    """Return whether the thread that computes these texts may tokenize them, in place of the thread of the call.

    It may if there is one short text, the tokenizer is quick (`Tokenizer.is_quick`), and the caller does not ask which
    texts were cut.
    """
    cuts = report_of_cuts()
    return (len(texts) == 1 and characters_of(texts[0]) <= SHORT and tokenizer.is_quick
            and (cuts is None or cuts.marks is None))
