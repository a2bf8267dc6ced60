"""The threads beside the model: fair turns between steps, deadlines, cancels, and calls that raise anything."""

import threading
from concurrent.futures import CancelledError
from types import SimpleNamespace

import numpy as np
import pytest

from engine.base.errors import TimedOut
from engine.server import logs
from engine.server.json_steps import JsonRows, json_of, write_json
from engine.server.workers import TURN, Workers, run

from ..tools.threads import wait_for


@pytest.fixture
def workers():
    made = Workers(short=1, long=1)
    yield made
    made.end()


class Held:
    """A call that holds the one thread of a lane until it is let go, so that what comes meanwhile waits."""

    def __init__(self, workers, long=True):
        self.go, begun = threading.Event(), threading.Event()

        def hold():
            begun.set()
            assert self.go.wait(30)

        self.future = workers.submit(hold, key="held", long=long)
        assert begun.wait(30)


@pytest.fixture
def clock(monkeypatch):
    """The clock of the workers, which the steps of a test move."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("engine.server.workers.time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr("engine.base.stop.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def steps(name, order, count, clock):
    for _ in range(count):
        order.append(name)
        clock.now += 2 * TURN
        yield
    return name


def test_keys_and_their_calls_take_turns_by_the_time_they_use(workers, clock):
    order, held = [], Held(workers)
    many = [workers.submit(lambda i=i: steps(f"a{i}", order, 8, clock), key="a", long=True) for i in range(3)]
    other = workers.submit(lambda: steps("b", order, 3, clock), key="b", long=True)
    held.go.set()
    assert [future.result(30) for future in (*many, other)] == ["a0", "a1", "a2", "b"]
    last = len(order) - 1 - order[::-1].index("b")
    assert order.index("b") <= 2
    assert sum(name != "b" for name in order[: last + 1]) <= 6       # of all calls of "a" together
    assert {name for name in order[: order.index("a0") + 8] if name != "b"} == {"a0", "a1", "a2"}


def test_a_key_leaves_a_thread_of_the_long_lane_to_others():
    workers = Workers(short=1, long=2)
    held = Held(workers)
    waits = workers.submit(lambda: "own", key="held", long=True)
    assert workers.submit(lambda: "other", key="b", long=True).result(30) == "other"
    assert not waits.done()
    held.go.set()
    assert waits.result(30) == "own"
    workers.end()


def test_a_call_ends_between_two_steps_at_its_deadline_and_when_it_is_cancelled(workers, clock):
    order, closed = [], []

    def endless():
        try:
            while True:
                order.append(1)
                clock.now += 1
                yield
        finally:
            closed.append(1)

    late = workers.submit(endless, key="a", long=True, deadline=clock.now + 3)
    with pytest.raises(TimedOut):
        late.result(30)
    assert (len(order), closed) == (4, [1])
    gone = workers.submit(endless, key="a", long=True)
    before = len(order)
    wait_for(lambda: len(order) > before + 3)
    assert gone.cancel()
    with pytest.raises(CancelledError):
        gone.result(30)
    assert workers.submit(lambda: 3, key="a", long=True).result(30) == 3
    wait_for(lambda: closed == [1, 1])


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_what_a_call_or_a_callback_raises_ends_no_thread(workers, monkeypatch, error):
    lines, others = [], []
    monkeypatch.setattr(logs, "write", lambda event, **fields: lines.append((event, fields["error"])))

    def fail(*_):
        raise error("no")

    with pytest.raises(error):
        workers.submit(fail, key="a").result(30)
    held = Held(workers, long=False)
    future = workers.submit(lambda: 3, key="a")
    future.add_done_callback(fail)
    future.add_done_callback(lambda future: others.append(future.result()))
    held.go.set()
    assert future.result(30) == 3
    assert workers.submit(lambda: 4, key="a").result(30) == 4
    assert others == [3]
    assert lines == [("callback", error.__name__)]


@pytest.mark.parametrize(("value", "text"), [
    (JsonRows([]), b"[]"), (JsonRows([1]), b"[1]"),
    (JsonRows(iter(range(5000))), str([*range(5000)]).replace(" ", "").encode()),
    ({}, b"{}"), ({"a": {"b": JsonRows("xy"), "c": 1}, "d": [{}]}, b'{"a":{"b":["x","y"],"c":1},"d":[{}]}')])
def test_an_answer_is_written_in_steps(monkeypatch, value, text):
    monkeypatch.setattr("engine.server.json_steps.STEP", 0.0)
    assert b"".join(run(write_json(value))) == text


@pytest.mark.parametrize("make", [lambda: JsonRows([]), lambda: JsonRows(iter([1, [2]])), lambda: 1.5,
                                  lambda: {"a": {"b": JsonRows("xy"), "c": 1}, "d": [{}], "e": np.float32([[1, 0.1]])}])
def test_a_short_answer_has_the_bytes_of_one_in_steps(make):
    assert json_of(make()) == b"".join(run(write_json(make())))
