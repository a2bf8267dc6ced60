"""`ModelQueue`: the queue of a model that computes sequences whole: batches of pieces, in the fair order of `Order`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ..base.stop import NEVER, Stop
from .entry import OwnStop, TicketRef
from .order import NextBatch, Order
from .rows import RowsEntry, RowsTicket
from .work import Work
from .work_queue import WorkQueue

Result = TypeVar("Result")

MOST_REST = 0.005
"""The most seconds that a caller sleeps before a batch, until others come again with new works."""
LEAST_PATIENCE = 1 / 64
"""The least part of the time of the last batch for which it sleeps, after it has done so in vain; the most is 1."""
PATIENT_AFTER = 32
"""After so many batches it sleeps for half of that time again, because callers may have fallen into two groups."""
ENOUGH_TOKENS = 256
"""The tokens of a batch that gains little from more of them."""
BATCH_SECONDS, FEWEST_TOKENS = 0.05, 512
"""How long a batch may take while several works wait, and the tokens that it may have in any case."""
RATE_BATCHES = 32
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
    """How many batches had up to 2^i tokens, for each i; the last one counts all larger batches."""

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
        self.by_sequences[min(len(self.by_sequences) - 1, max(0, pieces - 1).bit_length())] += 1
        self.by_tokens[min(len(self.by_tokens) - 1, max(0, tokens - 1).bit_length())] += 1


class ModelQueue(WorkQueue):
    """The works of one loaded model, which are computed in batches. Any thread may call it."""

    def __init__(self, max_tokens: int, mixes: bool = True):
        """max_tokens: the most tokens of a batch, unless one piece alone has more; `start` may set fewer.

        mixes: False for a model whose rows have other bits in other batches, so that a batch has pieces of one work.
        """
        super().__init__()
        self.max_tokens, self._mixes = max_tokens, mixes
        self.counts = Counts()
        self.in_flight = 0
        """The tokens of the batch that is computed now."""
        self.order = Order()
        """The works that have pieces left, without those in `_new`."""
        self._new: list[RowsEntry] = []     # the works that have come since the last batch
        self._measured = 0.0, 0.0       # tokens, and their seconds, of full batches; an older one counts less
        self._before = 0        # works that were open when the last batch began
        self._callers = 0       # callers at its end: those who wait, and those whose works have ended
        self._seconds = self._ended = 0.0       # how long the last batch took, and when it ended
        self._patience = 1.0    # the part of the last batch's time for which a caller sleeps before the next one
        self._rests = False     # whether a caller sleeps before the next batch

    def submit(self, work: Work, priority: int = 0, owner: str = "", deadline: float = 0.0, stop: Stop = NEVER
               ) -> RowsTicket:
        """Let a work wait until it is computed, and return its ticket at once.

        priority: works of a higher priority are computed first. owner: whose work it is; owners have equal shares of
        the tokens. deadline: the `time.monotonic()` at which this work ends with `TimedOut`, wherever it is; 0 for
        none. stop: ends the call, by its timeout for instance. The thread that waits for the ticket checks it; a
        running batch checks it only if it has pieces of no other work. Raises `Closing` after `close`.
        """
        self._check_open()
        return self._accept(RowsTicket(self, RowsEntry(next(self._numbers), work, priority, owner,
                                                       OwnStop(stop, deadline), self._mixes)))

    def rows(self, work: Work, stop: Stop = NEVER) -> Iterator[tuple[list[int], Any]]:
        """Yield (numbers of pieces, their rows) for each batch of a work, which ends with this iterator.

        stop: ends the call, as in `submit`.
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
        """Compute a work at once, and return its rows; None, and nothing, if it is not one batch, or if others wait.

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
                    begun = time.perf_counter()
                    self._before = 1
                    tokens, packed = work.packed([(work, work.order)], tokens)
                    rows = work.job(packed, stop)
                    self._note_batch([work], pieces, tokens, time.perf_counter() - begun)
        finally:
            if taken and self._asleep:
                self._hand_on()
        return rows

    @property
    def rate(self) -> float:
        """Tokens in a second, of full batches; 0 until it is known."""
        tokens, seconds = self._measured
        return tokens / seconds if seconds else 0.0

    @property
    def tokens(self) -> int:
        """The tokens that wait for a batch."""
        return self.order.tokens + sum(sign * entry.left for entry, sign in self._changes())

    def before_first(self, owner: str, first: int, priority: int = 0) -> int:
        """Return how many tokens come before the first piece of a new work, those of the present batch too.

        first: the tokens of that piece.
        """
        return self.in_flight + self.order.before_first(owner, first, priority, self._changes())

    def before_last(self, owner: str, size: int, priority: int = 0) -> int:
        """Return how many tokens come before the last piece of a new work, those of the present batch too.

        size: the tokens of the work.
        """
        return self.in_flight + self.order.before_last(owner, size, priority, self._changes())

    def _changes(self) -> list[tuple[RowsEntry, int]]:
        """Return (work, 1) for each work that the next step lets into the order, (work, -1) for each that it takes out.
        """
        if not self._arrived and not self._left:
            return []
        come = [entry for entry in [*self._arrived] if entry.end is None and entry.number not in self._open]
        left = {entry for one in [*self._left] if (entry := one.entry if isinstance(one, TicketRef) else one)}
        return [(entry, 1) for entry in come] + [(entry, -1) for entry in left if entry.end is None]

    def _rest(self) -> float:
        """Return how many seconds to sleep for callers that the last batch served, so that they are not a batch apart.

        Otherwise a few callers fall into two groups that take turns, with batches of half the size. The last one that
        comes again computes for all. A call after a rest also notes whether the rest was of use (`_patience`).
        """
        seconds = self._ended + min(self._patience * self._seconds, MOST_REST) - time.perf_counter()
        if seconds <= 0 and not self._rests:
            return 0.0
        # As many works wait as before the last batch, or enough for a batch without the others.
        came = (len(self._open) + len(self._arrived) >= self._callers
                or self.order.tokens + sum(entry.left for entry in [*self._arrived]) >= ENOUGH_TOKENS)
        if seconds > 0 and not came:
            self._rests = True
            return seconds
        if self._rests:     # the rest is over
            self._rests = False
            self._patience = min(1.0, 2 * self._patience) if came else max(LEAST_PATIENCE, self._patience / 4)
        return 0.0

    def _compute_next(self) -> bool:
        """Compute one batch; return False if there is nothing to compute."""
        if not self._open:
            return False
        room = self._room()
        new, self._new = self._new, []
        # If no older work waits, and one batch has room for all new ones, no order is needed.
        batch = None if len(self.order) else NextBatch.of_all(new, room)
        if batch is None:       # older work waits, or the new works do not fit into one batch
            for entry in new:
                self.order.add(entry)
            batch = self.order.take(room)
        if batch.taken:
            self._compute(batch)
        return bool(batch.taken)

    def _room(self) -> int:
        """Return the most tokens of the next batch, which is short while several works wait."""
        if self.has_thread:
            return min([self.max_tokens, *self._limits()])
        if len(self._open) == 1:
            return self.max_tokens
        return max(min(FEWEST_TOKENS, self.max_tokens), min(self.max_tokens, int(self.rate * BATCH_SECONDS)))

    def _enter(self, entry: RowsEntry) -> None:
        """Let a work wait for its batches; it enters the order with the next batch."""
        if entry.pieces_left:
            self._new.append(entry)
        else:       # the last rows were given in a step that an interrupt ended
            self._finish(entry, True)

    def _forget(self, entry: RowsEntry) -> None:
        """Forget a work that ends; it may have left before."""
        if entry in self._new:
            self._new.remove(entry)
        self.order.drop(entry)

    def _reset(self) -> None:
        """Empty the order, and give each open work the pieces back that were taken and never computed.

        `_mend` then lets the open works enter again.
        """
        self.order, self._new, self.in_flight = Order(), [], 0
        for entry in [*self._open.values()]:
            entry.rewind()

    def _compute(self, batch: NextBatch) -> None:
        """Compute a batch, hand out its rows, and count it."""
        works = [*batch.taken]
        self._before, self.in_flight = len(self._open), batch.tokens
        begun = time.perf_counter()
        fault = None
        tokens = batch.tokens
        try:
            tokens = self._run_batch(works, tokens)
        except BaseException as error:
            if self._must_leave(error):     # that of a signal handler: the works go back into the order
                raise
            fault = error
        if fault is not None:
            self._run_apart(works, fault, self._run_left)
        self.in_flight = 0
        self._note_batch([entry.work for entry in works], batch.pieces, tokens, time.perf_counter() - begun,
                         fault is not None)

    def _note_batch(self, works: Sequence[Work], pieces: int, tokens: int, seconds: float, failed: bool = False
                    ) -> None:
        """Note how many callers there are, how long the batch took, and what it was, for those that follow."""
        self._callers = len(self._arrived) + max(len(self._open), self._before)
        self._seconds, self._ended = seconds, time.perf_counter()
        self.counts.add(works, pieces, tokens, seconds)
        if self.counts.batches % PATIENT_AFTER == 0:
            self._patience = max(0.5, self._patience)
        # A batch that is not half full, or failed, says little about the rate.
        full = self._room() if self.has_thread else min(FEWEST_TOKENS, self.max_tokens)
        if not failed and (2 * tokens >= full or not self.rate):
            before, kept = self._measured, 1 - 1 / RATE_BATCHES
            self._measured = kept * before[0] + tokens, kept * before[1] + max(seconds, 1e-6)

    def _run_batch(self, entries: Sequence[RowsEntry], tokens: int) -> int:
        """Compute the pieces that were taken of some works of one job, hand out the rows, and end the works that are
        done. Return the tokens of the batch. tokens: the sum of the costs."""
        begun = time.perf_counter()
        pieces = [(entry.work, entry.work.order[entry.given : entry.taken]) for entry in entries]
        shared = len(entries) > 1
        tokens, packed = entries[0].work.packed(pieces, tokens)
        self._tell_served()     # their threads go on as soon as the job releases Python's lock
        # The stop of one work must not end the batch of others.
        rows = entries[0].work.job(packed, NEVER if shared else entries[0].stop)
        first, ended = 0, time.perf_counter()
        for entry, (_, numbers) in zip(entries, pieces, strict=True):
            entry.add_times(begun, ended)
            own = rows[first : first + len(numbers)] if shared else rows
            entry.give(own, shared)
            first += len(numbers)
            if entry.work.look is not None:
                try:
                    entry.work.look(own)
                except Exception as error:
                    if self._must_leave(error):
                        raise
                    self._finish(entry, error)
                    continue
            if entry.given == len(entry.work.order):
                self._finish(entry, True, later=True)
        return tokens

    def _run_left(self, entry: RowsEntry) -> None:
        """Compute what a batch has taken of a work and has not given."""
        if entry.taken > entry.given:
            self._run_batch([entry], 0)

    def forget_rate(self) -> None:
        """Measure the rate anew, as after a first batch, which brought the weights into memory."""
        self._measured = 0.0, 0.0
