"""`RequestService`: the base class of the services of all models, which gives each request one answer or one error.

A request is prepared by a worker, waits in the queue of the model, and is finished by a worker again. The subclasses
are in `service.py`, `text_service.py` and `speech_service.py`; `app.py` calls `submit`.
"""

from __future__ import annotations

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
    """A request that a service has accepted, until it has its answer. The lock of the service guards `settled`."""

    task: str
    inputs: Any
    options: dict[str, Any]
    key: str
    """The name of the client, by its API key, or ""; clients take turns."""
    stop: Stop
    """The deadline of its client; cancelled once it is settled, which also ends its call in a worker."""
    future: Result | None
    """The future that the caller holds; None once the future has its result."""
    room: Room
    """Counts its memory."""
    base: int
    """The bytes that its inputs take."""
    owns_room: bool
    """Whether the service closes the room with the answer; otherwise the caller of `submit` closes it."""
    streams: bool = False
    """Whether its caller reads the new tokens one by one."""
    prepared: Any = None
    """Its inputs, ready for the model."""
    tickets: tuple[Any, ...] = ()
    """The tickets of its works in the queue of the model."""
    settled: bool = False
    """Whether it has been answered, refused or cancelled, so that nothing more may be done for it."""
    tokenize: float = 0.0
    """The seconds for which workers have prepared it so far."""

    @property
    def owner(self) -> Hashable:
        """The owner whose share of a model with steps it uses: its key, or without keys the request itself."""
        return self.key or self

    def end(self) -> None:
        """Stop its call and its tickets once it is settled. The caller holds no lock: callbacks of tickets run here."""
        self.stop.cancelled = True
        for ticket in self.tickets:
            ticket.cancel()
        self.tickets = ()


@dataclass(frozen=True)
class Times:
    """How long the parts of a request took, in seconds."""

    tokenize: float = 0.0
    """For the steps in which a worker made its tokens."""
    queue: float = 0.0
    """From its last step of a worker to its first batch, and between its batches."""
    compute: float = 0.0
    """For the batches that had a part of the request."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one request."""

    value: Any
    """The result of the library's method for these inputs: an array, a list, `SparseVectors`, or a `TokenStream`."""
    tokens: list[int]
    """The number of tokens that the model read of each input; for `rank`, of each pair of the query and a document."""
    truncated: list[bool]
    """Whether each input was cut."""
    times: Times
    bytes: int = 0
    """An estimate of the bytes in memory of the value, and of the body that is written from it."""
    new_tokens: int = 0
    """The number of tokens that the model has written."""


@dataclass
class RequestCounts:
    """The numbers of requests to a service by their fate. Counters grow from its start; gauges are present values."""

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
    """Counter: requests that their clients have cancelled."""
    failed: int = 0
    """Counter: requests whose computation raised an error."""


LONG = 64
"""A request with more inputs is tokenized and finished by the threads for long requests."""
LONG_CHARACTERS = 2**14
"""A request whose inputs have more characters, or more bytes, counts as long, too."""
LONG_BYTES = 2**19
"""An answer with more bytes is finished by the threads for long requests: 50 vectors of 384 numbers take 1 ms."""


class RequestService(ABC):
    """Serves one loaded model to many requests at once; it knows nothing of HTTP. Any thread may call it."""

    model: Any
    """The loaded model: an `Engine`, a `Reranker`, a `Generator` or a `Transcriber`."""
    _queue: WorkQueue
    """The queue of the model, whose thread computes; set by the subclass before `_start`."""
    _turns: CpuTurns
    kind: str
    """The use of the model as `engine.load` names it: encode, rank, generate or transcribe."""
    fingerprint = ""
    """For a model that writes texts, names all that the bits of its answers depend on; "" for others."""
    workers: Workers
    """The threads that prepare requests and write their answers."""
    memory: Memory
    """The bytes of all requests together."""

    def __init__(self, threads: int, max_bytes: int, beside: RequestService | None):
        """threads: the number of workers for short requests. max_bytes: the most memory of all open requests.

        beside: the service of another model in this server, whose workers and memory this one then shares.
        """
        self.workers = Workers(threads) if beside is None else beside.workers
        self.memory = Memory(max_bytes) if beside is None else beside.memory
        self._turns = CpuTurns() if beside is None else beside._turns
        self._owns_workers, self._beside = beside is None, beside
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)       # notified when no request is open any more
        self._open: set[Pending] = set()        # the requests that have neither an answer nor an error
        self._closing = False
        self._done = RequestCounts()        # its counters alone; `_counts` adds the gauges
        self._process = os.getpid()

    def _start(self, limit: int | None = None) -> None:
        """Start the thread of the model, and let it compute once. limit: the most tokens of a batch, or None.

        If there are several models, their queues take turns on the CPUs.
        """
        if self._beside is not None:
            for service in (self, self._beside):
                if isinstance(service._queue.cpus, nullcontext):        # it has no turn yet
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
        """The tasks that `submit` accepts."""

    @property
    def serves(self) -> str:
        """A clause for messages: what the model serves."""
        return f"this model serves {', '.join(sorted(self.tasks))}"

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """The most tokens of a text, special tokens included; a longer one is cut or refused."""

    @property
    def backlog(self) -> float:
        """The seconds for which the model certainly has work, during which the event loop may sleep.

        0 where a client waits for each next step of the model, so that the loop must not sleep.
        """
        return 0.0

    @abstractmethod
    def _warm(self) -> None:
        """Let the model compute, to bring its weights into memory and to measure its first rates."""

    @abstractmethod
    def statistics(self) -> Any:
        """Return `RequestCounts` with the numbers of this kind of model: what waits, what was done, and how fast."""

    @abstractmethod
    def _check_first(self, key: str) -> None:
        """Raise `Overloaded` if even the shortest request would wait too long; the caller holds the lock."""

    @abstractmethod
    def _prepare(self, request: Pending) -> Any:
        """Return the argument `prepared` of `_admit`, or a generator of steps that returns it; a worker calls it."""

    @abstractmethod
    def _admit(self, request: Pending, prepared: Any) -> None:
        """Submit a prepared request to the queue of the model, or settle it with `Overloaded`; a worker calls it."""

    def _is_long(self, task: str, inputs: Any, size: int) -> bool:
        """Return whether the threads for long requests prepare a request. inputs: unchecked. size: their bytes."""
        if size > LONG_CHARACTERS or not isinstance(inputs, (list, tuple)) or len(inputs) > LONG:
            return True
        return sum(len(row) for row in inputs if isinstance(row, str)) > LONG_CHARACTERS

    def submit(self, task: str, inputs: Any, options: Mapping[str, Any] | None = None, *, key: str = "",
               deadline: float = 0.0, room: Room | None = None, streams: bool = False) -> Result:
        """Return at once the future of the `Answer` to a request. `cancel` of the future drops the request.

        task, inputs, options: the docstring of the class of the service lists them.
        key: the name of the client. Each key gets the same share of the model.
        deadline: the `time.monotonic()` after which the client does not wait for the answer; 0 for no limit.
        room: counts the memory of the request, that of the inputs already; the caller closes it once the answer is
            sent. None for a room of the service, which it closes with the answer.
        streams: whether the answer comes as soon as the request is admitted, and its value is a `TokenStream`.

        The future may have these errors: `InputError` for a wrong request, of which `TextTooLong` has the tokens and
        the limit of a text that may not be cut, `UnsupportedError` for a task or an option that the model lacks,
        `Limit` for one that needs more memory than a request may, `Overloaded` with `retry_after` seconds, `TimedOut`
        at the deadline, `Closing` after `close`, and whatever the computation of this request alone raises.

        Raises `InputError` in a process that was forked from that of the service, as it has none of the threads.
        """
        if os.getpid() != self._process:
            raise InputError("this process was forked from that of the service, and has none of its threads; make a "
                             f"{type(self).__name__} here")
        future = Result()
        request = Pending(task, inputs, self._options(task, options, key), key, Stop(deadline, LATE_REQUEST), future,
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
        """Return a copy of the options of a request; a subclass adds options that depend on its key."""
        return dict(options or {})

    def _hand_over(self, request: Pending, call: Callable[[], Any], then: Callable[[Pending, Any], object], long: bool
                   ) -> None:
        """Let a worker run `call`, or its steps, and then `then(request, result)`; an error settles the request.

        long: whether a worker for long calls runs them.
        """

        def done(result: Any, error: BaseException | None) -> None:
            """Go on with the result, or settle the request; the worker calls it once, with one of both."""
            if error is not None:
                self._settle(request, error)
            elif not request.settled:
                then(request, result)

        self.workers.add(WorkerCall(call, done, request.key, request.stop), long)

    def _settle(self, request: Pending, result: Answer | BaseException) -> None:
        """Give a request its answer or its error, and count it; do nothing if it was settled before."""
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
            elif not isinstance(result, InputError | Limit | Refusal | UnsupportedError):       # the client's own fault
                self._done.failed += 1
        request.end()
        self._give(request, result)

    def _give(self, request: Pending, result: Answer | BaseException) -> None:
        """Give the future of a request its result, unless it has one or was cancelled. The caller holds no lock."""
        # The future refers to the request, to cancel it; without this, both and the rows would stay until a collection.
        future, request.future = request.future, None
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(result, Answer):
            future.set_result(result)
        else:
            clear_frames(result.__traceback__)      # its frames hold the tokens of the request
            future.set_exception(result)

    def _forget(self, request: Pending) -> bool:
        """Mark a request as settled; return False if it was before. The caller holds the lock, then calls `end`."""
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
        """Settle a request whose future was cancelled."""
        with self._lock:
            self._done.cancelled += self._forget(request)
        request.end()

    def _counts(self) -> dict[str, Any]:
        """Return the fields of `RequestCounts`, gauges included, by name. The caller holds the lock."""
        return vars(self._done) | {"waiting_requests": len(self._open), "waiting_bytes": self.memory.used}

    def close(self, *, drain: bool = True) -> None:
        """Refuse new requests with `Closing`, wait until all accepted ones are answered, and end the threads.

        drain: False gives `Closing` to the accepted requests, too. A second call does nothing, nor does a call in a
        process that was forked from that of the service. A service that was made with `beside` is closed before the
        one whose workers it shares.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closing:
                return
            self._closing = True
            waiting = [] if drain else [*self._open]
        for request in waiting:
            self._settle(request, Closing())
        with self._lock:
            while self._open:
                self._empty.wait()
        if self._owns_workers:
            self.workers.end()      # before the queue: a worker may still submit for a request settled meanwhile
        self._end()

    def _end(self) -> None:
        """End the thread of the model, after the last request."""
        self._queue.stop(self)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
