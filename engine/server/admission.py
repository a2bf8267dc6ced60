"""Whether a request is taken: by how long it would wait for its first answer, and by the memory of all that wait."""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import InputError, Overloaded

SMALL, LEFT = 1 / 256, 1 / 4
"""A request that needs more than the share `SMALL` of the memory leaves the share `LEFT` free for smaller ones."""
KEPT = 32
"""About how many full batches the measured rate is the mean of."""


class Admission:
    """The rate of a model, and the memory of requests. Whoever calls it holds a lock."""

    def __init__(self, max_wait: float, max_bytes: int, full: int):
        """max_wait: seconds. full: the tokens of a full batch."""
        self.max_wait, self.max_bytes, self._full = max_wait, max_bytes, full
        self.bytes = 0
        self._tokens = self._seconds = 0.0

    @property
    def most_of_one(self) -> int:
        """The most memory that one request may take."""
        return int(self.max_bytes * (1 - LEFT))

    @property
    def rate(self) -> float:
        """Tokens in a second, of full batches."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0

    def measure(self, tokens: int, seconds: float) -> None:
        """Count a batch. A batch that is not half full says little about a queue, which makes full ones."""
        if 2 * tokens >= self._full or not self._seconds:
            kept = 1 - 1 / KEPT     # of the batches before, so that each counts less with every new one
            self._tokens, self._seconds = kept * self._tokens + tokens, kept * self._seconds + max(seconds, 1e-6)

    def forget(self) -> None:
        self._tokens = self._seconds = 0.0

    def check_wait(self, before: int) -> None:
        """Raise `Overloaded` if too many tokens come before the first answer of a request."""
        wait = before / self.rate if self.rate else 0.0
        if wait > self.max_wait:
            raise Overloaded(f"the first answer would come after {wait:.1f} s, and a request may wait "
                             f"{self.max_wait:g} s", wait - self.max_wait)

    def check_end(self, beside: Callable[[], int], waiting: int, size: int, left: float) -> None:
        """Raise `Overloaded` if a request would get its last answer after its deadline, only because of the others.

        Otherwise many long requests at once would share the model until each of them is too late, and none is answered.

        beside: returns the tokens of others that come before its last answer, at most `waiting`. size: its own tokens.
        left: the seconds to its deadline.
        """
        # It is in time even behind all that wait, or too late even alone, which is not because of the others.
        if not self.rate or (waiting + size) / self.rate <= left or size / self.rate > left:
            return
        if (late := (beside() + size) / self.rate - left) > 0:
            raise Overloaded(f"the answer would come {late:.1f} s after the deadline, because of other requests", late)

    def reserve(self, size: int, counted: int = 0) -> None:
        """Count the memory of a request; raises `Overloaded` if there is too little, and `InputError` if it never fits.

        Requests that need much leave a part of the memory to the others, so that long lists refuse no short text.
        counted: the bytes of the same request that are counted already, in whose place `size` comes.
        """
        most = self.max_bytes if size <= self.max_bytes * SMALL else self.most_of_one
        if size > most:
            raise InputError(f"the tokens and the results of this request need about {size:,} bytes, and {most:,} are "
                             "allowed for all that wait together; send fewer texts in one request")
        if self.bytes - counted + size > most:
            raise Overloaded(f"the requests that wait have {self.bytes:,} of {self.max_bytes:,} bytes", 1.0)
        self.bytes += size - counted

    def release(self, size: int) -> None:
        """Give the memory of a request back."""
        self.bytes -= size
