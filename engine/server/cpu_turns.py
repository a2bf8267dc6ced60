"""`CpuTurns`: lets the queues of several models take turns on the CPUs, each for one batch or one step."""

from __future__ import annotations

import threading
import time

PATIENCE = 0.005
"""The seconds for which a turn waits for a queue that has had less time and has just ended a step."""


class CpuTurns:
    """The turns of several queues, of which one computes at a time.

    The queue that has used the least time is next: start-time fair queueing (Goyal, Vin and Cheng 1996). One that had
    nothing to do for a while begins with the time of the others. A queue that has just ended a step comes back within
    a moment, so the others let it go first where it has used less time; the CPUs are idle for no longer than that.
    `queues.order.Order` cannot do it, because it counts the tokens of a piece before the piece is computed.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.turns: list[Turn] = []
        self.holder: Turn | None = None
        self.start = 0.0
        """The seconds that the last turn had used when it was taken."""

    def turn(self) -> Turn:
        """Return the turn of one more queue."""
        turn = Turn(self)
        with self.changed:
            self.turns.append(turn)
        return turn


class Turn:
    """The turn of one queue, as a context manager around each of its batches or steps."""

    def __init__(self, turns: CpuTurns):
        self._turns = turns
        self.used = 0.0
        """The seconds that it has used."""
        self.waits = False
        self._begun = self._ended = 0.0

    def __enter__(self) -> None:
        turns = self._turns
        with turns.changed:
            self.used, self.waits = max(self.used, turns.start), True
            try:
                while (seconds := self._must_wait()) is None or seconds > 0:
                    turns.changed.wait(seconds)
            finally:
                self.waits = False
            turns.holder, turns.start, self._begun = self, self.used, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        turns = self._turns
        with turns.changed:
            self._ended = time.perf_counter()
            self.used += self._ended - self._begun
            turns.holder = None
            turns.changed.notify_all()

    def _must_wait(self) -> float | None:
        """Return for how many seconds this turn has to wait; None for as long as nothing changes."""
        if self._turns.holder is not None:
            return None
        before = [turn for turn in self._turns.turns if turn is not self and turn.used < self.used]
        if any(turn.waits for turn in before):
            return None
        last = max((turn._ended for turn in before), default=0.0)
        return last + PATIENCE - time.perf_counter()
