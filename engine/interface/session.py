"""`Session`: many requests to one generator, from any number of threads, which are computed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..base.arguments import flag, renamed_arguments
from ..base.errors import BackendUnavailable, InputError, located
from ..base.stop import NEVER, Stop
from ..generation.handles import Handle
from ..generation.prepared import PreparedModel
from ..generation.results import Request
from ..generation.schedule import Pace
from ..generation.session import Session as Stepped
from ..generation.session import SessionStatistics, check_place
from .stream import Piece, Pieces, next_event

WAIT = 1.0
"""Seconds after which the thread of a session that has nothing to do looks again; a request wakes it at once."""


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
        return self._handle.end is not None

    def __iter__(self) -> Iterator[Piece]:
        """Return an iterator over all pieces, from the first one on, as `Generator.stream` yields them.

        Several threads may iterate, each over an iterator of its own. After the last piece, the error of the request is
        raised, if there is one.
        """
        if self._samples > 1:
            raise InputError("a request with num_return_sequences above 1 has no order of pieces; call result")
        return Pieces(self._model, partial(next_event, iter(self._handle)))


class Session:
    """Many requests to one generator, from any number of threads, which one thread computes together.

        with generator.session() as session:
            answer = session.submit("A question", max_new_tokens=50)        # from any thread
            for piece in answer:
                print(piece.text, end="")

    In a `with` statement, a thread of the session's own computes, and the end of the block cancels what is open.
    Outside of one, the caller does it: `step` and `close` are for the thread that made the session. Each request has
    the bits of the request alone.
    """

    def __init__(self, model: PreparedModel, request: Callable[..., Request], pace: Pace):
        """request: returns a checked request of an input, as `Generator` reads it."""
        self._model, self._request = model, request
        self._stepper = model.stepper(NEVER)
        self._session = Stepped(self._stepper, model.budget, traffic=model.traffic, pace=pace)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

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
            work = self._model.checked(request, self._stepper)
        handle = self._session.submit(work, priority, owner, until)
        return Submission(handle, self._model, request.config.num_return_sequences)

    def step(self) -> bool:
        """Compute one step of all requests, and return whether anything is left to do."""
        return self._session.step()

    def close(self) -> None:
        """End all requests with `Cancelled`, and take no more."""
        self._session.close()

    def statistics(self) -> SessionStatistics:
        """Count the rows of a step, the requests that wait, and the tokens of prompts that wait."""
        return self._session.statistics()

    def __enter__(self) -> Session:
        if self._session.closed:
            raise self._session.refusal()
        if self._thread is not None:
            raise InputError("this session has a thread already; make another session for another with statement")
        ready = threading.Event()
        thread = threading.Thread(target=self._run, args=(ready,), name="engine-session", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise BackendUnavailable(f"the system starts no thread for the session: {error}; end other threads, or "
                                     "call step outside of a with statement") from None
        self._thread = thread
        try:
            ready.wait()
        except BaseException:       # an interrupt, after which the block does not run, nor its end
            self._session.wake(closes=True)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._session.wake(closes=True)
        assert self._thread is not None
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self, ready: threading.Event) -> None:
        """Step until the `with` statement ends."""
        self._session.adopt()
        ready.set()
        try:
            while not self._session.closes:
                if not self._session.step():
                    self._session.sleep(WAIT)
        except BaseException as error:      # `step` has given it to all who wait
            self._error = error
        finally:
            self._session.close()
