"""Who is next: the sequences that wait, in fair turns by key, and within a key by request.

Start-time fair queueing (Goyal, Vin and Cheng 1996), twice. Each request has a time that grows by the tokens that were
taken of it, and the least time is next. A new request gets the time of its key, which grows by the tokens that were
taken of the key, divided by its requests: by as much as each of them would have got. So a short request is next,
whatever long ones wait, and many short ones let a long one have its share. Keys have such times among each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from ..methods.steps import Tokenized
from ..methods.workload import Computation


class Waiting(Protocol):
    """A request, as `Turns` knows it."""

    key: str
    work: Tokenized
    taken: int
    """How many of its sequences were taken."""


@dataclass(eq=False)
class _Entry:
    request: Any
    time: float
    """`_Key.start` when the request came, plus the tokens that were taken of it since."""
    left: int
    """The tokens of its sequences that were not taken."""
    gone: bool = False
    """Whether the request was dropped; its heap keeps the entry until it comes to the top."""


@dataclass(eq=False)
class _Key:
    time: float
    """`Turns._start` when the key came, plus the tokens that were taken of it since."""
    start: float = 0.0
    """The time that a new request of the key gets: what each of its requests would have got until now."""
    tokens: int = 0
    """The tokens of its requests that were not taken."""
    firsts: int = 0
    """The tokens of the first sequences of all requests of which nothing was taken: they come before a new request."""
    waiting: int = 0
    """The number of requests that have sequences left."""
    heaps: dict[Computation, list[tuple[float, int, _Entry]]] = field(default_factory=dict)
    """By job, (time, number of arrival, entry) of its requests: the least is next, and equal times go by arrival."""


class Turns:
    """The requests that wait for a batch. It is not safe for threads: whoever calls it holds a lock."""

    def __init__(self, most: int):
        """most: the most tokens of a batch, unless one sequence alone has more."""
        self.most = most
        self._grain = max(1, most // 32)    # tokens that one request may get before the times are compared again
        self._keys: dict[str, _Key] = {}
        self._entries: dict[Any, _Entry] = {}
        self._start = 0.0       # the time that a new key gets: what each key would have got until now
        self._numbers = count()     # of arrivals

    @property
    def tokens(self) -> int:
        """The tokens that wait."""
        return sum(key.tokens for key in self._keys.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return iter([*self._entries])

    def add(self, request: Waiting) -> None:
        """Let a request with at least one sequence wait."""
        lengths = request.work.lengths
        key = self._keys.get(request.key)
        if key is None:
            key = self._keys[request.key] = _Key(self._start)
        entry = _Entry(request, key.start, sum(lengths))
        self._entries[request] = entry
        key.waiting += 1
        key.tokens += entry.left
        key.firsts += lengths[0]
        heapq.heappush(key.heaps.setdefault(request.work.computation, []), (entry.time, next(self._numbers), entry))

    def drop(self, request: Waiting) -> bool:
        """Let a request wait no longer; return whether it did."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return False
        key = self._keys[request.key]
        entry.gone = True
        key.waiting -= 1
        key.tokens -= entry.left
        if not request.taken:
            key.firsts -= request.work.lengths[0]
        heap = key.heaps.get(request.work.computation, [])
        if key.waiting == 0:
            del self._keys[request.key]
        elif len(heap) > 2 * key.waiting + 64:      # most entries are of dropped requests, and hold memory
            heap[:] = [one for one in heap if not one[2].gone]
            heapq.heapify(heap)
            if not heap:
                del key.heaps[request.work.computation]
        entry.request = None
        return True

    def before(self, name: str, first: int) -> int:
        """Return how many tokens that wait would come before the first sequence, of `first` tokens, of a new request.

        name: its key. Until its first sequence is taken, each other key gets as many tokens as this one, if it can.
        """
        own = self._keys.get(name)
        mine = 0 if own is None else own.firsts
        return mine + sum(min(key.tokens, mine + first) for key in self._keys.values() if key is not own)

    def beside(self, name: str, size: int) -> int:
        """Return how many tokens that wait would come before the last sequence of a new request of `size` tokens.

        Each other request gets as much as the new one until then. name: its key.
        """
        mine = sum(min(entry.left, size) for entry in self._entries.values() if entry.request.key == name)
        return mine + sum(min(key.tokens, mine + size) for other, key in self._keys.items() if other != name)

    def take(self) -> list[tuple[Any, list[int]]]:
        """Return the next batch, of one job: (request, the numbers of its sequences that are in it); [] if none waits.

        A request of which all sequences were taken waits no longer.
        """
        taken: dict[Any, list[int]] = {}
        room, job = self.most, self._next_job()
        while job is not None:
            # The key with the least time, of those with a request of this job.
            name, key = min(((name, key) for name, key in self._keys.items() if self._top(key, job) is not None),
                            key=lambda one: one[1].time, default=("", None))
            entry = None if key is None else self._top(key, job)
            if key is None or entry is None:
                break
            request, lengths = entry.request, entry.request.work.lengths
            begin, size = request.taken, 0
            # The first sequence of a batch is taken in any case: it may alone be longer than a batch.
            while request.taken < len(lengths) and size < self._grain and (
                    size + lengths[request.taken] <= room or (not taken and request.taken == begin)):
                size += lengths[request.taken]
                request.taken += 1
            if request.taken == begin:
                break
            taken.setdefault(request, []).extend(range(begin, request.taken))
            room -= size
            self._charge(name, key, job, entry, size, first=lengths[0] if begin == 0 else 0)
            if room <= 0:
                break
        return list(taken.items())

    def _charge(self, name: str, key: _Key, job: Computation, entry: _Entry, size: int, first: int) -> None:
        """Add `size` taken tokens to the times of a request and its key. first: how many are of its first sequence."""
        self._start += size / len(self._keys)
        key.start += size / key.waiting
        key.time += size
        key.tokens -= size
        key.firsts -= first
        entry.time += size
        entry.left -= size
        heap = key.heaps[job]
        if entry.request.taken < len(entry.request.work.lengths):
            heapq.heapreplace(heap, (entry.time, heap[0][1], entry))
            return
        heapq.heappop(heap)
        del self._entries[entry.request]
        key.waiting -= 1
        if not heap:
            del key.heaps[job]
        if key.waiting == 0:
            del self._keys[name]

    def _next_job(self) -> Computation | None:
        """Return the job of the request that is next; None if none waits."""
        if not self._keys:
            return None
        key = min(self._keys.values(), key=lambda key: key.time)
        heaps = [*key.heaps.items()]        # a copy, because `_top` deletes heaps
        tops = [(heap[0][:2], job) for job, heap in heaps if self._top(key, job) is not None]
        return min(tops, key=lambda one: one[0])[1]

    def _top(self, key: _Key, job: Computation) -> _Entry | None:
        """Return the entry of a job that is next in a key; None if there is none."""
        heap = key.heaps.get(job)
        if heap is None:
            return None
        while heap and heap[0][2].gone:
            heapq.heappop(heap)
        if not heap:
            del key.heaps[job]
            return None
        return heap[0][2]
