"""A child that is forked while another thread holds a lock of the engine does not wait for that thread."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from engine.backends.cpu import lowering
from engine.base.lazy import lazy

from ..tools.encoders import engine_of
from ..tools.limited import outcome
from ..tools.paths import ROOT
from ..tools.threads import begin
from ..tools.tiny_models import random_model


class Slow:
    """Has a property that takes as long as `release` is not set."""

    def __init__(self, release):
        self.release = release
        self.started = threading.Event()

    @lazy
    def number(self):
        """Return 7."""
        self.started.set()
        assert self.release.wait(60)
        return 7


def forked_while(hold, started, release, call):
    """Return the outcome of `call` in a child that is forked while a thread is in `hold`, past `started`."""
    held = begin(hold)
    try:
        assert started.wait(60)
        return outcome(call, seconds=30)
    finally:
        release.set()
        held.result()


def test_a_lazy_property():
    release = threading.Event()
    slow, other = Slow(release), Slow(threading.Event())
    other.release.set()
    assert forked_while(lambda: slow.number, slow.started, release, lambda: other.number) == "ok: 7"
    assert slow.number == slow.__dict__["number"] == 7
    assert Slow.number.__doc__ == "Return 7."


@pytest.mark.parametrize("name", ["compiler.score_mod", "table"])
def test_locks_of_numba_kernels(name):
    pytest.importorskip("numba")
    module = pytest.importorskip(f"engine.backends.numba_cpu.{name}")
    started, release = threading.Event(), threading.Event()

    def hold():
        with module._lock:
            started.set()
            release.wait(1)  # a fork waits for the lock

    def take():
        return module._lock.acquire(timeout=1)

    assert forked_while(hold, started, release, take) == "ok: True"


@pytest.fixture
def growing(monkeypatch):
    """An engine, a list for the function that allocates its next workspace, the real function, and right vectors."""
    allocate, calls = lowering.allocate, []
    monkeypatch.setattr(lowering, "allocate", lambda n: calls[-1](n) if calls else allocate(n))
    engine = engine_of(random_model(), threads=1)
    expected = engine.forward([[3, 4]])[0].copy()
    return engine, calls, allocate, expected


def test_a_growing_workspace(growing):
    engine, calls, allocate, expected = growing
    started, release = threading.Event(), threading.Event()

    def slow(n):
        started.set()
        assert release.wait(60)
        return allocate(n)

    def forward_in_child():
        calls.clear()
        return np.array_equal(engine.forward([[3, 4]])[0], expected)

    calls.append(slow)
    assert forked_while(lambda: engine.forward([[3] * 15] * 99), started, release, forward_in_child) == "ok: True"


def test_a_workspace_that_is_freed(growing):
    engine, calls, allocate, expected = growing
    started, release = threading.Event(), threading.Event()

    class Slow(bytearray):
        def __del__(self):
            started.set()
            release.wait(60)

    def forward_in_child():
        release.set()
        return np.array_equal(engine.forward([[3, 4]])[0], expected)

    calls.append(lambda n: np.frombuffer(Slow(4 * n), np.float32))
    engine.forward([[3] * 15] * 9)
    calls.append(allocate)
    assert forked_while(lambda: engine.forward([[3] * 15] * 99), started, release, forward_in_child) == "ok: True"


def test_after_a_failed_allocation(growing):
    engine, calls, _, expected = growing

    def fail(n):
        raise MemoryError(f"no memory for {n} floats")

    calls.append(fail)
    with pytest.raises(MemoryError):
        engine.forward([[3] * 15] * 99)
    calls.clear()
    assert np.array_equal(engine.forward([[3, 4]])[0], expected)


FORKING = """
import os, threading, time
import numpy as np
from engine.speech.spectrogram import log_mel
from tests.tools.encoders import engine_of
from tests.tools.tiny_models import random_model

rng = np.random.default_rng(0)
sound, a, b = rng.standard_normal(160000) / 10, *rng.standard_normal((2, 400, 300), np.float32)
engine, until = engine_of(random_model(), threads=2), time.monotonic() + 1

def work():
    while time.monotonic() < until:
        log_mel(sound)
        engine.similarity(a, b)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
while time.monotonic() < until:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
for thread in threads:
    thread.join()
"""


def test_calls_go_on_while_another_thread_forks():
    """NumPy's BLAS ends its threads at a fork, and products that other threads compute then never return."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], check=True, timeout=60, cwd=ROOT,
                   env=os.environ | {"OPENBLAS_NUM_THREADS": "2"})      # the tests themselves have one
