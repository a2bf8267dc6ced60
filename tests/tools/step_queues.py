"""Queues of decoders whose parts of prompts have random sizes, and requests of all kinds in them."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from engine.base.stop import NEVER, Stop
from engine.generation import calls
from engine.generation.checks import checked
from engine.generation.results import Generated, Request
from engine.generation.schedule import Budget, Pace, Schedule
from engine.generation.scoring import LastLogits, Scoring
from engine.generation.step_queue import StepQueue
from engine.generation.tickets import DecoderTicket


class RandomParts(Schedule):
    """A schedule that reads 1 to 300 tokens of prompts in a step, at random."""

    def __init__(self, budget: Budget, vocab_size: int, rng: random.Random, most: int = 300):
        super().__init__(budget, vocab_size)
        self._rng, self._most = rng, most

    def prompt_tokens(self, decoding: int, short: int = 0) -> int:
        """Return a random size, often a small one."""
        return self._rng.randint(1, self._rng.choice([4, 40, self._most]))


_PACE = Pace()


def queue_of(stepper: Any, rng: random.Random | None = None, budget: Budget | None = None, most: int = 300,
             **options: Any) -> StepQueue:
    """Return a queue. rng: for parts of random sizes. options: of `StepQueue`."""
    budget = budget or Budget()
    schedule = None if rng is None else RandomParts(budget, stepper.vocab_size, rng, most)
    return StepQueue(stepper, budget, schedule=schedule, **options)


def submit(queue: StepQueue, request: Any, priority: int = 0, owner: str = "", deadline: float | None = None,
           key: str = "", pace: Pace | None = _PACE) -> DecoderTicket:
    """Submit a `Request`, which is checked, or a work, as a session does it. key: whose prefixes it shares."""
    work = checked(queue._stepper, request, queue.budget) if isinstance(request, Request) else request
    work.cache_key = key
    return queue.submit(work, priority, owner, deadline or 0.0, session=queue, pace=pace)


def step_often(queue: StepQueue, times: int) -> None:
    """Compute this number of steps."""
    for _ in range(times):
        queue.step()


def finish(queue: StepQueue, most: int = 100_000) -> None:
    """Step until nothing is left to do."""
    for _ in range(most):
        if not queue.step():
            return
    raise AssertionError("the queue comes to no end")


def generate(stepper: Any, requests: Iterable[Request], budget: Budget | None = None, stop: Stop = NEVER
             ) -> list[list[Generated]]:
    """Return the results of requests, which a queue of their own computes, or the queue that is given."""
    queue = stepper if isinstance(stepper, StepQueue) else StepQueue(stepper, budget)
    works = [checked(queue._stepper, request, queue.budget) for request in requests]
    return calls.run(queue, works, stop, "input {}".format)


def score(stepper: Any, requests: Sequence[Request], continuations: Sequence[Sequence[int]],
          budget: Budget | None = None, stop: Stop = NEVER, **options: Any) -> list[list[float]]:
    """Return the log probabilities of continuations; options: of `Scoring`, and the others are those of `generate`."""
    queue = stepper if isinstance(stepper, StepQueue) else StepQueue(stepper, budget)
    works = [Scoring(queue._stepper, *pair, **options) for pair in zip(requests, continuations, strict=True)]
    return calls.run(queue, works, stop)


def last_logits(stepper: Any, groups: Any, ids: Sequence[int], budget: Budget | None = None, **options: Any) -> Any:
    """Return for each group of prompts the logits of ids after each prompt.

    options: of `engine.generation.calls.run`. The other arguments are those of `generate`.
    """
    queue = stepper if isinstance(stepper, StepQueue) else StepQueue(stepper, budget)
    return calls.run(queue, [LastLogits(prompts, [*ids]) for prompts in groups], **options)
