"""`Stop`: which exception ends a call, also one that runs beside its caller."""

import threading
import time

import pytest

from engine.base import stop as stops
from engine.base.errors import Cancelled, TimedOut
from engine.base.stop import NEVER, THREADS_BESIDE, Stop, beside


class CancelledBetweenTwoLooks(Stop):
    """Another thread cancels the call after the first time that somebody looks."""

    looks = 0

    @property
    def cancelled(self):
        self.looks += 1
        return self.looks > 1

    @cancelled.setter
    def cancelled(self, value):
        pass


def test_a_call_that_is_cancelled_during_a_check_has_not_timed_out():
    stop = CancelledBetweenTwoLooks()
    stop.check()
    with pytest.raises(Cancelled):
        stop.check()


def test_calls_beside_others_wait_for_room_and_look_at_their_stop(monkeypatch):
    """Threads that nobody waits for any more keep their room, so that timeouts cannot pile threads up."""
    monkeypatch.setattr(stops, "_LOOK", 0.002)
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def native():
        begun.release()
        go_on.wait()

    for _ in range(THREADS_BESIDE):
        with pytest.raises(TimedOut):
            beside(native, Stop(time.monotonic()))
    for _ in range(THREADS_BESIDE):
        begun.acquire()
    ran = []
    with pytest.raises(TimedOut):
        beside(lambda: ran.append(1), Stop(time.monotonic()))
    assert not ran
    go_on.set()
    assert beside(lambda: 3, NEVER) == 3
    with pytest.raises(KeyError, match="mine"):
        beside(lambda: {}["mine"], NEVER)
