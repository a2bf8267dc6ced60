"""`Stream`: the new tokens of one input, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..backends.lock import new_turn
from ..base.errors import Cancelled, InputError
from ..base.stop import Stop
from ..generation.prepared import PreparedModel
from ..generation.results import Failed, Request, Token


@dataclass(frozen=True)
class Piece:
    """A new token of a stream."""

    id: int
    text: str | None
    """The text that the token adds; it may be empty, because some characters need several tokens. None without a
    tokenizer. Where a token changes the text before it, which only wrong bytes do and a few decoders, it is the text
    from the first change on."""


class Stream(Iterator[Piece]):
    """The new tokens of one input: an iterator, which one thread reads at a time, and `cancel` ends from any thread."""

    def __init__(self, model: PreparedModel, request: Request, stop: Stop):
        """Take a request, which the first `next` begins, and when it has to stop."""
        self._model, self._stop = model, stop
        self._events = model.stream([request], stop)
        self._turn = new_turn()
        self._ids: list[int] = []
        self._written = ""

    def __next__(self) -> Piece:
        with self._turn.take_if_free() as taken:
            if not taken:
                raise InputError("two threads read one stream at the same time; let one of them read it, or give each "
                                 "a stream of its own")
            return self._next()

    def _next(self) -> Piece:
        try:
            event = next(self._events)
        except Cancelled:
            event = None
        if isinstance(event, Failed):
            raise event.error
        if not isinstance(event, Token):    # the result follows the last token
            raise StopIteration
        self._ids.append(event.id)
        if self._model.text is None:
            return Piece(event.id, None)
        text = self._model.tokenizer(self._model.text).continuation(self._ids)
        # The bytes of a character may lie in several tokens; until all are there, the text ends in U+FFFD.
        certain, kept = text.rstrip("\ufffd"), len(self._written)
        if not certain.startswith(self._written):
            if len(certain) < len(text):
                return Piece(event.id, "")      # wrong bytes take the byte before them along, such as a line feed
            pairs = enumerate(zip(self._written, certain, strict=False))
            kept = next((i for i, (before, now) in pairs if before != now), len(certain))
        piece, self._written = certain[kept:], certain
        return Piece(event.id, piece)

    def cancel(self) -> None:
        """End the stream and free its memory, also while another thread waits for the next token.

        That thread's loop ends, within about 0.1 s. A stream that has ended is left alone.
        """
        self._stop.cancelled = True
        self._events.close()

    close = cancel

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()
