"""`Call`: what a call over texts has beside them, from the method of the user down to the batches of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..base.arguments import flag, positive_int_or_none
from ..base.progress import progress
from ..base.stop import NEVER, Stop
from ..text.cuts import truncating

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Call:
    """How many texts a call computes at a time, when it stops, and who hears how many are done."""

    batch_size: int | None = None
    """The most texts that are computed at a time; None for no limit but the one on tokens."""
    stop: Stop = NEVER
    advance: Callable[[int], object] = lambda count: None
    """Gets the number of texts that have just been completed."""

    def counted(self, results: Iterable[_Result]) -> Iterator[_Result]:
        """Yield results, each of which is that of one text, and count them."""
        for result in results:
            yield result
            self.advance(1)

    @contextmanager
    def showing(self, total: int, show: bool | None, name: str = "Sentences") -> Iterator[Call]:
        """Yield this call with a progress bar over `total` texts.

        show: None shows one when the log level is INFO or DEBUG and standard error is a terminal. name: its title.
        """
        with progress(total, show, name) as advance:
            yield replace(self, advance=advance)


PLAIN = Call()
"""A call without a limit on the texts of a batch, which runs to its end and shows nothing."""


@contextmanager
def calling(texts: Sized, batch_size: Any = None, show_progress_bar: Any = None, truncation: Any = None,
            timeout: Any = None) -> Iterator[Call]:
    """Yield the call of a method over texts, which begins now, and let the tokenizer say at its end what it cut.

    The arguments are those of `Engine.encode`, which are checked here; raises `InputError`.
    """
    call = Call(positive_int_or_none("batch_size", batch_size), Stop.after(timeout))
    show = None if show_progress_bar is None else flag("show_progress_bar", show_progress_bar)
    with truncating(truncation), call.showing(len(texts), show) as showing:
        yield showing
