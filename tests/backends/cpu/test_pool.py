"""Test the thread pool as real programs use it: many Python threads, forks, long pauses."""

import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

from ...tools.children import read_child
from ...tools.plans import SMALL, WEIGHTS, make_batch, make_plan
from ...tools.threads import begin, together


@pytest.fixture(scope="module")
def plan():
    return make_plan(SMALL, WEIGHTS, threads=2)


def test_eight_python_threads_on_one_plan(plan):
    batches = [make_batch(SMALL, [5 + 7 * i, 30, 90], seed=i) for i in range(8)]
    expected = [plan.forward(batch) for batch in batches]

    def call(i):
        for _ in range(20):
            assert np.array_equal(plan.forward(batches[i]), expected[i])

    together([partial(call, i) for i in range(8)])


def test_plans_of_different_sizes_share_the_pool():
    batch = make_batch(SMALL, [50] * 6)
    expected = make_plan(SMALL, WEIGHTS).forward(batch)
    for threads in (4, 2, 3, 1, 4):
        assert np.array_equal(make_plan(SMALL, WEIGHTS, threads).forward(batch), expected)


def in_child(check):
    """Return whether `check()` is true in a forked child within 20 seconds."""
    def run(_):
        signal.alarm(20)
        assert check()

    return read_child(run)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_after_a_forward(plan):
    batch = make_batch(SMALL, [60, 60, 3])
    expected = plan.forward(batch)
    assert in_child(lambda: np.array_equal(plan.forward(batch), expected))
    assert np.array_equal(plan.forward(batch), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_while_another_thread_is_in_a_forward(plan):
    """The child has neither that thread nor the workers, and both locks were held at the fork."""
    batch = make_batch(SMALL, [130] * 8)
    expected = plan.forward(batch)
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            plan.forward(batch)

    busy = begin(keep_busy)
    try:
        for _ in range(5):
            assert in_child(lambda: np.array_equal(plan.forward(batch), expected))
    finally:
        stop.set()
        busy.result()
    assert np.array_equal(plan.forward(batch), expected)


def test_an_idle_pool_uses_no_cpu(plan):
    plan.forward(make_batch(SMALL, [60, 60]))
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1, "a worker that spins would take 0.5 s"


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no /proc to ask")
def test_workers_keep_the_cpus_they_may_use(plan):
    """Waking a worker moves it off the caller's CPU only for a moment."""
    batch = make_batch(SMALL, [60, 60])
    for _ in range(20):
        plan.forward(batch)
        time.sleep(0.01)
    plan.forward(batch)
    allowed = os.sched_getaffinity(0)
    assert all(os.sched_getaffinity(int(task)) == allowed for task in os.listdir("/proc/self/task"))
