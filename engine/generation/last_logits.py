"""Compute the logits of a few tokens after whole prompts, of which nothing is generated.

Prompts of one group begin alike, and the model reads their common start once: it is the parent of their other tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..checks import check_deadline, deadline_of
from .batching import Budget
from .candidates import checked
from .scoring import LOGITS
from .steps import Row, Stepper


def last_logits(
    stepper: Stepper,
    groups: Sequence[Sequence[NDArray[np.int64]]],
    ids: Sequence[int],
    *,
    budget: Budget | None = None,
    timeout: float | None = None,
    advance: Callable[[int], object] = lambda done: None,
) -> list[NDArray[np.float32]]:
    """Return for each group the logits of `ids` after each of its prompts: float32 [prompts, ids].

    A prompt has the same logits, to the last bit, alone and in any group. budget and timeout are those of `generate`.
    advance: gets the number of prompts that have just been completed. Raises `TimedOut`.
    """
    return _Run(stepper, ids, budget or Budget(), deadline_of(timeout), advance).run(groups)


class _Run:
    """The prompts of one call, and those of them that wait for the next step."""

    def __init__(self, stepper: Stepper, ids: Sequence[int], budget: Budget, deadline: float,
                 advance: Callable[[int], object]):  # fmt: skip
        self.stepper, self.ids, self.budget, self.deadline, self.advance = stepper, ids, budget, deadline, advance
        self.most = max(1, min(budget.rows, LOGITS // stepper.vocab_size))
        self.rows: list[Row] = []
        self.places: list[tuple[int, int]] = []
        """The group of each waiting row, and its place in the group."""
        self.opened: list[int] = []
        """The requests of groups of which a row waits, or may still come."""
        self.found: list[NDArray[np.float32]] = []

    def run(self, groups: Sequence[Sequence[NDArray[np.int64]]]) -> list[NDArray[np.float32]]:
        try:
            for g, group in enumerate(groups):
                self.found.append(np.empty((len(group), len(self.ids)), np.float32))
                self.opened.append(self.stepper.open(None))
                shared = common_start(group)
                parent = self._parent(group[0][:shared]) if shared else None
                for i, prompt in enumerate(group):
                    self._wait(Row(self.opened[-1], parent, prompt[shared:]), (g, i))
            self._flush()
        finally:
            self._close(0)
        return self.found

    def _parent(self, tokens: NDArray[np.int64]) -> int:
        check_deadline(self.deadline)
        return int(self.stepper.step([Row(self.opened[-1], None, tokens)]).hypotheses[0])

    def _wait(self, row: Row, place: tuple[int, int]) -> None:
        tokens = sum(len(waiting.tokens) for waiting in self.rows)
        if self.rows and (len(self.rows) >= self.most or tokens + len(row.tokens) > self.budget.tokens):
            self._flush()
        self.rows.append(row)
        self.places.append(place)

    def _flush(self) -> None:
        if not self.rows:
            return
        check_deadline(self.deadline)
        scores = self.stepper.step(self.rows)
        logits = checked(scores.logits[:, list(self.ids)])
        for (group, i), line in zip(self.places, logits, strict=True):
            self.found[group][i] = line
        self.stepper.release(scores.hypotheses.tolist())
        self.advance(len(self.rows))
        self.rows, self.places = [], []
        self._close(1)

    def _close(self, kept: int) -> None:
        """Close the open requests, except the last `kept` ones."""
        while len(self.opened) > kept:
            self.stepper.close(self.opened.pop(0))


def common_start(prompts: Sequence[NDArray[np.int64]]) -> int:
    """Return how many tokens all prompts begin with, less than the shortest has; 0 for a single prompt."""
    if len(prompts) < 2:
        return 0
    most = min(map(len, prompts)) - 1
    differs = np.any([prompt[:most] != prompts[0][:most] for prompt in prompts[1:]], axis=0)
    return int(differs.argmax()) if differs.any() else most
