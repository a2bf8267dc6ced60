"""`Stream`: the new tokens of one input, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ..backends.lock import new_turn
from ..base.errors import Cancelled, EngineError, InputError
from ..base.stop import NEVER, Stop
from ..generation.calls import Event
from ..generation.encoder_decoder import SourceStepper
from ..generation.prepared import PreparedModel
from ..generation.results import Failed, Token
from ..generation.works import Work


@dataclass(frozen=True)
class Piece:
    """A new token of a stream."""

    id: int
    text: str | None
    """The text that is certain with this token; it may be empty, because some characters need several tokens. None
    without a tokenizer. The texts of all pieces together are the text of the result, also where it ends inside a
    character, whose U+FFFD the last piece has."""


class Pieces(Iterator[Piece]):
    """The new tokens of one result with their texts, which one thread reads at a time."""

    def __init__(self, model: PreparedModel, event: Callable[[], Event | EngineError | None], stop: Stop = NEVER):
        """event: returns the next token, or what follows the last one: the result, an error, or None.

        stop: once it is cancelled, an event that was looked at ahead is dropped.
        """
        self._event, self._stop, self._turn = event, stop, new_turn()
        self._text = None if model.text is None else model.tokenizer(model.text).incremental()
        self._ahead: Event | EngineError | None = None
        """The next event, where it was looked at before its turn."""

    def __next__(self) -> Piece:
        with self._turn.take_if_free() as taken:
            if not taken:
                raise InputError("two threads read one stream at the same time; let one of them read it, or give each "
                                 "a stream of its own")
            if self._stop.cancelled:
                self._ahead = None
            return self._next()

    def _next(self) -> Piece:
        event, self._ahead = self._ahead or self._event(), None
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, EngineError):
            raise event
        if not isinstance(event, Token):
            raise StopIteration
        if self._text is None:
            return Piece(event.id, text=None)
        text = self._text.add(event.id)
        if self._text.waits:        # only the next event says whether this piece is the last one, which has the rest
            self._ahead = self._event()
            if not isinstance(self._ahead, Token):
                text += self._text.end()
        return Piece(event.id, text)


class Stream(Iterator[Piece]):
    """The new tokens of one input: an iterator, which one thread reads at a time, and `cancel` ends from any thread."""

    def __init__(self, model: PreparedModel, work: Work, stop: Stop, stepper: SourceStepper):
        """Take a request that is checked for a stepper, which the first `next` begins, and when it has to stop."""
        self._stop, self._events = stop, model.stream(work, stop, stepper)
        self._pieces = Pieces(model, partial(_uncancelled, self._events), stop)

    def __next__(self) -> Piece:
        return next(self._pieces)

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


def next_event(events: Iterator[Event]) -> Event | EngineError | None:
    """Return the next of some events, or what follows the last one: an error, or None."""
    try:
        return next(events, None)
    except EngineError as error:
        return error


def _uncancelled(events: Iterator[Event]) -> Event | EngineError | None:
    """Return the next event of a stream, which a cancellation ends without an error."""
    event = next_event(events)
    return None if isinstance(event, Cancelled) else event
