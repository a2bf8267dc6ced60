"""`Session`: many requests to one generator, from any number of threads, which are computed together."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..base.arguments import is_number, renamed_arguments
from ..base.errors import LATE_REQUEST, InputError, shown
from ..base.stop import Stop
from ..generation.results import Token
from ..generation.schedule import Pace
from ..generation.step_queue import SessionStatistics
from ..generation.tickets import DecoderTicket
from ..methods.decoding import GeneratingModel
from ..methods.generate import GenerateOptions, prepare_one
from .stream import OfOneProcess, Piece, Pieces, finish_reason, pieces_of


class Submission(OfOneProcess):
    """A request to a session, which is cancelled when this object is garbage. Any thread may call its methods."""

    _instead = "send what result() returns"

    def __init__(self, ticket: DecoderTicket, finish: Callable[[int, Any], Any], samples: int,
                 pieces: Callable[[Iterator[Token]], Pieces]):
        """finish: makes the result of the request from the number of its one work, 0, and the results of the queue.

        samples: how many results the request has. pieces: turns an iterator of tokens into pieces.
        """
        self._ticket, self._finish, self._samples, self._pieces = ticket, finish, samples, pieces

    def cancel(self) -> None:
        """End the request; threads that wait for it get `Cancelled`. A request that has ended does not change."""
        self._ticket.cancel()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result, and return it as `generate` does; raises the error of this request.

        timeout: seconds after which this raises `TimedOut`; the request goes on.
        """
        return self._finish(0, self._ticket.result(timeout))

    @property
    def finish_reason(self) -> str | None:
        """Why the request ended, as `Stream.finish_reason`, for the first of several results; None before."""
        return finish_reason(self._ticket)

    @property
    def done(self) -> bool:
        """Whether the request has ended, with a result or an error."""
        return self._ticket.done

    def __iter__(self) -> Iterator[Piece]:
        """Return an iterator over all pieces, from the first one on, as `Generator.stream` yields them.

        Several threads may iterate, each over an iterator of its own. After the last piece, the error of the request is
        raised, if there is one.
        """
        if self._samples > 1:
            raise InputError("a request with num_return_sequences above 1 has no order of pieces; call result")
        return self._pieces(iter(self._ticket))


class Session(OfOneProcess):
    """Many requests to one generator, from any number of threads, which are computed together.

        with generator.session() as session:
            answer = session.submit("A question", max_new_tokens=50)        # from any thread
            for piece in answer:
                print(piece.text, end="")

    In a `with` statement, a thread of the generator's own computes, and the end of the block cancels what is open.
    Outside of one, a thread that waits for a result computes, or one that calls `step`. Each request has the bits that
    it has alone.
    """

    _instead = "pickle its Generator, and call session() of that there"

    def __init__(self, generator: GeneratingModel, pace: Pace):
        self._generator, self._model, self._pace = generator, generator.prepared, pace
        self._closed = self._has_thread = False

    @renamed_arguments
    def submit(self, source: Any, *, prompt: Any = None, add_special_tokens: bool = True, priority: int = 0,
               owner: str = "", deadline: float | None = None, cache_key: str | None = None, **settings: Any
               ) -> Submission:
        """Let a request wait for its turn, and return at once.

        source, prompt, add_special_tokens, settings: as for `Generator.stream`; with num_return_sequences above 1, the
            result is a list.
        priority: a request of a higher priority enters the batch first, and its prompt is read first.
        owner: whose request it is, such as the name of a user. Requests of one priority enter, and are read, in turns
            of their owners.
        deadline: the `time.monotonic()` at which the request ends with `TimedOut`.
        cache_key: as for `Generator.generate`; None for the owner, so that owners do not share what is read.

        Raises `InputError` for whatever is wrong with this request, and `TimedOut` if its deadline comes while its text
        is read; no other request notices it.
        """
        until = check_place(priority, owner, deadline)
        options = GenerateOptions(add_special_tokens=add_special_tokens, settings=settings,
                                  cache_key=owner if cache_key is None else cache_key)
        requests = prepare_one(self._generator, "submit", source, prompt, options, Stop(until, LATE_REQUEST),
                               several=True)
        self._check_open()
        ticket = self._model.queue.submit(requests.works[0], priority, owner, until, session=self, pace=self._pace)
        if self._closed:        # by another thread, which may have cancelled all requests before this one came
            ticket.cancel()
            self._check_open()
        return Submission(ticket, requests.finish, requests.samples, pieces_of(self._model, requests.works[0]))

    def step(self) -> bool:
        """Compute one step of all calls of the model, and return whether a request of the `Session` is still open."""
        self._check_open()
        self._model.queue.step()
        return bool(self._model.queue.entries(self))

    def close(self) -> None:
        """End all requests with `Cancelled`, and take no more."""
        self._closed = True
        try:
            self._model.queue.cancel_session(self)
        finally:
            self._model.queue.stop(self)

    def statistics(self) -> SessionStatistics:
        """Count the rows of a step, the requests that wait, and the tokens of prompts that wait."""
        return self._model.queue.statistics(self)

    def __enter__(self) -> Session:
        self._check_open()
        if self._has_thread:
            raise InputError("this session has a thread already; make another session for another with statement")
        self._model.queue.start(self)
        self._has_thread = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        """Raise `InputError` for a session that is closed."""
        if self._closed:
            raise InputError("the session has ended, and takes no more requests: it was closed; make a new one")


def check_place(priority: Any, owner: Any, deadline: Any) -> float:
    """Check three arguments of `Session.submit`, and return the deadline for a `Stop`: 0 for None.

    Raises `InputError`.
    """
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InputError(f"priority must be an int, not {shown(priority)}")
    if not isinstance(owner, str):
        raise InputError(f"owner must be a str, such as the name of a user, not {shown(owner)}")
    if deadline is None:
        return 0.0
    if not is_number(deadline):
        raise InputError(f"deadline must be a number, a time of time.monotonic(), not {shown(deadline)}")
    now = time.monotonic()
    if not deadline > now:
        raise InputError(f"deadline={shown(deadline)} has passed: time.monotonic() is {now:,.3f} now; give "
                         "time.monotonic() and the seconds that you can wait")
    return float(min(deadline, sys.float_info.max))
