"""`Call`: what a call over texts has beside them, from the method of the user down to the batches of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from ..base.arguments import flag, positive_int_or_none
from ..base.progress import is_shown, progress
from ..base.stop import NEVER, Stop


class Call(NamedTuple):
    """How many texts a call computes at a time, when it stops, and who hears how many are done."""

    batch_size: int | None = None
    """The most texts that are computed at a time; None for no limit but the one on tokens."""
    stop: Stop = NEVER
    advance: Callable[[int], object] = lambda count: None
    """Gets the number of texts that have just been completed."""

    @classmethod
    def of(cls, batch_size: Any = None, timeout: Any = None) -> Call:
        """Return a call that begins now, by arguments of `Engine.encode`, which are checked; raises `InputError`."""
        return cls(positive_int_or_none("batch_size", batch_size), Stop.after(timeout))

    def showing(self, total: int, show: Any, name: str = "Sentences") -> AbstractContextManager[Call]:
        """Return a context manager that gives this call with a progress bar over `total` texts.

        show: None shows one when the log level is INFO or DEBUG and standard error is a terminal; raises `InputError`
        for what is neither None nor a flag. name: the title of the bar.
        """
        if not is_shown(None if show is None else flag("show_progress_bar", show)):
            return nullcontext(self)
        return self._showing(total, name)

    @contextmanager
    def _showing(self, total: int, name: str) -> Iterator[Call]:
        with progress(total, True, name) as advance:
            yield self._replace(advance=advance)


PLAIN = Call()
"""A call without a limit on the texts of a batch, which runs to its end and shows nothing."""
