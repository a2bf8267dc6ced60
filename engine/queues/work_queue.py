"""`WorkQueue`: works of many callers, which the callers that wait compute together, one thread at a time.

    submit   a work goes into a deque, from any thread
    wait     a caller that finds nobody stepping takes the turn, and steps until it has news of its own work; then it
             hands the turn on to another caller that waits
    step     collects what has arrived, ends what was given up, and computes something: a batch, or a step of a decoder
    start    a thread of the queue's own steps in place of the callers, until `stop`, or the end of who started it

One word, one meaning, here and in `generation/`:

    request  what a user asks for, such as a `Request` of a generator; in `backends/`, what a decoder keeps of a work
    work     what a request becomes once it is checked: what has to be computed (`Work`, `DecoderWork`)
    entry    what the queue keeps of a work from its arrival to its end (`RowsEntry`, `DecoderEntry`)
    ticket   what the caller keeps of it, to wait, to read and to cancel (`RowsTicket`, `DecoderTicket`)

An exception of a signal handler may come between any two lines. So the turn is taken by a `with` statement of compiled
code; and a step after one that was torn (`TornMark`) begins anew with the works that are open. What was given is never
given again, because `Entry.parts` alone says how much that is.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from traceback import walk_tb
from typing import Any

from ..backends.lock import TornMark, any_turn
from ..base.errors import BackendUnavailable, Cancelled, Closing, EngineError, InputError, TimedOut
from ..base.stop import NEVER, Stop
from .entry import Bell, Entry, TicketRef, has_news
from .ticket import AnyTicket

LOG = logging.getLogger("engine")

LOOK_SECONDS = 0.15
"""Seconds after which a thread that waits looks again without a word: whether anybody steps, and at its stop."""


class WorkQueue(ABC):
    """The works of one loaded model. Any thread may call it. A subclass says what a step computes."""

    def __init__(self) -> None:
        self._turn = any_turn()     # the right to step
        self._mark = TornMark()
        self._process = os.getpid()
        self._numbers = count()
        self._arrived: deque[Any] = deque()     # entries that were submitted, and not seen by a step yet
        self._left: deque[Entry | TicketRef] = deque()     # cancelled, or nobody holds the ticket
        self._open: dict[int, Any] = {}     # the entries that a step has seen and that have not ended, by number
        self._deadlines: list[tuple[float, int]] = []       # a heap, with the numbers of works
        self._asleep: deque[Bell] = deque()     # of threads that would step if nobody did
        self._served: deque[Any] = deque()      # entries of which nobody has been told yet that they have ended
        self._stepping: Sequence[Entry] = ()        # what the caller waits for that had the turn last
        self._thread: threading.Thread | None = None
        self._bell: SimpleQueue[None] = SimpleQueue()       # an item ends the sleep of `_thread`
        self._starts: list[tuple[weakref.ref[Any], int | None]] = []    # the owner and the limit of each without `stop`
        self._leaves = Stop()       # ends `_thread`, also while it waits for the turn
        self._starting = any_turn()     # the right to change these, and to start and end the thread
        self._sleeps = self._closing = False
        self._refusal: EngineError | None = None        # the end of all works, after `close` without `drain`
        self.cpus: AbstractContextManager[None] = nullcontext()
        """Held while something is computed: the turn of this queue, where those of several models share the CPUs."""

    @abstractmethod
    def _compute_next(self) -> bool:
        """Compute something; return False if nothing is left to do."""

    @abstractmethod
    def _enter(self, entry: Any) -> None:
        """Let a work that has arrived wait for its batches."""

    @abstractmethod
    def _forget(self, entry: Any) -> None:
        """Forget a work that ends; it may have left before."""

    @abstractmethod
    def _reset(self) -> None:
        """Forget all works; those that are open enter again afterwards, and what was given of them stays."""

    def _rest(self) -> float:
        """Return how many seconds a caller shall sleep before it steps, because more works will probably come; 0: none.

        A subclass may note what came of the rest before.
        """
        return 0.0

    def _accept(self, ticket: AnyTicket) -> AnyTicket:
        """Let the work of a new ticket wait, unless it has ended at once, and return the ticket."""
        entry = ticket.entry
        if entry.end is None:
            entry.ticket_ref = TicketRef(ticket, self._left.append)
            entry.ticket_ref.entry = entry
            self._arrived.append(entry)
            if self._sleeps:
                self._bell.put(None)
        return ticket

    def _check_open(self) -> None:
        """Raise `Closing` after `close`, or why the queue has ended."""
        if self._closing:
            raise self._refusal or Closing()

    def cancel(self, entry: Entry) -> None:
        """End a work with `Cancelled`, in the next step, or at once if nobody steps."""
        entry.stop.cancelled = True
        self._left.append(entry)
        if self._sleeps:
            self._bell.put(None)
        elif entry.process == os.getpid():
            self._settle()

    @property
    def has_thread(self) -> bool:
        """Whether a thread of the queue's own steps."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, entries: Sequence[Entry], seen: int | None, until: Stop = NEVER) -> None:
        """Return when there is news of one of some works; the caller may step until then.

        seen: the parts that the caller has; there is news when there are more, or the end; None for the end alone.
        until: when to stop, beside the stops of the works. Raises `EngineError` in code that a step of the same thread
        called or that interrupted it, and would wait for itself.
        """
        bell: Bell | None = None        # wakes this thread while it sleeps
        is_heir = False     # whether it had the turn, was told to take it, or rests before it does: it must hand it on
        retries = False     # whether it asked for the turn in vain, and asks again now that its bell is there
        try:
            while not has_news(entries, seen):
                # 1. Look for what ends the wait.
                if not retries:
                    _check_stops(entries, until)
                    self._check_thread()
                    for entry in entries:
                        if entry.process != os.getpid():
                            is_heir = True
                            self._adopt(entry)
                # 2. Hang up a bell, if somebody steps, or probably does; the turn may come free before it is there.
                steps = not self.has_thread
                rest = self._rest() if steps else 0.0
                if rest and self._is_first():       # those who come meanwhile sleep until they are called
                    is_heir = True
                if bell is None and (retries or rest or self._asleep or not steps):
                    bell = Bell(entries, seen)      # this variable has it first, so that no interrupt can lose it
                    self._hang_up(bell, steps)
                    rest = self._rest() if rest else 0.0
                # 3. Take the turn if it is free, and step.
                if steps and not rest:
                    is_heir = True
                    with self._turn.take_if_free() as taken:
                        if taken:
                            self._step_for(entries, seen, until)
                if has_news(entries, seen):
                    return
                # 4. Sleep until the bell rings, or until it is time to look at the stops again.
                retries = bell is None
                if bell is None:
                    continue
                is_heir = is_heir and rest > 0
                pause = _seconds(entries, until)
                with suppress(Empty):
                    told = bell.get(timeout=min(rest, pause) if is_heir else pause)
                    is_heir, bell = self._silence(bell) or told, None
        finally:
            if bell is not None:
                is_heir = self._silence(bell) or is_heir
            if is_heir:
                self._hand_on()

    def _hang_up(self, bell: Bell, steps: bool) -> None:
        """Let others ring a bell at news of its works. steps: whether its thread may also be told to take the turn."""
        for entry in bell.entries:
            entry.bells_of(bell.seen).append(bell)
        if steps:
            self._asleep.append(bell)

    def _is_first(self) -> bool:
        """Return whether nobody sleeps who has no news; those who were served may not have woken yet."""
        for bell in [*self._asleep]:        # noqa: SIM110, because a generator for each look costs more than the look
            if not has_news(bell.entries, bell.seen):
                return False
        return True

    def _silence(self, bell: Bell) -> bool:
        """Let nobody ring a bell any more; return whether its thread may have been told to take the turn.

        If so, the thread has to take the turn, or to hand it on.
        """
        for entry in bell.entries:
            bells = entry.bells_of(bell.seen)
            if bells:       # nearly always somebody has rung it
                with suppress(ValueError):
                    bells.remove(bell)
        try:
            self._asleep.remove(bell)
        except ValueError:      # somebody has taken it, to ring it, or is about to
            return True
        return False

    def _adopt(self, entry: Entry) -> None:
        """Let a work go on that a forked child has from its parent; raises `InputError` if it does not."""
        raise InputError("a ticket does not go on in a forked child, which has none of its parent's threads; call "
                         "the model in the child")

    def _check_thread(self) -> None:
        """Raise `EngineError` in a thread that steps already, which would wait for itself."""
        if self._turn.held:
            raise EngineError("the engine was called from a signal handler that interrupted a call of the same model, "
                              "or by code that this call runs; let the handler set a flag, and call the engine "
                              "afterwards")

    def _hand_on(self) -> None:
        """Give the turn to a caller that sleeps and has no news yet, if there is one; it steps then.

        That caller also wakes those whose works the last batch has ended, as soon as its own batch begins. If nobody
        takes the turn, or if the next batch would rest until they come again, they are woken here.
        """
        if self._served and self._rest():
            self._tell_served()
        for bell in [*self._asleep]:
            if not has_news(bell.entries, bell.seen):
                with suppress(ValueError):      # somebody else has woken it
                    self._asleep.remove(bell)
                    bell.put(True)
                    return
        self._tell_served()
        if self._left or self._mark.torn:
            self._settle()

    def _tell_served(self) -> None:
        """Wake those whose works have ended since the last call, and call their callbacks."""
        while self._served:
            # Each stays in its deque until all is done for it, so that no interrupt can lose it; another thread may
            # tell it at the same time.
            try:
                entry = self._served[0]
            except IndexError:
                return
            entry.ring()
            if entry.callbacks and entry.process == os.getpid():
                self.call_back(entry)
            with suppress(ValueError):
                self._served.remove(entry)

    def _settle(self) -> None:
        """End what was cancelled, and mend what was torn, unless another thread steps, which does both itself."""
        with self._turn.take_if_free() as taken:
            if taken:
                self._mark.run(self._collect, self._mend)
        if taken and self._asleep:      # somebody may have found the turn taken meanwhile
            self._hand_on()
        else:
            self._tell_served()

    def _step_for(self, entries: Sequence[Entry], seen: int | None, until: Stop) -> None:
        """Step until there is news of a work of the calling thread, or nothing left to do."""
        self._stepping = entries
        try:
            while self._step() and not has_news(entries, seen) and self._thread is None:
                _check_stops(entries, until)
        finally:
            self._stepping = ()

    def _step(self) -> bool:
        """Collect works and compute something; the caller has the turn. Return False if nothing is left to do."""
        def run() -> bool:
            self._collect()
            with self.cpus:
                return self._compute_next()

        goes_on = self._mark.run(run, self._mend)
        if not goes_on:
            self._tell_served()
        return goes_on

    def _collect(self) -> None:
        """Let works enter that have arrived; end those that were cancelled, that are late, or that `close` refuses."""
        if self._process != os.getpid():
            self._mend()
        # Each stays in its deque until all is done for it, so that no interrupt can lose it.
        while self._arrived:
            entry = self._arrived[0]
            if entry.process == self._process and entry.number not in self._open and entry.end is None:
                self._open[entry.number] = entry
                self._let_in(entry)
            self._arrived.popleft()
        while self._left:
            one = self._left[0]
            entry = one.entry if isinstance(one, TicketRef) else one
            if entry is not None and entry.process == self._process:
                self._finish(entry, Cancelled())
            self._left.popleft()
        self._end_late()
        if self._refusal is not None:
            for entry in [*self._open.values()]:
                self._finish(entry, self._refusal)

    def _end_late(self) -> None:
        """End the works whose deadlines have passed."""
        while self._deadlines and self._deadlines[0][0] < time.monotonic():
            if (late := self._open.get(heappop(self._deadlines)[1])) is not None:
                self._finish(late, TimedOut(late.stop.message))
        if len(self._deadlines) > 2 * len(self._open) + 64:     # most of these works ended before their deadline
            self._deadlines = [one for one in self._deadlines if one[1] in self._open]
            heapify(self._deadlines)

    def _let_in(self, entry: Entry) -> None:
        """Let a work enter, and note its deadline."""
        self._enter(entry)
        if entry.stop.deadline:
            heappush(self._deadlines, (entry.stop.deadline, entry.number))

    def _mend(self) -> None:
        """Begin anew after an interrupt or an error, with the works that are open; in a forked child with none."""
        self._deadlines = []
        if self._process != os.getpid():
            self._open, self._process, self._thread, self._sleeps = {}, os.getpid(), None, False
        self._reset()
        for entry in [*self._open.values()]:
            if entry.end is not None:
                self._finish(entry, entry.end)
            else:
                self._let_in(entry)

    def _finish(self, entry: Entry, end: BaseException | bool, later: bool = False) -> None:
        """End a work, unless it has ended; and tell those who wait. later: let `_tell_served` tell them."""
        if entry.end is None:
            entry.end = self._without_own_frames(end) if isinstance(end, BaseException) else end
        entry.ticket_ref = None       # so that the end of its ticket calls nothing
        self._forget(entry)
        self._served.append(entry)
        self._open.pop(entry.number, None)
        if not later:
            self._tell_served()

    def _run_apart(self, entries: Sequence[Any], fault: BaseException, compute: Callable[[Any], object],
                   restore: Callable[[], object] = lambda: None) -> None:
        """Find the works that raise the error of a step, and end them: compute each work alone, twice if need be.

        A work that raises alone, and then once more, ends with its own error. An error that no work raises alone came
        into this thread from outside, and is raised here, in the call of this thread. fault: the error of the step.
        compute: computes one work alone, and does nothing for a work that needs nothing any more. restore: is called
        before a work is computed for the second time.
        """
        if isinstance(fault, (TimedOut, Cancelled)) and (late := [entry for entry in entries if entry.stop.has_come]):
            for entry in late:
                self._finish(entry, fault)
            return
        if len(entries) == 1 and entries[0] in self._stepping and not (entries[0].bells or entries[0].end_bells):
            self._finish(entries[0], fault)     # this thread alone gets the error, wherever it came from
            return
        first, failed = fault, False
        for entry in entries:
            own = self._error_alone(entry, compute)
            if own is None:
                continue
            restore()
            again = self._error_alone(entry, compute)
            if again is None:       # the error before was set from outside, too
                fault = own
            else:
                failed = True
                self._finish(entry, again)
        if (failed and fault is first) or isinstance(fault, MemoryError):       # short memory may be enough for each
            return
        if threading.current_thread() is not self._thread:
            raise fault
        LOG.warning("a step raised %s: %s, which no work of it raises alone", type(fault).__name__, fault)

    def _error_alone(self, entry: Any, compute: Callable[[Any], object]) -> BaseException | None:
        """Compute a work alone, and return the error that it raises, if any."""
        try:
            compute(entry)
        except BaseException as error:
            if self._must_leave(error):
                raise
            return error
        return None

    def _must_leave(self, error: BaseException) -> bool:
        """Return whether an error must leave a step, after which the works begin anew.

        It must if it is an interrupt of this thread, or if a step has forked, and this is the child.
        """
        return not is_fault(error) or os.getpid() != self._process

    def _without_own_frames(self, error: BaseException) -> BaseException:
        """Return an error without the frames of this queue, which hold the works of other callers.

        An `EngineError` says by itself what is wrong, and keeps no frames at all, which could hold much memory.
        """
        trace = None if isinstance(error, EngineError) else error.__traceback__
        while trace is not None and trace.tb_frame.f_locals.get("self") is self:
            trace = trace.tb_next
        return error.with_traceback(trace)

    def call_back(self, entry: Entry) -> None:
        """Call the callbacks of a work that has ended, each once, whatever they raise."""
        while entry.callbacks:
            try:
                call = entry.callbacks.popleft()
            except IndexError:      # another thread has taken it
                return
            try:
                call()
            except BaseException as error:
                if not is_fault(error):
                    raise
                LOG.warning("a callback of a ticket raised %s: %s", type(error).__name__, error)

    def start(self, owner: object = None, limit: int | None = None) -> None:
        """Let a thread of the queue's own step, in place of the callers, until `stop` with the same owner, or `close`.

        owner: the thread also ends when all owners that started it have died, as after an interrupt between this call
        and a block that would end with `stop`. None for the queue itself. limit: the most tokens of a batch until then.
        """
        owner = self if owner is None else owner
        self._check_thread()
        with self._starting.take():
            living = [one for one in self._starts if one[0]() is not None] if self.has_thread else []
            self._starts = [*living, (weakref.ref(owner), limit)]
            if not self.has_thread:
                leaves = self._leaves = Stop()
                thread = self._thread = threading.Thread(target=self._serve, args=(leaves,), name="engine-queue",
                                                         daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._thread, self._starts = None, []
                    raise BackendUnavailable(f"the system starts no thread for the queue: {error}; end other threads"
                                             ) from None

    def stop(self, owner: object = None) -> None:
        """Take back what an owner has started, if anything; after the last owner the callers step again."""
        owner = self if owner is None else owner
        with self._starting.take():
            self._starts = [one for one in self._starts if one[0]() is not owner]
            if (thread := self._thread) is None or (thread.is_alive() and self._is_wanted()):
                return
            self._thread, self._leaves.cancelled = None, True
            self._bell.put(None)
            thread.join()
        self._hand_on()

    def _is_wanted(self) -> bool:
        """Return whether an owner that has started the thread lives and has not stopped it."""
        return any(owner() is not None for owner, _ in self._starts)

    def _limits(self) -> list[int]:
        """Return the limits of the owners that have started the thread."""
        return [limit for owner, limit in self._starts if limit is not None and owner() is not None]

    def _retire(self) -> bool:
        """Let the thread end if nobody wants it; return whether it does. The callers step again."""
        with self._starting.take_if_free() as taken:
            ends = taken and not self._is_wanted() and not self._closing
            if ends:
                self._thread = None
        return ends

    def close(self, *, drain: bool = True) -> None:
        """Take no more works, compute those that wait, and end the thread. drain: False ends them with `Closing`."""
        self._closing = True
        if not drain:
            self._refusal = Closing()
        self._bell.put(None)
        if (thread := self._thread) is not None:
            thread.join()
        else:
            with self._turn.take():
                while self._step():
                    pass

    def _serve(self, leaves: Stop) -> None:
        """Step until a stop, or until the queue is closed and nothing waits."""
        try:
            while True:
                with suppress(Cancelled), self._turn.take(leaves):
                    while not leaves.cancelled and self._step():
                        pass
                if leaves.cancelled or (self._closing and not self._arrived) or self._retire():
                    return
                self._sleeps = True
                if not self._arrived and not self._left and not self._closing and not leaves.cancelled:
                    with suppress(Empty):
                        self._bell.get(timeout=LOOK_SECONDS)
                self._sleeps = False
                while not self._bell.empty():
                    self._bell.get()
        except BaseException as error:      # a fault of the queue itself, for which nobody shall wait
            self._closing, self._refusal = True, EngineError(f"the queue has ended: {type(error).__name__}: {error}")
            raise
        finally:
            self._sleeps = False
            self._tell_served()


def _seconds(entries: Sequence[Entry], until: Stop) -> float:
    """Return how long a thread may sleep until it looks at the stops of some works, and at its own, again."""
    first = until.deadline
    for entry in entries:
        if (deadline := entry.stop.deadline) and (not first or deadline < first):
            first = deadline
    return max(0.0, min(LOOK_SECONDS, first - time.monotonic())) if first else LOOK_SECONDS


def _check_stops(entries: Sequence[Entry], until: Stop) -> None:
    """Raise what ends the wait for some works: the stop of the caller, or that of one of them."""
    until.check()
    for entry in entries:
        entry.stop.check()


def is_fault(error: BaseException) -> bool:
    """Return whether an error may come from the code that was called: not Ctrl-C, nor what a signal handler raised."""
    runs_handlers = threading.current_thread() is threading.main_thread()
    return not runs_handlers or (isinstance(error, Exception) and not _comes_from_handler(error))


def _comes_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised an error.

    A handler gets the frame that it interrupted as an argument, and that frame is one of its callers in the traceback.
    """
    outer: list[Any] = []
    for frame, _ in walk_tb(error.__traceback__):
        names, rest, _, values = inspect.getargvalues(frame)
        given = [*(values.get(name) for name in names), *values.get(rest or "", ())]
        if any(argument is one for argument in given for one in outer):
            return True
        outer.append(frame)
    return False
