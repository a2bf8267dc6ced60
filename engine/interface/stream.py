"""`Stream`: an iterator over the new tokens of one input; and `Pieces`, which turns tokens into pieces of text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import NoReturn

from ..backends.lock import new_turn
from ..base.errors import Cancelled, EngineError, InputError, TimedOut, UnsupportedError
from ..base.stop import Stop
from ..generation.prepared import PreparedModel
from ..generation.results import Token, TokenLogprob
from ..generation.tickets import DecoderTicket
from ..generation.works import DecoderWork
from ..text.stops import StopText


@dataclass(frozen=True)
class Piece:
    """A new token of a stream."""

    id: int
    text: str | None
    """The text that is certain with this token; it may be empty, because some characters need several tokens, and
    because what may become a stop text waits. None without a tokenizer. The texts of all pieces together are the text
    of the result, also where it ends inside a character, whose U+FFFD the last piece has. Of a prompt that `echo` puts
    in front, the first piece has all of the text."""
    logprob: TokenLogprob | None = None
    """The log probability of the token, if `logprobs` asks for it."""


class OfOneProcess:
    """An object that belongs to the threads and the queue of one process, so that it is neither pickled nor copied."""

    _instead: str
    """What to do in another process, for the error."""

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(f"a {type(self).__name__} belongs to this process, and is neither pickled nor copied; "
                               f"{self._instead}")


class Pieces(OfOneProcess, Iterator[Piece]):
    """The new tokens of one result with their texts, which one thread reads at a time."""

    _instead = "send the pieces that list(...) reads of it"

    def __init__(self, tokens: Iterator[Token], text: StopText | None,
                 logprob_of: Callable[[int], TokenLogprob | None], prompt: Callable[[], list[Piece]] = list):
        """text: turns tokens into text, and has none yet; None without a tokenizer. logprob_of: returns the log
        probability of the token with this number, once it has come.

        prompt: returns the pieces of an echoed prompt. It is called when the first token has come, because the model
        has read the prompt by then.
        """
        self._tokens, self._turn, self._text, self._logprob_of = tokens, new_turn(), text, logprob_of
        self._prompt: Callable[[], list[Piece]] | None = prompt     # None after its call
        self._front: deque[Piece] = deque()     # pieces of the prompt that were not returned yet
        self._returned = 0      # how many new tokens were returned as pieces
        self._ahead: Token | EngineError | None = None
        """A token that was read and has no piece yet, or the error that followed the last token; otherwise None."""
        self._is_over = False       # whether the last token was read

    def __next__(self) -> Piece:
        with self._turn.take_if_free() as taken:
            if not taken:
                raise InputError("two threads read one stream at the same time; let one of them read it, or give each "
                                 "a stream of its own")
            return self._next()

    def _next(self) -> Piece:
        """Return the next piece: first those of the prompt, then one for each token. The caller has the turn."""
        token, self._ahead = self._ahead or self._next_token(), None
        if isinstance(token, EngineError):
            raise token
        if self._prompt is not None:
            self._front, self._prompt = deque(self._prompt()), None
        if self._front:
            self._ahead = token
            return self._front.popleft()
        if token is None:
            raise StopIteration
        place, self._returned = self._returned, self._returned + 1
        if self._text is None:
            return Piece(token.id, text=None, logprob=self._logprob_of(place))
        text = self._text.add(token.id)
        if self._text.waits:        # look ahead: if this is the last token, its piece gets the text that waits
            self._ahead = self._next_token()
            if not isinstance(self._ahead, Token):
                text += self._text.end()
        return Piece(token.id, text, self._logprob_of(place))

    def drop_ahead(self) -> None:
        """Forget a token and pieces of a prompt that were read and not returned, as the stream was cancelled."""
        self._ahead, self._prompt, self._front = None, None, deque()

    def _next_token(self) -> Token | EngineError | None:
        """Wait for the next token and return it; after the last one, return its error, or None."""
        if self._is_over:
            return None
        try:
            token = next(self._tokens, None)
        except EngineError as error:
            self._is_over = True
            return error
        self._is_over = token is None
        return token


def pieces_of(model: PreparedModel, work: DecoderWork) -> Callable[[Iterator[Token]], Pieces]:
    """Return the function that turns the tokens of a work with one result into pieces."""
    # The functions below must not keep the work itself, which may hold much memory.
    logprobs, new_text, echo = work.logprobs, work.new_text, work.echo

    def logprob_of(place: int) -> TokenLogprob | None:
        """Return the log probability of the new token with this number, with its text; None if none was asked for."""
        return model.named(logprobs[0][place]) if logprobs else None

    def prompt() -> list[Piece]:
        """Return a piece for each token of an echoed prompt; the first one has the whole text."""
        if echo is None:
            return []
        logprobs_of_prompt = [*map(model.named, echo.logprobs)] or repeat(None)
        texts = chain([model.text_of(echo)], repeat(None if new_text is None else ""))
        return [*map(Piece, echo.ids, texts, logprobs_of_prompt)]

    return lambda tokens: Pieces(tokens, None if new_text is None else new_text(), logprob_of, prompt)


class Stream(OfOneProcess, Iterator[Piece]):
    """The new tokens of one input: an iterator, which one thread reads at a time, and `cancel` ends from any thread."""

    _instead = "send the pieces that list(stream) reads, or pickle the Generator, and call its stream there"

    def __init__(self, model: PreparedModel, work: DecoderWork, stop: Stop):
        """work: with one result; the first `next` submits it. stop: ends the stream, by its timeout or by `cancel`."""
        self._tokens, self._stop = _WorkTokens(model, work, stop), stop
        self._pieces = pieces_of(model, work)(self._tokens)

    def __next__(self) -> Piece:
        if self._stop.cancelled:
            self._pieces.drop_ahead()
        return next(self._pieces)

    def cancel(self) -> None:
        """End the stream and free its memory, also while another thread waits for the next token.

        That thread's loop ends, within about 0.1 s. A stream that has ended does not change.
        """
        self._stop.cancelled = True
        self._tokens.cancel()

    close = cancel

    @property
    def finish_reason(self) -> str | None:
        """Why the stream ended: as `Generated.finish_reason`, or "cancelled", "deadline" or "error"; None before."""
        ticket = self._tokens.ticket
        if self._stop.cancelled and (ticket is None or not ticket.done):
            return "cancelled"
        return None if ticket is None else finish_reason(ticket)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


def finish_reason(ticket: DecoderTicket) -> str | None:
    """Return the `Stream.finish_reason` of a request with one result; None before its end."""
    if not ticket.done:
        return None
    match ticket.error:
        case None:
            return str(ticket.result()[0].finish_reason)
        case Cancelled():
            return "cancelled"
        case TimedOut():
            return "deadline"
    return "error"


class _WorkTokens(Iterator[Token]):
    """The tokens of a work, which the first `next` submits to the queue. They end when the stop is cancelled."""

    def __init__(self, model: PreparedModel, work: DecoderWork, stop: Stop):
        self._queue, self._work, self._stop = model.queue, work, stop
        self.ticket: DecoderTicket | None = None     # None before the first `next`
        self._tokens: Iterator[Token] = iter(())

    def __next__(self) -> Token:
        if self._stop.cancelled:
            raise StopIteration
        if self.ticket is None:     # each stream is an owner of its own, so that streams get equal shares of the tokens
            self.ticket = self._queue.submit(self._work, owner=object(), stop=self._stop)
            self._tokens = iter(self.ticket)
        try:
            token = next(self._tokens)
        except EngineError as error:
            # Nobody may step after this error. A work whose deadline has passed would keep its rows of the batch until
            # somebody does; `cancel` ends it now.
            self.cancel()
            if isinstance(error, Cancelled):
                raise StopIteration from None
            raise
        if self._stop.cancelled:    # it was cancelled while it waited: the token is dropped
            raise StopIteration
        return token

    def cancel(self) -> None:
        """End the work, if it has begun."""
        if self.ticket is not None:
            self.ticket.cancel()
