"""`CpuTurns`: lets the queues of several models of one server take turns on the CPUs, one batch or step a turn."""

from __future__ import annotations

import threading
import time

PATIENCE = 0.005
"""The seconds for which the CPUs stay idle for a queue that has had less time and has just ended a step."""


class CpuTurns:
    """Chooses which of several queues computes next; one computes at a time.

    The queue that has used the least time is next: start-time fair queueing (Goyal, Vin and Cheng 1996). A queue
    that had nothing to do for a while begins with the time of the others. A queue that has just ended a step mostly has
    another one within `PATIENCE`, so the others wait so long for it where it has used less time.
    `queues.order.Order` cannot do it, because it counts the tokens of a piece before the piece is computed.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """Its lock guards all fields of this object and of its turns; it is notified when a turn ends."""
        self.turns: list[Turn] = []
        self.holder: Turn | None = None
        """The turn of the queue that computes now."""
        self.start = 0.0
        """The virtual time: the seconds that the last turn had used when it began, at which idle queues start again."""

    def turn(self) -> Turn:
        """Register one more queue, and return its turn."""
        turn = Turn(self)
        with self.changed:
            self.turns.append(turn)
        return turn


class Turn:
    """The turn of one queue: a context manager, which the thread of the queue enters for each batch or step."""

    def __init__(self, turns: CpuTurns):
        self._turns = turns
        self.used = 0.0
        """Its virtual time: the seconds that it has computed, and those that it lost while it had no work."""
        self.is_waiting = False
        self._begun = self._ended = 0.0     # times of its last step, of `time.perf_counter`

    def __enter__(self) -> None:
        """Wait for the turn; a queue that was idle begins with the time of the others."""
        turns = self._turns
        with turns.changed:
            self.used, self.is_waiting = max(self.used, turns.start), True
            try:
                while (seconds := self._must_wait()) is None or seconds > 0:
                    turns.changed.wait(seconds)
            finally:
                self.is_waiting = False
            turns.holder, turns.start, self._begun = self, self.used, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        turns = self._turns
        with turns.changed:
            self._ended = time.perf_counter()
            self.used += self._ended - self._begun
            turns.holder = None
            turns.changed.notify_all()

    def _must_wait(self) -> float | None:
        """Return for how many seconds this turn has to wait; None until it is notified. The caller holds the lock."""
        if self._turns.holder is not None:
            return None
        ahead = [turn for turn in self._turns.turns if turn is not self and turn.used < self.used]
        if any(turn.is_waiting for turn in ahead):
            return None
        # A queue ahead that has just ended a step probably has another one soon.
        last_end = max((turn._ended for turn in ahead), default=0.0)
        return last_end + PATIENCE - time.perf_counter()
