"""`Call`: the batch size, the stop and the progress of a call over texts, which methods/ pass down to the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from ..base.arguments import flag, positive_int_or_none
from ..base.progress import is_shown, progress
from ..base.stop import NEVER, Stop


class Call(NamedTuple):
    """How many texts a call computes at a time, when it stops, and which function gets its progress."""

    batch_size: int | None = None
    """The most texts that are computed at a time; None for no limit but the one on tokens."""
    stop: Stop = NEVER
    """Ends the call early."""
    advance: Callable[[int], object] = lambda count: None
    """Is called with the number of texts that have just been completed."""

    @classmethod
    def of(cls, batch_size: Any = None, timeout: Any = None) -> Call:
        """Check two arguments of `Engine.encode`, and return a call whose timeout (seconds) begins now; raises
        `InputError`."""
        return cls(positive_int_or_none("batch_size", batch_size), Stop.after(timeout))

    def showing(self, total: int, show: Any, name: str = "Sentences") -> AbstractContextManager[Call]:
        """Return a context manager that gives this call with a progress bar over `total` texts.

        show: True or False; None shows one when the log level is INFO or DEBUG and standard error is a terminal. name:
        the title of the bar. Raises `InputError` for any other `show`.
        """
        if not is_shown(None if show is None else flag("show_progress_bar", show)):
            return nullcontext(self)
        return self._showing(total, name)

    @contextmanager
    def _showing(self, total: int, name: str) -> Iterator[Call]:
        """Show a progress bar in a `with` block, to which the call that is yielded reports."""
        with progress(total, show=True, name=name) as advance:
            yield self._replace(advance=advance)


PLAIN = Call()
"""A call without a limit on the texts of a batch, which runs to its end and shows nothing."""
