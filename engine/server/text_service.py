"""`TextService`: a model that generates texts, and answers many requests at once. It knows nothing of HTTP."""

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

TASKS = ("generate", "chat")
"""The methods of a `Generator` that a service has."""
_TOKEN, _LOGPROB = 96, 640
"""About how many bytes a token of a prompt or an answer takes, and each log probability that is told of it, with all
that is written of them."""
_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1.0625}
"""The bytes of a number in a cell, by the precision of the cache."""
_WARM, _NEW = 32, 4
"""The tokens of the prompt that warms a model, and its new tokens."""


class TextService(RequestService):
    """A model that generates texts, and answers many requests at once; it knows nothing of HTTP.

    All requests are computed in the queue of the model, together with calls of the library. Each gets the tokens of a
    call for it alone. The arguments of `submit` besides those that all services have:

    task: one of `tasks`, a method of `Generator`.
    inputs, options: those of the method. The value of an `Answer` has the result of each input in a list; or it is a
        `TokenStream` of all of them.
    """

    kind = "generate"

    def __init__(self, model: Generator, *, max_wait: float = 2.0, max_bytes: int = MAX_HELD,
                 beside: RequestService | None = None, checksum: str = ""):
        """Start the thread of a model, and let it make some tokens, whose times are the first rates.

        max_wait: a request is refused if its first token would have to wait longer, in seconds. max_bytes: the most
        memory of all requests that are open, the cells of the cache not counted. beside: a service whose threads and
        memory this one shares. checksum: of the files of the model, for its fingerprint.

        Raises `UnsupportedError` for a model without a tokenizer.
        """
        self.model = model
        if model.text is None:
            raise UnsupportedError("this model came without a tokenizer, so it writes no texts, and there is nothing "
                                   "to serve; add a tokenizer.json to its folder")
        super().__init__(min(4, max(2, model.threads // 2)), positive_int("max_bytes", max_bytes), beside)
        self._methods = {name: model.methods[name] for name in TASKS if name in model.methods}
        self._queue: StepQueue = model.prepared.queue
        self.fingerprint = fingerprint_of(model, checksum)
        """Says whose bits the answers are: equal requests to servers with equal ones have equal answers."""
        self.load = TextLoad(self._queue.budget.rows)
        self._admission = Admission(max_wait, lambda: 1.0 if self.load.write_rate else 0.0)
        self.first_token, self.gaps = Histogram(SECONDS), Histogram(SECONDS)
        """Seconds to the first token of a request, and between two tokens of a row."""
        self.rows = Histogram([2.0**i for i in range(11)])
        """The rows of a step that make a token each."""
        self._waiting: dict[Pending, tuple[DecoderTicket, float]] = {}
        """The requests without a token so far, each with its first ticket and the time at which it was submitted."""
        self._streams: set[TokenStream] = set()     # those to which tokens may still come
        if self._queue.room.tokens is None:     # a server has no bound but its own for what strangers ask for
            self._queue.room.tokens = default_cache_tokens(model)
        self._queue.watcher = self._note_step
        self._start()

    def _warm(self) -> None:
        """Make some tokens twice: the first time brings the weights into memory, the second one is measured."""
        longest = self.model.prepared.lengths.prompt.most or _WARM
        settings = {"max_new_tokens": _NEW, "min_new_tokens": _NEW, "num_beams": 1, "do_sample": False}
        for i in range(2):
            self.load.forget_rates()
            self.submit("generate", [[i] * max(1, min(_WARM, longest - _NEW))], settings | {"cache_key": "\0"}).result()
        self.load.lengths.clear()       # these were no answers

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset(self._methods)

    @property
    def longest(self) -> int | None:
        """The most tokens of a prompt; None for any number."""
        positions, cells = self.model.prepared.lengths.prompt.most, self.most_tokens(1)
        return min((most for most in (positions, cells) if most is not None), default=None)

    def most_tokens(self, rows: int) -> int | None:
        """Return the most tokens of a prompt and its answer, of which a request has so many rows."""
        longest, cells = self.model.prepared.decoder.longest, self._queue.room.tokens
        held = None if cells is None else max(1, cells // rows - BLOCK * (rows > 1))
        read = None if longest is None else longest + 1     # the model does not read the last token
        return min((most for most in (read, held) if most is not None), default=None)

    def _options(self, task: str, options: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
        """Let the times of answers not tell one client what another one asked."""
        return {"cache_key": key} | dict(options or {})

    def _check_first(self, key: str) -> None:
        load = self.load
        self._admission.check_wait(load.seconds, lambda: load.before_first(key or None, 0.0, 1))

    def _end(self) -> None:
        self._queue.watcher = lambda rows, read, seconds: None
        super()._end()

    def _prepare(self, request: Pending) -> PreparedWorks:
        """Make the works of a request, and count what it takes."""
        begun = time.monotonic()
        if (method := self._methods.get(request.task)) is None:
            raise InputError(f"there is no task {shown(request.task)}; the model serves {', '.join(self._methods)}")
        options = dict(request.options)
        places = options.pop("places", None)
        prepared: PreparedWorks = method.prepare(self.model, request.inputs, method.read_options(options),
                                                 request.stop, places)
        request.inputs, request.prepared = None, prepared
        request.room.hold(request.base + sum(map(_memory_of, _works(prepared))))
        request.tokenize += time.monotonic() - begun
        return prepared

    def _admit(self, request: Pending, prepared: PreparedWorks) -> None:
        """Let the works of a request wait for the model, unless it would wait too long."""
        owner = request.owner
        tokens = sum(self._unread(work) for work in _works(prepared))
        new = max((work.limit - work.first for work in _works(prepared) if work.makes_tokens), default=0)
        rows = sum(work.rows for work in _works(prepared))
        load, parts = self.load, [work.apart() for work in _works(prepared)]
        try:
            with self._lock:
                if request.settled:
                    return
                prompt, seconds = load.cost(tokens, new, rows)
                self._admission.check_wait(load.seconds, lambda: load.before_first(owner, prompt, rows))
                self._admission.check_end(lambda: load.before_last(owner, seconds), load.seconds, seconds,
                                          request.deadline - time.monotonic())
                load.enter(request, owner, prompt, seconds, rows)
                tickets = request.tickets = tuple(
                    self._queue.submit(work, owner=owner, deadline=request.stop.deadline, pace=SHARED)
                    for work in chain.from_iterable(parts))
        except EngineError as error:        # overloaded, or the queue has ended
            load.leave(request)
            self._settle(request, error)
            return
        self._follow(request, prepared, parts, tickets)

    def _unread(self, work: Generation) -> int:
        """Return about how many tokens of a work the model has to read, because no prefix has them."""
        if work.packed is not None or work.scores_prompt:       # each sample reads all of them
            return work.samples * work.tokens_in
        unread = max(1, work.tokens_in - self._queue.prefixes.known(work.prompt, work.cache_key))
        return unread + (work.samples - 1) * min(unread, BLOCK)     # which find the blocks that the first one reads

    def _follow(self, request: Pending, prepared: PreparedWorks, parts: Sequence[Sequence[Generation]],
                tickets: Sequence[DecoderTicket]) -> None:
        """Go on when the first token of a request is there, and when all of its works have ended.

        parts: the works that are computed for each input, to each of which a ticket belongs.
        """
        submitted, ends = time.monotonic(), count(1)        # each number of `ends` goes to one thread
        counts = [work.tokens_in for work in _works(prepared)]

        def ended(ticket: DecoderTicket) -> None:
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
                self._finish(request, prepared, [*map(len, parts)], tickets, Answer(None, counts, [], Times(
                    request.tokenize, 0.0, time.monotonic() - submitted), sum(map(_memory_of, _works(prepared)))))

        self._waiting[request] = tickets[0], submitted
        stream = None
        if request.streams:
            works = [*chain.from_iterable(parts)]
            stream = TokenStream(self.model.prepared, works, tickets, self._reasoning(request))
            self._streams.add(stream)
            self._give(request, Answer(stream, counts, [], Times(request.tokenize)))
        for ticket in tickets:
            ticket.add_done_callback(ended)

    def _note_first_token(self, request: Pending) -> None:
        """Record the time until the first token of a request, the first time that this is called for it.

        A request that has left `load`, because it has ended, is not recorded.
        """
        _, submitted = self._waiting.pop(request, (None, 0.0))
        if submitted and self.load.begin(request):
            self.first_token.add(time.monotonic() - submitted)

    def _finish(self, request: Pending, prepared: PreparedWorks, sizes: Sequence[int],
                tickets: Sequence[DecoderTicket], answer: Answer) -> None:
        """Let the workers finish a request of which all tokens are there.

        sizes: how many of the tickets each input has. answer: what is known besides the value.
        """
        lengths = [len(result.ids) for ticket in tickets for result in ticket.result()]
        self.load.leave(request, lengths)
        answer = replace(answer, new_tokens=sum(lengths))
        if request.streams:     # whoever reads the stream finishes each result by itself
            self._settle(request, answer)
            return

        def results() -> list[list[Written]]:
            reasoning, each = self._reasoning(request), iter(tickets)
            found = ([one for ticket in islice(each, size) for one in ticket.result()] for size in sizes)
            return [[self._whole(one, front_of(self.model.prepared, work.echo), reasoning(work))
                     for one in _listed(prepared.finish(i, of_input))]
                    for i, (work, of_input) in enumerate(zip(_works(prepared), found, strict=True))]

        self._hand_over(request, results, lambda request, value: self._settle(request, replace(answer, value=value)),
                        answer.bytes > LONG_BYTES)

    def _whole(self, given: Any, front: Written | None, reasoning: Reasoning | None) -> Written:
        """Return a whole answer. given: what a method returns for one input, a `Generated` or a `Reply`."""
        result: Generated = given.result if isinstance(given, Reply) else given
        thought, text = "", (result.text or "")[0 if front is None else len(front.text) :]
        if reasoning is not None:
            (thought, text), (more, rest) = reasoning.add(text), reasoning.end()
            thought, text = thought + more, text + rest
        return Written(text, thought, (result.logprobs or ())[result.echoed :], front, result)

    def _reasoning(self, request: Pending) -> Callable[[Generation], Reasoning | None]:
        """Return what makes, for a work of a request, what divides an answer of it; None for a text as it is."""
        markers = self._markers if request.task == "chat" else None
        if markers is None:
            return lambda work: None

        def reasoning(work: Generation) -> Reasoning:
            tail = self.model.tokenizer.decode(work.prompt[-8:].tolist(), skip_special_tokens=False).rstrip()
            return Reasoning(markers, tail.endswith(markers[0]))

        return reasoning

    @lazy
    def _markers(self) -> tuple[str, str] | None:
        """The markers of reasoning that the template of the model has, if they are tokens."""
        chat = None if self.model.text is None else self.model.text.chat
        templates = "".join(chat.templates.values()) if chat is not None else ""
        return next((pair for pair in MARKERS if pair[1] in templates
                     and None not in map(self.model.tokenizer.token_id, pair)), None)

    @property
    def marker(self) -> int | None:
        """The id of the token behind the reasoning of an answer; None for a model without any."""
        return None if self._markers is None else self.model.tokenizer.token_id(self._markers[1])

    def _note_step(self, rows: int, read: int, seconds: float) -> None:
        """Count a step of the queue, in whose thread this runs, and tell all streams that have new tokens."""
        self.load.measured(rows, read, seconds)
        self.rows.add(rows)
        if rows:
            self.gaps.add(seconds, rows)
        for request, (ticket, _) in [*self._waiting.items()]:
            if has_news([ticket.entry], 0):
                self._note_first_token(request)
        ring_all(stream.news for stream in [*self._streams] if stream.has_news)

    def statistics(self) -> TextStatistics:
        """Return what waits, what was done, and how fast."""
        numbers = self.model.statistics()       # without the lock: it may end what was cancelled, which takes it
        with self._lock:
            counts = self._counts()
        return TextStatistics(**counts, queue=numbers, rate=self.load.write_rate, read_rate=self.load.read_rate,
                              most_tokens=self._queue.room.tokens or 0)


@dataclass
class TextStatistics(RequestCounts):
    """What a service and the queue of its model have done. Counters grow from the start; gauges say what is there now.
    """

    queue: Statistics = field(kw_only=True)
    """Of the model: its requests, tokens and cells."""
    rate: float = 0.0
    """Gauge: new tokens in a second, of all rows together."""
    read_rate: float = 0.0
    """Gauge: tokens of prompts that are read in a second."""
    most_tokens: int = 0
    """The most tokens that the cells may have room for."""


def fingerprint_of(model: Generator, checksum: str) -> str:
    """Return OpenAI's `system_fingerprint`: servers with equal ones give the same bytes to the same request and seed.

    checksum: of the model's files, so of weights, tokenizer and template; "" for a model in memory, whose shape counts
    then.
    """
    kernels = PORTABLE if model.bits == PORTABLE else get_backend(model.backend).describe().partition(" (")[0]
    parts = [checksum or repr(model.prepared.config), __version__, kernels, model.precision, model.prepared.cache]
    return f"fp_{sha256(repr(parts).encode()).hexdigest()[:16]}"


def default_cache_tokens(model: Generator) -> int:
    """Return the tokens that the cells may have room for where nobody says it: they take a quarter of the memory.

    All rows with a whole context each need no more.
    """
    config, rows = model.prepared.config, model.prepared.budget.rows
    numbers = 2 * config.num_layers * config.kv_heads * config.head_width
    tokens = memory_of_machine() // 4 // int(numbers * _BYTES[model.prepared.cache])
    return max(BLOCK, min(tokens, rows * (model.prepared.decoder.longest or tokens)) // BLOCK * BLOCK)


def memory_of_machine() -> int:
    """Return the bytes of memory of the machine, or of the container."""
    of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        limit = "max"
    return min(of_machine, int(limit)) if limit.isdecimal() else of_machine


def _works(prepared: PreparedWorks) -> Sequence[Generation]:
    """Return the works of a call, as all methods of a service make them."""
    return cast(Sequence[Generation], prepared.works)


def _listed(results: Any) -> list[Any]:
    return results if isinstance(results, list) else [results]


def _memory_of(work: Generation) -> int:
    """Return an estimate of the most bytes that a work needs: its prompt, its results, and their answer."""
    tokens = work.tokens_in + work.rows * (work.limit - work.first)
    told = 0 if work.config.logprobs is None else (1 + work.config.logprobs) * _LOGPROB
    shown = tokens if work.echo is not None else tokens - work.tokens_in
    return int(_TOKEN * tokens + told * shown)
