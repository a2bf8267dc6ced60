"""`Stop`: when a call has to stop, which every pass of a model looks at."""

from __future__ import annotations

import time
from typing import Any

from .errors import Cancelled, InputError, TimedOut, shown


class Stop:
    """When a call has to stop: at a point in time, or as soon as another thread cancels it.

    Ctrl-C needs no `Stop`: whoever looks at one lets signal handlers run, too.
    """

    __slots__ = ("cancelled", "deadline")

    def __init__(self, deadline: float = 0.0):
        """deadline: the time.monotonic() at which to stop; 0 for none."""
        self.deadline = deadline
        self.cancelled = False

    @classmethod
    def after(cls, timeout: Any) -> Stop:
        """Return the stop of a call that begins now; timeout: its seconds, or None. Raises `InputError`."""
        if timeout is None:
            return cls()
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e9:
            raise InputError(f"timeout must be None or a number of seconds above 0, not {shown(timeout)}")
        return cls(time.monotonic() + timeout)

    @property
    def has_come(self) -> bool:
        """Whether the time has come, or the call was cancelled."""
        return self.cancelled or (self.deadline > 0 and time.monotonic() > self.deadline)

    def check(self) -> None:
        """Raise `TimedOut` if the time has come, and `Cancelled` if the call was cancelled."""
        if self.has_come:       # first, because another thread may cancel between two looks
            raise Cancelled if self.cancelled else TimedOut


NEVER = Stop()
"""The stop of a call that runs to its end. Nobody cancels it."""
