"""`ModelQueue`: the queue of a model that computes whole sequences, in batches, in the fair order of `Order`."""

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
"""The most seconds that a caller sleeps before a batch, so that callers of the last batch can join it."""
LEAST_PATIENCE = 1 / 64
"""The least value of `_patience`, the part of the last batch's seconds for which a caller sleeps; the greatest is 1."""
PATIENT_AFTER = 32
"""After each so many batches `_patience` is at least 1/2 again, because callers may have fallen into two groups."""
ENOUGH_TOKENS = 256
"""A batch with so many tokens gains little from more."""
BATCH_SECONDS, FEWEST_TOKENS = 0.05, 512
"""The most seconds of a batch while several works wait, and the tokens that it may have in any case."""
RATE_BATCHES = 32
"""The measured rate is the mean of about so many of the last full batches."""


@dataclass
class Counts:
    """The numbers and sizes of all batches of a queue since it was made."""

    batches: int = 0
    sequences: int = 0
    tokens: int = 0
    mixed_batches: int = 0
    """Batches with pieces of several works."""
    unlike_batches: int = 0
    """Batches whose works differ in their kind."""
    busy_seconds: float = 0.0
    """The seconds of all batches."""
    by_sequences: list[int] = field(default_factory=lambda: [0] * 14)
    """How many batches had up to 2^i pieces, for each i; the last one counts all larger batches."""
    by_tokens: list[int] = field(default_factory=lambda: [0] * 22)
    """How many batches had up to 2^i tokens, for each i; the last one counts all larger batches."""

    def since(self, earlier: Counts) -> dict[str, Any]:
        """Return, by the names of the fields, the counts less those of an earlier time."""
        before = asdict(earlier)
        # A field is a number or a list of numbers.
        return {name: [more - less for more, less in zip(value, before[name], strict=True)]
                if isinstance(value, list) else value - before[name] for name, value in asdict(self).items()}

    def add(self, works: Sequence[Work], pieces: int, tokens: int, seconds: float) -> None:
        """Count one batch. pieces, tokens: the sums over its works."""
        self.batches += 1
        self.sequences += pieces
        self.tokens += tokens
        self.busy_seconds += seconds
        if len(works) > 1:
            self.mixed_batches += 1
            self.unlike_batches += len({work.kind for work in works}) > 1
        # (n - 1).bit_length() is the least i with n <= 2^i.
        self.by_sequences[min(len(self.by_sequences) - 1, max(0, pieces - 1).bit_length())] += 1
        self.by_tokens[min(len(self.by_tokens) - 1, max(0, tokens - 1).bit_length())] += 1


class ModelQueue(WorkQueue):
    """The works of one loaded model, which are computed in batches. Any thread may call it."""

    def __init__(self, max_tokens: int, mixes: bool = True):
        """max_tokens: the most tokens of a batch, unless one piece alone has more; `start` may set fewer.

        mixes: False for a model whose bits depend on the other rows of a batch, so that a batch has pieces of one work.
        """
        super().__init__()
        self.max_tokens, self._mixes = max_tokens, mixes
        self.counts = Counts()
        self.in_flight = 0
        """The tokens of the batch that is computed now."""
        self.order = Order()
        """The works that have pieces left, without those in `_new`."""
        self._new: list[RowsEntry] = []     # the works that have come since the last batch
        self._measured = 0.0, 0.0       # (tokens, seconds) of full batches, in which older batches weigh less
        self._before = 0        # works that were open when the last batch began
        self._callers = 0       # callers after the last batch: those it has served, and those that wait
        self._seconds = self._ended = 0.0       # how long the last batch took, and when it ended
        self._patience = 1.0    # the part of the last batch's time for which a caller sleeps before the next one
        self._is_resting = False    # whether a caller sleeps before the next batch

    def submit(self, work: Work, priority: int = 0, owner: str = "", deadline: float = 0.0, stop: Stop = NEVER
               ) -> RowsTicket:
        """Add a work to the queue, and return its ticket at once.

        priority: works of a higher priority are computed first. owner: who asks for the work; owners have equal shares
        of the tokens. deadline: the `time.monotonic()` at which this work ends with `TimedOut`, wherever it is; 0 for
        none. stop: ends the call, by its timeout for instance. The thread that waits for the ticket checks it; a
        running batch checks it only if it has pieces of no other work. Raises `Closing` after `close`.
        """
        self._check_open()
        return self._accept(RowsTicket(self, RowsEntry(next(self._numbers), work, priority, owner,
                                                       OwnStop(stop, deadline), self._mixes)))

    def rows(self, work: Work, stop: Stop = NEVER) -> Iterator[tuple[list[int], Any]]:
        """Yield (numbers of pieces, their rows) for each batch of a work; a caller that stops early cancels the rest.

        stop: ends the call by its timeout or an interrupt.
        """
        rows = self._compute_alone(work, stop)
        if rows is not None:
            yield work.order, rows
            return
        with self.submit(work, stop=stop) as ticket:
            yield from ticket

    def compute(self, function: Callable[[Stop], Result], tokens: int, stop: Stop = NEVER) -> Result:
        """Return `function(stop)`, which runs as a batch of its own, in turn with the other works. tokens: its cost."""
        [(_, [result])] = self.rows(Work(lambda pieces, stop: [function(stop)], [tokens]), stop)
        return result

    def _compute_alone(self, work: Work, stop: Stop) -> Any:
        """Compute a work as one batch in this thread, and return its rows; None if others wait, or if it is too large.

        It spares a single caller the ticket, which would take some percent of the time of a short text.
        """
        tokens, pieces = sum(work.costs), len(work.order)
        if self._callers > 1 or self._open or self._arrived or self._departed or self._thread or self._closing:
            return None
        if not pieces or (pieces > 1 and (tokens > self.max_tokens or pieces > (work.most or pieces))):
            return None
        taken, rows = False, None       # an interrupt may come before the turn is taken
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
            if taken and self._asleep:      # others have found the turn taken
                self._hand_on()
        return rows

    @property
    def rate(self) -> float:
        """The tokens that full batches compute in a second; 0 until it is known."""
        return rate_of(self._measured)

    @property
    def tokens(self) -> int:
        """The tokens that wait for a batch."""
        return self.order.tokens + sum(sign * entry.left for entry, sign in self._changes())

    def before_first(self, owner: str, first: int, priority: int = 0) -> int:
        """Return how many tokens are computed before the first piece of a new work, the present batch included.

        first: the tokens of that piece.
        """
        return self.in_flight + self.order.before_first(owner, first, priority, self._changes())

    def before_last(self, owner: str, size: int, priority: int = 0) -> int:
        """Return how many tokens are computed before the last piece of a new work, the present batch included.

        size: the tokens of the work.
        """
        return self.in_flight + self.order.before_last(owner, size, priority, self._changes())

    def _changes(self) -> list[tuple[RowsEntry, int]]:
        """Return the changes of the order in the next step: (work, 1) for new works, (work, -1) for leaving ones."""
        if not self._arrived and not self._departed:
            return []
        # Copies, as other threads append to these deques.
        entering = [entry for entry in [*self._arrived] if entry.end is None and entry.number not in self._open]
        leaving = {entry for item in [*self._departed]
                   if (entry := item.entry if isinstance(item, TicketRef) else item)}
        return [(entry, 1) for entry in entering] + [(entry, -1) for entry in leaving if entry.end is None]

    def _rest(self) -> float:
        """Return how many seconds to sleep before the next batch, so that the callers of the last one can join it.

        Otherwise a few callers fall into two groups that take turns, with batches of half the size. The last caller
        that comes again computes for all. After a rest this also adapts `_patience`: up if the others came, else down.
        """
        seconds = self._ended + min(self._patience * self._seconds, MOST_REST) - time.perf_counter()
        if seconds <= 0 and not self._is_resting:
            return 0.0
        # As many works wait as there were callers, or enough for a batch without the others.
        came = (len(self._open) + len(self._arrived) >= self._callers
                or self.order.tokens + sum(entry.left for entry in [*self._arrived]) >= ENOUGH_TOKENS)
        if seconds > 0 and not came:
            self._is_resting = True
            return seconds
        if self._is_resting:     # the rest is over
            self._is_resting = False
            self._patience = min(1.0, 2 * self._patience) if came else max(LEAST_PATIENCE, self._patience / 4)
        return 0.0

    def _compute_next(self) -> bool:
        """Compute one batch; return False if there is nothing to compute. The caller has the turn."""
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
        """Return the most tokens of the next batch; it is limited to `BATCH_SECONDS` while several works wait."""
        if self.has_thread:     # a server sets its own limit
            return min([self.max_tokens, *self._limits()])
        if len(self._open) == 1:
            return self.max_tokens
        return max(min(FEWEST_TOKENS, self.max_tokens), min(self.max_tokens, int(self.rate * BATCH_SECONDS)))

    def _enter(self, entry: RowsEntry) -> None:
        """Let a work wait for its batches; it enters the order with the next batch."""
        if entry.pieces_left:
            self._new.append(entry)
        else:       # it got its last rows in a step that an interrupt tore, before it could end
            self._finish(entry, end=True)

    def _forget(self, entry: RowsEntry) -> None:
        """Remove a work that ends from the order, if it is there."""
        if entry in self._new:
            self._new.remove(entry)
        self.order.drop(entry)

    def _reset(self) -> None:
        """Empty the order, and let the pieces of open works wait again that were taken and not computed.

        `_mend` calls this after an interrupt, and lets the open works enter again.
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
            if self._must_leave(error):     # it is an interrupt: `_reset` lets the works wait again
                raise
            fault = error
        if fault is not None:
            self._run_apart(works, fault, self._run_again)
        self.in_flight = 0
        self._note_batch([entry.work for entry in works], batch.pieces, tokens, time.perf_counter() - begun,
                         fault is not None)

    def _note_batch(self, works: Sequence[Work], pieces: int, tokens: int, seconds: float, failed: bool = False
                    ) -> None:
        """Update the counts, the rate, and the fields that `_rest` reads, after a batch of `seconds`.

        failed: whether the batch raised an error, so that its time was that of several tries.
        """
        self._callers = len(self._arrived) + max(len(self._open), self._before)
        self._seconds, self._ended = seconds, time.perf_counter()
        self.counts.add(works, pieces, tokens, seconds)
        if self.counts.batches % PATIENT_AFTER == 0:
            self._patience = max(0.5, self._patience)
        # A batch that is not half full, or failed, says little about the rate.
        full = self._room() if self.has_thread else min(FEWEST_TOKENS, self.max_tokens)
        if not failed and (2 * tokens >= full or not self.rate):
            self._measured = measured_with(self._measured, tokens, seconds, RATE_BATCHES)

    def _run_batch(self, entries: Sequence[RowsEntry], tokens: int) -> int:
        """Compute the pieces that a batch has taken of some works, hand out the rows, and end complete works.

        entries: of one job. tokens: the sum of the costs of the pieces. Returns the tokens of the batch as packed.
        """
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
            own_rows = rows[first : first + len(numbers)] if shared else rows
            entry.give(own_rows, shared)
            first += len(numbers)
            if entry.work.look is not None:
                try:
                    entry.work.look(own_rows)
                except Exception as error:      # it ends this work alone
                    if self._must_leave(error):
                        raise
                    self._finish(entry, error)
                    continue
            if entry.given == len(entry.work.order):
                self._finish(entry, end=True, later=True)
        return tokens

    def _run_again(self, entry: RowsEntry) -> None:
        """Compute alone the pieces that a failed batch has taken of a work, unless they have their rows."""
        if entry.taken > entry.given:
            self._run_batch([entry], tokens=0)      # nobody reads the number of tokens that it returns

    def forget_rate(self) -> None:
        """Measure the rate anew: a first batch is slow, as it brings the weights into memory."""
        self._measured = 0.0, 0.0


def measured_with(sums: tuple[float, float], tokens: int, seconds: float, mean_of: int) -> tuple[float, float]:
    """Return (tokens, seconds) after a batch or a step is added; older ones lose 1 / `mean_of` of their weight."""
    weight = 1 - 1 / mean_of
    return weight * sums[0] + tokens, weight * sums[1] + max(seconds, 1e-6)


def rate_of(sums: tuple[float, float]) -> float:
    """Return tokens per second of (tokens, seconds), 0 without any."""
    return sums[0] / sums[1] if sums[1] else 0.0
