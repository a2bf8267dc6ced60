"""`Service`: serves an encoder, or a model that ranks, to many clients at once. It knows nothing of HTTP."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag, positive_int, positive_int_or_none
from ..base.errors import InputError, Overloaded, UnsupportedError, shown
from ..base.stop import Stop
from ..images import Images
from ..interface.engine import Engine
from ..interface.reranker import Reranker
from ..methods.steps import Tokenized, tokenized
from ..queues.model_queue import Counts, ModelQueue
from ..queues.rows import RowsTicket
from ..queues.work import Work
from .admission import Admission
from .requests import LONG_BYTES, Answer, Pending, RequestCounts, RequestService, Times
from .settings import MAX_HELD
from .workers import Steps, run

METHOD_OF_TASK: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "embed": ("encode", {}),                    # a vector for each text
    "tokens": ("encode", {"output_value": "token_embeddings"}),     # the vectors of all tokens that are pooled
    "sparse": ("encode_sparse", {}),            # sparse vectors over the vocabulary
    "late": ("encode_tokens", {}),              # vectors of tokens for late interaction
    "classify": ("classify", {}),               # labels of texts
    "score": ("predict", {}),                   # the scores of pairs of texts
    "rank": ("rank", {}),                       # documents by their scores for a query
    "tag": ("tag", {})}                         # tags of tokens, or entities
"""For each task, the name of the library's method, and the options that its calls always have."""
_IMAGE = Images([np.zeros((32, 32, 3), np.uint8)])
"""The first input of a model that reads images alone."""
CUTS = True
"""Whether long texts are cut where a request does not say it; no client would see the library's warning."""


class Service(RequestService):
    """Serves an encoder, or a model that ranks, to many clients at once; it knows nothing of HTTP.

    Tokens of many requests are computed together, in fair turns, and each request gets the bits of a call of the
    library for it alone. The arguments of `submit` besides those that all services have:

    task: one of `tasks`.
    inputs: a list of texts, or of pairs of texts for `score`; for `rank` a pair (query, list of documents). For `embed`
        and `tokens` each input may be a list of token ids in place of a text, which the model reads as they are:
        special tokens are among the ids, and there is no prompt.
    options: those of the library's method by their names, and no others: prompt, prompt_name, truncation (all tasks but
        tag, which has no prompt), role ("query" or "document", whose prompt, and whose encoder of a model with routes,
        `Engine.encode_query` and `encode_document` take), normalize_embeddings (embed, late), truncate_dim (embed),
        max_active_dims (sparse), top_k (classify, rank), function_to_apply, candidate_labels, hypothesis_template and
        multi_label (classify), logits (score), activation_fn (score, rank), apply_softmax (score), return_documents
        (rank), aggregation_strategy, ignore_labels, stride, words and is_split_into_words (tag), instruction (score
        and rank of a language model). truncation: True, as by default, cuts a long text, and False refuses it.
    """

    def __init__(self, model: Engine | Reranker, *, max_batch_tokens: int = 1024, max_wait: float = 2.0,
                 max_bytes: int = MAX_HELD, tokenizer_threads: int | None = None,
                 beside: RequestService | None = None):
        """Start the threads of a model, and compute two batches; the second one gives the first rate.

        max_batch_tokens: the most tokens that are computed at a time, at most those of the model; a longer text is
        computed alone. max_wait: the most seconds that a request may wait for its first batch; beyond, it is refused.
        max_bytes: the most memory of all requests that are open, of which one may need three eighths.
        tokenizer_threads: how many threads tokenize short requests and finish answers; None for half of the model's
        threads, and 4 at most. beside: a service whose threads and memory this one shares.

        Calls of the library on this model are computed by the thread of the service, until `close`. Raises
        `InputError`, and `UnsupportedError` for a model that reads no texts.
        """
        self.model = model
        self.kind = "rank" if isinstance(model, Reranker) else "encode"
        self.max_batch_tokens = positive_int("max_batch_tokens", max_batch_tokens)
        methods = model.methods
        if isinstance(model, Engine) and model.reads_images:
            _ = model.image_encoder     # load it now: a model of texts and images loads it at its first use
        self._tasks = {task: (methods[name], options) for task, (name, options) in METHOD_OF_TASK.items()
                       if name in methods}
        self._sharing_tasks = {task for task, (method, _) in self._tasks.items()
                               if "cache_key" in method.options.__dataclass_fields__}
        """The tasks that keep what the model has read, for later requests with the same `cache_key`."""
        if not self._tasks:
            raise UnsupportedError("this model reads no texts, or has no vectors and no head for them, so there is "
                                   "nothing to serve; Engine.forward computes what it has")
        threads = positive_int_or_none("tokenizer_threads", tokenizer_threads) or min(4, max(1, model.threads // 2))
        super().__init__(threads, positive_int("max_bytes", max_bytes), beside)
        # A language model that ranks reads prompts in steps, in a queue of another kind. Requests wait before it in a
        # `ModelQueue`, which can tell when the turn of a new request would come, and makes batches of many requests.
        self._queue: ModelQueue = (model.queue if isinstance(model.queue, ModelQueue)
                                   else ModelQueue(model.max_batch_tokens))
        self._counts_before = deepcopy(self._queue.counts)      # of calls of the library before the service started
        self._admission = Admission(max_wait, lambda: self._queue.rate)
        self._start(self.max_batch_tokens)

    def _warm(self) -> None:
        """Compute a full batch twice: the first time brings the weights into memory, the second one is measured."""
        task = "embed" if "embed" in self._tasks else min(self._tasks)
        words = "the first text that this model reads "
        by_task: dict[str, Any] = {"rank": ("a query", [words]), "score": [("a query", words)]}
        inputs: Any = by_task.get(task, [words]) if self.model.text is not None else _IMAGE
        [count] = run(self._tokenized(task, inputs, {}, Stop())).counts
        many = max(1, self.max_batch_tokens // max(1, count))       # inputs that fill a batch
        if inputs is _IMAGE:
            inputs = Images([*_IMAGE] * many)
        else:
            inputs = (inputs[0], inputs[1] * many) if task == "rank" else inputs * many
        self.submit(task, inputs).result()
        self._queue.forget_rate()
        self.submit(task, inputs).result()

    @property
    def longest(self) -> int | None:
        return self.model.max_length if isinstance(self.model, Reranker) else self.model.max_seq_length

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
        """The tasks that the model serves, some of `METHOD_OF_TASK`."""
        return frozenset(self._tasks)

    def _tokenized(self, task: str, inputs: Any, options: Mapping[str, Any], stop: Stop
                   ) -> Generator[int, None, Tokenized]:
        """Return a generator that tokenizes a request; raises `InputError`.

        It yields, between its steps, an estimate of the least bytes of the call, and returns `Tokenized`.
        """
        if task not in self._tasks:
            raise InputError(f"there is no task {shown(task)}; the model serves {', '.join(sorted(self._tasks))}")
        method, fixed = self._tasks[task]
        merged = {"truncation": CUTS, **fixed, **options}
        truncation = flag("truncation", merged.pop("truncation"))
        return tokenized(method, self.model, inputs, merged, truncation, stop)

    def _options(self, task: str, options: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
        """Add the key as `cache_key`, so that no client learns from answers or times what another client has asked."""
        return dict(options or {}) | ({"cache_key": key} if task in self._sharing_tasks else {})

    def _check_first(self, key: str) -> None:
        # A text has at least one token: a request that is too late even with one is refused before it costs anything.
        self._admission.check_wait(self._waiting_tokens, lambda: self._queue.before_first(key, first=1))

    def _is_long(self, task: str, inputs: Any, size: int) -> bool:
        """Return whether the threads for long requests prepare it; of (query, documents), the documents count."""
        rows = inputs[1] if task == "rank" and isinstance(inputs, (tuple, list)) and len(inputs) == 2 else inputs
        return super()._is_long(task, rows, size)

    def _prepare(self, request: Pending) -> Steps:
        """Return the `Work` of a request in steps, after each of which the memory of the request is counted anew."""
        steps = self._tokenized(request.task, request.inputs, request.options, request.stop)
        begun = time.monotonic()
        # Works of one kind may share a batch. The worker computes it, as a `repr` of an object of the caller may raise.
        kind = request.task, repr(sorted(request.options.items()))
        while True:
            try:
                request.room.hold(request.base + next(steps))
            except StopIteration as end:
                request.prepared = end.value
                break
            request.tokenize += time.monotonic() - begun
            yield
            begun = time.monotonic()
        request.inputs = None
        request.room.hold(request.base + request.prepared.bytes)
        work = request.prepared.work(kind)
        beyond = request.prepared.workload.beyond       # the bytes of a row beyond the estimate

        def count(rows: Any) -> None:
            """Count the memory of computed rows that are larger than was estimated; the queue calls it."""
            if excess := sum(map(beyond, rows)):
                request.room.hold(request.room.size + excess)

        work.look = count
        request.tokenize += time.monotonic() - begun
        return work

    def _admit(self, request: Pending, work: Work) -> None:
        """Submit the work of a request to the queue; if it would wait too long, settle it with `Overloaded`."""
        try:
            with self._lock:
                if request.settled:
                    return
                if work.order:      # otherwise it has no tokens, and waits for nothing
                    self._check(request, work)
                ticket = self._queue.submit(work, owner=request.key, deadline=request.stop.deadline)
                request.tickets = (ticket,)
        except Overloaded as error:
            self._settle(request, error)
        else:
            ticket.add_done_callback(lambda ticket: self._finish(request, ticket))

    def _check(self, request: Pending, work: Work) -> None:
        """Raise `Overloaded` if the first or the last batch of a request would come too late. Needs the lock."""
        queue, key, size = self._queue, request.key, sum(work.costs)
        waiting = self._waiting_tokens
        self._admission.check_wait(waiting, lambda: queue.before_first(key, work.costs[work.order[0]]))
        self._admission.check_end(before_last=lambda: queue.before_last(key, size), waiting=waiting, size=size,
                                  left=request.stop.left)

    def _finish(self, request: Pending, ticket: RowsTicket) -> None:
        """Let a worker make the answer, once all sequences are computed; the thread of the queue calls it."""
        if ticket.error is not None:        # not raised, as a traceback would keep the request in memory
            self._settle(request, ticket.error)
            return
        tokenized, times = request.prepared, Times(request.tokenize, *ticket.times)
        request.tickets = ()        # so that the rows are freed with `ticket`

        def finished(request: Pending, value: Any) -> None:
            self._settle(request, Answer(value, tokens=tokenized.counts, truncated=tokenized.cut, times=times,
                                         bytes=tokenized.bytes))

        # To classify images, `result` computes the vectors of the labels, so it counts as long.
        is_long = tokenized.bytes > LONG_BYTES or tokenized.reads_images
        self._hand_over(request, lambda: tokenized.result(ticket.result()), finished, long=is_long)

    def statistics(self) -> ServiceStatistics:
        """Return the present numbers of the service and of its queue."""
        with self._lock:
            queued = sum(ticket.waits for request in self._open for ticket in request.tickets)
            numbers = self._queue.counts.since(self._counts_before) | self._counts()
            return ServiceStatistics(**numbers, queued_requests=queued, waiting_tokens=self._queue.tokens,
                                     rate=self._admission.rate)


@dataclass
class ServiceStatistics(RequestCounts, Counts):
    """The numbers of a service and of its queue. Counters grow from the start; gauges are present values."""

    queued_requests: int = 0
    """Gauge: requests of which some sequences wait for a batch."""
    waiting_tokens: int = 0
    """Gauge: tokens that wait for a batch."""
    rate: float = 0.0
    """Gauge: tokens that full batches compute in a second."""
