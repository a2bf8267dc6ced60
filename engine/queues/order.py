"""`Order`: chooses which pieces a `ModelQueue` computes next: by priority, then in fair turns of owners, then of works.

It is start-time fair queueing (Goyal, Vin and Cheng 1996), twice. Each work has a virtual time, which grows by the
tokens that were taken of it, and the work with the least time is next. A new work begins with `_Owner.start`, which
grows by the tokens taken of the owner, divided by the number of its works: by as much as each of them would have got.
So a short work is next, whatever long ones wait, and many short ones let a long one have its share. Owners have such
times among each other. A work of a higher priority comes before all works of a lower one.

Here the cost of a piece is known before it is computed. A work of a decoder stays for many steps, which it shares with
others, so `generation/schedule.py` compares what was read for each owner; and the time of a call of a server's threads
is known only after it has run, so `server/workers.py` counts seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias, TypeVar

from .entry import drop_ended
from .rows import RowsEntry

GRAIN = 32
"""A work gets up to 1/32 of a batch before the times are compared again."""
Changes: TypeAlias = Sequence[tuple[RowsEntry, int]]
"""(work, 1) for each work that an order is about to get, and (work, -1) for each that it is about to lose."""
Amount = TypeVar("Amount", int, float)


def before_end(own: Amount, size: Amount, others: Iterable[Amount]) -> Amount:
    """Return how much waiting work comes before the end of new work of an owner, as owners have equal shares.

    own: the owner's work that comes before. size: the new work. others: the waiting work of each other owner, of which
    as much comes before as the owner itself gets until then.
    """
    return own + sum(min(other, own + size) for other in others)


@dataclass(eq=False)
class _Entry:
    """A waiting work in the heap of its owner and job."""

    work: RowsEntry
    time: float
    """Its virtual time: `_Owner.start` when it came, plus the tokens that were taken of it since."""
    waits: bool = True
    """False for a work that was dropped; its heap keeps the entry until it comes to the top."""


@dataclass(eq=False)
class _Owner:
    """An owner with works that wait at one priority."""

    time: float
    """Its virtual time: `_Level.start` when it came, plus the tokens that were taken of its works since."""
    start: float = 0.0
    """The virtual time with which a new work begins: the tokens that each work of equal share would have got."""
    tokens: int = 0
    """The tokens of all its pieces that were not taken."""
    firsts: int = 0
    """The tokens of the first pieces of all works of which nothing was taken: they come before a new work."""
    works: int = 0
    """The number of its waiting works."""
    heaps: dict[Hashable, list[tuple[float, int, _Entry]]] = field(default_factory=dict)
    """Its works by job, each as (time, number of arrival, entry): the least is next, and equal times go by arrival."""


@dataclass(eq=False)
class NextBatch:
    """A batch while it is filled: pieces of works with one job, which are computed together."""

    room: int
    """The tokens that may still come into it. The first piece may have more."""
    taken: dict[RowsEntry, int] = field(default_factory=dict)
    """The number of pieces of each work in it."""
    tokens: int = 0
    """The tokens of all pieces in it."""
    most: float = float("inf")
    """The most pieces that it may have: the least limit of the works in it."""
    pieces: int = 0
    """The number of pieces in it."""

    @classmethod
    def of_all(cls, works: Sequence[RowsEntry], room: int) -> NextBatch | None:
        """Return a batch of all pieces of some works, of `room` tokens at most, or None if they do not fit."""
        batch, job = cls(room), works[0].job if works else None
        for work in works:
            if work.job != job or work.left > batch.room or work.most is not None:
                return None
            batch.taken[work] = work.pieces_left
            batch.tokens += work.left
            batch.room -= work.left
            batch.pieces += work.pieces_left
        for work in works:      # only now, as a work that fits no more must leave all others as they are
            work.take_all()
        return batch

    def take(self, work: RowsEntry, grain: int) -> int | None:
        """Take pieces of about `grain` tokens of a work; return their tokens, or None if no piece has room."""
        most = self.most if work.most is None else min(self.most, work.most)
        pieces, size = work.take(grain, self.room, most - self.pieces, not self.pieces)
        if not pieces:
            return None
        self.most, self.tokens, self.room = most, self.tokens + size, self.room - size
        self.pieces += pieces
        self.taken[work] = self.taken.get(work, 0) + pieces
        return size


class _Level:
    """The waiting works of one priority."""

    def __init__(self) -> None:
        self.owners: dict[Hashable, _Owner] = {}
        self.start = 0.0        # the virtual time with which a new owner begins
        self._lines: dict[Hashable, list[tuple[float, int, _Owner]]] = {}
        # By job, a heap of (time, number of arrival, owner) for the owners with works of it. The time in it may be
        # older than the owner's own, so less; `top` corrects it when it comes to the top.
        self._numbers = count()

    def add(self, entry: _Entry) -> None:
        """Let a work wait; it begins with the virtual time of its owner."""
        work = entry.work
        owner = self.owners.get(work.owner)
        if owner is None:
            owner = self.owners[work.owner] = _Owner(self.start)
        entry.time = owner.start
        owner.works += 1
        owner.tokens += work.left
        owner.firsts += work.first
        heap = owner.heaps.get(work.job)
        if heap is None:
            heap = owner.heaps[work.job] = []
            heapq.heappush(self._lines.setdefault(work.job, []), (owner.time, next(self._numbers), owner))
        heapq.heappush(heap, (entry.time, next(self._numbers), entry))

    def drop(self, entry: _Entry) -> None:
        """Remove a work that still has pieces; its heap may keep the entry, marked, until it comes to the top."""
        owner = self.owners[entry.work.owner]
        self._end(owner, entry)
        if owner.works:
            drop_ended(owner.heaps.get(entry.work.job, []), owner.works, lambda item: item[2].waits)

    def _end(self, owner: _Owner, entry: _Entry) -> None:
        """Subtract a work that waits no longer from the sums of its owner, and forget the owner after its last work."""
        entry.waits = False
        owner.works -= 1
        owner.tokens -= entry.work.left
        owner.firsts -= entry.work.first
        if not owner.works:
            del self.owners[entry.work.owner]

    def next_job(self) -> Hashable:
        """Return the job of the next work: the least by (time of its owner, its own time, number of arrival)."""
        tops: list[tuple[float, float, int, Hashable]] = []
        for job in [*self._lines]:      # a copy, as `top` deletes lines
            if (top := self.top(job)) is not None:
                owner, heap = top
                time, number, _ = heap[0]
                tops.append((owner.time, time, number, job))
        return min(tops)[-1]

    def fill(self, job: Hashable, batch: NextBatch, grain: int) -> list[_Entry]:
        """Take pieces of a job into a batch while there is room; return the entries that have no pieces left.

        Each turn takes about `grain` tokens of the next work. Its time and its owner's time grow by these tokens; the
        times with which new owners and works begin grow by the tokens divided among all that wait.
        """
        ended: list[_Entry] = []
        while (top := self.top(job)) is not None:
            owner, heap = top
            _, number, entry = heap[0]
            first = entry.work.first
            size = batch.take(entry.work, grain)
            if size is None:
                break
            self.start += size / len(self.owners)
            owner.start += size / owner.works
            owner.time += size
            entry.time += size
            owner.tokens -= size
            owner.firsts -= first
            if entry.work.pieces_left:
                heapq.heapreplace(heap, (entry.time, number, entry))
            else:
                self._end(owner, entry)
                ended.append(entry)
        return ended

    def top(self, job: Hashable) -> tuple[_Owner, list[tuple[float, int, _Entry]]] | None:
        """Return (the next owner of a job, its heap of that job with the next work at its top); None if no work waits.

        It also removes dropped works and owners without works from the tops of the heaps, and corrects old times there.
        """
        line = self._lines.get(job)
        while line:
            time, number, owner = line[0]
            heap = owner.heaps[job]
            while heap and not heap[0][2].waits:
                heapq.heappop(heap)
            if not heap:
                heapq.heappop(line)
                del owner.heaps[job]
            elif time < owner.time and len(line) > 1:
                heapq.heapreplace(line, (owner.time, number, owner))
            else:
                return owner, heap
        self._lines.pop(job, None)
        return None


class Order:
    """All waiting works. Only the thread with the turn may change it; any thread may read the numbers of tokens."""

    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}
        self._entries: dict[RowsEntry, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RowsEntry]:
        return iter([*self._entries])

    @property
    def tokens(self) -> int:
        """The tokens that wait."""
        return sum(owner.tokens for level in [*self._levels.values()] for owner in [*level.owners.values()])

    def add(self, work: RowsEntry) -> None:
        """Let a work wait, which must have pieces left."""
        entry = self._entries[work] = _Entry(work, 0.0)
        level = self._levels.get(work.priority)
        if level is None:
            level = self._levels[work.priority] = _Level()
        level.add(entry)

    def drop(self, work: RowsEntry) -> bool:
        """Remove a work; return whether it was there."""
        entry = self._entries.pop(work, None)
        if entry is not None:
            self._levels[work.priority].drop(entry)
            self._forget_empty(work.priority)
            del entry.work      # a heap may keep the entry for long, and the work may be large
        return entry is not None

    def take(self, most: int) -> NextBatch:
        """Remove and return the next batch, empty if no work waits. most: its tokens, unless one piece alone has more.

        A work with no pieces left is removed.
        """
        batch = NextBatch(most)
        job: Hashable = None        # that of the first work; lower priorities fill the batch if they have works of it
        for priority in sorted(self._levels, reverse=True):
            level = self._levels[priority]
            job = job if batch.taken else level.next_job()
            for entry in level.fill(job, batch, max(1, most // GRAIN)):
                del self._entries[entry.work]
            is_full = level.top(job) is not None        # a work that waits found no room
            self._forget_empty(priority)
            if is_full:
                break
        return batch

    def before_first(self, owner: Hashable, first: int, priority: int = 0, changes: Changes = ()) -> int:
        """Return how many waiting tokens come before the first piece of a new work, which has `first` tokens.

        changes: works that are about to enter or leave the order.
        """
        (_, mine), others, higher = self._waiting(owner, priority, changes)
        return higher + before_end(mine, first, others)

    def before_last(self, owner: Hashable, size: int, priority: int = 0, changes: Changes = ()) -> int:
        """Return how many waiting tokens come before the last piece of a new work, which has `size` tokens.

        Each other work of its owner gets as much as the new one until then. changes: works about to enter or leave.
        """
        _, others, higher = self._waiting(owner, priority, changes)
        mine = sum(min(work.left, size) for work in self if (work.owner, work.priority) == (owner, priority))
        mine += sum(sign * min(work.left, size) for work, sign in changes
                    if (work.owner, work.priority) == (owner, priority))
        return higher + before_end(mine, size, others)

    def _waiting(self, owner: Hashable, priority: int, changes: Changes) -> tuple[tuple[int, int], list[int], int]:
        """Return the waiting tokens after some changes: (an owner's at a priority, others' there, at higher ones).

        The first is (all tokens, tokens of first pieces), the second a list, the third one number.
        """
        by_owner: dict[Hashable, tuple[int, int]] = {}
        higher = 0
        for number, level in [*self._levels.items()]:
            if number == priority:
                by_owner = {name: (each.tokens, each.firsts) for name, each in [*level.owners.items()]}
            elif number > priority:
                higher += sum(each.tokens for each in [*level.owners.values()])
        for work, sign in changes:
            if work.priority == priority:
                tokens, firsts = by_owner.get(work.owner, (0, 0))
                by_owner[work.owner] = tokens + sign * work.left, firsts + sign * work.first
            elif work.priority > priority:
                higher += sign * work.left
        return by_owner.pop(owner, (0, 0)), [tokens for tokens, _ in by_owner.values()], higher

    def _forget_empty(self, priority: int) -> None:
        """Forget a priority at which no work waits."""
        if not self._levels[priority].owners:
            del self._levels[priority]
