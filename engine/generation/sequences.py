"""A sequence: all ids of one text so far, how many of them the model has read, and the hypothesis of those.

A step reads the next n unread ids of some sequences, and asks for scores after none, the last or the last m of them.
A part of a prompt, the next token, and a continuation to score are the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Row

if TYPE_CHECKING:
    from .works import DecoderWork

ROOM = 32
"""Ids by which the array of a sequence grows at least."""


@dataclass(eq=False, slots=True)
class Sequence:
    """One text of a request that is in a session."""

    work: DecoderWork
    ids: NDArray[np.int64]
    """[at least length]: all ids so far; any value after the length."""
    length: int
    first_scored: int
    """The place of the first id after which scores are wanted; `length` if there is none."""
    best: int | None = None
    """How many of the best logits are wanted, as in `Row`; None for all."""
    read: int = 0
    """How many ids the model has read."""
    hypothesis: int | None = None
    """The number by which the decoder knows the ids that it has read; None if it has read none."""

    @property
    def unread(self) -> int:
        """Return how many ids the model has not read."""
        return self.length - self.read

    def row(self, n: int) -> Row:
        """Return the row of a step that reads the next n ids."""
        read, first = self.read, self.first_scored
        end = read + n
        wanted = 0 if first >= end else end - (first if first > read else read)     # from `first` on; faster than max
        return Row(self.work.number, self.hypothesis, self.ids[read:end], wanted, self.best)

    def append(self, token: int) -> None:
        """Add an id, after which scores are wanted."""
        length = self.length
        if length == len(self.ids):
            self.ids = np.concatenate([self.ids, np.empty(max(length, ROOM), np.int64)])
        self.ids[length] = token
        self.first_scored, self.length = length, length + 1


Followers: TypeAlias = Mapping[tuple[int, ...], list[int]]
"""By a run of ids, the ids that may not follow it."""


@dataclass(frozen=True)
class Texts:
    """The ids of R sequences for the processors of their scores."""

    tokens: NDArray[np.int64]
    """int64 [R, T]: the ids of each, prompt included; any value after its length."""
    lengths: NDArray[np.int64]
    """int64 [R]: ids of each, prompt included."""
    prompts: NDArray[np.int64]
    """int64 [R]: ids of the prompt."""
    penalties: NDArray[np.float32]
    """float32 [R]: the repetition penalty."""
    followers: tuple[Followers, ...]
    """[R]: what ends runs of ids of the source; empty without `encoder_no_repeat_ngram_size`."""

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, rows: Iterable[tuple[NDArray[np.int64], int, int, float, Followers]]) -> Texts:
        """Return the texts of rows (ids, length, ids of the prompt, repetition penalty, followers)."""
        ids, lengths, prompts, penalties, followers = zip(*rows, strict=True)
        tokens = np.zeros((len(ids), max(lengths)), np.int64)
        for row, row_ids, length in zip(tokens, ids, lengths, strict=True):
            row[:length] = row_ids[:length]
        return cls(tokens, np.array(lengths), np.array(prompts), np.array(penalties, np.float32), followers)
