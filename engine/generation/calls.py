"""Submit several works of one caller to the queue, and give their results in order; methods/ and speech/ call this."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backends.batch import Batch
from ..base.errors import EngineError, located
from ..base.stop import NEVER, Stop
from .scoring import AllLogits
from .step_queue import StepQueue
from .tickets import DecoderTicket
from .works import DecoderWork

Task: TypeAlias = Generator[DecoderWork, Any, None]
"""A generator that yields one work after the other, and is sent the results of each."""


class Results(Iterator[Any]):
    """An iterator over the results of works, in their order; `next` waits, and raises the error of a work that fails.

    It is no generator function, because Python, when it collects a generator, runs its `finally` in the middle of other
    code. This iterator has nothing to run then: its tickets die with it, and that ends their works.
    """

    def __init__(self, queue: StepQueue, works: Iterable[DecoderWork], stop: Stop = NEVER,
                 place: Callable[[int], str] | None = None):
        """Submit all works. place: returns how a message names work number i; None if each error names its work."""
        owner = object()        # each call is an owner of its own, so that calls get equal shares of the tokens
        self._tickets = deque(queue.submit(work, owner=owner, stop=stop) for work in works)
        self._given, self._place = 0, place     # `_given`: how many results were returned

    def __next__(self) -> Any:
        """Wait for the results of the next work, and return them; an error begins with the name of the work."""
        if not self._tickets:
            raise StopIteration
        with nullcontext() if self._place is None else located(self._place(self._given)):
            results = self._tickets[0].result()
        self._tickets.popleft()     # after an error, the failed work stays in front for `close`
        self._given += 1
        return results

    def close(self) -> None:
        """Cancel the works whose results were not returned."""
        while self._tickets:
            self._tickets.popleft().cancel()


def run(queue: StepQueue, works: Iterable[DecoderWork], stop: Stop = NEVER, place: Callable[[int], str] | None = None
        ) -> list[Any]:
    """Return the results of works, in order. The arguments are those of `Results`."""
    with closing(Results(queue, works, stop, place)) as results:
        return [*results]


def all_logits(queue: StepQueue, sources: Sequence[Batch], texts: Sequence[NDArray[np.int64]], stop: Stop = NEVER
               ) -> list[NDArray[np.float32]]:
    """Return the logits after each token of each text: float32 [n, V] for a text of n tokens, n at least 1.

    sources: the packed source of each text. V: the size of the vocabulary.
    """
    works = [AllLogits(ids, queue.vocab_size, source, source.tokens)
             for source, ids in zip(sources, texts, strict=True)]
    return run(queue, works, stop)


def run_tasks(queue: StepQueue, tasks: Iterable[Task], stop: Stop = NEVER) -> None:
    """Run tasks to their ends, side by side: as soon as a work has ended, its task gets the results, and goes on.

    A work that fails raises its `EngineError` inside its task, at the `yield`.
    """
    owner, running = object(), [*tasks]
    waiting: deque[tuple[Task, DecoderTicket | None]] = deque((task, None) for task in running)
    tickets: dict[DecoderTicket, Task] = {}
    try:
        while waiting or tickets:
            while waiting:
                task, ended = waiting.popleft()
                # Hold no work in a variable here: it would keep its memory while the next work is computed.
                with suppress(StopIteration):
                    tickets[queue.submit(_next_work(task, ended), owner=owner, stop=stop)] = task
            if tickets:     # wait until one of them has ended
                queue.wait([ticket.entry for ticket in tickets], None)
            for ticket in [ticket for ticket in tickets if ticket.done]:
                waiting.append((tickets.pop(ticket), ticket))
    finally:
        for ticket in tickets:
            ticket.cancel()
        for task in running:
            task.close()


def _next_work(task: Task, ticket: DecoderTicket | None) -> DecoderWork:
    """Run a task up to its next work, and return this. ticket: that of its last work, ended; None to begin the task."""
    if ticket is None:
        return next(task)
    try:
        results = ticket.result()
    except EngineError as error:
        return task.throw(error)
    return task.send(results)
