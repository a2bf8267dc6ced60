"""`Session`: many requests to one generator, from any number of threads, which are computed together."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..base.arguments import flag, renamed_arguments
from ..base.errors import InputError, located, shown
from ..base.stop import Stop
from ..generation.handles import Handle
from ..generation.prepared import PreparedModel
from ..generation.results import Request
from ..generation.schedule import Pace
from ..generation.step_queue import SessionStatistics
from .stream import Piece, Pieces


class Submission:
    """A request to a session. It ends when nobody holds this object any more. Any thread may call its methods."""

    def __init__(self, handle: Handle, model: PreparedModel, samples: int):
        self._handle, self._model, self._samples = handle, model, samples

    def cancel(self) -> None:
        """End the request; whoever waits for it gets `Cancelled`. A request that has ended is left alone."""
        self._handle.cancel()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result, and return it as `generate` does; raises the error of this request.

        timeout: seconds after which this raises `TimedOut`; the request goes on.
        """
        results = [self._model.with_text(result) for result in self._handle.result(timeout)]
        return results if self._samples > 1 else results[0]

    @property
    def done(self) -> bool:
        """Whether the request has ended, with a result or an error."""
        return self._handle.done

    def __iter__(self) -> Iterator[Piece]:
        """Return an iterator over all pieces, from the first one on, as `Generator.stream` yields them.

        Several threads may iterate, each over an iterator of its own. After the last piece, the error of the request is
        raised, if there is one.
        """
        if self._samples > 1:
            raise InputError("a request with num_return_sequences above 1 has no order of pieces; call result")
        return Pieces(self._model, iter(self._handle))


class Session:
    """Many requests to one generator, from any number of threads, which are computed together.

        with generator.session() as session:
            answer = session.submit("A question", max_new_tokens=50)        # from any thread
            for piece in answer:
                print(piece.text, end="")

    In a `with` statement, a thread of the generator's own computes, and the end of the block cancels what is open.
    Outside of one, whoever waits for a result computes, or calls `step`. Each request has the bits of the request
    alone.
    """

    def __init__(self, model: PreparedModel, request: Callable[..., Request], pace: Pace):
        """request: returns a checked request of an input, as `Generator` reads it."""
        self._model, self._request, self._pace = model, request, pace
        self._closed = self._has_thread = False

    @renamed_arguments
    def submit(self, source: Any, *, prompt: Any = None, add_special_tokens: bool = True, priority: int = 0,
               owner: str = "", deadline: float | None = None, **settings: Any) -> Submission:
        """Let a request wait for its turn, and return at once.

        source, prompt, add_special_tokens, settings: as for `Generator.stream`; with num_return_sequences above 1, the
            result is a list.
        priority: a request of a higher priority enters the batch first, and its prompt is read first.
        owner: whose request it is, such as the name of a user. Requests of one priority enter, and are read, in turns
            of their owners.
        deadline: the `time.monotonic()` at which the request ends with `TimedOut`.

        Raises `InputError` for whatever is wrong with this request, and `TimedOut` if its deadline comes while its text
        is read; no other request notices it.
        """
        until = check_place(priority, owner, deadline)
        special = flag("add_special_tokens", add_special_tokens)
        request = self._request(source, prompt, special, settings, Stop(until))
        with located("input 0"):
            work = self._model.checked(request)
        self._check_open()
        handle = self._model.queue.submit(work, priority, owner, until, session=self, pace=self._pace)
        if self._closed:        # meanwhile
            handle.cancel()
            self._check_open()
        return Submission(handle, self._model, request.config.num_return_sequences)

    def step(self) -> bool:
        """Compute one step of all requests, and return whether anything is left to do."""
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
        if self._closed:
            raise InputError("the session has ended, and takes no more requests: it was closed; make a new one")


def check_place(priority: Any, owner: Any, deadline: Any) -> float:
    """Check where a request will stand among others, and return its deadline, 0 for None; raises `InputError`."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InputError(f"priority must be an int, not {shown(priority)}")
    if not isinstance(owner, str):
        raise InputError(f"owner must be a str, such as the name of a user, not {shown(owner)}")
    if deadline is None:
        return 0.0
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)):
        raise InputError(f"deadline must be a number, a time of time.monotonic(), not {shown(deadline)}")
    now = time.monotonic()
    if not deadline > now:
        raise InputError(f"deadline={shown(deadline)} has passed: time.monotonic() is {now:,.3f} now; give "
                         "time.monotonic() and the seconds that you can wait")
    return float(min(deadline, sys.float_info.max))
