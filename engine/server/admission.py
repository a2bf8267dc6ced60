"""Whether a request is taken: by how long it would wait for its first answer, and by the memory of all requests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from ..base.errors import Overloaded
from ..queues.model_queue import ModelQueue
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
        self._of_keys: Counter[str] = Counter()
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
        more, room.size = size - room.size, size
        self.used += more
        if room.key:        # without keys nobody asks whose bytes they are
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

    def __init__(self, max_wait: float, queue: ModelQueue):
        """max_wait: seconds."""
        self.max_wait, self._queue = max_wait, queue

    @property
    def rate(self) -> float:
        """Tokens in a second, of full batches."""
        return self._queue.rate

    def check_wait(self, waiting: int, before: Callable[[], int]) -> None:
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

    def check_end(self, before_last: Callable[[], int], waiting: int, size: int, left: float) -> None:
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
