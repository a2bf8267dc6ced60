"""`Service`: one loaded model that answers many requests at once. It knows nothing of HTTP."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import Any

from ..base.arguments import flag, positive_int, positive_int_or_none
from ..base.errors import LATE_REQUEST, Closing, InputError, Overloaded, TimedOut, UnsupportedError, shown
from ..base.stop import Stop
from ..interface.engine import Engine
from ..interface.reranker import Reranker
from ..methods.steps import Tokenized, tokenized
from ..queues.model_queue import Counts, ModelQueue
from ..queues.rows import RowsTicket
from ..queues.work import Work
from .admission import Admission, Memory, Room
from .settings import MAX_HELD, Limit
from .workers import Result, Steps, WorkerCall, Workers, run


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
    """What its caller has; None once it has its result."""
    room: Room
    """What counts its memory."""
    base: int
    """The bytes that its inputs take."""
    owns_room: bool
    """Whether the room is closed with the answer, because nobody else will."""
    part: WorkerCall | None = None
    """What a worker does for it now, or did last."""
    tokenized: Tokenized = field(init=False)
    """Its texts as tokens; it has them from `Service._tokenize` on."""
    ticket: RowsTicket | None = None
    """That of its sequences in the queue of the model."""
    settled: bool = False
    """Whether its future has its result, or nobody waits for one."""
    tokenize: float = 0.0
    """The seconds of `Times.tokenize`."""

    def end(self) -> None:
        """End what is done for it, once it is settled; the caller holds no lock."""
        if self.part is not None:
            self.part.cancel()      # it ends at its next step
        if self.ticket is not None:
            self.ticket.cancel()
        self.part = self.ticket = None


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
    """About how much memory the value takes, and what is written of it."""


class Service:
    """One loaded model that answers many requests at once; it knows nothing of HTTP.

    `submit` may be called by any thread, and by an event loop. Tokens of many requests are computed together, in fair
    turns, and each request gets the bits of a call of the library for it alone.
    """

    def __init__(self, model: Engine | Reranker, *, max_batch_tokens: int = 1024, max_wait: float = 2.0,
                 max_bytes: int = MAX_HELD, tokenizer_threads: int | None = None):
        """Start the threads of a model, and compute one batch, whose time is the first rate.

        max_batch_tokens: the most tokens that are computed at a time, at most those of the model; a longer text is
        computed alone. max_wait: a request is refused if its first answer would have to wait longer, in seconds.
        max_bytes: the most memory of all requests that are open, of which one may need three eighths.
        tokenizer_threads: how many threads tokenize short requests and finish answers; None for half of the model's
        threads, and 4 at most.

        Calls of the library on this model are computed by the thread of the service, until `close`. Raises
        `InputError`, and `UnsupportedError` for a model that reads no texts.
        """
        self.model, self.max_wait = model, max_wait
        self.max_batch_tokens = positive_int("max_batch_tokens", max_batch_tokens)
        methods = model.methods
        self._tasks = {task: (methods[name], options) for task, (name, options) in TASKS.items() if name in methods}
        self._keeping = {task for task, (method, _) in self._tasks.items()
                         if "cache_key" in method.options.__dataclass_fields__}
        """The tasks whose requests share what the model has read with those of the same key."""
        if not self._tasks:
            raise UnsupportedError("this model reads no texts, or has no vectors and no head for them, so there is "
                                   "nothing to serve; Engine.forward computes what it has")
        threads = positive_int_or_none("tokenizer_threads", tokenizer_threads) or min(4, max(1, model.threads // 2))
        self.workers = Workers(threads)
        """The threads that tokenize requests and write their answers."""
        self.memory = Memory(positive_int("max_bytes", max_bytes))
        """What all requests take."""
        # A language model reads prompts in steps, in a queue of its own; the requests of a server wait in front of it.
        self._queue = model.queue if isinstance(model.queue, ModelQueue) else ModelQueue(model.max_batch_tokens)
        self._queue.start(self, self.max_batch_tokens)
        self._counted = deepcopy(self._queue.counts)        # before the service
        self._admission = Admission(max_wait, self._queue)
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)       # notified when no request is open any more
        self._open: set[Pending] = set()        # the requests that have neither an answer nor an error
        self._closing = self._closed = False
        self._refused = self._expired = self._cancelled = self._failed = self._answered = 0
        self._process = os.getpid()
        try:
            self._warm()
        except BaseException:
            self.close(drain=False)
            raise

    def _warm(self) -> None:
        """Compute a full batch twice: the first time brings the weights into memory, the second one is measured."""
        task = "embed" if "embed" in self._tasks else min(self._tasks)
        words = "the first text that this model reads "
        by_task: dict[str, Any] = {"rank": ("a query", [words]), "score": [("a query", words)]}
        inputs: Any = by_task.get(task, [words])
        [count] = run(self._tokenized(task, inputs, {}, Stop())).counts
        many = max(1, self.max_batch_tokens // max(1, count))
        inputs = (inputs[0], inputs[1] * many) if task == "rank" else inputs * many
        self.submit(task, inputs).result()
        self._queue.forget_rate()
        self.submit(task, inputs).result()

    @property
    def backlog(self) -> float:
        """The seconds that the model needs for what waits for a batch, without the batch that it computes now."""
        rate = self._admission.rate
        return self._queue.tokens / rate if rate else 0.0

    @property
    def _waiting_tokens(self) -> int:
        """The tokens that wait for a batch, and those of the present one."""
        return self._queue.in_flight + self._queue.tokens

    @property
    def tasks(self) -> frozenset[str]:
        """The tasks that the model serves, of these.

            embed     a vector for each text: `Engine.encode`
            tokens    the vectors of all tokens that are pooled: `Engine.encode(..., output_value="token_embeddings")`
            sparse    sparse vectors over the vocabulary: `Engine.encode_sparse`
            late      vectors of tokens for late interaction: `Engine.encode_tokens`
            classify  labels of texts: `Engine.classify`
            score     the scores of pairs of texts: `Engine.predict`, `Reranker.predict`
            rank      documents by their scores for a query: `Engine.rank`, `Reranker.rank`
            tag       tags of tokens, or entities: `Engine.tag`
        """
        return frozenset(self._tasks)

    def submit(self, task: str, inputs: Any, options: Mapping[str, Any] | None = None, *, key: str = "",
               deadline: float | None = None, room: Room | None = None) -> Result:
        """Return at once a future of the `Answer` to a request. `Future.cancel` drops the request.

        task: one of `tasks`.
        inputs: a list of texts, or of pairs of texts for `score`; for `rank` a pair (query, list of documents). For
            `embed` and `tokens` each input may be a list of token ids in place of a text, which the model reads as they
            are: special tokens are among the ids, and there is no prompt.
        options: those of the library's method by their names, and no others: prompt, prompt_name, truncation (all
            tasks but tag, which has no prompt), role ("query" or "document", whose prompt, and whose encoder of a model
            with routes, `Engine.encode_query` and `encode_document` take), normalize_embeddings (embed, late),
            truncate_dim (embed), max_active_dims (sparse), top_k (classify, rank), function_to_apply (classify), logits
            (score), activation_fn (score, rank), apply_softmax (score), return_documents (rank), aggregation_strategy,
            ignore_labels, stride, words and is_split_into_words (tag), instruction (score and rank of a language
            model). truncation: True, as by default, cuts a long text, and False refuses it.
        key: whose request it is. Each key gets the same share of the model.
        deadline: the `time.monotonic()` after which nobody waits for the answer; None for no limit.
        room: what counts the memory of the request, which has that of the inputs already; its owner closes it once the
            answer is sent. None for one that is closed with the answer.

        The future may have these errors: `InputError` for a wrong request, of which `TextTooLong` has the tokens and
        the limit of a text that may not be cut, `UnsupportedError` for a task or an option that the model lacks,
        `Limit` for one that needs more memory than a request may, `Overloaded` with `retry_after` seconds, `TimedOut`
        at the deadline, `Closing` after `close`, and whatever the computation of this request alone raises.

        Raises `InputError` in a process that was forked from the one of the service, whose threads it has not.
        """
        if os.getpid() != self._process:
            raise InputError("this process was forked from that of the service, and has none of its threads; make a "
                             "Service here")
        future = Result()
        until = math.inf if deadline is None else deadline
        options = dict(options or {})
        if task in self._keeping:
            options["cache_key"] = key      # so that neither answers nor times tell one client what another one asked
        request = Pending(task, inputs, options, key, until, future, room or Room(self.memory, key),
                          base=0 if room is None else room.size, owns_room=room is None)
        with self._lock:
            error: Exception | None = None
            if self._closing:
                error = Closing()
            else:
                try:
                    # A text has at least one token: what is too late with one is refused before it costs anything.
                    self._admission.check_wait(self._waiting_tokens, lambda: self._queue.before_first(key, first=1))
                except Overloaded as refusal:
                    error = refusal
                    self._refused += 1
            if error is None:
                self._open.add(request)
        if error is not None:
            future.set_exception(error)
            return future
        future.add_done_callback(lambda future: self._cancel(request) if future.cancelled() else None)
        is_long = _is_long(task, inputs, request.base)
        self._hand_over(request, lambda: self._tokenize(request), self._admit, is_long)
        return future

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

    def _tokenized(self, task: str, inputs: Any, given: Mapping[str, Any], stop: Stop
                   ) -> Generator[int, None, Tokenized]:
        """Return the steps that make the tokens of a request; raises `InputError`."""
        if task not in self._tasks:
            raise InputError(f"there is no task {shown(task)}; the model serves {', '.join(sorted(self._tasks))}")
        method, fixed = self._tasks[task]
        options = {"truncation": CUTS, **fixed, **given}
        truncation = flag("truncation", options.pop("truncation"))
        return tokenized(method, self.model, inputs, options, truncation, stop)

    def _tokenize(self, request: Pending) -> Steps:
        """Make the work of a request in steps, each of which counts what the request takes."""
        stop = Stop(0.0 if request.deadline == math.inf else request.deadline, LATE_REQUEST)
        steps = self._tokenized(request.task, request.inputs, request.options, stop)
        begun = time.monotonic()
        kind = request.task, repr(sorted(request.options.items()))      # here: a `repr` of a caller may raise
        while True:
            try:
                request.room.hold(request.base + next(steps))
            except StopIteration as end:
                request.tokenized = end.value
                break
            request.tokenize += time.monotonic() - begun
            yield
            begun = time.monotonic()
        request.inputs = None
        request.room.hold(request.base + request.tokenized.bytes)
        work = request.tokenized.work(kind)
        beyond = request.tokenized.workload.beyond

        def count(rows: Any) -> None:
            """Count the memory of rows that turned out to be larger than usual ones."""
            if more := sum(map(beyond, rows)):
                request.room.hold(request.room.size + more)

        work.look = count
        request.tokenize += time.monotonic() - begun
        return work

    def _admit(self, request: Pending, work: Work) -> None:
        """Let a request wait for a batch, unless it would wait too long."""
        try:
            with self._lock:
                if request.settled:
                    return
                if work.order:
                    self._check(request, work)
                deadline = 0.0 if request.deadline == math.inf else request.deadline
                ticket = request.ticket = self._queue.submit(work, owner=request.key, deadline=deadline)
        except Overloaded as error:
            self._settle(request, error)
        else:
            ticket.add_done_callback(lambda ticket: self._finish(request, ticket))

    def _check(self, request: Pending, work: Work) -> None:
        """Raise `Overloaded` for a request that would wait too long."""
        queue, key, size = self._queue, request.key, sum(work.costs)
        waiting = self._waiting_tokens
        self._admission.check_wait(waiting, lambda: queue.before_first(key, work.costs[work.order[0]]))
        self._admission.check_end(before_last=lambda: queue.before_last(key, size), waiting=waiting, size=size,
                                  left=request.deadline - time.monotonic())

    def _finish(self, request: Pending, ticket: RowsTicket) -> None:
        """Let the workers finish a request of which all sequences were computed."""
        if ticket.error is not None:        # without a raise, whose traceback would hold the request
            self._settle(request, ticket.error)
            return
        tokenized, times = request.tokenized, Times(request.tokenize, *ticket.times)
        request.ticket = None       # which has the rows

        def finished(request: Pending, value: Any) -> None:
            self._settle(request, Answer(value, tokenized.counts, tokenized.cut, times, tokenized.bytes))

        self._hand_over(request, lambda: tokenized.result(ticket.result()), finished, tokenized.bytes > LONG_BYTES)

    def _settle(self, request: Pending, result: Answer | BaseException) -> None:
        """Give a request its answer or its error, once."""
        with self._lock:
            if not self._forget(request):
                return
            if isinstance(result, Answer):
                self._answered += 1
            elif isinstance(result, Overloaded):
                self._refused += 1
            elif isinstance(result, TimedOut):
                self._expired += 1
            elif not isinstance(result, InputError | Limit):
                self._failed += 1
        request.end()
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
            self._cancelled += self._forget(request)
        request.end()

    def statistics(self) -> ServiceStatistics:
        """Return what waits, what was done, and how fast."""
        with self._lock:
            queued = sum(ticket is not None and ticket.waits for ticket in (each.ticket for each in self._open))
            return ServiceStatistics(**self._queue.counts.since(self._counted), waiting_requests=len(self._open),
                              queued_requests=queued, waiting_tokens=self._queue.tokens, waiting_bytes=self.memory.used,
                              rate=self._admission.rate, answered=self._answered, refused=self._refused,
                              expired=self._expired, cancelled=self._cancelled, failed=self._failed)

    def close(self, *, drain: bool = True) -> None:
        """Stop admission, so that later requests get `Closing`, answer all that were accepted, and end the threads.

        drain: False gives `Closing` to all requests that have no answer yet. A second call does nothing, nor does one
        in a process that was forked from that of the service, which has none of its threads.
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
        self.workers.end()      # first, because one may have a ticket for a request that was settled meanwhile
        self._queue.stop(self)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


TASKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "embed": ("encode", {}), "tokens": ("encode", {"output_value": "token_embeddings"}),
    "sparse": ("encode_sparse", {}), "late": ("encode_tokens", {}), "classify": ("classify", {}),
    "score": ("predict", {}), "rank": ("rank", {}), "tag": ("tag", {})}
"""The method of each task, by its name in the library, and the options that make the task of it."""
CUTS = True
"""Whether long texts are cut where a request does not say; the library warns of it, and nobody would see that here."""
LONG = 64
"""A request of more inputs is tokenized and finished by a thread for long requests."""
LONG_CHARACTERS = 2**14
"""So is a request whose inputs have more characters, or take more bytes."""
LONG_BYTES = 2**19
"""So is an answer that takes more bytes: 50 vectors of 384 numbers take a millisecond."""


def _is_long(task: str, inputs: Any, size: int) -> bool:
    """Return whether a request is for the threads of long requests; the inputs have not been checked."""
    rows = inputs[1] if task == "rank" and isinstance(inputs, (tuple, list)) and len(inputs) == 2 else inputs
    if size > LONG_CHARACTERS or not isinstance(rows, (list, tuple)) or len(rows) > LONG:
        return True
    return sum(len(row) for row in rows if isinstance(row, str)) > LONG_CHARACTERS


@dataclass
class ServiceStatistics(Counts):
    """What a service and the queue of its model have done. Counters grow from the start; gauges say what is there now.
    """

    waiting_requests: int = 0
    """Gauge: requests that were accepted and are not answered."""
    queued_requests: int = 0
    """Gauge: requests of which some sequences wait for a batch."""
    waiting_tokens: int = 0
    """Gauge: tokens that are not computed."""
    waiting_bytes: int = 0
    """Gauge: the memory of all requests that are open: bodies, values, tokens, results and answers."""
    rate: float = 0.0
    """Gauge: tokens that are computed in a second."""
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
