"""`CacheRoom`: how many cells of the cache are left for the sequences of a queue, and which of them gives way.

A cell has room for `BLOCK` tokens. A sequence with one hypothesis enters when there is room for its ids, and grows. It
has a goal, the number of tokens for which cells are promised to it: its ids when it enters, and some more new tokens
when it comes back. A request with several hypotheses is promised all cells that it may ever need. Promised cells are
not free. When there are too few cells, kept prefixes are freed first. Then the sequence of the lowest priority that
came last gives way: it loses its cells, but none of its ids, and comes back before new sequences enter. Until it has
reached its goal again it is safe, so two sequences do not push each other out in turn. `StepQueue` calls this.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as List
from itertools import chain

from .encoder_decoder import SourceStepper
from .prefixes import BLOCK, Prefixes, cells_of
from .works import Sequence, StepWork

SAFE = 64
"""The new tokens that a sequence makes at least before it gives way again."""


class CacheRoom:
    """The cells of one decoder. Only the thread that has the queue's turn may call it."""

    def __init__(self, stepper: SourceStepper, prefixes: Prefixes, tokens: int | None):
        """tokens: the most tokens that the cells in use may have room for; None for no bound."""
        self._stepper, self._prefixes, self.tokens = stepper, prefixes, tokens
        self.gave_way = 0
        """How often a sequence has given way."""
        self.clear()

    def clear(self) -> None:
        """Forget all sequences."""
        self.waiting: list[Sequence] = []
        """The sequences that wait for room, of requests that have entered; the first one is next."""
        self._memory_cells: int | None = None    # how many cells were in use when the system had no memory for more
        self._spare = -1        # a number of cells that are certainly free; below 0, `make_room` has to count them

    @property
    def cells(self) -> int | None:
        """The most cells in use; None for no bound."""
        bound = None if self.tokens is None else self.tokens // BLOCK
        if self._memory_cells is None or (bound is not None and bound < self._memory_cells):
            return bound
        return self._memory_cells

    def free(self, entered: Iterable[Sequence]) -> int:
        """Return how many cells are neither in use, nor promised, nor needed in the next step; below 0: cells lack."""
        assert self.cells is not None
        left = self.cells - cells_of(self._stepper.held)
        most_read: dict[StepWork, int] = {}     # of each work that reserves, the most ids read of one hypothesis
        for sequence in entered:
            work, read = sequence.work, sequence.read
            if work.reserves:
                most_read[work] = max(read, most_read.get(work, 0))
            elif sequence.goal > read:      # cells are promised up to its goal
                left -= cells_of(sequence.goal) - cells_of(max(read, self._prefixes.ahead(sequence)))
            elif read % BLOCK == 0:         # its cells are full, so that its next token needs a new one
                left -= 1
        return left - sum(max(0, cells_of(work.cached) - cells_of(read)) for work, read in most_read.items())

    def enter(self, sequence: Sequence, entered: Iterable[Sequence]) -> bool:
        """Let a sequence enter if there is room for it, and return whether it has entered; it may free kept prefixes.

        entered: the sequences that have entered before.
        """
        work, length = sequence.work, sequence.length
        self._prefixes.enter(sequence)
        more = SAFE if sequence.is_back and work.makes_tokens else 0
        sequence.goal = max(length, min(length + more, work.cached))
        if self.cells is None:
            return True
        needed = cells_of(work.cached if work.reserves else sequence.goal) - cells_of(self._prefixes.ahead(sequence))
        entered = [*entered]
        if not entered:     # nobody else uses memory now, so drop the bound that a lack of memory has set
            self._memory_cells = None
        missing = needed - self.free(entered) if self.cells is not None else 0
        if 0 < missing <= cells_of(self._prefixes.kept):        # otherwise it waits, and they would be lost for nothing
            self._prefixes.let_go(missing * BLOCK)
            missing = needed - self.free(entered)
        self._count_anew()
        if missing > 0:     # it has to wait, and gets its place among the prefixes when it enters
            self._prefixes.leave(sequence)
        return missing <= 0

    def let_in(self, entered: List[Sequence]) -> list[Sequence]:
        """Let the first waiting sequences enter for which there is room now, and return them in their order."""
        came: list[Sequence] = []
        while self.waiting and self.enter(self.waiting[0], chain(entered, came)):
            came.append(self.waiting.pop(0))
        self._trim_if_nobody_waits()
        return came

    def _trim_if_nobody_waits(self) -> None:
        """If no sequence waits, free the prefixes above the bound, which were kept for sequences that gave way."""
        if not self.waiting:
            self._prefixes.trim()

    def wait(self, sequences: Iterable[Sequence]) -> None:
        """Add sequences to `waiting`, sorted by priority, whether they gave way (these come first), and arrival."""
        self.waiting = sorted([*self.waiting, *sequences],
                              key=lambda one: (-one.work.entry.priority, not one.is_back, one.work.entry.number))

    def leave(self, work: StepWork) -> None:
        """Forget the waiting sequences of a work that ends. The caller forgets those that have entered.

        The memory of its cells is free then, so this removes a bound that came from a lack of memory.
        """
        self.waiting = [sequence for sequence in self.waiting if sequence.work is not work]
        self._trim_if_nobody_waits()
        self._memory_cells = None

    def make_room(self, entered: List[Sequence], decoding: int) -> Sequence | None:
        """Free kept prefixes until there are cells for the next step; return who has to give way if there are too few.

        Call it once before each step, and again after each sequence that gave way. entered: all that have entered.
        decoding: the number of sequences that read one token each, each of which needs at most one new cell.
        """
        self._spare -= decoding
        if self.cells is None or self._spare >= 0:
            return None
        self._spare = self.free(entered)
        if self._spare < 0 < self._prefixes.kept:
            self._prefixes.let_go(-self._spare * BLOCK)
            self._spare = self.free(entered)
        return self.last(entered) if self._spare < 0 else None

    def note_no_memory(self) -> bool:
        """Note that the system has no memory for more cells; free kept prefixes, and return whether there were any."""
        self._memory_cells = max(1, cells_of(self._stepper.held))   # what is in use now is all that the system gives
        self._count_anew()
        kept = self._prefixes.kept
        self._prefixes.let_go(kept)
        return kept > 0

    def give_way(self, sequence: Sequence) -> None:
        """Take the cells of a sequence, and let it wait until it comes back; it keeps ids, sums and random numbers."""
        self.gave_way += 1
        self._prefixes.leave(sequence, soon=True)
        hypothesis, sequence.is_back = sequence.hypothesis, True
        if sequence.work.drop(hypothesis) and hypothesis is not None:
            self._stepper.release([hypothesis])
        # It reads its ids again, but needs no scores again after ids that it has read before.
        sequence.first_scored, sequence.read = max(sequence.first_scored, sequence.read), 0
        sequence.hypothesis, sequence.goal = None, 0
        self._count_anew()
        self.wait([sequence])

    def _count_anew(self) -> None:
        """Let the next `make_room` count the free cells anew."""
        self._spare = -1

    def last(self, entered: List[Sequence], even_safe: bool = False) -> Sequence | None:
        """Return the sequence that gives way next, or None if none may: the last one of the lowest priority.

        even_safe: whether sequences may, too, that have come back and have not reached their goals.
        """
        may_give_way = [one for one in reversed(entered)
                        if not one.work.reserves and (even_safe or not one.is_back or one.read >= one.goal)]
        return max(may_give_way, key=lambda one: (-one.work.entry.priority, one.work.entry.number), default=None)
