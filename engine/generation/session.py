"""`Session`: takes requests at any time, and computes all of them together, step by step.

    submit   a request goes into a deque, from any thread
    step     ends what was cancelled; lets requests enter while there is room; asks the schedule what to read; computes
             one step of the model; hands each group its scores; and gives tokens and results to the handles

Each request goes through the same numbers alone and beside any others, because a row of a step has the same bits in any
step (backends/steps.py), and because no request looks at another one.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from queue import Empty, SimpleQueue
from typing import Any

from ..backends.steps import Row, Scores
from ..base.errors import Cancelled, EngineError, InputError, TimedOut, shown
from ..base.stop import NEVER, Stop
from .checks import checked
from .encoder_decoder import SourceStepper
from .handles import Handle
from .results import Done, Failed, Request
from .schedule import Budget, Pace, Schedule
from .sequences import Sequence
from .traffic import Traffic
from .works import Entry, Group, Holder, Outcome, Work


@dataclass(frozen=True)
class SessionStatistics:
    """What a session does at the moment."""

    rows: int
    """Sequences of which each step reads the next token."""
    waiting: int
    """Requests that wait until they enter."""
    prompt_tokens: int
    """Tokens of the prompts of the requests that have entered, which the model has not read yet."""
    step_seconds: float
    """How long the last step took."""


@dataclass
class _Part:
    """What a step reads for one group; without a group, parts of prompts after which no scores are wanted."""

    group: Group | None
    sequences: list[Sequence]
    rows: list[Row]


class Session:
    """Requests to one model that are computed together.

    Any thread may call `submit` and the methods of handles, which take no lock; one calls `step` and `close`.
    """

    def __init__(self, stepper: SourceStepper, budget: Budget | None = None, *, stop: Stop = NEVER,
                 traffic: Traffic | None = None, pace: Pace | None = None, schedule: Schedule | None = None):
        """Take the steps of the model.

        stop: when all requests have to stop, with `TimedOut` or `Cancelled` out of `step`. traffic: counts the tokens.
        pace: how long steps may take in a session that several threads use; only the thread that makes the session, or
        calls `adopt`, may call `step` and `close`. Without a pace, this is the session of one call, which looks at
        neither time nor threads. schedule: None for one with this budget and this pace.
        """
        self.budget = budget or Budget()
        self._stepper, self._stop, self._traffic = stepper, stop, traffic or Traffic()
        self.shared = pace is not None
        self._schedule = schedule or Schedule(self.budget, stepper.vocab_size, pace)
        self._numbers = itertools.count()       # of requests, as `Entry.number`
        self._works: dict[int, Work] = {}
        """All requests that have not ended, by number."""
        self._arrived: deque[Work] = deque()        # submitted, and not seen by a step yet
        self._ended: deque[int | Holder] = deque()      # cancelled: by number, or because nobody holds the handle
        self._active: set[Work] = set()
        """The requests that have entered."""
        self._groups: dict[Any, Group] = {}
        self._reading: list[Sequence] = []
        """The sequences that have more unread ids than the next token."""
        self._freed: list[tuple[Work, int]] = []
        """Hypotheses that no sequence has any more."""
        self._step_seconds = 0.0
        self._deadlines: list[tuple[float, int]] = []
        """A heap of the deadlines of requests, with their numbers."""
        self._closed = ""
        """Why the session takes no more requests; empty for one that is open."""
        self.closes = False
        """Whether the thread that steps shall close the session."""
        self._process = os.getpid()
        self._bell: SimpleQueue[None] = SimpleQueue()       # an item ends the `sleep` of the thread that steps
        self._sleeps = False        # whether that thread is in `sleep`
        self.adopt()

    def adopt(self) -> None:
        """Let the calling thread be the one that steps."""
        self._thread = threading.current_thread()

    def submit(self, request: Request | Work, priority: int = 0, owner: str = "", deadline: float | None = None
               ) -> Handle:
        """Let a request wait until it enters, and return its handle at once.

        request: a `Request` is checked here; for a `Work`, the caller has checked all arguments (`check_place`).
        priority: a request of a higher one enters and is read first. owner: whose request it is; owners have equal
        shares of the tokens that are read. deadline: the `time.monotonic()` at which the request ends with `TimedOut`.
        Raises `InputError` for wrong arguments, for a session that is closed, and in a forked child, and whatever
        `checked` raises.
        """
        self._check_process()
        if isinstance(request, Work):
            work, until = request, deadline or 0.0
        else:
            until = check_place(priority, owner, deadline)
            work = checked(self._stepper, request, self.budget)
        number = next(self._numbers)
        handle = Handle(self, number)
        holder = Holder(handle, self._ended.append)     # called with the holder when nobody has the handle any more
        holder.number = number
        work.entry = Entry(number, priority, owner, until, holder)
        self._works[number] = work
        # A session that was closed meanwhile has ended the request, unless it is still here.
        if self._closed and self._works.pop(number, None) is not None:
            raise self.refusal()
        self._arrived.append(work)
        if self._sleeps:
            self._bell.put(None)
        return handle

    def end(self, number: int) -> None:
        """Say that a request is cancelled, from any thread; one that has ended is left alone."""
        self._ended.append(number)
        if self._sleeps:
            self._bell.put(None)

    @property
    def room(self) -> int:
        """Return how many more hypotheses may enter, or 0 or less; 1 for an empty session, which takes any request."""
        works = list(self._works.values())
        return min(self.budget.rows, self.budget.tokens) - sum(work.rows for work in works) if works else 1

    def step(self) -> bool:
        """Compute one step, and return whether anything is left to do.

        Raises what the model raises, and what stops the session. The session and all its requests have ended then.
        """
        self._check_process()
        if self._closed:
            raise self.refusal()
        self._check_thread("step")
        try:
            self._collect()
            self._admit()
            if self._active:
                self._stop.check()
                self._compute()
        except BaseException as error:
            self._shut(f"its step raised {type(error).__name__}: {error}",
                       error if isinstance(error, EngineError) else None)
            raise
        return bool(self._works)

    def sleep(self, seconds: float) -> None:
        """Wait until there may be something to do, at most so many seconds; for the thread that steps."""
        self._sleeps = True
        if not self._arrived and not self._ended and not self._closed:
            with suppress(Empty):
                self._bell.get(timeout=seconds)
        self._sleeps = False
        while not self._bell.empty():
            self._bell.get()

    def close(self) -> None:
        """End all requests with `Cancelled`, and take no more. A session that is closed is left alone."""
        self._check_process()
        if self._closed and not self._works:
            return
        self._check_thread("close")
        self._shut("it was closed", Cancelled())

    def wake(self, closes: bool = False) -> None:
        """End a `sleep`, from any thread. closes: a step that waits for room in the cache ends, too, without it."""
        self.closes = self.closes or closes
        self._bell.put(None)

    @property
    def closed(self) -> bool:
        """Whether the session takes no more requests."""
        return bool(self._closed)

    def check_waits(self) -> None:
        """Raise `InputError` where a thread that waits for a result would wait for ever."""
        self._check_process()
        if not self.shared or self._closed:
            return
        if self._thread is threading.current_thread():
            raise InputError("this thread steps the session, so that it would wait for itself; let another thread "
                             "wait, or call step until there is a result")
        if not self._thread.is_alive():
            raise InputError("the thread that stepped the session has ended, so no result comes; let a thread step it "
                             "that lives as long as the requests, or use the session in a with statement")

    def statistics(self) -> SessionStatistics:
        """Count what is in the session; any thread may call it."""
        groups, reading = list(self._groups.values()), list(self._reading)
        return SessionStatistics(sum(len(group.live) for group in groups), max(0, len(self._works) - len(self._active)),
                                 sum(sequence.unread for sequence in reading), self._step_seconds)

    def _collect(self) -> None:
        """Let requests wait that have come, and end those that were cancelled or whose deadline has come."""
        # Each stays in its deque until all is done for it, so that no interrupt can lose it.
        while self._arrived:
            work = self._arrived[0]
            if not work.ended:
                self._schedule.wait(work)
                if work.entry.deadline:
                    heappush(self._deadlines, (work.entry.deadline, work.entry.number))
            self._arrived.popleft()
        while self._ended:
            one = self._ended[0]
            self._stop_one(one.number if isinstance(one, Holder) else one, Cancelled())
            self._ended.popleft()
        while self._deadlines and self._deadlines[0][0] < time.monotonic():
            self._stop_one(heappop(self._deadlines)[1], TimedOut())
        if len(self._deadlines) > 2 * len(self._works) + 64:      # most of these requests ended before their deadline
            self._deadlines = [each for each in self._deadlines if each[1] in self._works]
            heapify(self._deadlines)

    def _stop_one(self, number: int, error: EngineError) -> None:
        """End a request with an error, if it has not ended."""
        work = self._works.get(number)
        if work is not None:
            self._finish(work, error=error)

    def _admit(self) -> None:
        """Let requests enter while there is room."""
        most = min(self.budget.rows, self.budget.tokens)
        while (work := self._schedule.first()) is not None:
            rows = sum(active.rows for active in self._active)
            if self._active and rows + work.rows > most:
                return
            if work.is_empty:
                self._finish(work, work.results())
                continue
            # While requests of this session are active, it must not wait for room in the cache that they may free.
            room = None if self._active else _Room(self, work)
            try:
                number = self._stepper.open(work.packed, tokens=work.cached, stop=room)
            except _NotFirst:       # while it waited, another request became the first, or the session shall close
                if self.closes:
                    return
                continue
            except InputError as error:     # it can never fit
                self._finish(work, error=error)
                continue
            if number is None:      # there is no room in the cache until an active request ends
                return
            work.number = number
            self._active.add(work)
            self._schedule.admit(work)
            if work.key not in self._groups:
                self._groups[work.key] = work.group(self._stepper.vocab_size)
            self._groups[work.key].enter(work)
            self._reading += work.begin()
            self._traffic.add(work.tokens_in)

    def check_first(self, work: Work) -> None:
        """Raise `_NotFirst` if a request does not wait any more, or if another one is before it now.

        It is for the wait of a step for room in the cache: it ends what was cancelled and takes what has come.
        """
        self._stop.check()
        self._collect()
        if self.closes or self._schedule.first() is not work:
            raise _NotFirst

    def _compute(self) -> None:
        """Let the model read what the schedule chooses, and hand the scores to the groups."""
        decoding = sum(len(group.live) for group in self._groups.values())
        chosen = self._schedule.plan(decoding, self._reading) if self._reading else []
        # The encoder reads a source in the step with the first token of its request.
        read = sum(n + (0 if sequence.read else sequence.work.source) for sequence, n in chosen)
        parts = self._parts(chosen)
        begun = time.perf_counter()
        scores = self._stepper.step([row for part in parts for row in part.rows])
        self._step_seconds = time.perf_counter() - begun
        self._schedule.measured(decoding, read, self._step_seconds)
        self._note_hypotheses(parts, scores)
        if chosen:
            self._reading = [sequence for sequence in self._reading if sequence.unread]
        if not scores.finite.all():
            scores = self._without_failed(parts, scores)
        outcome = Outcome()
        for part, part_scores in zip(parts, scores.split([part.rows for part in parts]), strict=True):
            if part.group is not None and part.sequences:
                part.group.advance(part.sequences, part.rows, part_scores, outcome)
        self._take(outcome)
        self._stepper.release([hypothesis for work, hypothesis in self._freed if not work.ended])
        self._freed = []

    def _parts(self, chosen: list[tuple[Sequence, int]]) -> list[_Part]:
        """Return what the step reads: one token of each live sequence, and these parts of others."""
        of_groups: dict[Any, list[tuple[Sequence, int]]] = {}
        silent = _Part(group=None, sequences=[], rows=[])
        for sequence, n in chosen:
            # A group gets a part with scores, and the last part of a sequence without any, such as a common prefix.
            if sequence.read + n > sequence.first_scored or n == sequence.unread:
                of_groups.setdefault(sequence.work.key, []).append((sequence, n))
            else:
                silent.sequences.append(sequence)
                silent.rows.append(sequence.row(n))
        parts = []
        for key, group in self._groups.items():
            new = of_groups.get(key, [])
            if not new and not group.live:
                continue
            sequences = [*group.live, *(sequence for sequence, _ in new)] if new else group.live
            group.prepare(sequences)
            rows = [sequence.row(1) for sequence in group.live]
            rows += [sequence.row(n) for sequence, n in new]
            parts.append(_Part(group, sequences, rows))
        return [*parts, silent] if silent.rows else parts

    def _note_hypotheses(self, parts: list[_Part], scores: Scores) -> None:
        """Note how much the model has read of each sequence, and which hypothesis that is."""
        numbers = iter(scores.hypotheses.tolist())
        for part in parts:
            for sequence, row in zip(part.sequences, part.rows, strict=True):
                before, hypothesis = sequence.hypothesis, next(numbers)
                sequence.read += len(row.tokens)
                sequence.hypothesis = hypothesis
                if sequence.work.move(before, hypothesis):      # no other sequence has the old one
                    self._freed.append((sequence.work, before))  # type: ignore[arg-type]

    def _without_failed(self, parts: list[_Part], scores: Scores) -> Scores:
        """End the requests of rows with NaN, and return the scores of the other rows, which stay in the parts."""
        sequences = [sequence for part in parts for sequence in part.sequences]
        rows = [row for part in parts for row in part.rows]
        for sequence, finite in zip(sequences, scores.finite.tolist(), strict=True):
            if not (finite or sequence.work.ended or sequence.work.takes_nan):
                self._finish(sequence.work, error=sequence.work.failure(sequence))
        stays = [not sequence.work.ended for sequence in sequences]
        for part in parts:
            pairs = [(sequence, row) for sequence, row in zip(part.sequences, part.rows, strict=True)
                     if not sequence.work.ended]
            part.sequences, part.rows = [sequence for sequence, _ in pairs], [row for _, row in pairs]
        return scores.of(rows, stays)

    def _take(self, outcome: Outcome) -> None:
        """Give the tokens and the results of a step to the handles, and end the requests that are done."""
        for work, sample, token in outcome.tokens:
            handle = work.entry.holder()
            if handle is not None:
                handle.put(sample, token)
        made = len(outcome.tokens)
        for work, results in outcome.done.items():
            try:
                completed = work.completed(results, self._stepper)
            except InputError as wrong:
                self._finish(work, error=wrong)
                continue
            made += work.ends(completed)
            self._finish(work, completed)
        for work, error in outcome.failed.items():
            self._finish(work, error=error)
        for sequence in outcome.left:
            if not sequence.work.ended and sequence.work.drop(sequence.hypothesis):
                assert sequence.hypothesis is not None
                self._freed.append((sequence.work, sequence.hypothesis))
        self._reading += outcome.begun
        if made:
            self._traffic.add(0, made)

    def _finish(self, work: Work, results: Any = None, *, error: EngineError | None = None) -> None:
        """End a request, free its rows, and give its end to its handle."""
        number = work.entry.number
        if work in self._active:
            group = self._groups[work.key]
            group.leave(work)
            if not group.works:
                del self._groups[work.key]
            if self._reading:
                self._reading = [sequence for sequence in self._reading if sequence.work is not work]
            self._active.discard(work)
            self._stepper.close(work.number)
        self._schedule.leave(work, work.made(results))      # the new tokens count for the share of its owner
        self._end_one(work, Done(number, results) if error is None else Failed(number, error))

    def _end_one(self, work: Work, end: Done | Failed) -> None:
        work.ended = True
        handle = work.entry.holder()
        if handle is not None and handle.end is None:       # after an interrupt, this may run twice for a request
            handle.finish(end)
        self._works.pop(work.entry.number, None)

    def _shut(self, reason: str, error: EngineError | None) -> None:
        """End all requests with an error, and take no more. It makes no use of what an interrupt may have left torn."""
        self._closed = self._closed or reason
        for work in list(self._works.values()):
            if work.number >= 0:        # it has entered
                self._stepper.close(work.number)
            self._end_one(work, Failed(work.entry.number, error or EngineError(f"the session has ended: {reason}")))
        self._active, self._groups, self._reading = set(), {}, []
        if self._sleeps:
            self._bell.put(None)

    def refusal(self) -> EngineError:
        """Return the error of a call of a session that has ended."""
        return InputError(f"the session has ended, and takes no more requests: {self._closed}; make a new one")

    def _check_process(self) -> None:
        if self.shared and os.getpid() != self._process:
            raise InputError("a session does not go on in a forked child, which has none of its parent's threads; make "
                             "a session of its own in the child")

    def _check_thread(self, method: str) -> None:
        if self.shared and threading.current_thread() is not self._thread:
            raise InputError(f"{method} of a session belongs to one thread, and another one called it; call submit "
                             "from any thread, and let one thread step")


class _NotFirst(Exception):
    """The request for which a step waits for room is not the next one any more."""


class _Room(Stop):
    """Ends the wait of a step for room in the cache when the session has another request to look at first."""

    __slots__ = ("_session", "_work")

    def __init__(self, session: Session, work: Work):
        super().__init__()
        self._session, self._work = session, work

    def check(self) -> None:
        """Raise `_NotFirst`, or what stops the session."""
        self._session.check_first(self._work)


def check_place(priority: Any, owner: Any, deadline: Any) -> float:
    """Check where a request will stand among others, and return its deadline, 0 for None; raises `InputError`."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InputError(f"priority must be an int, not {shown(priority)}")
    if not isinstance(owner, str):
        raise InputError(f"owner must be a str, such as the name of a user, not {shown(owner)}")
    if deadline is None:
        return 0.0
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)):
        raise InputError(f"deadline must be a number, a time of time.monotonic(), not {shown(deadline)}")
    now = time.monotonic()
    if not deadline > now:
        raise InputError(f"deadline={shown(deadline)} has passed: time.monotonic() is {now:,.3f} now; give "
                         "time.monotonic() and the seconds that you can wait")
    return float(min(deadline, sys.float_info.max))
