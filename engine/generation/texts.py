"""`Texts`: the ids of some sequences, for the processors that change their scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
