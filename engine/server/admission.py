"""Admit or refuse requests, for the services: by the memory of all requests, and by how long a request would wait."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ..base.errors import Overloaded
from ..queues.model_queue import measured_with, rate_of
from ..queues.order import before_end
from .settings import MAX_HELD, Limit

SMALL, LEFT = 1 / 256, 1 / 4
"""A request that needs more than the share `SMALL` of the memory leaves the share `LEFT` free for smaller ones."""
OF_KEY, LEFT_BY_KEY = 1 / 8, 1 / 8
"""A key whose requests need more than the share `OF_KEY` together leaves the share `LEFT_BY_KEY` to other keys."""
OF_ONE = 3 / 8
"""The share of the memory that one request may need."""


class Memory:
    """Counts the bytes of all requests (bodies, values, tokens, results, answers), up to a limit. Thread-safe."""

    def __init__(self, most: int = MAX_HELD):
        """most: the bytes that all requests may need together."""
        self.most, self.used = most, 0
        self._of_keys: Counter[str] = Counter()     # the bytes that the requests of each API key need
        self._lock = threading.Lock()

    @property
    def most_of_one(self) -> int:
        """The most bytes that one request may need."""
        return int(self.most * OF_ONE)

    def hold(self, room: Room, size: int) -> None:
        """Set the bytes of one request to `size`; raises `Limit` if it can never fit, or `Overloaded`."""
        most = self.most     # the bytes that all requests may need once this one has grown
        if size > room.size and size > self.most * SMALL:
            if size > self.most_of_one:
                raise Limit(f"this request needs about {size:,} bytes for what it sends and what it asks for, and one "
                            f"request may need {self.most_of_one:,}; send less in one request")
            most = int(self.most * (1 - LEFT))
        with self._lock:
            if room.closed:
                return
            growth = size - room.size
            if growth > 0:      # bytes can always be given back
                if room.key and self._of_keys.get(room.key, 0) + growth > self.most * OF_KEY:
                    most = min(most, int(self.most * (1 - LEFT_BY_KEY)))
                if self.used + growth > most:
                    raise Overloaded(f"the requests that wait need {self.used:,} of {self.most:,} bytes", 1.0)
            self._count(room, size)

    def close(self, room: Room) -> None:
        """Give the bytes of a room back, once."""
        with self._lock:
            self._count(room, 0)
            room.closed = True

    def _count(self, room: Room, size: int) -> None:
        """Set the bytes of one request to `size`, in the totals too. The caller holds the lock."""
        growth, room.size = size - room.size, size
        self.used += growth
        if room.key:        # without API keys there are no shares of keys to guard
            self._of_keys[room.key] += growth
            if not self._of_keys[room.key]:
                del self._of_keys[room.key]


class Room:
    """The bytes of one request, which are given back at the end of a `with` block, or by `close`."""

    __slots__ = ("_memory", "closed", "key", "size")

    def __init__(self, memory: Memory, key: str = ""):
        """key: whose request it is, known before the first bytes are counted; "" where there are no keys."""
        self._memory, self.key, self.size, self.closed = memory, key, 0, False

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self, size: int) -> None:
        """Set the bytes of the request to `size`; do nothing once the room is closed.

        Raises `Limit` if it never fits, and `Overloaded` if there is too little now. Large requests may not
        fill the memory (see `LEFT`), so that long lists of texts never keep out one short text.
        """
        self._memory.hold(self, size)

    def close(self) -> None:
        """Give the bytes back; a second call does nothing."""
        self._memory.close(self)


class Admission:
    """Refuses requests that would be answered too late, by the tokens that wait and the rate of the model's queue."""

    def __init__(self, max_wait: float, rate: Callable[[], float]):
        """max_wait: seconds. rate: returns the tokens a second that full batches compute; 0 while it is not known."""
        self.max_wait, self._rate = max_wait, rate

    @property
    def rate(self) -> float:
        """The tokens that full batches compute in a second; 0 while it is not known, when no request is refused."""
        return self._rate()

    def check_wait(self, waiting: float, before: Callable[[], float]) -> None:
        """Raise `Overloaded` if too many tokens come before the first answer of a request.

        waiting: the number of tokens that wait or are computed. before: returns how many of them come before the first
        answer, and is slow, so it is called only where `waiting` alone is too much.
        """
        rate = self.rate
        if not rate or waiting <= self.max_wait * rate:
            return
        wait = before() / rate
        if wait > self.max_wait:
            raise Overloaded(f"the first answer would come after {wait:.1f} s, and a request may wait "
                             f"{self.max_wait:g} s", wait - self.max_wait)

    def check_end(self, before_last: Callable[[], float], waiting: float, size: float, left: float) -> None:
        """Raise `Overloaded` if a request would get its last answer after its deadline only because of other requests.

        Otherwise many long requests at once would share the model until each of them is too late, and none is answered.
        before_last: returns the tokens of others that come before its last answer, at most `waiting`. size: its own
        tokens. left: the seconds to its deadline.
        """
        # In time even if every waiting token comes first; or too late even alone, which others are not to blame for.
        if not self.rate or (waiting + size) / self.rate <= left or size / self.rate > left:
            return
        if (late := (before_last() + size) / self.rate - left) > 0:
            raise Overloaded(f"the answer would come {late:.1f} s after the deadline, because of other requests", late)


LIKELY = 256
"""The expected new tokens of a request before any answer has been given: the library's default for max_new_tokens."""
_RATE_STEPS = 16
"""A measured rate is the mean of about so many of the last steps."""


@dataclass
class _Remaining:
    """The work that an open request for text still has before it."""

    owner: Hashable
    """Whose request it is; owners have equal shares of the model."""
    prompt: float
    """Seconds for the tokens of its prompts that are not read; 0 from its first token on."""
    seconds: float
    """Seconds for its prompts and its new tokens, at the rates of a model that is busy."""
    rows: int
    """The rows of a step that it needs: its prompts times the answers to each."""
    waits: bool = True
    """Whether it has no token yet."""


class TextLoad:
    """The work that all open requests to a model that generates still have before them, in seconds of that model.

    Prompts are read one after the other, in turns of their owners; new tokens are made for all rows at once. So a first
    token waits for the prompts that come before, and, where all rows are taken, for the answers that end before. The
    length of an answer is not known before its end: the mean of the last hundred is expected. Any thread may call it.
    """

    def __init__(self, rows: int):
        """rows: the most rows of a step."""
        self._rows, self._lock = rows, threading.Lock()
        self._remaining: dict[Hashable, _Remaining] = {}     # by request
        self.lengths: deque[int] = deque(maxlen=100)
        """The new tokens of the last answers."""
        self.forget_rates()

    def forget_rates(self) -> None:
        """Measure the rates anew."""
        self._read = self._written = 0.0, 0.0       # sums of tokens and of seconds, in which older steps weigh less

    @property
    def read_rate(self) -> float:
        """The tokens of prompts that are read in a second; 0 until it is known."""
        return rate_of(self._read)

    @property
    def write_rate(self) -> float:
        """The new tokens that are made in a second, of all rows together; 0 until it is known."""
        return rate_of(self._written)

    @property
    def likely(self) -> float:
        """The expected new tokens of a row: the mean of the last answers."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else LIKELY

    @property
    def seconds(self) -> float:
        """The seconds that all open requests still need."""
        with self._lock:
            return sum(left.seconds for left in self._remaining.values())

    def measured(self, rows: int, read: int, seconds: float) -> None:
        """Update the rates by the time of a step. rows: its new tokens. read: the prompt tokens that it read."""
        rate = self.write_rate
        if rows and not read:
            self._written = measured_with(self._written, rows, seconds, _RATE_STEPS)
        elif read:      # subtract the time of its new tokens, if their rate is known; some time is left in any case
            reading = max(seconds - (rows / rate if rate else 0.0), seconds / 16)
            self._read = measured_with(self._read, read, reading, _RATE_STEPS)

    def cost(self, prompt: int, new: int, rows: int) -> tuple[float, float]:
        """Return the seconds for the prompts of a request, and for its prompts and its new tokens together.

        prompt: the tokens to read. new: the most new tokens of a row. Work whose rate is not known counts 0 seconds.
        """
        reading = prompt / self.read_rate if self.read_rate else 0.0
        return reading, reading + (rows * min(new, self.likely) / self.write_rate if self.write_rate else 0.0)

    def enter(self, request: Hashable, owner: Hashable, prompt: float, seconds: float, rows: int) -> None:
        """Count a new open request with its costs in seconds, as `cost` returns them."""
        with self._lock:
            self._remaining[request] = _Remaining(owner, prompt, seconds, rows)

    def begin(self, request: Hashable) -> bool:
        """Note that the first token of a request has come; return False for one that has left."""
        with self._lock:
            if (left := self._remaining.get(request)) is not None:
                left.seconds -= left.prompt
                left.prompt, left.waits = 0.0, False
        return left is not None

    def leave(self, request: Hashable, tokens: Sequence[int] = ()) -> None:
        """Forget a request that has ended. tokens: the number of new tokens of each row of its answer."""
        with self._lock:
            self._remaining.pop(request, None)
            self.lengths.extend(tokens)

    def before_first(self, owner: Hashable, prompt: float, rows: int) -> float:
        """Return the seconds until the first token of a new request. prompt: the seconds for its own prompts."""
        with self._lock:
            running = sum(left.rows for left in self._remaining.values() if not left.waits)
            prompts = self._before(owner, prompt, lambda left: left.prompt)
            ahead = self._before(owner, rows, lambda left: left.rows if left.waits else 0)
        # So many rows have to end before this request has its own.
        beyond = min(max(0.0, running + ahead + rows - self._rows), running + ahead)
        return prompts + prompt + (beyond * self.likely / self.write_rate if self.write_rate else 0.0)

    def before_last(self, owner: Hashable, seconds: float) -> float:
        """Return the seconds of other requests that come before the end of a new one, which itself needs `seconds`."""
        with self._lock:
            return self._before(owner, seconds, lambda left: left.seconds)

    def _before(self, owner: Hashable, size: float, amount: Callable[[_Remaining], float]) -> float:
        """Return how much open work comes before the end of new work of an owner.

        size: the new work. amount: returns the open work of a request in the same unit. The caller holds the lock.
        """
        of_owners: dict[Hashable, float] = {}
        for left in self._remaining.values():
            of_owners[left.owner] = of_owners.get(left.owner, 0.0) + amount(left)
        return before_end(of_owners.pop(owner, 0.0), size, of_owners.values())
