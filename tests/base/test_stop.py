"""`Stop`: which exception ends a call."""

import pytest

from engine.base.errors import Cancelled
from engine.base.stop import Stop


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
