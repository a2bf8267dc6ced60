"""Which pieces are computed next: by priority, then in fair turns by owner, then by work.

A piece waits, is computed once, and leaves. A work of a decoder stays for many steps, all of which it shares, so
`generation/schedule.py` compares what was read for each owner; and nobody knows how long a call of a server's threads
takes before it has run, so `server/workers.py` counts seconds.

Start-time fair queueing (Goyal, Vin and Cheng 1996), twice. Each work has a time that grows by the tokens that were
taken of it, and the least time is next. A new work gets the time of its owner, which grows by the tokens that were
taken of the owner, divided by its works: by as much as each of them would have got. So a short work is next, whatever
long ones wait, and many short ones let a long one have its share. Owners have such times among each other. A work of a
higher priority comes before all of a lower one.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from .rows import RowsEntry

GRAIN = 32
"""A work gets up to this part of a batch before the times are compared again."""
Changes: TypeAlias = Sequence[tuple[RowsEntry, int]]
"""Works that an order is about to get, each with 1, and that it is about to lose, with -1."""


@dataclass(eq=False)
class _Entry:
    """A work that waits, in the heap of its owner and job."""

    work: RowsEntry
    time: float
    """`_Owner.start` when the work came, plus the tokens that were taken of it since."""
    waits: bool = True
    """False for a work that was dropped; its heap keeps the entry until it comes to the top."""


@dataclass(eq=False)
class _Owner:
    """An owner with works that wait at one priority."""

    time: float
    """`_Level.start` when the owner came, plus the tokens that were taken of its works since."""
    start: float = 0.0
    """The time that a new work of the owner gets: what each of its works would have got until now."""
    tokens: int = 0
    """The tokens of its works that were not taken."""
    firsts: int = 0
    """The tokens of the first pieces of all works of which nothing was taken: they come before a new work."""
    works: int = 0
    heaps: dict[Hashable, list[tuple[float, int, _Entry]]] = field(default_factory=dict)
    """Its works by job, each as (time, number of arrival, entry): the least is next, and equal times go by arrival."""


@dataclass(eq=False)
class NextBatch:
    """Pieces of one job that are computed together."""

    room: int
    """The tokens that may still come into it. The first piece may have more."""
    taken: dict[RowsEntry, int] = field(default_factory=dict)
    """The works in it, each with the number of its pieces."""
    tokens: int = 0
    most: float = float("inf")
    """The most pieces of it, by the works that are in it."""
    pieces: int = 0

    @classmethod
    def of_all(cls, works: Sequence[RowsEntry], room: int) -> NextBatch | None:
        """Return a batch of all pieces of some works; None if they do not fit one batch, and an order has to choose."""
        batch, job = cls(room), works[0].job if works else None
        for work in works:
            if work.job != job or work.left > batch.room or work.most is not None:
                return None
            batch.taken[work] = work.pieces_left
            batch.tokens += work.left
            batch.room -= work.left
            batch.pieces += work.pieces_left
        for work in works:
            work.take_all()
        return batch

    def take(self, work: RowsEntry, grain: int) -> int | None:
        """Take pieces of a work, about `grain` tokens; return their tokens, None if there is no room for one."""
        most = self.most if work.most is None else min(self.most, work.most)
        pieces, size = work.take(grain, self.room, most - self.pieces, not self.pieces)
        if not pieces:
            return None
        self.most, self.tokens, self.room = most, self.tokens + size, self.room - size
        self.pieces += pieces
        self.taken[work] = self.taken.get(work, 0) + pieces
        return size


class _Level:
    """The works of one priority."""

    def __init__(self) -> None:
        self.owners: dict[Hashable, _Owner] = {}
        self.start = 0.0        # the time that a new owner gets: what each owner would have got until now
        self._lines: dict[Hashable, list[tuple[float, int, _Owner]]] = {}
        # By job, a heap of the owners with works of it. An entry may have an older time than the owner has by now,
        # which is less; it is mended when it comes to the top.
        self._numbers = count()

    def add(self, entry: _Entry) -> None:
        """Let a work wait, with the time that its owner gives to a new one."""
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
        """Let a work wait no longer of which pieces are left; its heap may keep the entry for a while."""
        owner = self.owners[entry.work.owner]
        self._end(owner, entry)
        heap = owner.heaps.get(entry.work.job, [])
        if owner.works and len(heap) > 2 * owner.works + 64:    # most entries are of dropped works, and hold memory
            heap[:] = [one for one in heap if one[2].waits]
            heapq.heapify(heap)

    def _end(self, owner: _Owner, entry: _Entry) -> None:
        """Count a work no longer that waits no longer, and forget its owner after the last one."""
        entry.waits = False
        owner.works -= 1
        owner.tokens -= entry.work.left
        owner.firsts -= entry.work.first
        if not owner.works:
            del self.owners[entry.work.owner]

    def next_job(self) -> Hashable:
        """Return the job of the work that is next, by the time of its owner, then by its own time, then by arrival."""
        tops: list[tuple[float, float, int, Hashable]] = []
        for job in [*self._lines]:      # a copy, as `top` deletes lines
            if (found := self.top(job)) is not None:
                owner, heap = found
                time, number, _ = heap[0]
                tops.append((owner.time, time, number, job))
        return min(tops)[-1]

    def fill(self, job: Hashable, batch: NextBatch, grain: int) -> list[_Entry]:
        """Take pieces into a batch while there is room; return the entries of which all pieces are taken now.

        Each turn takes about `grain` tokens of the work that is next. Its time and its owner's time grow by these, and
        the times that new owners and works begin with by the share of each one that waits.
        """
        ended: list[_Entry] = []
        while (found := self.top(job)) is not None:
            owner, heap = found
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
        """Return the owner that is next in a job, and its heap, whose first work is next; None if none waits.

        On the way it removes dropped works and owners without works, and mends the order of old times.
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
    """The works that wait. It is not safe for threads, but any thread may read the numbers of waiting tokens."""

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
        """Let a work wait that has pieces left."""
        entry = self._entries[work] = _Entry(work, 0.0)
        level = self._levels.get(work.priority)
        if level is None:
            level = self._levels[work.priority] = _Level()
        level.add(entry)

    def drop(self, work: RowsEntry) -> bool:
        """Let a work wait no longer; return whether it did."""
        entry = self._entries.pop(work, None)
        if entry is not None:
            self._levels[work.priority].drop(entry)
            self._forget_empty(work.priority)
            del entry.work      # which may be large, and a heap may keep the entry for long
        return entry is not None

    def take(self, most: int) -> NextBatch:
        """Take the next batch, of at most so many tokens unless one piece alone has more; it is empty if none waits.

        A work of which all pieces were taken waits no longer.
        """
        batch = NextBatch(most)
        job: Hashable = None
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
        """Return how many tokens that wait come before the first piece, of `first` tokens, of a new work.

        Until its first piece is taken, each other owner gets as many tokens as this one, if it can. changes: the works
        that are about to come and to go.
        """
        (_, mine), others, higher = self._waiting(owner, priority, changes)
        return higher + mine + sum(min(tokens, mine + first) for tokens in others)

    def before_last(self, owner: Hashable, size: int, priority: int = 0, changes: Changes = ()) -> int:
        """Return how many tokens that wait come before the last piece of a new work of `size` tokens.

        Each other work gets as much as the new one until then. changes: the works that are about to come and to go.
        """
        _, others, higher = self._waiting(owner, priority, changes)
        mine = sum(min(work.left, size) for work in self if (work.owner, work.priority) == (owner, priority))
        mine += sum(sign * min(work.left, size) for work, sign in changes
                    if (work.owner, work.priority) == (owner, priority))
        return higher + mine + sum(min(tokens, mine + size) for tokens in others)

    def _waiting(self, owner: Hashable, priority: int, changes: Changes) -> tuple[tuple[int, int], list[int], int]:
        """Return ((tokens of an owner at a priority, tokens of first pieces among them), tokens of each other owner at
        that priority, tokens at all higher priorities), as they will be after the changes."""
        found: dict[Hashable, tuple[int, int]] = {}
        higher = 0
        for number, level in [*self._levels.items()]:
            if number == priority:
                found = {name: (one.tokens, one.firsts) for name, one in [*level.owners.items()]}
            elif number > priority:
                higher += sum(one.tokens for one in [*level.owners.values()])
        for work, sign in changes:
            if work.priority == priority:
                tokens, firsts = found.get(work.owner, (0, 0))
                found[work.owner] = tokens + sign * work.left, firsts + sign * work.first
            elif work.priority > priority:
                higher += sign * work.left
        return found.pop(owner, (0, 0)), [tokens for tokens, _ in found.values()], higher

    def _forget_empty(self, priority: int) -> None:
        """Forget a priority at which no work waits."""
        if not self._levels[priority].owners:
            del self._levels[priority]
