"""Let one call at a time use the memory of a plan."""

from __future__ import annotations

import os
import weakref

from .cpu.native import native


class Turn(native.TurnLock):
    """The right to use a plan's memory, as turn.pxi describes it. No fork can leave it locked."""

    def __init__(self) -> None:
        _TURNS.add(self)


_TURNS: weakref.WeakSet[Turn] = weakref.WeakSet()


def _free_turns() -> None:
    for turn in _TURNS:
        turn.free()


os.register_at_fork(after_in_child=_free_turns)
