"""`ModelQueue`: works of many callers, which the callers that wait compute together, one thread at a time.

    submit   a work goes into a deque, from any thread
    wait     a caller that finds nobody stepping takes the turn, and steps until it has rows of its own; then it hands
             the turn on to another caller that waits
    step     collects what has arrived, chooses a batch, lets the job compute it, and hands out the rows
    start    a thread of the queue's own steps in place of the callers, under a server; until `stop`

An exception of a signal handler may come between any two lines. So the turn is taken by a `with` statement of compiled
code; and a step that did not end leaves `_torn` behind, from which the next one makes a new order of the works that are
open. A row that was handed out is never computed again, because `Waiting.parts` alone says which are.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ..backends.lock import any_turn
from ..base.errors import BackendUnavailable, Cancelled, Closing, EngineError, InputError, TimedOut
from ..base.stop import NEVER, Stop
from .order import Batch, Order
from .ticket import Holder, OwnStop, Ticket, Waiting
from .work import Work

Result = TypeVar("Result")

LOG = logging.getLogger("engine")

LOOK = 0.15
"""Seconds after which a thread that waits looks again without a word: whether anybody steps, and at its stop."""
NAP, LONGEST = 1e-4, 0.005
"""Seconds that a caller sleeps at a time, and at most, before a batch, until others come again with new works."""
LEAST = 1 / 64
"""The least part of the time of the last batch for which it sleeps, after it has done so in vain; the most is 1."""
ENOUGH = 256
"""The tokens of a batch that gains little from more of them."""
SECONDS, FEWEST = 0.05, 512
"""How long a batch may take while several works wait, and the tokens that it may have in any case."""
KEPT = 32
"""About how many full batches the measured rate is the mean of."""


@dataclass
class Counts:
    """What the batches of a queue were, from its start."""

    batches: int = 0
    sequences: int = 0
    tokens: int = 0
    mixed_batches: int = 0
    """Batches with pieces of several works."""
    unlike_batches: int = 0
    """Batches whose works differ in their kind."""
    busy_seconds: float = 0.0
    by_sequences: list[int] = field(default_factory=lambda: [0] * 14)
    """How many batches had up to 2^i pieces, for each i; the last one counts all larger batches."""
    by_tokens: list[int] = field(default_factory=lambda: [0] * 22)
    """The same for tokens."""

    def since(self, earlier: Counts) -> dict[str, Any]:
        """Return the counts by their names without those of an earlier time."""
        before = asdict(earlier)
        return {name: [more - less for more, less in zip(value, before[name], strict=True)]
                if isinstance(value, list) else value - before[name] for name, value in asdict(self).items()}

    def add(self, works: Sequence[Work], pieces: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self.batches += 1
        self.sequences += pieces
        self.tokens += tokens
        self.busy_seconds += seconds
        if len(works) > 1:
            self.mixed_batches += 1
            self.unlike_batches += len({work.kind for work in works}) > 1
        for sizes, size in ((self.by_sequences, pieces), (self.by_tokens, tokens)):
            sizes[min(len(sizes) - 1, max(0, size - 1).bit_length())] += 1


class Rate:
    """How many tokens are computed in a second, as the last batches were."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    @property
    def value(self) -> float:
        """Tokens in a second; 0 until a batch was counted."""
        return self._tokens / self._seconds if self._seconds else 0.0

    def count(self, tokens: int, seconds: float) -> None:
        """Count a batch; each before it counts less with every new one."""
        kept = 1 - 1 / KEPT
        self._tokens, self._seconds = kept * self._tokens + tokens, kept * self._seconds + max(seconds, 1e-6)


class ModelQueue:
    """The works of one loaded model. Any thread may call it."""

    def __init__(self, max_tokens: int, mixes: bool = True):
        """max_tokens: the most tokens of a batch, unless one piece alone has more; `start` may set fewer.

        mixes: False for a model whose rows have other bits in other batches, so that a batch has pieces of one work.
        """
        self.max_tokens, self._mixes = max_tokens, mixes
        self.counts = Counts()
        self.in_flight = 0
        """The tokens of the batch that is computed now."""
        self.order: Order[Waiting] = Order()
        """The works that have pieces left."""
        self._turn = any_turn()     # the right to step
        self._torn = False
        self._process = os.getpid()
        self._numbers = count()
        self._arrived: deque[Waiting] = deque()     # submitted, and not seen by a step yet
        self._left: deque[Waiting | Holder] = deque()       # cancelled, or nobody holds the ticket
        self._open: dict[int, Waiting] = {}     # all that a step has seen and that have not ended, by number
        self._deadlines: list[tuple[float, int]] = []       # a heap, with the numbers of works
        self._asleep: deque[Waiting] = deque()      # whose thread would step if the turn were free
        self._rate = Rate()
        self._callers = self._before = 0        # works that were open at the last batch
        self._seconds = self._ended = 0.0       # of the last batch: how long it took, and when it ended
        self._patience = 1.0
        self._stepping = -1     # the number of the work of the caller that had the turn last
        self._thread: threading.Thread | None = None
        self._bell: SimpleQueue[None] = SimpleQueue()       # an item ends the sleep of `_thread`
        self._starts: list[int] = []        # the most tokens of a batch, of each `start` without its `stop`
        self._starting = any_turn()     # the right to change these, and to start and end the thread
        self._sleeps = self._stops = self._closing = False
        self._refusal: EngineError | None = None        # the end of all works, after `close` without `drain`

    def submit(self, work: Work, priority: int = 0, owner: str = "", deadline: float = 0.0, stop: Stop = NEVER
               ) -> Ticket:
        """Let a work wait until it is computed, and return its ticket at once.

        priority: a work of a higher one is first. owner: whose work it is; owners have equal shares of the tokens.
        deadline: the `time.monotonic()` at which the work ends with `TimedOut`; 0 for none. stop: that of the call,
        which a caller that waits looks at, and a batch of this work alone. Raises `Closing` after `close`.
        """
        if self._closing:
            raise Closing
        waiting = Waiting(next(self._numbers), work, priority, owner, OwnStop(stop, deadline), self._mixes)
        ticket = Ticket(self, waiting)
        if waiting.end is None:
            waiting.holder = Holder(ticket, self._left.append)
            waiting.holder.waiting = waiting
            self._arrived.append(waiting)
            if self._sleeps:
                self._bell.put(None)
        return ticket

    def rows(self, work: Work, stop: Stop = NEVER) -> Iterator[tuple[list[int], Any]]:
        """Yield (numbers of pieces, their rows) for each batch of a work, which ends with this iterator.

        stop: as in `submit`.
        """
        rows = self._compute_alone(work, stop)
        if rows is not None:
            yield work.order, rows
            return
        with self.submit(work, stop=stop) as ticket:
            yield from ticket

    def compute(self, function: Callable[[Stop], Result], tokens: int, stop: Stop = NEVER) -> Result:
        """Return what `function(stop)` returns, a batch of its own; it takes its turn with the works that wait."""
        [(_, [result])] = self.rows(Work(lambda pieces, stop: [function(stop)], [tokens]), stop)
        return result

    def _compute_alone(self, work: Work, stop: Stop) -> Any:
        """Return the rows of a work that is one batch; None if it is none, or if others wait or step.

        So a caller alone needs no ticket, which would cost a short text some percent of its time.
        """
        tokens, pieces = sum(work.costs), len(work.order)
        if self._callers > 1 or self._open or self._arrived or self._left or self._thread or self._closing:
            return None
        if not pieces or (pieces > 1 and (tokens > self.max_tokens or pieces > (work.most or pieces))):
            return None
        taken, rows = False, None
        try:
            with self._turn.take_if_free() as taken:
                if taken:
                    stop.check()
                    begun, self._before = time.perf_counter(), 1
                    rows = work.job([(work, work.order)], stop)
                    self._count([work], pieces, tokens, time.perf_counter() - begun)
        finally:
            if taken and self._asleep:
                self._hand_on()
        return rows

    def cancel(self, waiting: Waiting) -> None:
        """End a work with `Cancelled`, in the next step, or at once if nobody steps."""
        waiting.stop.cancelled = True
        self._left.append(waiting)
        if self._sleeps:
            self._bell.put(None)
        elif waiting.process == os.getpid():
            self._settle()

    @property
    def has_thread(self) -> bool:
        """Whether a thread of the queue's own steps."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def rate(self) -> float:
        """Tokens in a second, of full batches; 0 until it is known."""
        return self._rate.value

    @property
    def tokens(self) -> int:
        """The tokens that wait for a batch."""
        return self.order.tokens + sum(sign * waiting.left for waiting, sign in self._changes())

    def before(self, owner: str, first: int, priority: int = 0) -> int:
        """Return how many tokens come before the first piece of a new work, those of the present batch too.

        The arguments are as in `Order.before`.
        """
        return self.in_flight + self.order.before(owner, first, priority, self._changes())

    def beside(self, owner: str, size: int, priority: int = 0) -> int:
        """Return how many tokens come before the last piece of a new work, those of the present batch too.

        The arguments are as in `Order.beside`.
        """
        return self.in_flight + self.order.beside(owner, size, priority, self._changes())

    def _changes(self) -> list[tuple[Waiting, int]]:
        """Return the works that the next step lets into the order, and those that it takes out."""
        if not self._arrived and not self._left:
            return []
        come = [waiting for waiting in [*self._arrived] if waiting.end is None and waiting.number not in self._open]
        left = {one.waiting if isinstance(one, Holder) else one for one in [*self._left]}
        return [(waiting, 1) for waiting in come] + [(waiting, -1) for waiting in left if waiting.end is None]

    def wait(self, waiting: Waiting, seen: int, until: Stop = NEVER) -> None:
        """Return when there are more than `seen` parts of a work, or its end; the caller may step until then.

        until: when to stop, beside the stop of the work. Raises `InputError` in a forked child, and `EngineError` in
        code that a step of the same thread called or that interrupted it, and would wait for itself.
        """
        if waiting.process != os.getpid():
            raise InputError("a ticket does not go on in a forked child, which has none of its parent's threads; call "
                             "the model in the child")
        bell: SimpleQueue[bool] | None = None
        heir = False        # whether this thread had the turn, or was told to take it, so that it has to hand it on
        try:
            while not waiting.has_news(seen):
                until.check()
                waiting.stop.check()
                self._check_thread()
                steps = not self.has_thread
                if steps:
                    heir = True
                    with self._turn.take_if_free() as taken:
                        if taken:
                            self._step_for(waiting, seen, until)
                    if taken and waiting.has_news(seen):
                        return
                if bell is None:        # and look once more: the turn may have come free before the bell was there
                    bell = SimpleQueue()
                    waiting.bells.append(bell)
                    if steps:
                        self._asleep.append(waiting)
                    continue
                heir = False
                with suppress(Empty):
                    heir = bell.get(timeout=_seconds(waiting.stop, until))
                    bell = None
        finally:
            if bell is not None:
                try:
                    waiting.bells.remove(bell)
                except ValueError:      # somebody has rung it
                    heir = True
            if heir:
                self._hand_on()

    def _check_thread(self) -> None:
        if self._turn.held:
            raise EngineError("the engine was called from a signal handler that interrupted a call of the same model, "
                              "or by code that this call runs; let the handler set a flag, and call the engine "
                              "afterwards")

    def _hand_on(self) -> None:
        """Wake a caller that waits for the turn, if there is one, and end what was cancelled."""
        while self._asleep:
            with suppress(IndexError):
                waiting = self._asleep.popleft()
                if waiting.end is None and waiting.process == self._process and waiting.ring(news=False):
                    return
        if self._left:
            self._settle()

    def _settle(self) -> None:
        """End what was cancelled, unless somebody steps, who will do it."""
        with self._turn.take_if_free() as taken:
            if taken:
                self._begin()
                self._torn = False
        if taken and self._asleep:      # somebody may have found the turn taken meanwhile
            self._hand_on()

    def _step_for(self, waiting: Waiting, seen: int, until: Stop) -> None:
        """Step until there is news of a work of the calling thread, or nothing left to do."""
        self._stepping = waiting.number
        self._linger()
        while self._step() and not waiting.has_news(seen):
            until.check()
            waiting.stop.check()

    def _linger(self) -> None:
        """Wait a moment for callers that the last batch served and that come again, so that they are not a batch apart.

        Otherwise a few callers fall into two groups that take turns, with batches of half the size.
        """
        until = self._ended + min(self._patience * self._seconds, LONGEST)
        if self._all_came() or time.perf_counter() > until:
            return
        while not (came := self._all_came()) and time.perf_counter() < until:
            time.sleep(NAP)
        self._patience = min(1.0, 2 * self._patience) if came else max(LEAST, self._patience / 2)

    def _all_came(self) -> bool:
        """Return whether as many works wait as before the last batch, or enough for a batch without them."""
        arrived = [*self._arrived]
        return (len(self._open) + len(arrived) >= self._callers
                or self.order.tokens + sum(waiting.left for waiting in arrived) >= ENOUGH)

    def _step(self) -> bool:
        """Compute one batch; return False if none waits."""
        self._begin()
        batch = self.order.take(self._room()) if self._open else None
        if batch is not None and batch.taken:
            self._compute(batch)
        self._torn = False
        return batch is not None and bool(batch.taken)

    def _room(self) -> int:
        """Return the most tokens of the next batch, which is short while several works wait."""
        if self.has_thread:
            return min(self._starts, default=self.max_tokens)
        if len(self._open) == 1:
            return self.max_tokens
        return max(min(FEWEST, self.max_tokens), min(self.max_tokens, int(self.rate * SECONDS)))

    def _begin(self) -> None:
        """Begin a step, which ends with `_torn = False`: collect what has arrived, and end what was given up."""
        mends, self._torn = self._torn or self._process != os.getpid(), True
        if mends:
            self._mend()
        # Each stays in its deque until all is done for it, so that no interrupt can lose it.
        while self._arrived:
            waiting = self._arrived[0]
            if waiting.process == self._process and waiting.number not in self._open and waiting.end is None:
                self._open[waiting.number] = waiting
                self._enter(waiting)
            self._arrived.popleft()
        while self._left:
            one = self._left[0]
            waiting = one.waiting if isinstance(one, Holder) else one
            if waiting.process == self._process:
                self._finish(waiting, Cancelled())
            self._left.popleft()
        while self._deadlines and self._deadlines[0][0] < time.monotonic():
            if (late := self._open.get(heappop(self._deadlines)[1])) is not None:
                self._finish(late, TimedOut())
        if len(self._deadlines) > 2 * len(self._open) + 64:     # most of these works ended before their deadline
            self._deadlines = [one for one in self._deadlines if one[1] in self._open]
            heapify(self._deadlines)
        if self._refusal is not None:
            for waiting in [*self._open.values()]:
                self._finish(waiting, self._refusal)

    def _enter(self, waiting: Waiting) -> None:
        self.order.add(waiting)
        if waiting.stop.deadline:
            heappush(self._deadlines, (waiting.stop.deadline, waiting.number))

    def _mend(self) -> None:
        """Begin with a new order: after an interrupt with the works that are open, and in a forked child with none."""
        self.order, self._deadlines = Order(), []
        if self._process != os.getpid():
            self._open, self._process, self._thread = {}, os.getpid(), None
        for waiting in [*self._open.values()]:
            waiting.rewind()
            if waiting.end is not None or not waiting.pieces_left:
                self._finish(waiting, True)
            else:
                self._enter(waiting)

    def _finish(self, waiting: Waiting, end: BaseException | bool) -> None:
        """End a work, unless it has ended; and tell those who wait."""
        if waiting.end is None:
            waiting.end = _without_own_frames(end) if isinstance(end, BaseException) else end
        waiting.holder = None       # so that the end of its ticket calls nothing
        self.order.drop(waiting)
        waiting.ring(news=True)
        self.call_back(waiting)
        self._open.pop(waiting.number, None)

    def call_back(self, waiting: Waiting) -> None:
        """Call the callbacks of a work that has ended, whatever they raise."""
        while waiting.callbacks:
            try:
                waiting.call_back()
            except BaseException as error:
                if not _is_fault(error):
                    raise
                LOG.warning("a callback of a ticket raised %s: %s", type(error).__name__, error)

    def _compute(self, batch: Batch[Waiting]) -> None:
        """Compute a batch, hand out its rows, and count it."""
        works = [*batch.taken]
        self._before, self.in_flight = len(self._open), batch.tokens
        begun = time.perf_counter()
        fault = None
        try:
            self._run(works, begun)
        except BaseException as error:
            if not _is_fault(error) or os.getpid() != self._process:
                raise       # of a signal handler; the works go back into the order
            fault = error
        if fault is not None:
            self._run_apart(works, fault, begun)
        self.in_flight = 0
        self._count([waiting.work for waiting in works], batch.pieces, batch.tokens, time.perf_counter() - begun,
                    fault is not None)

    def _count(self, works: Sequence[Work], pieces: int, tokens: int, seconds: float, failed: bool = False) -> None:
        # Those who wait, and those whose works have ended.
        self._callers = len(self._arrived) + max(len(self._open), self._before)
        self._seconds, self._ended = seconds, time.perf_counter()
        self.counts.add(works, pieces, tokens, seconds)
        # A batch that is not half full, or failed, says little about the rate.
        full = self._room() if self.has_thread else min(FEWEST, self.max_tokens)
        if not failed and (2 * tokens >= full or not self.rate):
            self._rate.count(tokens, seconds)

    def _run(self, works: Sequence[Waiting], begun: float) -> None:
        """Compute what was taken of some works of one job in a batch that has begun, and hand out the rows."""
        pieces = [(waiting.work, waiting.work.order[waiting.given : waiting.taken]) for waiting in works]
        shared = len(works) > 1
        # The stop of one work must not end the batch of others.
        rows = works[0].work.job(pieces, NEVER if shared else works[0].stop)
        first, ended = 0, time.perf_counter()
        for waiting, (_, numbers) in zip(works, pieces, strict=True):
            waiting.clock(begun, ended)
            own = rows[first : first + len(numbers)] if shared else rows
            waiting.give(own, shared)
            first += len(numbers)
            if waiting.work.look is not None:
                try:
                    waiting.work.look(own)
                except Exception as error:
                    self._finish(waiting, error)
                    continue
            if waiting.given == len(waiting.work.order):
                self._finish(waiting, True)

    def _run_apart(self, works: Sequence[Waiting], fault: BaseException, begun: float) -> None:
        """Compute each work of a batch that raised an error alone, so that one bad work does not fail the others."""
        if len(works) == 1 and (works[0].number == self._stepping or not _gets_signals()):
            self._finish(works[0], fault)
            return
        failed = False
        for waiting in works:
            if waiting.taken == waiting.given:      # it has its rows
                continue
            try:
                self._run([waiting], begun)
            except BaseException as error:
                if not _is_fault(error) or os.getpid() != self._process:
                    raise
                failed = True
                self._finish(waiting, error)
        # What no work raises alone may come from a signal handler of this thread, and is for its caller.
        if not failed and _gets_signals() and not isinstance(fault, MemoryError):
            raise fault

    def start(self, max_tokens: int | None = None) -> None:
        """Let a thread of the queue's own step, in place of the callers, until as many calls of `stop`, or `close`.

        max_tokens: the most tokens of a batch until then; None for those of the queue, which are the most.
        """
        with self._starting.take():
            others = self._starts if self.has_thread else []
            self._starts = [*others, min(self.max_tokens, max_tokens or self.max_tokens)]
            if not self.has_thread:
                self._stops = False
                thread = self._thread = threading.Thread(target=self._serve, name="engine-queue", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._thread, self._starts = None, []
                    raise BackendUnavailable(f"the system starts no thread for the queue: {error}; end other threads"
                                             ) from None

    def stop(self, max_tokens: int | None = None) -> None:
        """Take back a `start` with this argument; after the last one the thread ends, and the callers step again."""
        with self._starting.take():
            with suppress(ValueError):      # in a forked child there may be no such start
                self._starts.remove(min(self.max_tokens, max_tokens or self.max_tokens))
            if self._starts and self.has_thread:
                return
            self._stops = True
            self._bell.put(None)
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.join()
        self._hand_on()

    def forget_rate(self) -> None:
        """Measure the rate anew, as after a first batch, which brought the weights into memory."""
        self._rate = Rate()

    def close(self, *, drain: bool = True) -> None:
        """Take no more works, compute those that wait, and end the thread. drain: False ends them with `Closing`."""
        self._closing = True
        if not drain:
            self._refusal = Closing()
        self._bell.put(None)
        if self._thread is not None:
            self._thread.join()
        else:
            with self._turn.take():
                while self._step():
                    pass

    def _serve(self) -> None:
        """Step until the queue is closed and nothing waits."""
        try:
            while True:
                with self._turn.take():     # a caller that has it stays until it has rows of its own
                    while not self._stops and self._step():
                        pass
                if self._stops or (self._closing and not self._arrived):
                    return
                self._sleeps = True
                if not self._arrived and not self._left and not self._closing and not self._stops:
                    with suppress(Empty):
                        self._bell.get(timeout=LOOK)
                self._sleeps = False
                while not self._bell.empty():
                    self._bell.get()
        except BaseException as error:      # a fault of the queue itself, for which nobody shall wait
            self._closing, self._refusal = True, EngineError(f"the queue has ended: {type(error).__name__}: {error}")
            raise
        finally:
            self._sleeps = False


def _seconds(*stops: Stop) -> float:
    """Return how long a thread may sleep until it looks at these stops again."""
    now = time.monotonic()
    return max(0.0, min([LOOK, *(stop.deadline - now for stop in stops if stop.deadline)]))


def _gets_signals() -> bool:
    """Return whether signal handlers run in this thread."""
    return threading.current_thread() is threading.main_thread()


def _is_fault(error: BaseException) -> bool:
    """Return whether an error is one of what was called, and no interrupt of this thread, such as Ctrl-C."""
    return isinstance(error, Exception) or not _gets_signals()


def _without_own_frames(error: BaseException) -> BaseException:
    """Return an error without the frames of this file, which hold the works of other callers."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)
