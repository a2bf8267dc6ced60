"""Hold the live hypotheses of many requests in arrays, one row for each hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Row

ROOM = 32
"""Columns by which the array of tokens grows at least."""


@dataclass(frozen=True)
class Children:
    """The hypotheses that continue after a step; hypotheses of one request lie side by side."""

    rows: NDArray[np.intp]
    """[C]: the row that each child continues."""
    ids: NDArray[np.int64]
    """[C]: its new token."""
    totals: NDArray[np.float64]
    """[C]: the sum of the log probabilities of its new tokens."""


class Paths:
    """R hypotheses of requests that share one `GenerationConfig`. The rows of a request lie side by side."""

    def __init__(self) -> None:
        self.tokens = np.zeros((0, ROOM), np.int64)
        """int64 [R, at least T]: the ids of each hypothesis, prompt included; any value after its length."""
        self.lengths = np.zeros(0, np.int64)
        """int64 [R]: tokens of each hypothesis, prompt included."""
        self.prompts = np.zeros(0, np.int64)
        """int64 [R]: tokens of the prompt."""
        self.limits = np.zeros(0, np.int64)
        """int64 [R]: the most tokens, prompt included."""
        self.totals = np.zeros(0, np.float64)
        """float64 [R]: the sum of the log probabilities of the new tokens."""
        self.parents = np.zeros(0, np.int64)
        """int64 [R]: the model's hypothesis of all tokens but the last one; -1 before the model has read the prompt."""
        self.owners = np.zeros(0, np.int64)
        """int64 [R]: the number that `SourceStepper.open` gave the request."""

    def __len__(self) -> int:
        return len(self.owners)

    def add(self, owner: int, tokens: NDArray[np.int64], prompt: int, limit: int) -> None:
        """Append a request that the model has not read yet. tokens: its prompt of `prompt` tokens and forced tokens."""
        row = len(self)
        self._widen(len(tokens))
        self.tokens = np.concatenate([self.tokens, np.zeros((1, self.tokens.shape[1]), np.int64)])
        self.tokens[row, : len(tokens)] = tokens
        self.lengths = np.append(self.lengths, len(tokens))
        self.prompts = np.append(self.prompts, prompt)
        self.limits = np.append(self.limits, limit)
        self.totals = np.append(self.totals, 0.0)
        self.parents = np.append(self.parents, -1)
        self.owners = np.append(self.owners, owner)

    def rows(self, best: int | None) -> list[Row]:
        """Return the rows of the next step: each hypothesis's tokens that the model has not read. best: as in `Row`."""
        last = self.tokens[np.arange(len(self)), self.lengths - 1]
        return [
            Row(owner, parent, last[i : i + 1], best=best) if parent >= 0
            else Row(owner, None, self.tokens[i, : self.lengths[i]], best=best)
            for i, (owner, parent) in enumerate(zip(self.owners.tolist(), self.parents.tolist(), strict=True))
        ]

    def step(self, children: Children, hypotheses: NDArray[np.int64]) -> None:
        """Replace the hypotheses by their children. hypotheses: the model's number of each old row."""
        rows = children.rows
        if len(rows) != len(self) or (rows != np.arange(len(rows))).any():  # else nothing is copied
            self.keep(rows)
        self.totals, self.parents = children.totals, hypotheses[rows]
        if len(rows):
            self._widen(int(self.lengths.max()) + 1)
            self.tokens[np.arange(len(rows)), self.lengths] = children.ids
        self.lengths = self.lengths + 1

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Keep these rows alone."""
        self.tokens, self.owners = self.tokens[rows], self.owners[rows]
        self.lengths, self.prompts, self.limits = self.lengths[rows], self.prompts[rows], self.limits[rows]
        self.totals, self.parents = self.totals[rows], self.parents[rows]

    def _widen(self, width: int) -> None:
        """Make room for this number of tokens."""
        have = self.tokens.shape[1]
        if width > have:
            self.tokens = np.pad(self.tokens, ((0, 0), (0, max(width - have, have, ROOM))))
