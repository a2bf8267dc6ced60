"""`Schedule`: chooses which prompts a step reads, beside one token of every sequence that decodes.

Prompts come by priority, in turns of their owners, then by arrival. They are not in a `queues.order.Order`, because the
model goes on with each of them for many steps. Where several callers wait, the sizes of the parts follow from the time
that steps took, so that a long prompt delays nobody's next token for long. Nothing here reads a clock: `StepQueue`,
which calls this, measures.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from ..base.arguments import positive_int, positive_seconds
from .works import DecoderWork, Sequence

FEWEST = 16
"""The fewest tokens of a part, so that every prompt goes on. Half as many would take two thirds of the time."""
MOST_SCORES = 2**22
"""The most numbers (16 MiB of float32) that a step keeps for scores of prompts and continuations, unless one token has
more. A token whose logits are all wanted counts V, and any other scored token V / 64. It changes no bit."""
FRESH = 64
"""The number of steps after which the time of a step without prompts is measured again."""


@dataclass(frozen=True)
class Budget:
    """The bounds of one step. They change the speed and the memory, and no result.

    A request that is larger than the budget runs alone.
    """

    rows: int = 64
    """The most hypotheses at once: each request counts its num_beams, or its num_return_sequences if it samples."""
    tokens: int = 4096
    """The most tokens that the model reads in one step: parts of prompts, sources, and one for each other row."""

    def __post_init__(self) -> None:
        positive_int("rows", self.rows)
        positive_int("tokens", self.tokens)


@dataclass(frozen=True)
class Pace:
    """The limits of the time of a step that several callers share."""

    step_seconds: float = 0.05
    """A step may take this much longer than one that reads no prompt."""
    idle_seconds: float = 0.25
    """How long a step may take while nobody waits for a next token."""
    weighs: bool = False
    """Whether a step may take longer where that costs little: up to twice the time of one that reads no prompt; and,
    for n short prompts that wait for each row that decodes, n times `idle_seconds`, up to `idle_seconds`."""

    def __post_init__(self) -> None:
        """Raise `InputError` for impossible numbers of seconds."""
        positive_seconds("step_seconds", self.step_seconds)
        positive_seconds("idle_seconds", self.idle_seconds)

    def seconds_of_prompts(self, base: float, decoding: int, short: int) -> float:
        """Return how many seconds the prompts that a step reads may add to its time.

        base: the seconds of such a step without prompts. decoding: the number of rows that read one token each in it.
        short: the number of sequences with short prompts, each of which takes at most `idle_seconds`.
        """
        if not decoding:
            return self.idle_seconds
        if not self.weighs:
            return self.step_seconds
        return max(self.step_seconds, base, self.idle_seconds * min(1.0, short / decoding))


@dataclass
class _Owner:
    """The counts of one owner whose works wait or have entered."""

    works: int = 0
    """The number of these works."""
    read: int = 0
    """The tokens that were read and made for the owner; the owner with the fewest is next."""


class Schedule:
    """The order of the works of a queue, and the sizes of the parts of their prompts."""

    def __init__(self, budget: Budget, vocab_size: int, pace: Pace | None = None):
        """pace: None reads as many tokens in a step as the budget allows; it may change between two steps."""
        self.budget, self.pace = budget, pace
        self._vocab_size, self._most_scores = vocab_size, max(MOST_SCORES, vocab_size)
        self._owners: dict[Hashable, _Owner] = {}
        self._queues: dict[tuple[int, Hashable], deque[DecoderWork]] = {}
        """The works that wait, by priority and owner, each in the order in which they came."""
        self._entered: set[DecoderWork] = set()     # the works that have entered and not ended
        self._unread_owners: set[Hashable] = set()
        """The owners of prompts that the last plan did not read to their ends."""
        self._size = FEWEST     # the most tokens of prompts in a step; it doubles after each step that read all of them
        self._seconds_a_token: float | None = None
        """Seconds that each token of a prompt adds to a step; None before the first measurement."""
        self._times_without_prompts: dict[int, tuple[float, int]] = {}
        """(seconds of a step without prompts, number of the step that measured them), by `_size_class` of its rows."""
        self._steps = 0     # how many steps were measured

    @property
    def owners(self) -> int:
        """The number of owners of works that wait or have entered."""
        return len(self._owners)

    def forget(self) -> None:
        """Forget all works, and what was read for their owners."""
        self._owners, self._queues, self._entered, self._unread_owners = {}, {}, set(), set()

    def add(self, work: DecoderWork) -> None:
        """Append a work to the queue of its priority and owner, in which it waits to enter.

        An owner who asks for something again starts at the lowest count of tokens of the owners who ask now, or at the
        highest count of all owners if none asks, so that a pause gives nobody an advantage.
        """
        name = work.entry.owner
        asking = self._unread_owners.union(other for _, other in self._queues) & self._owners.keys()
        owner = self._owners.setdefault(name, _Owner())
        if name not in asking:
            reads = [self._owners[other].read for other in asking]
            owner.read = max(owner.read, min(reads) if reads else max(each.read for each in self._owners.values()))
        owner.works += 1
        self._queues.setdefault((work.entry.priority, name), deque()).append(work)
        work.waits = True

    def first(self) -> DecoderWork | None:
        """Return the work that enters next; None if none waits."""
        return min(self.heads(), key=self._place, default=None)

    def heads(self) -> list[DecoderWork]:
        """Return the first waiting work of each owner in each priority, in no order."""
        return [queue[0] for queue in self._queues.values()]

    def admit(self, work: DecoderWork) -> None:
        """Move a work from its queue to the works that have entered."""
        key = work.entry.priority, work.entry.owner
        queue = self._queues[key]
        queue.remove(work)
        if not queue:
            del self._queues[key]
        work.waits = False
        self._entered.add(work)

    def leave(self, work: DecoderWork, tokens: int) -> None:
        """Forget a work that ends, and count its new tokens for its owner; a work that is not here changes nothing."""
        # It may still wait. The second test is for an interrupt in the middle of `admit`, and a `forget` after it.
        if work.waits and work in self._queues.get((work.entry.priority, work.entry.owner), ()):
            self.admit(work)
        if work in self._entered:
            self._entered.discard(work)
            owner = self._owners[work.entry.owner]
            owner.works -= 1
            owner.read += tokens
            if not owner.works:
                del self._owners[work.entry.owner]

    def plan(self, decoding: int, sequences: Iterable[Sequence],
             catch_up: Callable[[Sequence], Sequence] = lambda sequence: sequence) -> list[tuple[Sequence, int]]:
        """Choose what a step reads beside the rows that decode: return (sequence, how many of its tokens), in order.

        The chosen tokens are counted for the owners. decoding: the number of rows that read one token each. sequences:
        all that have unread prompts. catch_up: is called with each of these, and returns the sequence that reads in its
        turn: the same, or another one that reads the ids for which it waits (`Prefixes.catch_up`).
        """
        ordered = sorted(sequences, key=lambda each: self._place(each.work))
        readers = dict.fromkeys(map(catch_up, ordered))     # an ordered set: one sequence may read for several
        short = {each for each in readers if self._is_short(each)}
        size = min(self.prompt_tokens(decoding, len(short)), max(1, self.budget.tokens - decoding))
        if not size:
            return []
        # Four numbers say what is left of the step: `size` tokens, `of_long` of them for prompts that are not short,
        # `rows` sequences, and `scores` numbers of `MOST_SCORES`.
        of_long = self.prompt_tokens(decoding) if short else size
        rows, scores = max(1, self.budget.rows - decoding), self._most_scores
        waits = self.pace is not None and decoding > 0      # somebody waits for the next token
        chosen: list[tuple[Sequence, int]] = []
        sources = 0
        for sequence in readers:
            source = sequence.work.source if not sequence.read else 0       # the encoder reads a source in one step
            if source and sources and (waits or source >= size):        # a second source could make the step too long
                continue
            before = max(0, sequence.first_scored - sequence.read)        # tokens without scores
            # `MOST_SCORES` counts this for each of the other tokens.
            numbers = self._vocab_size if sequence.wants[0].logits else -(-self._vocab_size // 64)
            n = min(sequence.unread, size if sequence in short else min(size, of_long), before + scores // numbers)
            if n <= 0 or not rows:
                continue
            chosen.append((sequence, n))
            rows -= 1
            size = max(0, size - n - source)
            of_long -= 0 if sequence in short else n
            scores -= numbers * max(0, n - before)
            sources += source
            self._owners[sequence.work.entry.owner].read += n + source
        planned = dict(chosen)
        self._unread_owners = {each.work.entry.owner for each in ordered if planned.get(each, 0) < each.unread}
        return chosen

    def prompt_tokens(self, decoding: int, short: int = 0) -> int:
        """Return how many tokens of prompts the next step may read; 0 to measure the time of a step without them.

        decoding: the number of rows that read one token each in that step. short: the number of sequences with short
        prompts, for which `Pace.weighs` gives more time.
        """
        if self.pace is None:
            return self.budget.tokens
        base = self._seconds_without_prompts(decoding) if decoding else 0.0
        if base is None:
            return 0        # `measured` needs that time to know what the tokens of prompts add to it
        if self._seconds_a_token is None:
            return FEWEST
        seconds = self.pace.seconds_of_prompts(base, decoding, short)
        return max(FEWEST, min(self._size, int(seconds / self._seconds_a_token)))

    def measured(self, decoding: int, read: int, seconds: float) -> None:
        """Learn from the seconds of a step how many tokens of prompts the next steps may read.

        decoding: the number of rows of the step that read one token each. read: the number of tokens of prompts and
        sources that it read beside them.
        """
        self._steps += 1
        seconds = min(max(1e-9, seconds), 1e9)        # the clock may stand still, go back or say NaN
        base = self._seconds_without_prompts(decoding) if decoding else 0.0
        if not read:
            own_class = _size_class(decoding)
            before, step = self._times_without_prompts.get(own_class, (seconds, 0))
            average = (before + seconds) / 2 if self._steps - step < FRESH else seconds
            self._times_without_prompts[own_class] = average, self._steps
            return
        if base is None:        # the time of the rows that decode is not known, so neither is that of the prompts
            return
        # Tokens of prompts are never free: take at least a sixteenth of the step, which may be measured badly.
        cost = max(seconds - base, seconds / 16) / read
        self._seconds_a_token = cost if self._seconds_a_token is None else (self._seconds_a_token + cost) / 2
        if read >= self._size:
            self._size = min(max(2 * self._size, read), self.budget.tokens)

    def _seconds_without_prompts(self, decoding: int) -> float | None:
        """Return the seconds of a step with `decoding` rows and no tokens of prompts, from the last `FRESH` steps.

        If no such step was measured, its time is interpolated between steps with fewer and with more rows; None if
        either is missing.
        """
        fresh = {size: base for size, (base, step) in self._times_without_prompts.items() if self._steps - step < FRESH}
        own_class = _size_class(decoding)
        if own_class in fresh:
            return fresh[own_class]
        below, above = [size for size in fresh if size < own_class], [size for size in fresh if size > own_class]
        if not below or not above:
            return None
        low, high = max(below), min(above)
        share = (decoding - _rows_of(low)) / (_rows_of(high) - _rows_of(low))
        return fresh[low] + share * (fresh[high] - fresh[low])

    def _is_short(self, sequence: Sequence) -> bool:
        """Return whether `idle_seconds` are enough for the unread ids and source; False unless the pace weighs."""
        if self.pace is None or not self.pace.weighs or self._seconds_a_token is None:
            return False
        tokens = sequence.unread + (0 if sequence.read else sequence.work.source)
        return tokens * self._seconds_a_token <= self.pace.idle_seconds

    def _place(self, work: DecoderWork) -> tuple[int, int, int]:
        """Return the key that sorts works by priority, then by what their owners have read, then by arrival."""
        entry = work.entry
        return -entry.priority, self._owners[entry.owner].read, entry.number


def _size_class(decoding: int) -> int:
    """Return the number of a class of counts of rows, which lie within a factor 2^(1/4) = 1.19 of each other."""
    return round(4 * math.log2(decoding))


def _rows_of(size_class: int) -> float:
    """Return the number of rows in the middle of a class of `_size_class`."""
    return 2 ** (size_class / 4)
