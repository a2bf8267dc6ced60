"""Whether a request is taken: by how long it would wait for its first answer, and by the memory of all requests."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ..base.errors import Overloaded
from .settings import MAX_HELD, Limit

SMALL, LEFT = 1 / 256, 1 / 4
"""A request that needs more than the share `SMALL` of the memory leaves the share `LEFT` free for smaller ones."""
OF_KEY, LEFT_BY_KEY = 1 / 8, 1 / 8
"""A key whose requests need more than the share `OF_KEY` together leaves the share `LEFT_BY_KEY` to other keys."""
OF_ONE = 3 / 8
"""The share of the memory that one request may need."""


class Memory:
    """The bytes of all requests: of their bodies, values, tokens, results and answers. Any thread may call it."""

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
        """Count `size` bytes for a room in place of what it has; raises `Limit` and `Overloaded`."""
        most = self.most
        if size > room.size and size > self.most * SMALL:
            if size > self.most_of_one:
                raise Limit(f"this request needs about {size:,} bytes for what it sends and what it asks for, and one "
                            f"request may need {self.most_of_one:,}; send less in one request")
            most = int(self.most * (1 - LEFT))
        with self._lock:
            if room.closed:
                return
            more = size - room.size
            if more > 0:
                if room.key and self._of_keys.get(room.key, 0) + more > self.most * OF_KEY:
                    most = min(most, int(self.most * (1 - LEFT_BY_KEY)))
                if self.used + more > most:
                    raise Overloaded(f"the requests that wait need {self.used:,} of {self.most:,} bytes", 1.0)
            self._count(room, size)

    def close(self, room: Room) -> None:
        """Give the bytes of a room back, once."""
        with self._lock:
            self._count(room, 0)
            room.closed = True

    def _count(self, room: Room, size: int) -> None:
        """Set the bytes of one request to `size`, in the totals too. The caller holds the lock."""
        more, room.size = size - room.size, size
        self.used += more
        if room.key:        # without API keys there are no shares of keys to guard
            self._of_keys[room.key] += more
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
        """Count this many bytes from now on; nothing once the room is closed.

        Raises `Limit` if it never fits, and `Overloaded` if there is too little now. Requests that need much leave a
        part of the memory to the others, so that long lists refuse no short text.
        """
        self._memory.hold(self, size)

    def close(self) -> None:
        """Give the bytes back; a second call does nothing."""
        self._memory.close(self)


class Admission:
    """What the rate of a model's queue says of a request."""

    def __init__(self, max_wait: float, rate: Callable[[], float]):
        """max_wait: seconds. rate: returns the tokens in a second, of full batches; 0 while it is not known."""
        self.max_wait, self._rate = max_wait, rate

    @property
    def rate(self) -> float:
        """Tokens in a second, of full batches."""
        return self._rate()

    def check_wait(self, waiting: float, before: Callable[[], float]) -> None:
        """Raise `Overloaded` if too many tokens come before the first answer of a request.

        waiting: all tokens that wait or are computed. before: returns those of them that come before, and takes longer.
        """
        rate = self.rate
        if not rate or waiting <= self.max_wait * rate:
            return
        wait = before() / rate
        if wait > self.max_wait:
            raise Overloaded(f"the first answer would come after {wait:.1f} s, and a request may wait "
                             f"{self.max_wait:g} s", wait - self.max_wait)

    def check_end(self, before_last: Callable[[], float], waiting: float, size: float, left: float) -> None:
        """Raise `Overloaded` if a request would get its last answer after its deadline, only because of the others.

        Otherwise many long requests at once would share the model until each of them is too late, and none is answered.

        before_last: returns the tokens of others that come before its last answer, at most `waiting`. size: its own
        tokens. left: the seconds to its deadline.
        """
        # It is in time even behind all that wait, or too late even alone, which is not because of the others.
        if not self.rate or (waiting + size) / self.rate <= left or size / self.rate > left:
            return
        if (late := (before_last() + size) / self.rate - left) > 0:
            raise Overloaded(f"the answer would come {late:.1f} s after the deadline, because of other requests", late)


LIKELY = 256
"""The new tokens of a request that are likely before any answer has been given, as many as the library makes."""
_LATEST = 1 / 16
"""The share that a step loses in a rate with each later one."""


@dataclass
class _Left:
    """What an open request for text has left to do."""

    owner: Hashable
    prompt: float
    """Seconds for the tokens of its prompts that are not read; 0 from its first token on."""
    seconds: float
    """Seconds for all of it, at the rates of a model that is busy."""
    rows: int
    waits: bool = True
    """Whether it has no token yet."""


class TextLoad:
    """What all open requests to a model that generates have left to do, in seconds of that model.

    Prompts are read one after the other, in turns of their owners; new tokens are made for all rows at once. So a first
    token waits for the prompts that come before, and, where all rows are taken, for the answers that end before. How
    long an answer will be nobody knows: the mean of the last hundred is likely. Any thread may call it.
    """

    def __init__(self, rows: int):
        """rows: the most rows of a step."""
        self._rows, self._lock = rows, threading.Lock()
        self._left: dict[Hashable, _Left] = {}
        self.lengths: deque[int] = deque(maxlen=100)
        """The new tokens of the last answers."""
        self.forget_rates()

    def forget_rates(self) -> None:
        """Measure the rates anew."""
        self._read = self._written = 0.0, 0.0       # tokens, and their seconds; those of older steps count less

    @property
    def read_rate(self) -> float:
        """The tokens of prompts that are read in a second; 0 until it is known."""
        return _rate(self._read)

    @property
    def write_rate(self) -> float:
        """The new tokens that are made in a second, of all rows together; 0 until it is known."""
        return _rate(self._written)

    @property
    def likely(self) -> float:
        """The new tokens of a request that are likely."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else LIKELY

    @property
    def seconds(self) -> float:
        """The seconds for all that is left."""
        with self._lock:
            return sum(left.seconds for left in self._left.values())

    def measured(self, rows: int, read: int, seconds: float) -> None:
        """Take the time of a step that made a token for each of some rows, and read some tokens of prompts."""
        rate = self.write_rate
        if rows and not read:
            self._written = _mixed(self._written, rows, max(seconds, 1e-6))
        elif read:      # without the seconds of its rows, as far as they are known
            own = max(seconds - (rows / rate if rate else 0.0), seconds / 16, 1e-6)
            self._read = _mixed(self._read, read, own)

    def cost(self, prompt: int, new: int, rows: int) -> tuple[float, float]:
        """Return the seconds for the prompts of a request, and for all of it.

        prompt: the tokens to read. new: the most new tokens of a row.
        """
        reading = prompt / self.read_rate if self.read_rate else 0.0
        return reading, reading + (rows * min(new, self.likely) / self.write_rate if self.write_rate else 0.0)

    def enter(self, request: Hashable, owner: Hashable, prompt: float, seconds: float, rows: int) -> None:
        """Count a request with these costs."""
        with self._lock:
            self._left[request] = _Left(owner, prompt, seconds, rows)

    def begin(self, request: Hashable) -> bool:
        """Note that the first token of a request has come; return False for one that has left."""
        with self._lock:
            if (left := self._left.get(request)) is not None:
                left.seconds -= left.prompt
                left.prompt, left.waits = 0.0, False
        return left is not None

    def leave(self, request: Hashable, tokens: Sequence[int] = ()) -> None:
        """Forget a request. tokens: the new tokens of each row of an answer."""
        with self._lock:
            self._left.pop(request, None)
            self.lengths.extend(tokens)

    def before_first(self, owner: Hashable, prompt: float, rows: int) -> float:
        """Return the seconds until the first token of a new request of an owner; prompt: those for its own prompts."""
        with self._lock:
            running = sum(left.rows for left in self._left.values() if not left.waits)
            prompts = self._before(owner, prompt, lambda left: left.prompt)
            ahead = self._before(owner, rows, lambda left: left.rows if left.waits else 0)
        beyond = min(max(0.0, running + ahead + rows - self._rows), running + ahead)
        return prompts + prompt + (beyond * self.likely / self.write_rate if self.write_rate else 0.0)

    def before_last(self, owner: Hashable, seconds: float) -> float:
        """Return the seconds of others before the end of a new request that takes so many seconds."""
        with self._lock:
            return self._before(owner, seconds, lambda left: left.seconds)

    def _before(self, owner: Hashable, size: float, of: Callable[[_Left], float]) -> float:
        """Return how much of all owners comes before the end of something new of one: owners have equal shares."""
        of_owners: dict[Hashable, float] = {}
        for left in self._left.values():
            of_owners[left.owner] = of_owners.get(left.owner, 0.0) + of(left)
        own = of_owners.pop(owner, 0.0)
        return own + sum(min(other, own + size) for other in of_owners.values())


def _mixed(sums: tuple[float, float], tokens: int, seconds: float) -> tuple[float, float]:
    """Return the sums of a rate with those of the last step: a step counts as much as it has tokens and seconds."""
    return (1 - _LATEST) * sums[0] + tokens, (1 - _LATEST) * sums[1] + seconds


def _rate(sums: tuple[float, float]) -> float:
    return sums[0] / sums[1] if sums[1] else 0.0
