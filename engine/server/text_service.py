"""`TextService`: serves a model that generates texts to many clients at once. It knows nothing of HTTP.

A worker makes the works of a request, the queue of the model computes them in steps with those of others, and the
thread of the queue reports each step to `_note_step`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, cast

from ..backends import get_backend
from ..base.arguments import positive_int
from ..base.errors import EngineError, InputError, UnsupportedError, shown
from ..base.lazy import lazy
from ..base.version import __version__
from ..chat import Reply
from ..generation.groups import Generation
from ..generation.prefixes import BLOCK
from ..generation.results import Generated
from ..generation.step_queue import SHARED, StepQueue
from ..generation.tickets import DecoderTicket
from ..interface.generator import Generator, Statistics
from ..methods.decoding import PreparedWorks
from ..model.bits import PORTABLE
from ..queues.entry import has_news
from .admission import Admission, TextLoad
from .event_loop import ring_all
from .histograms import SECONDS, Histogram
from .requests import LONG_BYTES, Answer, Pending, RequestCounts, RequestService, Times
from .settings import MAX_HELD
from .token_stream import MARKERS, Reasoning, TokenStream, Written, front_of

TEXT_TASKS = ("generate", "chat")
"""The methods of a `Generator` that a service offers as tasks."""
_TOKEN, _LOGPROB = 96, 640
"""Estimates of bytes, JSON of the answer included: for each token of a prompt or an answer, for each log probability
that the answer has of a token."""
_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1.0625}
"""The bytes of a number in the cache, by its precision; int8 has a scale of 4 bytes for about 64 numbers."""
_PROMPT_TOKENS, _NEW_TOKENS = 32, 4
"""The numbers of tokens of the prompt and of the answer that a model computes before it serves."""


class TextService(RequestService):
    """Serves a model that generates texts to many clients at once; it knows nothing of HTTP.

    All requests are computed in the queue of the model, together with calls of the library. Each gets the tokens of a
    call for it alone. The arguments of `submit` besides those that all services have:

    task: one of `tasks`, a method of `Generator`.
    inputs, options: those of the method. The value of an `Answer` has the result of each input in a list; or it is a
        `TokenStream` of all of them.
    """

    kind = "generate"

    def __init__(self, model: Generator, *, max_wait: float = 2.0, max_bytes: int = MAX_HELD,
                 beside: RequestService | None = None, checksum: str = ""):
        """Start the thread of a model, and let it make some tokens, which gives the first rates.

        max_wait: the most seconds that a request may wait for its first token; beyond, it is refused. max_bytes: the
        most memory of all open requests, without the cells of the cache. beside: a service whose threads and
        memory this one shares. checksum: of the files of the model, for its fingerprint.

        Raises `UnsupportedError` for a model without a tokenizer.
        """
        self.model = model
        if model.text is None:
            raise UnsupportedError("this model came without a tokenizer, so it writes no texts, and there is nothing "
                                   "to serve; add a tokenizer.json to its folder")
        super().__init__(min(4, max(2, model.threads // 2)), positive_int("max_bytes", max_bytes), beside)
        self._methods = {name: model.methods[name] for name in TEXT_TASKS if name in model.methods}
        self._queue: StepQueue = model.prepared.queue
        self.fingerprint = fingerprint_of(model, checksum)
        """Names all that the bits of answers depend on: servers with equal fingerprints give equal answers."""
        self.load = TextLoad(self._queue.budget.rows)
        # The admission counts seconds of the model here in place of tokens, so its rate is 1 once a rate is known.
        self._admission = Admission(max_wait, lambda: 1.0 if self.load.write_rate else 0.0)
        self.first_token, self.gaps = Histogram(SECONDS), Histogram(SECONDS)
        """Histograms of the seconds to the first token of a request, and between two tokens of a row."""
        self.rows = Histogram([2.0**i for i in range(11)])
        """A histogram of the rows of a step that get a token."""
        self._waiting: dict[Pending, tuple[DecoderTicket, float]] = {}
        """The requests without a token so far: (its first ticket, the `time.monotonic()` of its submission)."""
        self._streams: set[TokenStream] = set()     # the streams whose requests are still computed
        if self._queue.room.tokens is None:     # the user set no limit, and clients could fill all memory
            self._queue.room.tokens = default_cache_tokens(model)
        self._queue.watcher = self._note_step
        self._start()

    def _warm(self) -> None:
        """Make some tokens twice: the first call brings the weights into memory, the second one gives the rates."""
        longest = self.model.prepared.lengths.prompt.most or _PROMPT_TOKENS
        settings = {"max_new_tokens": _NEW_TOKENS, "min_new_tokens": _NEW_TOKENS, "num_beams": 1, "do_sample": False}
        for i in range(2):
            self.load.forget_rates()
            # Another prompt and a key of its own, so that no prefix of it is in the cache already.
            prompt = [i] * max(1, min(_PROMPT_TOKENS, longest - _NEW_TOKENS))
            self.submit("generate", [prompt], settings | {"cache_key": "\0"}).result()
        self.load.lengths.clear()       # lengths of answers of clients alone are expected

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset(self._methods)

    @property
    def longest(self) -> int | None:
        """The most tokens of a prompt; None for no limit."""
        positions, cells = self.model.prepared.lengths.prompt.most, self.most_tokens(rows=1)
        return min((most for most in (positions, cells) if most is not None), default=None)

    def most_tokens(self, rows: int) -> int | None:
        """Return the most tokens of a prompt with its answer, if a request has `rows` answers; None for no limit."""
        longest, cells = self.model.prepared.decoder.longest, self._queue.room.tokens
        in_cache = None if cells is None else max(1, cells // rows - BLOCK * (rows > 1))
        in_model = None if longest is None else longest + 1     # the model does not read the last token
        return min((most for most in (in_model, in_cache) if most is not None), default=None)

    def _options(self, task: str, options: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
        """Add the key as `cache_key`, so that no client learns from times what another client has asked."""
        return {"cache_key": key} | dict(options or {})

    def _check_first(self, key: str) -> None:
        load = self.load
        self._admission.check_wait(load.seconds, lambda: load.before_first(key or None, prompt=0.0, rows=1))

    def _end(self) -> None:
        """End the thread of the model. The queue belongs to the model, so it must forget this service."""
        self._queue.watcher = lambda rows, read, seconds: None
        super()._end()

    def _prepare(self, request: Pending) -> PreparedWorks:
        """Make the works of a request, and count its memory; a worker calls it."""
        begun = time.monotonic()
        if (method := self._methods.get(request.task)) is None:
            raise InputError(f"there is no task {shown(request.task)}; the model serves {', '.join(self._methods)}")
        options = dict(request.options)
        places = options.pop("places", None)        # names of the inputs in the request, for messages
        prepared: PreparedWorks = method.prepare(self.model, request.inputs, method.read_options(options),
                                                 request.stop, places)
        request.inputs, request.prepared = None, prepared
        request.room.hold(request.base + sum(map(_memory_of, _works(prepared))))
        request.tokenize += time.monotonic() - begun
        return prepared

    def _admit(self, request: Pending, prepared: PreparedWorks) -> None:
        """Submit the works of a request to the queue, or settle it with `Overloaded` if it would wait too long."""
        owner = request.owner
        tokens = sum(self._unread(work) for work in _works(prepared))
        new = max((work.limit - work.first for work in _works(prepared) if work.makes_tokens), default=0)
        rows = sum(work.rows for work in _works(prepared))
        load, works_of_inputs = self.load, [work.apart() for work in _works(prepared)]
        try:
            with self._lock:
                if request.settled:
                    return
                prompt, seconds = load.cost(tokens, new, rows)
                self._admission.check_wait(load.seconds, lambda: load.before_first(owner, prompt, rows))
                self._admission.check_end(lambda: load.before_last(owner, seconds), load.seconds, seconds,
                                          request.stop.left)
                load.enter(request, owner, prompt, seconds, rows)
                tickets = request.tickets = tuple(
                    self._queue.submit(work, owner=owner, deadline=request.stop.deadline, pace=SHARED)
                    for work in chain.from_iterable(works_of_inputs))
        except EngineError as error:        # overloaded, or the queue has ended
            load.leave(request)
            self._settle(request, error)
            return
        self._follow(request, prepared, works_of_inputs, tickets)

    def _unread(self, work: Generation) -> int:
        """Return about how many tokens of a work the model has to read, because the cache has them in no prefix."""
        if work.packed is not None or work.scores_prompt:       # not looked up in the cache
            return work.samples * work.tokens_in
        unread = max(1, work.tokens_in - self._queue.prefixes.known(work.prompt, work.cache_key))
        return unread + (work.samples - 1) * min(unread, BLOCK)     # the others find the blocks of the first

    def _follow(self, request: Pending, prepared: PreparedWorks, works_of_inputs: Sequence[Sequence[Generation]],
                tickets: Sequence[DecoderTicket]) -> None:
        """Watch the tickets of a submitted request: note its first token, and finish it when all tickets have ended.

        works_of_inputs: for each input, its works in the queue. tickets: one for each of these works, in their order.
        """
        submitted, ends = time.monotonic(), count(1)        # `next(ends)` counts ended tickets without a lock
        counts = [work.tokens_in for work in _works(prepared)]

        def ended(ticket: DecoderTicket) -> None:
            """Go on after the end of one work; the thread that ends it calls this."""
            if stream is not None:
                if stream.all_computed:
                    self._streams.discard(stream)
                stream.news.ring()
            if ticket.error is not None:
                self._waiting.pop(request, None)
                self.load.leave(request)
                self._settle(request, ticket.error)
                return
            self._note_first_token(request)
            if next(ends) == len(tickets):
                times = Times(request.tokenize, queue=0.0, compute=time.monotonic() - submitted)
                size = sum(map(_memory_of, _works(prepared)))
                self._finish(request, prepared, [*map(len, works_of_inputs)], tickets,
                             Answer(value=None, tokens=counts, truncated=[], times=times, bytes=size))

        self._waiting[request] = tickets[0], submitted
        stream = None
        if request.streams:
            works = [*chain.from_iterable(works_of_inputs)]
            stream = TokenStream(self.model.prepared, works, tickets, self._reasoning(request))
            self._streams.add(stream)
            self._give(request, Answer(stream, tokens=counts, truncated=[], times=Times(request.tokenize)))
        for ticket in tickets:
            ticket.add_done_callback(ended)

    def _note_first_token(self, request: Pending) -> None:
        """Record the time until the first token of a request, the first time that this is called for it.

        A request that has left `load` before, with an error, is not recorded.
        """
        _, submitted = self._waiting.pop(request, (None, 0.0))
        if submitted and self.load.begin(request):
            self.first_token.add(time.monotonic() - submitted)

    def _finish(self, request: Pending, prepared: PreparedWorks, sizes: Sequence[int],
                tickets: Sequence[DecoderTicket], answer: Answer) -> None:
        """Let a worker make the answer of a request whose tickets have all ended.

        sizes: the number of tickets of each input. answer: all of the answer but `value` and `new_tokens`.
        """
        lengths = [len(result.ids) for ticket in tickets for result in ticket.result()]
        self.load.leave(request, lengths)
        answer = replace(answer, new_tokens=sum(lengths))
        if request.streams:     # the reader of the stream has the results already
            self._settle(request, answer)
            return

        def results() -> list[list[Written]]:
            """Return, for each input, its answers."""
            reasoning_of, next_tickets = self._reasoning(request), iter(tickets)
            generated = ([result for ticket in islice(next_tickets, size) for result in ticket.result()]
                         for size in sizes)
            return [[self._whole(result, front_of(self.model.prepared, work.echo), reasoning_of(work))
                     for result in _listed(prepared.finish(i, of_input))]
                    for i, (work, of_input) in enumerate(zip(_works(prepared), generated, strict=True))]

        self._hand_over(request, results, lambda request, value: self._settle(request, replace(answer, value=value)),
                        long=answer.bytes > LONG_BYTES)

    def _whole(self, returned: Generated | Reply, front: Written | None, reasoning: Reasoning | None) -> Written:
        """Return a whole answer, from the result of the library's method.

        front: the prompt, if the answer begins with it. reasoning: divides the text into reasoning and answer.
        """
        result: Generated = returned.result if isinstance(returned, Reply) else returned
        text = (result.text or "")[0 if front is None else len(front.text) :]
        thoughts, text = ("", text) if reasoning is None else reasoning.end(text)
        return Written(text, thoughts, (result.logprobs or ())[result.echoed :], front, result)

    def _reasoning(self, request: Pending) -> Callable[[Generation], Reasoning | None]:
        """Return a function from a work to what divides its answer into reasoning and text, or to None."""
        markers = self._markers if request.task == "chat" else None
        if markers is None:
            return lambda work: None

        def reasoning(work: Generation) -> Reasoning:
            """Return what divides an answer, which has no opening marker if the prompt ends with that already."""
            tail = self.model.tokenizer.decode(work.prompt[-8:].tolist(), skip_special_tokens=False).rstrip()
            return Reasoning(markers, starts_inside=tail.endswith(markers[0]))

        return reasoning

    @lazy
    def _markers(self) -> tuple[str, str] | None:
        """The markers (opening, closing) of reasoning in the chat template, if both are tokens; None without any."""
        chat = None if self.model.text is None else self.model.text.chat
        templates = "".join(chat.templates.values()) if chat is not None else ""
        return next((pair for pair in MARKERS if pair[1] in templates
                     and None not in map(self.model.tokenizer.token_id, pair)), None)

    @property
    def marker(self) -> int | None:
        """The id of the token that ends the reasoning of an answer; None for a model without reasoning."""
        return None if self._markers is None else self.model.tokenizer.token_id(self._markers[1])

    def _note_step(self, rows: int, read: int, seconds: float) -> None:
        """Count a step of the queue, note the requests that got their first token, and wake the readers of streams.

        The queue's thread calls it.

        rows: how many got a token. read: the prompt tokens of the step. seconds: its time.
        """
        self.load.measured(rows, read, seconds)
        self.rows.add(rows)
        if rows:
            self.gaps.add(seconds, rows)
        # Copies, because other threads add requests and streams meanwhile.
        for request, (ticket, _submitted) in [*self._waiting.items()]:
            if has_news([ticket.entry], seen=0):
                self._note_first_token(request)
        ring_all(stream.news for stream in [*self._streams] if stream.has_news)

    def statistics(self) -> TextStatistics:
        """Return the present numbers of the service and of its queue."""
        numbers = self.model.statistics()       # without the lock: it may end a cancelled request, which takes the lock
        with self._lock:
            counts = self._counts()
        return TextStatistics(**counts, queue=numbers, rate=self.load.write_rate, read_rate=self.load.read_rate,
                              most_tokens=self._queue.room.tokens or 0)


@dataclass
class TextStatistics(RequestCounts):
    """The numbers of a service and of its queue. Counters grow from the start; gauges are present values."""

    queue: Statistics = field(kw_only=True)
    """The numbers of the queue: requests, tokens and cells."""
    rate: float = 0.0
    """Gauge: new tokens a second, of all rows together."""
    read_rate: float = 0.0
    """Gauge: tokens of prompts that are read a second."""
    most_tokens: int = 0
    """The most tokens that the cache may have room for."""


def fingerprint_of(model: Generator, checksum: str) -> str:
    """Return OpenAI's `system_fingerprint`: servers with equal ones give the same bytes to the same request and seed.

    checksum: of the model's files, so of weights, tokenizer and template; "" for a model in memory, for which its
    configuration stands.
    """
    kernels = PORTABLE if model.bits == PORTABLE else get_backend(model.backend).describe().partition(" (")[0]
    named = [checksum or repr(model.prepared.config), __version__, kernels, model.precision, model.prepared.cache]
    return f"fp_{sha256(repr(named).encode()).hexdigest()[:16]}"


def default_cache_tokens(model: Generator) -> int:
    """Return the default of the most tokens in the cache: a quarter of the memory, or a whole context for each row.

    Both keys and values count; the result is a multiple of `BLOCK`.
    """
    config, rows = model.prepared.config, model.prepared.budget.rows
    numbers = 2 * config.num_layers * config.kv_heads * config.head_width
    tokens = memory_of_machine() // 4 // int(numbers * _BYTES[model.prepared.cache])
    return max(BLOCK, min(tokens, rows * (model.prepared.decoder.longest or tokens)) // BLOCK * BLOCK)


def memory_of_machine() -> int:
    """Return the bytes of memory of the machine, or of its container if that has a limit."""
    of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        limit = "max"
    return min(of_machine, int(limit)) if limit.isdecimal() else of_machine


def _works(prepared: PreparedWorks) -> Sequence[Generation]:
    """Return the works of a call by their type, which is the same for all methods of a service."""
    return cast(Sequence[Generation], prepared.works)


def _listed(results: Any) -> list[Any]:
    """Return results as a list: a method returns one result alone for a request of one answer."""
    return results if isinstance(results, list) else [results]


def _memory_of(work: Generation) -> int:
    """Return an upper estimate of the bytes of a work: its prompt, its results, and the JSON of their answer."""
    tokens = work.tokens_in + work.rows * (work.limit - work.first)
    logprobs = 0 if work.config.logprobs is None else (1 + work.config.logprobs) * _LOGPROB
    in_answer = tokens if work.echo is not None else tokens - work.tokens_in
    return int(_TOKEN * tokens + logprobs * in_answer)
