"""Queues of several models share the CPUs: one computes at a time, and the one that has used the least time is next."""

from types import SimpleNamespace

import pytest

from engine.server import cpu_turns
from engine.server.cpu_turns import PATIENCE, CpuTurns

from ..tools.threads import begin, together, wait_for


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that a test sets."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(cpu_turns, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def step(turn, clock, seconds):
    with turn:
        clock.now += seconds


def test_the_queue_with_the_least_time_is_next(clock):
    turns = CpuTurns()
    short, long = turns.turn(), turns.turn()
    step(short, clock, 0.01)
    step(long, clock, 0.2)
    assert (short.used, long.used) == pytest.approx((0.01, 0.2))
    assert short._must_wait() <= 0
    clock.now += PATIENCE       # nobody waits long for one that rests
    assert long._must_wait() <= 0
    step(short, clock, 0.01)
    assert long._must_wait() == pytest.approx(PATIENCE)     # it comes back within a moment
    short.is_waiting = True
    assert long._must_wait() is None
    short.is_waiting = False
    for _ in range(30):
        step(short, clock, 0.01)
    assert long._must_wait() <= 0
    assert short._must_wait() <= 0
    long.is_waiting = True
    assert short._must_wait() is None


def test_a_queue_that_rested_begins_with_the_time_of_the_others(clock):
    turns = CpuTurns()
    busy, rested = turns.turn(), turns.turn()
    for _ in range(9):
        step(busy, clock, 1.0)
    step(rested, clock, 0.5)
    assert rested.used == pytest.approx(8.5)


def test_one_computes_at_a_time():
    turns, inside, seen = CpuTurns(), [], []

    def run(turn):
        for _ in range(200):
            with turn:
                inside.append(turn)
                seen.append(len(inside))
                inside.remove(turn)

    together([lambda turn=turn: run(turn) for turn in (turns.turn(), turns.turn(), turns.turn())])
    assert seen == [1] * 600
    assert turns.holder is None


def test_who_waits_goes_on_when_the_holder_ends():
    turns = CpuTurns()
    one, other = turns.turn(), turns.turn()
    with one:
        entered = begin(lambda: (other.__enter__(), other.__exit__()))
        wait_for(lambda: other.is_waiting)
        assert not entered.done()
    entered.result(30)
