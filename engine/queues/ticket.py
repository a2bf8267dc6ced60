"""`Ticket`: the caller's handle of a work in a queue, to wait for its end, read its results, and cancel it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..base.errors import LATE_WAIT, InputError
from ..base.stop import NEVER, Stop
from .entry import Entry

if TYPE_CHECKING:
    from .work_queue import WorkQueue

AnyTicket = TypeVar("AnyTicket", bound="Ticket")


class Ticket:
    """The handle of one work in a queue. Any thread may call its methods.

    The work ends when its ticket is cancelled, and when the ticket itself is garbage.
    """

    __slots__ = ("__weakref__", "_queue", "entry")

    def __init__(self, queue: WorkQueue, entry: Entry):
        self._queue, self.entry = queue, entry

    @property
    def done(self) -> bool:
        """Whether the work has ended, with all results or with an error."""
        return self.entry.end is not None

    @property
    def error(self) -> BaseException | None:
        """The error of the work; None as long as it has none."""
        return self.entry.end if isinstance(self.entry.end, BaseException) else None

    @property
    def times(self) -> tuple[float, float]:
        """The seconds that the work waited for its batches, and the seconds that its batches took."""
        return self.entry.waited, self.entry.computing

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the work, and raise its error if it has one.

        timeout: the seconds after which this raises `TimedOut`; the work goes on then.
        """
        if self.entry.end is None:
            self._queue.wait([self.entry], seen=None,
                             until=NEVER if timeout is None else Stop.after(timeout, LATE_WAIT))
        self._raise()

    def cancel(self) -> None:
        """End the work with `Cancelled`, if it has not ended."""
        if self.entry.end is None:
            self._queue.cancel(self.entry)

    def add_done_callback(self: AnyTicket, function: Callable[[AnyTicket], object]) -> None:
        """Let the queue call `function(ticket)` after the end, in the thread that steps; now, if the work has ended.

        The queue keeps the ticket alive until then. The function must be quick, and its errors are only logged. Raises
        `InputError` for a queue without a thread of its own, because perhaps no thread would step until the end.
        """
        if self.entry.end is None and not self._queue.has_thread:
            raise InputError("a callback needs a queue with a thread of its own, which steps while nobody waits; call "
                             "start of the queue before, or wait for the result")
        self.entry.callbacks.append(lambda: function(self))
        if self.entry.end is not None:
            self._queue.call_back(self.entry)

    def __enter__(self: AnyTicket) -> AnyTicket:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _raise(self) -> None:
        """Raise the error of the work, if it has ended with one."""
        if self.entry.end is not True and (error := self.error) is not None:        # True, the usual case, costs least
            raise error
