"""Show a progress bar."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from .install import require

LOG = logging.getLogger("engine")

NO_ETA = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
"""What a bar over texts shows: no time that is left, because the longest texts come first and it would be too long."""


def is_shown(show: bool | None) -> bool:
    """Return `show`, or for None whether somebody looks who wants bars."""
    if show is not None:
        return show
    asked = LOG.getEffectiveLevel() in (logging.INFO, logging.DEBUG)
    return asked and sys.stderr.isatty() and find_spec("tqdm") is not None


@contextmanager
def progress(total: int, show: bool | None, name: str = "Sentences",
             unit: str = " sentences") -> Iterator[Callable[[int], object]]:
    """Show a progress bar over `total` of a unit; yields a function to call with the number just completed.

    If `show` is None, the bar appears when the log level is INFO or DEBUG, standard error is a terminal (a bar would
    fill a log file), and tqdm is installed.
    """
    with growing_progress(show, name, unit) as (advance, expect):
        expect(total)
        yield advance


@contextmanager
def growing_progress(show: bool | None, name: str,
                     unit: str) -> Iterator[tuple[Callable[[int], object], Callable[[int], object]]]:
    """Show a progress bar whose total is not known at first.

    Yields a function to call with the number just completed, and one to call with the number that the total grows by.
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
