"""`Stop`: when a call has to stop."""

from __future__ import annotations

import time
from typing import Any

from .arguments import deadline_of
from .errors import Cancelled, TimedOut


class Stop:
    """When a call has to stop: at a point in time, or as soon as another thread cancels it."""

    __slots__ = ("cancelled", "deadline")

    def __init__(self, deadline: float = 0.0):
        """deadline: the time.monotonic() at which to stop; 0 for none."""
        self.deadline = deadline
        self.cancelled = False

    @classmethod
    def after(cls, timeout: Any) -> Stop:
        """Return the stop of a call that begins now; timeout: its seconds, or None. Raises `InputError`."""
        return cls(deadline_of(timeout))

    def check(self) -> None:
        """Raise `TimedOut` if the time has come, and `Cancelled` if the call was cancelled."""
        if self.cancelled:
            raise Cancelled
        if self.deadline and time.monotonic() > self.deadline:
            raise TimedOut
