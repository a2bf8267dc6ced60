"""Show a progress bar."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from .install import require

LOG = logging.getLogger("engine")


@contextmanager
def progress(total: int, show: bool | None, name: str = "Sentences",
             unit: str = " sentences") -> Iterator[Callable[[int], object]]:
    """Show a progress bar over `total` of a unit; yields a function to call with the number just completed.

    If `show` is None, the bar appears when the log level is INFO or DEBUG and tqdm is installed.
    """
    if show is None:
        show = LOG.getEffectiveLevel() in (logging.INFO, logging.DEBUG) and find_spec("tqdm") is not None
    if show:
        with require("tqdm").tqdm(total=total, desc=name, unit=unit) as bar:
            yield bar.update
    else:
        yield lambda done: None
