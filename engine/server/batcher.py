"""One thread that owns a model: it takes what waits, computes it, and hands over the requests that are whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import Overloaded
from ..encoding.call import PLAIN
from ..methods.steps import Tokenized
from ..methods.workload import Computation
from ..text.tokenizer import gathered
from .admission import Admission, Room
from .settings import Limit
from .turns import Turns


@dataclass(eq=False)
class Pending:
    """A request on its way through a service."""

    task: str
    inputs: Any
    options: dict[str, Any]
    key: str                            # the API key whose requests take turns with those of other keys
    deadline: float
    """The time.monotonic() after which nobody waits for it."""
    future: Future[Any] | None
    """What its caller has; None once it has its result."""
    room: Room
    """What counts its memory."""
    base: int
    """The bytes that its inputs take."""
    owns_room: bool = True
    """Whether the room is closed with the answer, because nobody else will."""
    part: Future[Any] | None = None
    """What a worker does for it now, or did last."""
    kind: tuple[str, str] = "", ""
    """What it asks for beside its inputs: its task and its options, from `_tokenize` on."""
    work: Tokenized = field(init=False)      # from `_admit` on, when its texts are tokenized
    rows: list[Any] = field(default_factory=list)
    """The result of each sequence, None as long as there is none."""
    taken: int = 0
    """How many of its sequences a batch has taken."""
    computed: int = 0
    """How many of its sequences were computed."""
    settled: bool = False
    """Whether its future has its result, or nobody waits for one."""
    waiting_since: float = 0.0
    """The time.monotonic() at which it began to wait for a batch."""
    tokenize: float = 0.0
    queue: float = 0.0
    compute: float = 0.0
    """tokenize, queue, compute: the seconds that `Times` of its answer give."""



@dataclass
class Counters:
    """What the batches of a service were, from its start."""

    batches: int = 0
    sequences: int = 0
    tokens: int = 0
    mixed_batches: int = 0
    """Batches with sequences of several requests."""
    unlike_batches: int = 0
    """Batches whose requests differ in their task, prompt or other options."""
    busy_seconds: float = 0.0
    by_sequences: list[int] = field(default_factory=lambda: [0] * 14)
    """How many batches had up to 2^i sequences, for each i; the last one counts all larger batches."""
    by_tokens: list[int] = field(default_factory=lambda: [0] * 22)
    """The same for tokens."""


class Batcher:
    """The thread of a model, and the requests that wait for it.

    `lock` guards `turns`, `admission` and what callers keep beside them. The thread sleeps until `added` is called.
    """

    def __init__(self, turns: Turns, admission: Admission, done: Callable[[list[Pending]], object],
                 failed: Callable[[Pending, BaseException], object], expired: Callable[[Pending], object]):
        """done: gets the requests of which all sequences were computed. failed: gets one that raised an error.

        expired: gets one whose deadline came while it waited. The model's thread calls all three, without the lock.
        """
        self.lock = threading.Lock()
        self.turns, self.admission, self.counters = turns, admission, Counters()
        self.in_flight = 0
        """The tokens of the batch that is computed now."""
        self._done, self._failed, self._expired = done, failed, expired
        self._changed = threading.Condition(self.lock)
        self._sleeps = self._ends = False       # whether the thread waits for a request, and whether it shall end
        self._looked = 0.0      # the time.monotonic() of the last look at deadlines
        self._thread = threading.Thread(target=self._run, name="engine-batcher", daemon=True)
        self._thread.start()

    def added(self) -> None:
        """Wake the thread, because a request waits; the caller holds the lock."""
        if self._sleeps:
            self._sleeps = False
            self._changed.notify()

    def end(self) -> None:
        """End the thread once nothing waits, and wait for its end."""
        with self.lock:
            self._ends = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        """Compute batches, and give up late requests, until `end` is called and nothing waits."""
        while True:
            late: list[Pending] = []
            with self.lock:
                self.in_flight = 0
                while not (batch := self._take(late)) and not late:
                    if self._ends:
                        return
                    self._sleeps = True
                    self._changed.wait()
                self.in_flight = sum(request.work.lengths[i] for request, places in batch for i in places)
            for request in late:
                self._expired(request)
            if batch:
                self._compute(batch)

    def _take(self, late: list[Pending]) -> list[tuple[Pending, list[int]]]:
        """Return the next batch, and add to `late` the requests whose deadline has come."""
        now = time.monotonic()
        if now > self._looked + LOOK:
            self._looked = now
            late += [request for request in self.turns if request.deadline < now]
            for request in late:
                self.turns.drop(request)
        return self.turns.take()

    def _compute(self, batch: list[tuple[Pending, list[int]]]) -> None:
        """Compute a batch, hand over the requests of which every sequence is computed now, and count the batch."""
        computation, tokens = batch[0][0].work.computation, self.in_flight
        begun, succeeded = time.monotonic(), True
        try:
            _run(computation, batch)
        except BaseException as error:
            succeeded = False
            if len(batch) == 1:
                self._failed(batch[0][0], error)
            else:
                for request, places in batch:       # each alone, so that one bad request does not fail the others
                    try:
                        _run(computation, [(request, places)])
                    except BaseException as alone:
                        self._failed(request, alone)
        ended = time.monotonic()
        for request, places in batch:
            request.queue += begun - request.waiting_since
            request.compute += ended - begun
            request.waiting_since = ended
            request.computed += len(places)
            self._count(request, places)
        self._done([request for request, _ in batch if request.computed == len(request.rows) and not request.settled])
        with self.lock:
            if succeeded:       # the time of a batch that failed says nothing about the rate
                self.admission.measure(tokens, ended - begun)
            counters = self.counters
            counters.batches += 1
            sequences = sum(len(places) for _, places in batch)
            counters.sequences += sequences
            for sizes, size in ((counters.by_sequences, sequences), (counters.by_tokens, tokens)):
                sizes[min(len(sizes) - 1, max(0, size - 1).bit_length())] += 1
            counters.tokens += tokens
            counters.busy_seconds += ended - begun
            counters.mixed_batches += len(batch) > 1
            counters.unlike_batches += len(batch) > 1 and len({request.kind for request, _ in batch}) > 1

    def _count(self, request: Pending, places: Sequence[int]) -> None:
        """Count the memory of rows that turned out to be larger than usual ones; a request that needs too much ends."""
        beyond = request.work.workload.beyond
        more = sum(beyond(request.rows[i]) for i in places if request.rows[i] is not None)
        if more and not request.settled:
            try:
                request.room.hold(request.room.size + more)
            except (Limit, Overloaded) as error:
                self._failed(request, error)


LOOK = 0.05
"""The seconds between two looks at the deadlines of all that wait."""


def _run(computation: Computation, batch: Sequence[tuple[Pending, list[int]]]) -> None:
    """Compute the sequences of a batch, and keep the row of each with its request."""
    targets = [(request.rows, i) for request, places in batch for i in places]      # where each row goes
    sequences = (request.work.sequences[i] for request, places in batch for i in places)
    tokens = gathered([(part.tokens, [i]) for part, i in sequences])
    shared = len(batch) > 1
    for numbers, found in computation.rows(tokens, PLAIN):
        for number, row in zip(numbers, found, strict=True):
            rows, i = targets[number]
            # A view of an array of the whole batch would keep that alive until the last of its requests is answered.
            rows[i] = row.copy() if shared and isinstance(row, np.ndarray) else row
