"""What services of all models share: requests on their way, and how each gets its answer or its error, once."""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any

from ..base.errors import LATE_REQUEST, Cancelled, Closing, InputError, Overloaded, TimedOut, UnsupportedError
from ..base.stop import Stop
from ..queues.work_queue import WorkQueue
from .admission import Memory, Room
from .cpu_turns import CpuTurns
from .refusals import Refusal
from .settings import Limit
from .workers import Result, WorkerCall, Workers


@dataclass(eq=False)
class Pending:
    """A request on its way through a service."""

    task: str
    inputs: Any
    options: dict[str, Any]
    key: str
    """The API key whose requests take turns with those of other keys."""
    deadline: float
    """The time.monotonic() after which nobody waits for it."""
    future: Result | None
    """The future that the caller holds; None once the future has its result."""
    room: Room
    """What counts its memory."""
    base: int
    """The bytes that its inputs take."""
    owns_room: bool
    """Whether the room is closed with the answer, because nobody else will."""
    streams: bool = False
    """Whether its caller reads the new tokens one by one."""
    part: WorkerCall | None = None
    """What a worker does for it now, or did last."""
    prepared: Any = None
    """Its inputs, ready for the model."""
    tickets: tuple[Any, ...] = ()
    """The tickets of its works in the queue of the model."""
    settled: bool = False
    """Whether its future has its result, or nobody waits for one."""
    tokenize: float = 0.0
    """The seconds of `Times.tokenize`."""

    def __post_init__(self) -> None:
        self.stop = Stop(0.0 if self.deadline == math.inf else self.deadline, LATE_REQUEST)

    @property
    def owner(self) -> Hashable:
        """Whose share of a model that answers step by step it takes: without keys each request has its own."""
        return self.key or self

    def end(self) -> None:
        """End what is done for it, once it is settled; the caller holds no lock."""
        self.stop.cancelled = True
        if self.part is not None:
            self.part.cancel()      # it ends at its next step
        for ticket in self.tickets:
            ticket.cancel()
        self.part, self.tickets = None, ()


@dataclass(frozen=True)
class Times:
    """How long the parts of a request took, in seconds."""

    tokenize: float = 0.0
    queue: float = 0.0
    """From the last token to the first batch, and between its batches."""
    compute: float = 0.0
    """The batches that a part of the request was in."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one request."""

    value: Any
    """What the method of the library returns for these inputs: an array, or a list, or `SparseVectors`."""
    tokens: list[int]
    """How many tokens the model read of each input; of `rank`, of each pair of the query and a document."""
    truncated: list[bool]
    """Whether each input was cut."""
    times: Times
    bytes: int = 0
    """An estimate of the bytes in memory of the value, and of the body that is written from it."""
    new_tokens: int = 0
    """How many tokens a model has written."""


@dataclass
class RequestCounts:
    """What became of the requests to a service. Counters grow from the start; gauges say what is there now."""

    waiting_requests: int = 0
    """Gauge: requests that were accepted and are not answered."""
    waiting_bytes: int = 0
    """Gauge: the memory of all requests that are open: bodies, values, tokens, results and answers."""
    answered: int = 0
    """Counter: requests that got their answer."""
    refused: int = 0
    """Counter: requests that got `Overloaded`."""
    expired: int = 0
    """Counter: requests that got `TimedOut`."""
    cancelled: int = 0
    """Counter: requests that were dropped because nobody waits for them."""
    failed: int = 0
    """Counter: requests whose computation raised an error."""


LONG = 64
"""A request of more inputs is tokenized and finished by a thread for long requests."""
LONG_CHARACTERS = 2**14
"""So is a request whose inputs have more characters, or take more bytes."""
LONG_BYTES = 2**19
"""So is an answer that takes more bytes: 50 vectors of 384 numbers take a millisecond."""


class RequestService(ABC):
    """One loaded model that answers many requests at once; it knows nothing of HTTP. Any thread may call it."""

    model: Any
    _queue: WorkQueue
    _turns: CpuTurns
    kind: str
    """The kind of use of the model, as `engine.load` calls it."""
    fingerprint = ""
    """Says whose bits the answers are, of a model that writes texts."""
    workers: Workers
    """The threads that prepare requests and write their answers."""
    memory: Memory
    """The bytes of all requests together."""

    def __init__(self, threads: int, max_bytes: int, beside: RequestService | None):
        """threads: those for short requests. max_bytes: the most memory of all open requests.

        beside: a service whose workers and whose memory this one shares, in place of its own ones.
        """
        self.workers = Workers(threads) if beside is None else beside.workers
        self.memory = Memory(max_bytes) if beside is None else beside.memory
        self._turns = CpuTurns() if beside is None else beside._turns
        self._owns_workers, self._beside = beside is None, beside
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)       # notified when no request is open any more
        self._open: set[Pending] = set()        # the requests that have neither an answer nor an error
        self._closing = self._closed = False
        self._done = RequestCounts()        # its counters; `_counts` has the gauges
        self._process = os.getpid()

    def _start(self, limit: int | None = None) -> None:
        """Start the thread of the model, and warm it. limit: the most tokens of a batch.

        The queue of the model shares the CPUs with that of another one in turns, if there is one.
        """
        if self._beside is not None:
            for service in (self, self._beside):
                if isinstance(service._queue.cpus, nullcontext):
                    service._queue.cpus = self._turns.turn()
        self._queue.start(self, limit)
        try:
            self._warm()
        except BaseException:
            self.close(drain=False)
            raise

    @property
    @abstractmethod
    def tasks(self) -> frozenset[str]:
        """What the model can be asked for."""

    @property
    def serves(self) -> str:
        """What the model serves, for messages."""
        return f"this model serves {', '.join(sorted(self.tasks))}"

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """The most tokens of a text, special tokens included; a longer one is cut or refused."""

    @property
    def backlog(self) -> float:
        """The seconds for which the model has work, during which the event loop may rest.

        0 where somebody waits for each next step of the model, so that the loop must not rest.
        """
        return 0.0

    @abstractmethod
    def _warm(self) -> None:
        """Let the model compute, so that its weights are in memory, and its first rates are measured."""

    @abstractmethod
    def statistics(self) -> Any:
        """Return what waits, what was done, and how fast."""

    @abstractmethod
    def _check_first(self, key: str) -> None:
        """Raise `Overloaded` if even the shortest request would wait too long; the caller holds the lock."""

    @abstractmethod
    def _prepare(self, request: Pending) -> Any:
        """Return what `_admit` gets, or the steps that make it."""

    @abstractmethod
    def _admit(self, request: Pending, prepared: Any) -> None:
        """Let a request wait for the model, unless it would wait too long; otherwise settle it."""

    def _is_long(self, task: str, inputs: Any, size: int) -> bool:
        """Return whether a request is for the threads of long requests. inputs: unchecked. size: their bytes."""
        if size > LONG_CHARACTERS or not isinstance(inputs, (list, tuple)) or len(inputs) > LONG:
            return True
        return sum(len(row) for row in inputs if isinstance(row, str)) > LONG_CHARACTERS

    def submit(self, task: str, inputs: Any, options: Mapping[str, Any] | None = None, *, key: str = "",
               deadline: float | None = None, room: Room | None = None, streams: bool = False) -> Result:
        """Return at once a future of the `Answer` to a request. `Future.cancel` drops the request.

        task, inputs, options: as the service says.
        key: whose request it is. Each key gets the same share of the model.
        deadline: the `time.monotonic()` after which nobody waits for the answer; None for no limit.
        room: what counts the memory of the request, which has that of the inputs already; its owner closes it once the
            answer is sent. None for one that is closed with the answer.
        streams: whether the value of the answer is a `TokenStream`, as soon as the request has been taken.

        The future may have these errors: `InputError` for a wrong request, of which `TextTooLong` has the tokens and
        the limit of a text that may not be cut, `UnsupportedError` for a task or an option that the model lacks,
        `Limit` for one that needs more memory than a request may, `Overloaded` with `retry_after` seconds, `TimedOut`
        at the deadline, `Closing` after `close`, and whatever the computation of this request alone raises.

        Raises `InputError` in a process that was forked from the one of the service, whose threads it has not.
        """
        if os.getpid() != self._process:
            raise InputError("this process was forked from that of the service, and has none of its threads; make a "
                             f"{type(self).__name__} here")
        future = Result()
        until = math.inf if deadline is None else deadline
        request = Pending(task, inputs, self._options(task, options, key), key, until, future,
                          room or Room(self.memory, key), base=0 if room is None else room.size,
                          owns_room=room is None, streams=streams)
        with self._lock:
            error: Exception | None = None
            if self._closing:
                error = Closing()
            else:
                try:
                    self._check_first(key)
                except Overloaded as refusal:
                    error = refusal
                    self._done.refused += 1
            if error is None:
                self._open.add(request)
        if error is not None:
            future.set_exception(error)
            return future
        future.add_done_callback(lambda future: self._cancel(request) if future.cancelled() else None)
        is_long = self._is_long(task, inputs, request.base)
        self._hand_over(request, lambda: self._prepare(request), self._admit, is_long)
        return future

    def _options(self, task: str, options: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
        """Return the options of a request with what its key adds to them."""
        return dict(options or {})

    def _hand_over(self, request: Pending, call: Callable[[], Any], then: Callable[[Pending, Any], object], long: bool
                   ) -> None:
        """Let the workers do a part of a request, and then go on with its result; an error settles the request."""

        def done(result: Any, error: BaseException | None) -> None:
            if error is not None:
                self._settle(request, error)
            elif not request.settled:
                then(request, result)

        request.part = WorkerCall(call, done, request.key, request.deadline)
        self.workers.add(request.part, long)

    def _settle(self, request: Pending, result: Answer | BaseException) -> None:
        """Give a request its answer or its error, once."""
        with self._lock:
            if not self._forget(request):
                return
            if isinstance(result, Answer):
                self._done.answered += 1
            elif isinstance(result, Overloaded):
                self._done.refused += 1
            elif isinstance(result, TimedOut):
                self._done.expired += 1
            elif isinstance(result, Cancelled):
                self._done.cancelled += 1
            elif not isinstance(result, InputError | Limit | Refusal | UnsupportedError):
                self._done.failed += 1
        request.end()
        self._give(request, result)

    def _give(self, request: Pending, result: Answer | BaseException) -> None:
        """Give the future of a request its result, unless it has one."""
        # The future knows the request, to cancel it: each would keep the other alive, and the rows with them.
        future, request.future = request.future, None
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(result, Answer):
            future.set_result(result)
        else:
            clear_frames(result.__traceback__)      # which hold the tokens of what was refused
            future.set_exception(result)

    def _forget(self, request: Pending) -> bool:
        """Forget a request; return False if that was done before. The caller holds the lock, and then ends it."""
        if request.settled:
            return False
        request.settled = True
        self._open.discard(request)
        if request.owns_room:
            request.room.close()
        if not self._open:
            self._empty.notify_all()
        return True

    def _cancel(self, request: Pending) -> None:
        with self._lock:
            self._done.cancelled += self._forget(request)
        request.end()

    def _counts(self) -> dict[str, Any]:
        """Return what `RequestCounts` has; the caller holds the lock."""
        return vars(self._done) | {"waiting_requests": len(self._open), "waiting_bytes": self.memory.used}

    def close(self, *, drain: bool = True) -> None:
        """Stop admission, so that later requests get `Closing`, answer all that were accepted, and end the threads.

        drain: False gives `Closing` to all requests that have no answer yet. A second call does nothing, nor does one
        in a process that was forked from that of the service, which has none of its threads. A service whose workers
        another one has is closed before that one.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closing = True
            if self._closed:
                return
            self._closed = True
            waiting = [] if drain else [*self._open]
        for request in waiting:
            self._settle(request, Closing())
        with self._lock:
            while self._open:
                self._empty.wait()
        if self._owns_workers:
            self.workers.end()      # first, because one may have a ticket for a request that was settled meanwhile
        self._end()

    def _end(self) -> None:
        """End the thread of the model, after the last request."""
        self._queue.stop(self)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
