"""`WorkQueue`: the base of the queues of models. Works of many callers are computed together, by one thread at a time.

    submit   any thread appends a work to a deque
    wait     a caller that finds the turn free takes it, and steps until it has news of its own work; then it hands the
             turn on to another caller that waits
    step     the thread with the turn collects new works, ends cancelled ones, and computes a batch or a decoder's step
    start    a thread of the queue itself steps in place of the callers, until `stop`, or until its starter is garbage

One word, one meaning, here and in `generation/`:

    request  what a user asks for, such as a `Request` of a generator; in `backends/`, what a decoder keeps of a work
    work     what a request becomes once it is checked: what has to be computed (`Work`, `DecoderWork`)
    entry    what the queue keeps of a work from its arrival to its end (`RowsEntry`, `DecoderEntry`)
    ticket   what the caller keeps of it, to wait, to read and to cancel (`RowsTicket`, `DecoderTicket`)

An exception of a signal handler may come between any two lines. So the turn is taken by a `with` statement of compiled
code; and the step after an interrupted one (`TornMark`) begins anew with the works that are open. No result is handed
out twice, because `Entry.parts` is the only count of results.
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
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from traceback import walk_tb
from typing import Any

from ..backends.lock import TornMark, any_turn
from ..base.errors import BackendUnavailable, Cancelled, Closing, EngineError, InputError, TimedOut
from ..base.stop import NEVER, Stop
from .entry import Bell, Entry, TicketRef, drop_ended, has_news
from .ticket import AnyTicket

LOG = logging.getLogger("engine")

LOOK_SECONDS = 0.15
"""The most seconds that a waiting thread sleeps before it checks again whether anybody steps, and its stops."""


class WorkQueue(ABC):
    """The works of one loaded model. Any thread may call it. A subclass says what a step computes."""

    def __init__(self) -> None:
        self._turn = any_turn()     # the right to step
        self._mark = TornMark()
        self._process = os.getpid()
        self._numbers = count()     # of entries
        self._arrived: deque[Any] = deque()     # submitted entries that no step has collected yet
        self._departed: deque[Entry | TicketRef] = deque()      # cancelled entries, and references to garbage tickets
        self._open: dict[int, Any] = {}     # by number, the collected entries that have not ended
        self._deadlines: list[tuple[float, int]] = []       # a heap of (deadline, number of the entry)
        self._asleep: deque[Bell] = deque()     # of sleeping threads that may be told to take the turn
        self._served: deque[Any] = deque()      # ended entries whose callers have not been woken yet
        self._stepping: Sequence[Entry] = ()        # the works for which the caller with the turn waits
        self._thread: threading.Thread | None = None
        self._bell: SimpleQueue[None] = SimpleQueue()       # an item ends the sleep of `_thread`
        self._starts: list[tuple[weakref.ref[Any], int | None]] = []    # (owner, limit) of each open `start`
        self._leaves = Stop()       # ends `_thread`, also while it waits for the turn
        self._starting = any_turn()     # the right to change `_starts`, and to start and end the thread
        self._sleeps = False        # whether `_thread` sleeps, or is about to
        self._closing = False
        self._refusal: EngineError | None = None        # ends all works, after `close` without `drain`
        self.cpus: AbstractContextManager[None] = nullcontext()
        """Entered around each computation. A server of several models sets it, so that they take turns on the CPUs."""

    @abstractmethod
    def _compute_next(self) -> bool:
        """Compute a batch or a step; return False if nothing is left to do. The caller has the turn."""

    @abstractmethod
    def _enter(self, entry: Any) -> None:
        """Let a collected work wait for its batches or steps."""

    @abstractmethod
    def _forget(self, entry: Any) -> None:
        """Remove a work that ends from what waits, if it is there."""

    @abstractmethod
    def _reset(self) -> None:
        """Forget the state of all works after an interrupt. Open works enter again afterwards; their results stay."""

    def _rest(self) -> float:
        """Return for how many seconds a caller should sleep before it steps, so that coming works share its batch.

        A subclass may also note how the last rest ended.
        """
        return 0.0

    def _accept(self, ticket: AnyTicket) -> AnyTicket:
        """Add the work of a new ticket to the queue, unless it has ended already, and return the ticket."""
        entry = ticket.entry
        if entry.end is None:
            entry.ticket_ref = TicketRef(ticket, self._departed.append)
            entry.ticket_ref.entry = entry
            self._arrived.append(entry)
            if self._sleeps:
                self._bell.put(None)
        return ticket

    def _check_open(self) -> None:
        """Raise `Closing` after `close`, or the error that has ended the queue."""
        if self._closing:
            raise self._refusal or Closing()

    def cancel(self, entry: Entry) -> None:
        """End a work with `Cancelled`: in the next step, or now if nobody steps. Any thread may call it."""
        entry.stop.cancelled = True
        self._departed.append(entry)
        if self._sleeps:
            self._bell.put(None)
        elif entry.process == os.getpid():
            self._settle_departed()

    @property
    def has_thread(self) -> bool:
        """Whether the queue has a thread of its own, which steps."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, entries: Sequence[Entry], seen: int | None, until: Stop = NEVER) -> None:
        """Wait until one of some works has news, and step meanwhile if nobody else does.

        seen: how many parts the caller has read: more parts are news, and the end; None waits for the end alone.
        until: a stop of the wait itself, beside the stops of the works. Raises `EngineError` if this thread is inside a
        step already (a signal handler, or code that the step called), as it would wait for itself.
        """
        bell: Bell | None = None        # wakes this thread while it sleeps
        # Whether this thread had the turn, was told to take it, or rests before a step: then it must hand the turn on.
        is_heir = False
        retries = False     # whether this thread found the turn taken, and tries once more now that its bell hangs
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
                # 2. Hang up a bell if another thread steps, or probably does. The turn may become free before that.
                may_step = not self.has_thread
                rest = self._rest() if may_step else 0.0
                if rest and self._is_first():       # callers that come meanwhile sleep until this one wakes them
                    is_heir = True
                if bell is None and (retries or rest or self._asleep or not may_step):
                    bell = Bell(entries, seen)      # the variable has the bell first, so that no interrupt can lose it
                    self._hang_up(bell, may_step)
                    rest = self._rest() if rest else 0.0
                # 3. Take the turn if it is free, and step.
                if may_step and not rest:
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

    def _hang_up(self, bell: Bell, may_step: bool) -> None:
        """Let others ring a bell at news of its works; if it `may_step`, also to tell its thread to take the turn."""
        for entry in bell.entries:
            entry.bells_of(bell.seen).append(bell)
        if may_step:
            self._asleep.append(bell)

    def _is_first(self) -> bool:
        """Return whether no thread sleeps without news; threads with news may not have woken up yet."""
        for bell in [*self._asleep]:        # noqa: SIM110, because a generator for each look costs more than the look
            if not has_news(bell.entries, bell.seen):
                return False
        return True

    def _silence(self, bell: Bell) -> bool:
        """Take down a bell; return whether its thread may have been told to take the turn: then it must hand it on."""
        for entry in bell.entries:
            bells = entry.bells_of(bell.seen)
            if bells:       # mostly it was rung, and so removed
                with suppress(ValueError):
                    bells.remove(bell)
        try:
            self._asleep.remove(bell)
        except ValueError:      # another thread has removed it, and has rung it or is about to
            return True
        return False

    def _adopt(self, entry: Entry) -> None:
        """Let a forked child go on with a work of its parent. Raises `InputError`, unless a subclass can do it."""
        raise InputError("a ticket does not go on in a forked child, which has none of its parent's threads; call "
                         "the model in the child")

    def _check_thread(self) -> None:
        """Raise `EngineError` if this thread steps already, as it would wait for itself."""
        if self._turn.held:
            raise EngineError("the engine was called from a signal handler that interrupted a call of the same model, "
                              "or by code that this call runs; let the handler set a flag, and call the engine "
                              "afterwards")

    def _hand_on(self) -> None:
        """Tell a caller that sleeps without news to take the turn, if there is one.

        That caller also wakes those whose works the last batch has ended, once its own batch runs. They are woken here
        if no caller sleeps without news, or if the next batch would rest until they come again.
        """
        if self._served and self._rest():
            self._tell_served()
        for bell in [*self._asleep]:
            if not has_news(bell.entries, bell.seen):
                with suppress(ValueError):      # another thread has woken it
                    self._asleep.remove(bell)
                    bell.put(True)
                    return
        self._tell_served()
        if self._departed or self._mark.torn:
            self._settle_departed()

    def _tell_served(self) -> None:
        """Wake the callers of works that have ended since the last call, and call the callbacks of these works."""
        while self._served:
            # An entry stays in the deque until all is done for it, so that no interrupt loses it; another thread may
            # do the same at this time.
            try:
                entry = self._served[0]
            except IndexError:
                return
            entry.ring()
            if entry.callbacks and entry.process == os.getpid():
                self.call_back(entry)
            with suppress(ValueError):
                self._served.remove(entry)

    def _settle_departed(self) -> None:
        """End cancelled works, and repair the state after an interrupt, unless a thread steps, which does both."""
        with self._turn.take_if_free() as taken:
            if taken:
                self._mark.run(self._collect, self._mend)
        if taken and self._asleep:      # a caller may have found the turn taken meanwhile
            self._hand_on()
        else:
            self._tell_served()

    def _step_for(self, entries: Sequence[Entry], seen: int | None, until: Stop) -> None:
        """Step until the works of the calling thread have news, or nothing is left to do. The caller has the turn."""
        self._stepping = entries
        try:
            while self._step() and not has_news(entries, seen) and self._thread is None:
                _check_stops(entries, until)
        finally:
            self._stepping = ()

    def _step(self) -> bool:
        """Collect works and compute one batch or step; return False if nothing is left to do. Needs the turn.

        `TornMark.run` calls `_mend` first if an interrupt ended the step before.
        """
        def run() -> bool:
            self._collect()
            with self.cpus:
                return self._compute_next()

        goes_on = self._mark.run(run, self._mend)
        if not goes_on:     # no next batch wakes the callers of the last one
            self._tell_served()
        return goes_on

    def _collect(self) -> None:
        """Let new works enter; end cancelled ones, late ones, and all after `close` without `drain`. Needs the turn."""
        if self._process != os.getpid():
            self._mend()
        # An entry stays in its deque until all is done for it, so that no interrupt loses it.
        while self._arrived:
            entry = self._arrived[0]
            if entry.process == self._process and entry.number not in self._open and entry.end is None:
                self._open[entry.number] = entry
                self._let_in(entry)
            self._arrived.popleft()
        while self._departed:
            item = self._departed[0]
            entry = item.entry if isinstance(item, TicketRef) else item
            if entry is not None and entry.process == self._process:
                self._finish(entry, Cancelled())
            self._departed.popleft()
        self._end_late()
        if self._refusal is not None:
            for entry in [*self._open.values()]:
                self._finish(entry, self._refusal)

    def _end_late(self) -> None:
        """End the works whose deadlines have passed."""
        while self._deadlines and self._deadlines[0][0] < time.monotonic():
            if (late := self._open.get(heappop(self._deadlines)[1])) is not None:
                self._finish(late, TimedOut(late.stop.message))
        drop_ended(self._deadlines, len(self._open), lambda item: item[1] in self._open)

    def _let_in(self, entry: Entry) -> None:
        """Let a work enter, and note its deadline."""
        self._enter(entry)
        if entry.stop.deadline:
            heappush(self._deadlines, (entry.stop.deadline, entry.number))

    def _mend(self) -> None:
        """Build the state anew after an interrupt or an error, with the open works; in a forked child, with none."""
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
        """End a work, unless it has ended, and wake its callers.

        end: the error of the work, or True after its last result. later: leave waking to the next `_tell_served`.
        """
        if entry.end is None:
            entry.end = self._without_own_frames(end) if isinstance(end, BaseException) else end
        entry.ticket_ref = None       # so that the ticket as garbage changes nothing any more
        self._forget(entry)
        self._served.append(entry)
        self._open.pop(entry.number, None)
        if not later:
            self._tell_served()

    def _run_apart(self, entries: Sequence[Any], fault: BaseException, compute: Callable[[Any], object],
                   restore: Callable[[], object] = lambda: None) -> None:
        """After a step with an error, compute each of its works alone, and end those that raise errors themselves.

        A work that raises alone, and then once more, ends with its own error. An error that no work raises alone came
        into this thread from outside, and is raised here, in the call of this thread. Nothing is computed again if the
        fault is that of a stop, or if this thread alone waits for the only work. fault: the error of the step.
        compute: computes one work alone, or does nothing if the work has its results. restore: called before a work is
        computed for the second time.
        """
        if isinstance(fault, (TimedOut, Cancelled)) and (late := [entry for entry in entries if entry.stop.has_come]):
            for entry in late:
                self._finish(entry, fault)
            return
        if len(entries) == 1 and entries[0] in self._stepping and not (entries[0].bells or entries[0].end_bells):
            self._finish(entries[0], fault)     # this thread alone gets the error, whatever its cause
            return
        step_fault, any_failed = fault, False
        for entry in entries:
            error = self._error_alone(entry, compute)
            if error is None:
                continue
            restore()
            second_error = self._error_alone(entry, compute)
            if second_error is None:        # the first error came from outside, too
                fault = error
            else:
                any_failed = True
                self._finish(entry, second_error)
        # Memory that was too short for all works together may be enough for each.
        if (any_failed and fault is step_fault) or isinstance(fault, MemoryError):
            return
        if threading.current_thread() is not self._thread:
            raise fault
        LOG.warning("a step raised %s: %s, which no work of it raises alone", type(fault).__name__, fault)

    def _error_alone(self, entry: Any, compute: Callable[[Any], object]) -> BaseException | None:
        """Compute a work alone, and return the error that the work raises, or None; raises an interrupt."""
        try:
            compute(entry)
        except BaseException as error:
            if self._must_leave(error):
                raise
            return error
        return None

    def _must_leave(self, error: BaseException) -> bool:
        """Return whether an error must leave the step, so that the next step builds the state anew.

        It must if it is an interrupt of this thread, or if the step has forked, and this is the child.
        """
        return not is_fault(error) or os.getpid() != self._process

    def _without_own_frames(self, error: BaseException) -> BaseException:
        """Return an error without the frames of this queue, which hold the works of other callers.

        An `EngineError` is understood without a traceback, so it keeps no frames, which could hold much memory.
        """
        trace = None if isinstance(error, EngineError) else error.__traceback__
        while trace is not None and trace.tb_frame.f_locals.get("self") is self:
            trace = trace.tb_next
        return error.with_traceback(trace)

    def call_back(self, entry: Entry) -> None:
        """Call the callbacks of a work that has ended, each once, and log their errors."""
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
        """Start a thread of the queue that steps in place of the callers, until `stop` with the same owner, or `close`.

        owner: the thread also ends when all its owners are garbage, as after an interrupt before the block that would
        call `stop`; None for the queue itself. limit: the most tokens of a batch until then.
        """
        owner = self if owner is None else owner
        self._check_thread()
        with self._starting.take():
            living = [(ref, most) for ref, most in self._starts if ref() is not None] if self.has_thread else []
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
        """End the `start` of an owner, if it has one; after the last owner, end the thread: the callers step again.

        owner: None for the queue itself.
        """
        owner = self if owner is None else owner
        with self._starting.take():
            self._starts = [(ref, most) for ref, most in self._starts if ref() is not owner]
            # A thread that an error has ended is given up, even if it has owners.
            if (thread := self._thread) is None or (thread.is_alive() and self._is_wanted()):
                return
            self._thread, self._leaves.cancelled = None, True
            self._bell.put(None)
            thread.join()
        self._hand_on()

    def _is_wanted(self) -> bool:
        """Return whether some owner of the thread is not garbage and has not called `stop`."""
        return any(owner() is not None for owner, _ in self._starts)

    def _limits(self) -> list[int]:
        """Return the limits of a batch, in tokens, that owners of the thread have set."""
        return [limit for owner, limit in self._starts if limit is not None and owner() is not None]

    def _retire(self) -> bool:
        """Let the callers step again if the thread has no owner any more; return whether it must end."""
        with self._starting.take_if_free() as taken:
            ends = taken and not self._is_wanted() and not self._closing
            if ends:
                self._thread = None
        return ends

    def close(self, *, drain: bool = True) -> None:
        """Refuse new works, wait until all others are computed, and end the thread. drain: False ends these works with
        `Closing` instead."""
        self._closing = True
        if not drain:
            self._refusal = Closing()
        self._bell.put(None)
        if (thread := self._thread) is not None:
            thread.join()
        else:       # this thread computes what waits
            with self._turn.take():
                while self._step():
                    pass

    def _serve(self, leaves: Stop) -> None:
        """Step until `leaves`, or until the queue is closed and nothing waits: the body of the queue's thread."""
        try:
            while True:
                with suppress(Cancelled), self._turn.take(leaves):
                    while not leaves.cancelled and self._step():
                        pass
                if leaves.cancelled or (self._closing and not self._arrived) or self._retire():
                    return
                self._sleeps = True
                if not self._arrived and not self._departed and not self._closing and not leaves.cancelled:
                    with suppress(Empty):
                        self._bell.get(timeout=LOOK_SECONDS)
                self._sleeps = False
                while not self._bell.empty():
                    self._bell.get()
        except BaseException as error:      # a fault of the queue itself: callers must not wait for ever
            self._closing, self._refusal = True, EngineError(f"the queue has ended: {type(error).__name__}: {error}")
            raise
        finally:
            self._sleeps = False
            self._tell_served()


def _seconds(entries: Sequence[Entry], until: Stop) -> float:
    """Return for how many seconds a thread may sleep: to the next deadline, or until it has to check the stops."""
    first = until.deadline
    for entry in entries:
        if (deadline := entry.stop.deadline) and (not first or deadline < first):
            first = deadline
    return max(0.0, min(LOOK_SECONDS, first - time.monotonic())) if first else LOOK_SECONDS


def _check_stops(entries: Sequence[Entry], until: Stop) -> None:
    """Raise the error of a stop that has come: that of the wait, or that of one of the works."""
    until.check()
    for entry in entries:
        entry.stop.check()


def is_fault(error: BaseException) -> bool:
    """Return whether an error may come from the computation, and not from Ctrl-C or a signal handler."""
    runs_handlers = threading.current_thread() is threading.main_thread()
    return not runs_handlers or (isinstance(error, Exception) and not _comes_from_handler(error))


def _comes_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised an error.

    A handler gets the frame that it interrupted as an argument, and that frame is one of its callers in the traceback.
    """
    outer: list[Any] = []
    for frame, _ in walk_tb(error.__traceback__):
        names, star_name, _, values = inspect.getargvalues(frame)
        arguments = [*(values.get(name) for name in names), *values.get(star_name or "", ())]
        if any(argument is caller for argument in arguments for caller in outer):
            return True
        outer.append(frame)
    return False
