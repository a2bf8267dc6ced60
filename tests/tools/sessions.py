"""Sessions whose parts of prompts have random sizes, and requests of all kinds."""

from __future__ import annotations

import random
from typing import Any

from engine.generation.schedule import Budget, Pace, Schedule
from engine.generation.session import Session


class RandomParts(Schedule):
    """A schedule that reads 1 to 300 tokens of prompts in a step, at random."""

    def __init__(self, budget: Budget, vocab_size: int, rng: random.Random, most: int = 300):
        super().__init__(budget, vocab_size, Pace())
        self._rng, self._most = rng, most

    def size(self, decoding: int) -> int:
        """Return a random size, often a small one."""
        return self._rng.randint(1, self._rng.choice([4, 40, self._most]))


def shared_session(stepper: Any, rng: random.Random | None = None, budget: Budget | None = None, most: int = 300
                   ) -> Session:
    """Return a session that several threads use. rng: for parts of random sizes."""
    budget = budget or Budget()
    schedule = None if rng is None else RandomParts(budget, stepper.vocab_size, rng, most)
    return Session(stepper, budget, pace=Pace(), schedule=schedule)


def finish(session: Session, most: int = 100_000) -> None:
    """Step until nothing is left to do."""
    for _ in range(most):
        if not session.step():
            return
    raise AssertionError("the session comes to no end")
