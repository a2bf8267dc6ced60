"""Count the texts that one call cuts to the model's limit, and warn of them once, or refuse them: a method opens
`truncating`, and the tokenizers that it calls find the counts in a context variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from ..base.arguments import flag, warn_caller
from ..base.errors import TextTooLong, shown
from .sentences import Sentence, characters_of


@dataclass
class Cuts:
    """Counts of the texts that the tokenizers of one call have cut."""

    truncation: bool | None
    """The caller's choice for long texts: True cuts them without a warning, False is an error, None is a warning."""
    texts: int = 0
    """The number of texts that were tokenized."""
    cut: int = 0
    """The number of texts that were cut."""
    limit: int = 0
    """The number of tokens to which texts were cut."""
    longest: Sentence = ""
    """The text with the most characters among those that were cut."""
    length_of: Callable[[Sentence], str] = str
    """Returns the number of tokens of a text, for a message."""
    marks: list[bool] | None = None
    """Whether each text was cut, in the order in which they were tokenized; None if the caller does not ask."""

    def add(self, sentences: Sequence[Sentence], marks: Sequence[bool], limit: int,
            length_of: Callable[[Sentence], str]) -> None:
        """Count sentences, some of which were cut to `limit` tokens; raises `TextTooLong` if the caller refuses cuts.

        marks: whether each sentence was cut. length_of: returns the number of tokens of a sentence, for a message.
        """
        cut = [sentence for sentence, mark in zip(sentences, marks, strict=True) if mark] if any(marks) else []
        if cut and self.truncation is False:
            tokens, number = length_of(cut[0]), self.texts + list(marks).index(True)      # of the first sentence cut
            raise TextTooLong(f"truncation=False, and a text of {tokens} tokens, {shown(cut[0], 60)}, is longer than "
                              f"the {limit:,} that the model reads; shorten it, or leave truncation out", tokens, limit,
                              number)
        self.texts += len(sentences)
        if self.marks is not None:
            self.marks += marks
        if not cut:
            return
        self.cut, self.limit = self.cut + len(cut), limit
        self.longest, self.length_of = max([*cut, self.longest], key=characters_of), length_of

    def warn(self) -> None:
        """Warn the caller of the engine if texts were cut: how many, to which limit, and how long the longest is."""
        if self.cut:
            cut = f"text{'s' * (self.texts > 1)} {'was' if self.cut == 1 else 'were'} cut"
            warn_caller(f"{self.cut:,} of {self.texts:,} {cut} to {self.limit:,} tokens; the longest has "
                        f"{self.length_of(self.longest)}. truncation=True cuts without this warning, and "
                        "truncation=False is an error", UserWarning)


_CUTS: ContextVar[Cuts | None] = ContextVar("cuts", default=None)


def report_of_cuts() -> Cuts | None:
    """Return the counts to which a tokenizer of the current call reports cuts; None if nobody asks for them."""
    cuts = _CUTS.get()
    return None if cuts is None or (cuts.truncation and cuts.marks is None) else cuts


class reporting:  # noqa: N801, as it is called in `with` statements
    """Let the tokenizers that this thread calls in a `with` block report the texts that they cut to these counts.

    The texts of one call may be tokenized in several blocks, by any threads.
    """

    __slots__ = ("_cuts", "_token")
    _token: Token[Cuts | None]

    def __init__(self, cuts: Cuts):
        """cuts: the counts of the call."""
        self._cuts = cuts

    def __enter__(self) -> Cuts:
        self._token = _CUTS.set(self._cuts)
        return self._cuts

    def __exit__(self, kind: object, *_: object) -> None:
        _CUTS.reset(self._token)


class truncating(reporting):  # noqa: N801
    """Count the texts that the tokenizers that this thread calls in a `with` block cut, and warn of them at its end.

    A block with truncation=None inside another block counts for the outer one, so that a call that makes many calls
    warns once.
    """

    __slots__ = ("_is_inner",)

    def __init__(self, truncation: Any = None):
        """truncation: the argument of the caller, which is checked here: True to cut without a warning, False for an
        error, None for a warning."""
        outer = _CUTS.get()
        self._is_inner = truncation is None and outer is not None
        super().__init__(outer if truncation is None and outer is not None else
                         Cuts(None if truncation is None else flag("truncation", truncation)))

    def __exit__(self, kind: object, *_: object) -> None:
        """End the block, and warn of cuts, unless it ended with an error (kind) or belongs to an outer block."""
        _CUTS.reset(self._token)
        if kind is None and not self._is_inner:
            self._cuts.warn()
