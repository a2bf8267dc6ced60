"""Let one call at a time use the memory of a plan."""

from __future__ import annotations

import os
import threading
import weakref

from ..base.errors import EngineError


class Turn:
    """The right to use a plan's memory; calls of other threads wait for it. No fork can leave it locked."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _TURNS.add(self)

    @property
    def held(self) -> bool:
        """Whether the calling thread has the turn."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def take(self) -> threading.RLock:
        """Return the lock, for a `with` statement at once.

        The lock is a context manager of C, so that an interrupt cannot come between taking it and the statement. Raises
        `EngineError` in a signal handler that interrupted the call that has the turn.
        """
        if self.held:
            raise EngineError("the engine was called from a signal handler that interrupted a call of the same "
                              "engine; let the handler set a flag, and call the engine afterwards")
        return self._lock

    def free(self) -> None:
        """Free the turn in a forked child: the thread that held it does not exist there."""
        self._lock = threading.RLock()


_TURNS: weakref.WeakSet[Turn] = weakref.WeakSet()


def _free_turns() -> None:
    for turn in _TURNS:
        turn.free()


os.register_at_fork(after_in_child=_free_turns)
