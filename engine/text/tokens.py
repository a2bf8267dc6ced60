"""The results of a tokenizer: `Tokens` of sentences, `Places` of the tokens of a text, and `SecondTexts` of pairs; and
the count of tokens that a call may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_COUNTS: ContextVar[list[int] | None] = ContextVar("counts", default=None)      # the list of `counting_tokens`


@dataclass(eq=False, slots=True)
class Tokens:
    """The tokens of some sentences, as an encoder reads them."""

    input_ids: list[np.ndarray]
    """One int32 [T_i] for each sentence, special tokens included."""
    token_type_ids: list[np.ndarray]
    """One int32 [T_i] for each sentence: the text of a pair, 0 or 1, that each token belongs to."""
    skips: list[int] | None = None
    """For each sentence, how many of its first tokens (those of a prompt) pooling leaves out; None for none."""
    reads: list[int] | None = None
    """For each sentence, how many of its first tokens all its tokens read in attention; None for all."""
    asked: list[np.ndarray] | None = None
    """For each sentence, the positions that a head of rows "asked" reads; None for another head."""
    embeds: list[np.ndarray] | None = None
    """float32 [T_i, D] for each sequence, the input of the first layer in place of ids, such as that of an image."""

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each sentence."""
        return [*map(len, self.input_ids)]

    def report(self) -> None:
        """Report which sentences were cut. `UnreadText`, which others tokenize, does it here; for all other tokens the
        tokenizer has done it."""


def merge_tokens(parts: Sequence[tuple[Tokens, Sequence[int]]]) -> Tokens:
    """Return the tokens of some sentences of several calls, one call after the other.

    parts: (tokens of a call, numbers of its sentences that are wanted). If only some calls have `skips` or `reads`, the
    others get values that mean none and all. Either all calls have `asked` and `embeds`, or none has.
    """
    if len(parts) == 1 and [*parts[0][1]] == [*range(len(parts[0][0].input_ids))]:
        return parts[0][0]
    places = [(tokens, i) for tokens, numbers in parts for i in numbers]
    skips = reads = asked = embeds = None
    if any(tokens.skips is not None for tokens, _ in parts):
        skips = [0 if tokens.skips is None else tokens.skips[i] for tokens, i in places]
    if any(tokens.reads is not None for tokens, _ in parts):
        reads = [len(tokens.input_ids[i]) if tokens.reads is None else tokens.reads[i] for tokens, i in places]
    if all(tokens.asked is not None for tokens, _ in parts):
        asked = [tokens.asked[i] for tokens, i in places if tokens.asked is not None]
    if all(tokens.embeds is not None for tokens, _ in parts):
        embeds = [tokens.embeds[i] for tokens, i in places if tokens.embeds is not None]
    return Tokens([tokens.input_ids[i] for tokens, i in places], [tokens.token_type_ids[i] for tokens, i in places],
                  skips, reads, asked, embeds)


@dataclass(frozen=True, eq=False)
class Places:
    """The tokens of one text or window, and where each stands."""

    input_ids: np.ndarray
    """int32 [T], special tokens included."""
    token_type_ids: np.ndarray
    """int32 [T]."""
    tokens: list[str]
    """The tokens themselves, as the vocabulary has them."""
    offsets: list[tuple[int, int]]
    """(place of the first character, place after the last character) of each token, in its text or its word."""
    special: list[bool]
    """Whether the tokenizer added the token."""
    words: list[int | None]
    """The number of the word that the token is a part of; None for a special token."""
    texts: list[int | None]
    """The text of a pair, 0 or 1; None for a special token."""


def tokens_of_windows(windows: Iterable[Iterable[Places]]) -> Tokens:
    """Return the tokens of all windows of some texts, one window after the other."""
    flat = [places for of_text in windows for places in of_text]
    return Tokens([places.input_ids for places in flat], [places.token_type_ids for places in flat])


class SecondTexts(NamedTuple):
    """The second texts of many pairs, each of which was tokenized once (`Tokenizer.second_texts`)."""

    texts: Sequence[str]
    encodings: Sequence[Any]
    """The encoding of each text by `tokenizers`, without special tokens."""

    @property
    def longest(self) -> int:
        """The number of the text with the most tokens."""
        return max(range(len(self.texts)), key=lambda i: len(self.encodings[i]))


@contextmanager
def counting_tokens() -> Iterator[list[int]]:
    """Yield a list to which every call of `note_tokens` in the block, by this thread, adds the tokens of inputs."""
    counts: list[int] = []
    before = _COUNTS.set(counts)
    try:
        yield counts
    finally:
        _COUNTS.reset(before)


def note_tokens(counts: Iterable[int]) -> None:
    """Add the numbers of tokens of some inputs to the list of the `counting_tokens` block of this thread, if any."""
    if (noted := _COUNTS.get()) is not None:
        noted += counts


def is_counting() -> bool:
    """Return whether this thread is in a block of `counting_tokens`."""
    return _COUNTS.get() is not None
