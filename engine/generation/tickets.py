"""`DecoderTicket`: the ticket of a work of a decoder, with which its caller waits for tokens and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..queues.ticket import Ticket
from .results import Token
from .works import DecoderEntry


class DecoderTicket(Ticket):
    """The caller's hold on a work of a decoder. Any thread may iterate over its tokens, also several at once."""

    __slots__ = ()
    entry: DecoderEntry

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the results, and return them; raises the error of the work.

        timeout: the seconds after which this raises `TimedOut`, and the work goes on.
        """
        self.wait(timeout)
        return self.entry.results

    def __iter__(self) -> TokenIterator:
        """Return an iterator over all new tokens, which ends with the work; its `next` raises the error, once."""
        return TokenIterator(self)

    def tokens(self, begin: int, most: int | None = None) -> list[Token]:
        """Return the new tokens so far from number `begin` on, and no more than `most` of them; None for all."""
        return self.entry.tokens(begin, most)

    def wait_for_more(self, tokens: int) -> None:
        """Wait until there are more than `tokens` new tokens in all, or the work has ended."""
        self._queue.wait([self.entry], tokens)


class TokenIterator(Iterator[Token]):
    """An iterator over the new tokens of a work; `next` waits until there is a token, or the work has ended."""

    def __init__(self, ticket: DecoderTicket):
        self._ticket = ticket
        self._given, self._over = 0, False      # how many tokens were returned, and whether the end was reported

    def __next__(self) -> Token:
        """Return the next token as soon as it is there; raise the error of the work once, after its tokens."""
        while not self._over:
            ended = self._ticket.done       # before the tokens: if it is True, no token comes after them
            tokens = self._ticket.tokens(self._given, most=1)
            if tokens:
                self._given += 1
                return tokens[0]
            if ended:
                self._over = True
                self._ticket.wait()     # raises the error of the work
                break
            self._ticket.wait_for_more(self._given)
        raise StopIteration
