"""The interface of logits processors, which change the scores of the next token, for many rows at once.

A processor looks at the tokens of R rows and returns a `Change` of their scores, or None if it changes no row. The
scores are logits in greedy search and sampling, and log probabilities in a beam search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .texts import Texts


class Change(ABC):
    """A change of the scores of R rows."""

    @abstractmethod
    def apply(self, scores: NDArray[np.float32]) -> None:
        """Change scores [R, V] in place."""


@dataclass(frozen=True)
class Removal(Change):
    """A change that only sets scores to -inf, for tokens that do not depend on the scores."""

    most: int
    """The most tokens that it removes from one row."""

    @abstractmethod
    def removes(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these ids [R, k] it removes: bool [R, k]."""


class Processor(Protocol):
    """One rule of a `GenerationConfig`, such as no_repeat_ngram_size."""

    @property
    def removes_only(self) -> bool:
        """Return whether each of its changes is a `Removal`."""

    def change(self, texts: Texts) -> Change | None:
        """Return the change for these rows, or None if it changes no row."""
