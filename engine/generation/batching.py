"""Run many requests over one model: finished requests leave the batch at once, and waiting ones enter it.

Each request goes through the same numbers alone and in any batch, because a row of a step gives the same bits in any
batch (backends/steps.py), and because no search looks at another request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backends.lock import new_turn
from ..base.arguments import positive_int
from ..base.errors import InputError, located, shown
from ..base.stop import NEVER, Stop
from ..model.generation_config import GenerationConfig, ids_array
from .beams import BeamSearch
from .encoder_decoder import SourceStepper
from .greedy import SingleSearch
from .results import Done, Failed, Generated, Request, Token, logits_error
from .search import Outcome, Search, forced_first

Event: TypeAlias = Token | Done | Failed
"""What a stream gives: a new token, or the end of a request."""
Ends: TypeAlias = Generator[Done | Failed, None, None]
"""The ends of requests, in their order."""
MOST_ROWS = 1024
"""The most beams or samples of one request, unless `Budget.rows` is larger: they are set up before the first step."""


@dataclass(frozen=True)
class Budget:
    """How much is in the batch at once. It changes the speed and the memory, and no result.

    A request that is larger than the budget runs alone.
    """

    rows: int = 64
    """The most hypotheses: num_beams, or num_return_sequences of a sampling, for each request."""
    tokens: int = 4096
    """The most tokens that the model reads in one step: prompts, sources, and one for each other row."""

    def __post_init__(self) -> None:
        positive_int("rows", self.rows)
        positive_int("tokens", self.tokens)


class Traffic:
    """Counts the tokens of many calls in several threads."""

    def __init__(self) -> None:
        self.tokens_in = self.tokens_out = 0
        self._turn = new_turn()

    def add(self, tokens_in: int, tokens_out: int = 0) -> None:
        """Add the tokens that a model has read, and those that it has made."""
        with self._turn.take():
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out


def generate(
    stepper: SourceStepper, requests: Iterable[Request | Checked], *, budget: Budget | None = None, stop: Stop = NEVER,
    traffic: Traffic | None = None, places: Sequence[str] | None = None,
) -> list[list[Generated]]:
    """Return the results of each request, in the order of the requests.

    requests: each is checked when its turn comes, unless `checked` has done it. stop: when to stop, with `TimedOut` or
    `Cancelled`. traffic: counts the tokens. places: what a message calls each request; None for its number. Raises
    `InputError` for wrong requests, and the error of a request that fails. Whatever happens, this call closes all
    requests that it opened.
    """
    events = Events(stepper, requests, budget, stop, traffic, tokens=False)
    try:
        return [_succeeded(end, places).results for end in _in_order(events)]
    finally:
        events.close()


def in_order(
    stepper: SourceStepper, requests: Iterable[Request | Checked], *, budget: Budget | None = None, stop: Stop = NEVER,
    traffic: Traffic | None = None,
) -> Ends:  # fmt: skip
    """Yield the end of each request, in the order of the requests, as soon as those before it have ended, too.

    Otherwise this is as `generate`, except that the requests of an iterator that is left end with the stepper.
    """
    return _in_order(Events(stepper, requests, budget, stop, traffic, tokens=False))


def _succeeded(end: Done | Failed, places: Sequence[str] | None) -> Done:
    """Return the end of a request that did not fail; raises the error of one that did, with its place."""
    if isinstance(end, Failed):
        with located(f"input {end.request}" if places is None else places[end.request]):
            raise end.error
    return end


def _in_order(events: Events) -> Ends:
    ended: dict[int, Done | Failed] = {}
    following = 0
    for event in events:
        if not isinstance(event, Token):
            ended[event.request] = event
        while following in ended:
            yield ended.pop(following)
            following += 1


def stream(
    stepper: SourceStepper, requests: Iterable[Request | Checked], *, budget: Budget | None = None, stop: Stop = NEVER,
    traffic: Traffic | None = None,
) -> Events:
    """Yield each new token as soon as it is certain, and the results of each request when it is done, or its error.

    requests: taken one by one, when there is room for the next one; it may be an endless iterator. Otherwise this is as
    `generate`. Closing the iterator before its end closes the requests of the stepper.
    """
    return Events(stepper, requests, budget, stop, traffic, tokens=True)


class Events(Iterator[Event]):
    """The events of `stream`; without `tokens`, only the ends of requests.

    It is no generator function, because Python runs the end of one in the middle of anything when it collects it. This
    iterator has nothing to run then: the stepper, which dies with it, ends its requests.
    """

    def __init__(self, stepper: SourceStepper, requests: Iterable[Request | Checked], budget: Budget | None, stop: Stop,
                 traffic: Traffic | None, tokens: bool):  # fmt: skip
        self._run = _ActiveRequests(stepper, iter(requests), budget or Budget(), traffic or Traffic())
        self._stop, self._tokens, self._over, self._busy = stop, tokens, False, False
        self._ready: deque[Event] = deque()

    def __next__(self) -> Event:
        try:
            self._busy = True
            while not self._ready and not self._over and self._run.admit():
                self._stop.check()
                self._ready.extend(self._run.step(self._tokens))
        except BaseException:
            self._over = True
            raise
        finally:
            self._busy = False
            if self._over:
                self.close()
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def close(self) -> None:
        """End the requests that are open; any thread may call it. A step that runs ends first, and ends them itself."""
        # Each side writes its own flag before it reads the other one, so at least one of them ends the requests.
        self._over = True
        if not self._busy:
            self._ready.clear()
            self._run.close()


def decoder_ids(request: Request) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Return the source of a request, if it has one, and the first tokens of its decoder: int64 [S] and [P]."""
    source = None if request.source is None else ids_array("source", request.source)
    prompt = None if request.prompt is None else ids_array("prompt", request.prompt)
    return source, request.config.prompt(prompt, source is not None)


@dataclass(frozen=True)
class Checked:
    """A request that the model can compute, ready to enter the batch."""

    request: Request
    source: NDArray[np.int64] | None
    packed: Any
    """The source as `SourceStepper.open` takes it."""
    prompt: NDArray[np.int64]
    limit: int
    """The most tokens of a result, prompt included."""
    rows: int
    """The most hypotheses at a time."""

    @property
    def tokens(self) -> int:
        """Return the most tokens of one of its steps: of the first one, or of one with all its rows."""
        prompt = len(self.prompt) + len(forced_first(self.request.config, len(self.prompt)))
        return max(prompt + (0 if self.source is None else len(self.source)), self.rows)

    @property
    def cached(self) -> int:
        """Return the most tokens of all its hypotheses together, which share the prompt.

        For weights of cross-attention, the model reads each result once more from its start.
        """
        again = self.limit if self.request.heads else 0
        return len(self.prompt) + self.rows * (self.limit - len(self.prompt)) + again


def checked(stepper: SourceStepper, request: Request, budget: Budget) -> Checked:
    """Return a request with its ids as arrays; raises an `EngineError` if something is wrong with it."""
    if not isinstance(request, Request):
        raise InputError(f"requests must be Request objects, not {shown(request)}")
    config = request.config
    config.check_together(stepper.vocab_size)
    source, prompt = decoder_ids(request)
    rows = config.num_return_sequences if config.do_sample else config.num_beams
    if rows > (most := max(budget.rows, MOST_ROWS)):
        raise InputError(f"a request may have {most:,} beams or samples, not {rows:,}; load the model with a "
                         "larger max_rows for more")
    return Checked(request, source, stepper.packed(source), prompt, config.limit(len(prompt), stepper.longest), rows)


class _ActiveRequests:
    """The requests of one call that are in the batch."""

    def __init__(self, stepper: SourceStepper, requests: Iterator[Request | Checked], budget: Budget,
                 traffic: Traffic) -> None:
        self.stepper, self.requests, self.budget, self.traffic = stepper, requests, budget, traffic
        self.searches: dict[GenerationConfig, Search] = {}
        self.places: dict[int, int] = {}
        """The place in the order of the requests, by the number that the stepper gave."""
        self.reserved: dict[int, int] = {}
        """The most rows that each request can have, by the number of the request that the stepper gave."""
        self.weighed: dict[int, Checked] = {}
        """The requests that want weights of cross-attention, by the number that the stepper gave."""
        self.taken = 0
        """The number of requests that were taken from the iterator."""
        self.waiting: Checked | None = None

    def admit(self) -> bool:
        """Let requests enter while there is room; return False when nothing is left to do."""
        rows = tokens = sum(self.reserved.values())
        while True:
            if self.waiting is None:
                request = next(self.requests, None)
                if request is None:
                    break
                self.waiting = request if isinstance(request, Checked) else checked(self.stepper, request, self.budget)
                self.taken += 1
            new, full = self.waiting, rows + self.waiting.rows > self.budget.rows
            if self.places and (full or tokens + new.tokens > self.budget.tokens):
                break
            if not self._enter(new):
                break
            rows, tokens, self.waiting = rows + new.rows, tokens + new.tokens, None
        return bool(self.places)

    def step(self, tokens: bool) -> list[Event]:
        """Run one step of all requests in the batch, and return its outcome; new tokens only if asked for."""
        searches, events = [*self.searches.values()], list[Event]()
        rows = [search.rows() for search in searches]
        scores = self.stepper.step([row for own in rows for row in own]).split(rows)
        for search, own in zip(searches, scores, strict=True):
            outcome = Outcome()
            search.advance(own, outcome)
            if tokens:
                events += [Token(self.places[number], sample, token) for number, sample, token in outcome.tokens]
            for number, results in outcome.done.items():
                place = self.places[number]
                if number in self.weighed:
                    results = self._with_weights(number, results)
                self._leave(number)
                events.append(Done(place, results))
            for number in outcome.failed:
                events.append(Failed(self.places[number], logits_error()))
                self._leave(number)
            ends = sum(result.ended for results in outcome.done.values() for result in results)
            self.traffic.add(0, len(outcome.tokens) + ends)
            if outcome.released:
                self.stepper.release(outcome.released)
        if not all(len(search.paths) for search in searches):
            self.searches = {config: search for config, search in self.searches.items() if len(search.paths)}
        return events

    def close(self) -> None:
        """Close every request that is open."""
        for number in [*self.places]:
            self._leave(number)

    def _enter(self, new: Checked) -> bool:
        """Let a request enter; return False while there is no room for it and other requests are in the batch."""
        config = new.request.config
        number = self.stepper.open(new.packed, new.cached, not self.places)
        if number is None:
            return False
        if config not in self.searches:
            kind = BeamSearch if config.num_beams > 1 else SingleSearch
            self.searches[config] = kind(config, self.stepper.vocab_size, self.stepper.exp)
        self.places[number], self.reserved[number] = self.taken - 1, new.rows
        if new.request.heads:
            self.weighed[number] = new
        self.searches[config].add(new.request, number, new.source, new.prompt, new.limit)
        self.traffic.add(len(new.prompt) + (0 if new.source is None else len(new.source)))
        return True

    def _leave(self, number: int) -> None:
        self.places.pop(number, None)
        self.reserved.pop(number, None)
        self.weighed.pop(number, None)
        self.stepper.close(number)

    def _with_weights(self, number: int, results: list[Generated]) -> list[Generated]:
        """Return the results of a request with weights of cross-attention, from one pass over each result."""
        new, found = self.weighed[number], []
        heads, config = new.request.heads, new.request.config
        before = [*new.prompt.tolist(), *forced_first(config, len(new.prompt))]
        for result in results:
            # The model does not read the last token: its own row would have the weights of a token after it.
            tokens = np.array([*before, *result.ids[:-1]], np.int64)
            weights = self.stepper.attention_weights(number, tokens, heads)[:, len(before) - 1 :][:, : len(result.ids)]
            found.append(replace(result, attentions=dict(zip(heads, weights, strict=True))))
        return found
