"""Calls: a session of its own for each, in the thread of the caller, which steps it until its results are there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backends.batch import Batch
from ..base.errors import EngineError, located
from ..base.stop import NEVER, Stop
from .encoder_decoder import SourceStepper
from .handles import Handle, Tokens
from .lengths import Lengths
from .results import Done, Failed, Generated, Request, Token
from .schedule import Budget
from .scoring import AllLogits, LastLogits, Scoring, Seen
from .session import Session
from .traffic import Traffic
from .works import Work

Event: TypeAlias = Token | Done | Failed
"""What a stream gives: a new token, or the end of a request."""
Ends: TypeAlias = Generator[Done | Failed, None, None]
"""The ends of requests, in their order."""
Task: TypeAlias = Generator[Work, Any, None]
"""A generator that yields one request after the other, and is sent the results of each."""


def generate(
    stepper: SourceStepper, requests: Iterable[Request | Work], *, budget: Budget | None = None, stop: Stop = NEVER,
    traffic: Traffic | None = None, places: Sequence[str] | None = None,
) -> list[list[Generated]]:
    """Return the results of each request, in the order of the requests.

    requests: each is checked when its turn comes, unless `checked` has done it. stop: when to stop, with `TimedOut` or
    `Cancelled`. traffic: counts the tokens. places: what a message calls each request; None for its number. Raises
    `InputError` for wrong requests, and the error of a request that fails. Whatever happens, this call closes all
    requests that it opened.
    """
    return _run(stepper, requests, budget, stop, traffic, partial(_succeeded, places))


def in_order(
    stepper: SourceStepper, requests: Iterable[Request | Work], *, budget: Budget | None = None, stop: Stop = NEVER,
    traffic: Traffic | None = None,
) -> Ends:  # fmt: skip
    """Yield the end of each request, in the order of the requests, as soon as those before it have ended, too.

    Otherwise this is as `generate`, except that the requests of an iterator that is left end with the stepper.
    """
    return _in_order(Events(stepper, requests, budget, stop, traffic, tokens=False))


def stream(
    stepper: SourceStepper, requests: Iterable[Request | Work], *, budget: Budget | None = None, stop: Stop = NEVER,
    traffic: Traffic | None = None,
) -> Events:
    """Yield each new token as soon as it is certain, and the results of each request when it is done, or its error.

    requests: taken one by one, when there is room for the next one; it may be an endless iterator. Otherwise this is as
    `generate`. Closing the iterator before its end closes the requests of the stepper.
    """
    return Events(stepper, requests, budget, stop, traffic, tokens=True)


def score(
    stepper: SourceStepper, requests: Iterable[Request], continuations: Iterable[Sequence[int]], *,
    budget: Budget | None = None, stop: Stop = NEVER, traffic: Traffic | None = None, temperature: float = 1.0,
    seen: Seen | None = None, lengths: Lengths | None = None, places: Sequence[str] | None = None,
) -> list[list[float]]:  # fmt: skip
    """Return log p(id | source, prompt, ids before it) of each id of the continuation of each request.

    temperature, seen, lengths: as in `Scoring`. The others are those of `generate`. All requests are checked before the
    first one is computed. Raises `InputError` for wrong ids.
    """
    works = []
    for i, (request, ids) in enumerate(zip(requests, continuations, strict=True)):
        with located(_place(places, i)):
            works.append(Scoring(stepper, request, ids, temperature, seen, lengths))
    scores: list[Any] = generate(stepper, works, budget=budget, stop=stop, traffic=traffic, places=places)
    return scores


def last_logits(
    stepper: SourceStepper, groups: Sequence[Sequence[NDArray[np.int64]]], ids: Sequence[int], *,
    budget: Budget | None = None, stop: Stop = NEVER, advance: Callable[[int], object] = lambda done: None,
    place: Callable[[int, int], str] = lambda group, prompt: f"prompt {prompt} of group {group}",
) -> list[NDArray[np.float32]]:  # fmt: skip
    """Return for each group the logits of `ids` after each of its prompts: float32 [prompts, ids].

    A prompt has the same logits, to the last bit, alone and in any group. budget and stop are those of `generate`.
    advance: gets the number of prompts that have just been completed. place: returns what messages call a prompt.
    """
    def place_in(group: int) -> Callable[[int], str]:
        return lambda prompt: place(group, prompt)

    works = [LastLogits(prompts, [*ids], advance=advance, place=place_in(group))
             for group, prompts in enumerate(groups)]
    return _run(stepper, works, budget, stop, traffic=None, results=_results_of)


def all_logits(stepper: SourceStepper, sources: Sequence[Batch], texts: Sequence[NDArray[np.int64]], *,
               budget: Budget | None = None, stop: Stop = NEVER) -> list[NDArray[np.float32]]:
    """Return the logits after each token of each text, one at least in each: float32 [n, V].

    sources: that of each text, as `SourceStepper.open` takes it. budget and stop are those of `generate`.
    """
    works = [AllLogits(ids, stepper.vocab_size, source, source.tokens)
             for source, ids in zip(sources, texts, strict=True)]
    return _run(stepper, works, budget, stop, traffic=None, results=_results_of)


def _run(stepper: SourceStepper, requests: Iterable[Request | Work], budget: Budget | None, stop: Stop,
         traffic: Traffic | None, results: Callable[[Done | Failed], Any]) -> list[Any]:
    """Return what `results` returns of the end of each request, in their order. All requests are closed then."""
    events = Events(stepper, requests, budget, stop, traffic, tokens=False)
    try:
        return [results(end) for end in _in_order(events)]
    finally:
        events.close()


def run_tasks(stepper: SourceStepper, tasks: Iterable[Task], *, budget: Budget, stop: Stop, traffic: Traffic) -> None:
    """Run tasks side by side, none of which waits for another one.

    A request that fails raises its error inside its task.
    """
    session = Session(stepper, budget, stop=stop, traffic=traffic)
    waiting: deque[tuple[Task, Handle | None]] = deque((task, None) for task in tasks)
    open_ones: dict[Handle, Task] = {}
    try:
        while waiting or open_ones:
            while waiting:
                task, handle = waiting.popleft()
                try:
                    work = next(task) if handle is None else _resumed(task, handle)
                except StopIteration:
                    continue
                open_ones[session.submit(work)] = task
            session.step()
            for handle in [handle for handle in open_ones if handle.end is not None]:
                waiting.append((open_ones.pop(handle), handle))
    finally:
        session.close()


def _resumed(task: Task, handle: Handle) -> Work:
    """Return the next request of a task; handle: of the last one."""
    try:
        results = handle.outcome()
    except EngineError as error:
        return task.throw(error)
    return task.send(results)


def _succeeded(places: Sequence[str] | None, end: Done | Failed) -> Any:
    """Return the results of a request that did not fail; raises the error of one that did, with its place."""
    with located(_place(places, end.request)):
        return _results_of(end)


def _place(places: Sequence[str] | None, request: int) -> str:
    """Return what a message calls a request; places: as in `generate`."""
    return f"input {request}" if places is None else places[request]


def _results_of(end: Done | Failed) -> Any:
    """Return the results of a request that did not fail; raises the error of one that did, which has its place."""
    if isinstance(end, Failed):
        raise end.error
    return end.results


def _in_order(events: Events) -> Ends:
    ended: dict[int, Done | Failed] = {}
    following = 0
    for event in events:
        if not isinstance(event, Token):
            ended[event.request] = event
        while following in ended:
            yield ended.pop(following)
            following += 1


class Events(Iterator[Event]):
    """The events of `stream`; without `tokens`, only the ends of requests.

    This is no generator function: when Python collects a generator, it runs its `finally` in the middle of other code.
    This iterator has nothing to run then: the stepper dies with it, and that ends its requests.
    """

    def __init__(self, stepper: SourceStepper, requests: Iterable[Request | Work], budget: Budget | None, stop: Stop,
                 traffic: Traffic | None, tokens: bool):  # fmt: skip
        self._session = Session(stepper, budget, stop=stop, traffic=traffic)
        self._requests: Iterator[Request | Work] | None = iter(requests)
        self._open: list[tuple[Handle, Tokens]] = []
        self._tokens = tokens
        self._over, self._busy = False, False       # whether no event comes any more, and whether `__next__` runs
        self._ready: deque[Event] = deque()     # events that were not returned yet

    def __next__(self) -> Event:
        try:
            self._busy = True
            while not self._ready and not self._over and self._take():
                self._session.step()
                self._collect()
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

    def _take(self) -> bool:
        """Take requests while there is room for more; return whether there is anything to do."""
        while self._requests is not None and self._session.room > 0:
            request = next(self._requests, None)
            if request is None:
                self._requests = None
                break
            handle = self._session.submit(request)
            self._open.append((handle, iter(handle)))
        return bool(self._open)

    def _collect(self) -> None:
        """Take what the last step brought."""
        any_ended = False
        for handle, tokens in self._open:
            if self._tokens:
                self._ready.extend(tokens.ready())
            if handle.end is not None:
                self._ready.append(handle.end)
                any_ended = True
        if any_ended:
            self._open = [pair for pair in self._open if pair[0].end is None]

    def close(self) -> None:
        """End the requests that are open; any thread may call it. A step that runs ends first, and ends them itself."""
        # Each side writes its own flag before it reads the other one, so at least one of them ends the requests.
        self._over = True
        if not self._busy:
            self._ready.clear()
            self._session.close()
