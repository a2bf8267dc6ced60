"""Show a progress bar (by tqdm) over the texts or files of a call."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from .install import require

LOG = logging.getLogger("engine")

NO_ETA = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
"""The form of a bar over texts. It has no remaining time, whose estimate would be too long: long texts come first."""


def is_shown(show: bool | None) -> bool:
    """Return `show`; for None, whether the log level asks for bars, standard error is a terminal, and tqdm is there."""
    if show is not None:
        return show
    asked = LOG.getEffectiveLevel() in (logging.INFO, logging.DEBUG)
    return asked and sys.stderr.isatty() and find_spec("tqdm") is not None


@contextmanager
def progress(total: int, show: bool | None, name: str = "Sentences",
             unit: str = " sentences") -> Iterator[Callable[[int], object]]:
    """Show a progress bar over `total` items; yields a function to call with the number just completed.

    show: None for a bar if the log level is INFO or DEBUG, standard error is a terminal (a bar would fill a log file),
    and tqdm is installed. name: the title. unit: the name of the items, with a space in front.
    """
    with growing_progress(show, name, unit) as (advance, expect):
        expect(total)
        yield advance


@contextmanager
def growing_progress(show: bool | None, name: str,
                     unit: str) -> Iterator[tuple[Callable[[int], object], Callable[[int], object]]]:
    """Show a progress bar whose total is not known at first.

    Yields (a function to call with the number just completed, a function to call with an addition to the total).
    """
    if is_shown(show):
        form = NO_ETA if unit == " sentences" else None
        with require("tqdm").tqdm(total=0, desc=name, unit=unit, bar_format=form) as bar:

            def expect(number: int) -> None:
                bar.total += number
                bar.refresh()

            yield bar.update, expect
    else:
        yield (lambda done: None), (lambda number: None)
