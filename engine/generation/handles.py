"""`Handle`: what became of a request to a session, for whoever waits for it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..base.stop import NEVER, Stop
from .results import Done, Failed, Token

if TYPE_CHECKING:
    from .session import Session

LOOK = 1.0
"""Seconds after which a thread that waits looks whether the session has ended without a word."""


class Handle:
    """A request to a session. Any thread may call its methods, and iterate over its tokens, several at once.

    The request ends when nobody holds its handle any more.
    """

    def __init__(self, session: Session, number: int):
        self.number, self._session = number, session
        # Not pairs, which the garbage collector would have to look at.
        self._samples: list[int] = []
        self._ids: list[int] = []
        """The sample, and the id, of each new token so far."""
        self.end: Done | Failed | None = None
        """The end of the request, if it has come."""
        self._waiters: deque[SimpleQueue[None]] = deque()       # an item in one wakes the thread that waits for it

    def cancel(self) -> None:
        """End the request with `Cancelled`, if it has not ended."""
        self._session.end(self.number)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result, and return it; raises the error of the request.

        timeout: the seconds after which this raises `TimedOut`, and the request goes on. Raises `InputError` in the
        thread that steps the session, which would wait for itself.
        """
        until = Stop.after(timeout)
        while self.end is None:
            self.wait(len(self._ids), until)
        return self.outcome()

    def outcome(self) -> Any:
        """Return the result of a request that has ended; raises its error."""
        if isinstance(self.end, Failed):
            raise self.end.error.with_traceback(None)
        assert self.end is not None
        return self.end.results

    def __iter__(self) -> Tokens:
        """Return an iterator over all new tokens, which ends with the request; its `next` raises the error, once."""
        return Tokens(self)

    def tokens(self, begin: int, most: int | None = None) -> list[Token]:
        """Return the new tokens so far but the first `begin` ones, and no more than `most` of them."""
        end = None if most is None else begin + most
        ids = self._ids[begin:end]      # a sample is written before its id
        return [Token(self.number, sample, token)
                for sample, token in zip(self._samples[begin : begin + len(ids)], ids, strict=True)]

    def put(self, sample: int, token: int) -> None:
        """Add a new token; for the session."""
        self._samples.append(sample)
        self._ids.append(token)
        if self._waiters:
            self._wake()

    def finish(self, end: Done | Failed) -> None:
        """Note the end; for the session."""
        self.end = end
        if self._waiters:
            self._wake()

    def wait(self, tokens: int, until: Stop) -> None:
        """Wait until there are more tokens than these, or the end. until: when to stop, with an error."""
        wake: SimpleQueue[None] = SimpleQueue()
        closed = False
        self._waiters.append(wake)
        try:
            # The session wakes this thread only from here on, so look first at what has come before.
            while self.end is None and len(self._ids) <= tokens:
                self._session.check_waits()
                until.check()
                seconds = until.deadline - time.monotonic() if until.deadline else LOOK
                with suppress(Empty):
                    wake.get(timeout=max(0.0, min(seconds, LOOK)))
                    return
                if closed and self.end is None:     # a close ends every request at once, unless an interrupt came
                    raise self._session.refusal()
                closed = self._session.closed
        finally:
            with suppress(ValueError):      # the session has taken it
                self._waiters.remove(wake)

    def _wake(self) -> None:
        while self._waiters:
            with suppress(IndexError):      # the thread that waited has taken it
                self._waiters.popleft().put(None)


class Tokens(Iterator[Token]):
    """The new tokens of a request, one by one, as they come."""

    def __init__(self, handle: Handle):
        self._handle = handle
        self._given, self._over = 0, False      # how many tokens were returned, and whether the end was

    def ready(self) -> list[Token]:
        """Return the tokens that have come since the last one, without waiting."""
        tokens = self._handle.tokens(self._given)
        self._given += len(tokens)
        return tokens

    def __next__(self) -> Token:
        while not self._over:
            ended = self._handle.end is not None        # then no token comes after those that are there
            tokens = self._handle.tokens(self._given, 1)
            if tokens:
                self._given += 1
                return tokens[0]
            if ended:
                self._over = True
                self._handle.outcome()
                break
            self._handle.wait(self._given, NEVER)
        raise StopIteration
