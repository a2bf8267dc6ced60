"""Ctrl-C, deadlines and calls from signal handlers: a pass stops soon, and the next call is right."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from engine.base.errors import Cancelled, EngineError, InputError, TimedOut
from engine.base.stop import Stop
from engine.programs.observe import Observed

from ...tools.encoders import engine_of
from ...tools.interrupts import interruptible
from ...tools.paths import ROOT
from ...tools.plans import SMALL, WEIGHTS, isa, make_batch, make_plan, make_weights, one_sequence
from ...tools.threads import begin
from ...tools.tiny_models import random_model
from ...tools.tiny_text import tiny_text

tools = pytest.importorskip("tests.backends.kernels.tools")

BATCH = make_batch(SMALL, [120] * 1500)
"""About a third of a second of work."""


@pytest.fixture(scope="module", params=[1, 2], ids="{} threads".format)
def plan(request):
    return make_plan(SMALL, WEIGHTS, request.param, max_tokens=8192)


def after(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def test_an_interrupt_stops_a_pass(plan):
    small = make_batch(SMALL, [3, 120])
    expected = plan.forward(small)
    begun = time.monotonic()
    plan.forward(BATCH)
    whole = time.monotonic() - begun
    with interruptible():
        begun = time.monotonic()
        # A timer of the system, because a thread of this process may start late on a busy machine.
        signal.setitimer(signal.ITIMER_REAL, whole / 10)
        with pytest.raises(KeyboardInterrupt):
            plan.forward(BATCH)
        elapsed = time.monotonic() - begun
    assert elapsed < 0.9 * whole, "not stopped, but finished"
    assert np.array_equal(plan.forward(small), expected)


def test_an_interrupt_at_any_moment_leaves_the_plan_free(plan):
    small = make_batch(SMALL, [3])
    with interruptible():
        for seconds in np.random.default_rng(0).uniform(1e-6, 2e-4, 4000):
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                plan.forward(small)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                continue
    begin(lambda: plan.forward(small)).result(60)       # unless the plan waits for a call that was interrupted


class Once(Stop):
    """A stop that somebody cancels right after the first look inside a pass."""

    def __init__(self, plan):
        super().__init__()
        self.plan, self.looks = plan, 0

    def check(self):
        super().check()
        if self.plan._turn.held:
            self.looks, self.cancelled = self.looks + 1, True


@pytest.mark.parametrize("method", ["forward", "observe"])
def test_a_cancelled_pass_ends_at_the_next_look(plan, method):
    stop = Once(plan)
    arguments = [] if method == "forward" else [Observed(hidden=(0,))]
    with pytest.raises(Cancelled):
        getattr(plan, method)(BATCH, *arguments, stop)
    assert stop.looks == 1
    small = make_batch(SMALL, [3, 120])
    assert np.array_equal(plan.forward(small, Stop()), plan.forward(small))


@pytest.mark.parametrize("lengths", [[120] * 4000, [4000]], ids=["bundles", "one long sequence"])
def test_a_deadline_stops_a_pass(plan, lengths):
    config = replace(SMALL, max_positions=0, token_types=0, hidden_size=128, num_heads=32, head_width=64)
    slow = make_plan(config, make_weights(config), plan._run.threads, max_tokens=8192)
    with pytest.raises(TimedOut, match="timeout"):
        slow.forward(make_batch(config, lengths), Stop(time.monotonic() + 0.05))
    small = make_batch(config, [3, 120])
    assert np.array_equal(slow.forward(small, Stop(time.monotonic() + 60)), slow.forward(small))


def test_a_handler_that_calls_the_engine_gets_an_error(plan):
    other = make_plan(SMALL, WEIGHTS, 2)
    small, problems = make_batch(SMALL, [3, 120]), []

    def handler(number, frame):
        found = []
        for called in (plan, other):
            try:
                called.forward(small)
            except EngineError as error:
                found.append(str(error))
        if len(found) == 2:
            problems.extend(found)

    def signal_until_there_is_an_error():
        # The first signals can come before the threads of the pass have begun, when another engine is free.
        while not (problems or finished):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)

    finished = []
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        timer = after(0.05, signal_until_there_is_an_error)
        out = plan.forward(BATCH)
        finished.append(True)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(problems) >= 2
    assert all("signal handler" in problem for problem in problems)
    assert np.array_equal(out[:120], plan.forward(one_sequence(BATCH, 0)))


FORKING = f"""
    import os, signal, sys
    import numpy as np
    sys.path.append({str(ROOT)!r})  # behind an installed engine
    from engine.base.errors import EngineError
    from tests.tools.plans import SMALL, WEIGHTS, make_batch, make_plan

    plan, other = make_plan(SMALL, WEIGHTS, 2, max_tokens=8192), make_plan(SMALL, WEIGHTS, 2)
    batch, small = make_batch(SMALL, [120] * 2000), make_batch(SMALL, [3, 120])
    parent, children, ends = os.getpid(), [], set()
    expected = other.forward(small)

    def handler(number, frame):
        children.append(os.fork())

    signal.signal(signal.SIGALRM, handler)
    for i in range(40):
        signal.setitimer(signal.ITIMER_REAL, 0.03 + 0.01 * i)
        try:
            plan.forward(batch)
            end = 6         # the fork came between two passes, or in Python
        except EngineError as error:
            assert "forked by a signal handler" in str(error)
            end = 7
        if os.getpid() != parent:
            os._exit(end if all(np.array_equal(each.forward(small), expected) for each in (other, plan)) else 1)
        signal.setitimer(signal.ITIMER_REAL, 0)
        ends |= {{os.waitstatus_to_exitcode(os.waitpid(children.pop(), 0)[1]) for _ in [*children]}}
        if ends - {{6}}:
            break
    assert 7 in ends and ends <= {{6, 7}}, ends
    assert np.array_equal(plan.forward(small), expected)
"""


def test_a_child_that_a_handler_forks_inside_a_pass_gets_an_error():
    """Its other threads do not exist, so it would wait for them for ever."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(FORKING)], check=True, timeout=300)


def test_a_call_that_waits_for_the_threads_of_another_plan_looks():
    small = make_batch(SMALL, [3, 120])
    first, second = (make_plan(SMALL, WEIGHTS, 2, max_tokens=8192) for _ in range(2))
    expected, holds, over = second.forward(small), threading.Event(), threading.Event()

    class Holding(Stop):
        """A stop whose look keeps the threads, for at most ten seconds."""

        def check(self):
            if first._turn.held and not over.is_set():
                holds.set()
                over.wait(10)
                over.set()

    class Soon(Stop):
        """A stop that comes at a look of a call that has the turn of its plan, and waits for the threads."""

        def check(self):
            if second._turn.held and not over.is_set():
                raise TimedOut

    held = begin(lambda: first.forward(BATCH, Holding()))
    assert holds.wait(60)
    try:
        with pytest.raises(TimedOut):
            second.forward(small, Soon())
    finally:
        over.set()
        held.result()
    assert np.array_equal(second.forward(small), expected)


SMALL_STACK = f"""
    import sys, threading
    import numpy as np
    sys.path.append({str(ROOT)!r})  # behind an installed engine
    from engine.backends.cython_cpu import isa
    from tests.tools.plans import SMALL, WEIGHTS, make_batch, make_plan, precisions_of

    batch = make_batch(SMALL, [70, 30, 64, 5])
    for name in isa.available():
        for precision in precisions_of(name):
            for threads in (1, 2):
                plan, found = make_plan(SMALL, WEIGHTS, threads, name, precision=precision), []
                expected = plan.forward(batch)
                threading.stack_size(32768)
                thread = threading.Thread(target=lambda: found.append(plan.forward(batch)))
                thread.start()
                thread.join()
                threading.stack_size(0)
                assert np.array_equal(found[0], expected), (name, precision, threads)
"""


def test_a_thread_with_a_small_stack_may_call():
    subprocess.run([sys.executable, "-c", textwrap.dedent(SMALL_STACK)], check=True, timeout=300)


PROGRAM = f"""
    import sys
    import numpy as np
    sys.path.append({str(ROOT)!r})  # behind an installed engine
    from tests.tools.plans import SMALL, WEIGHTS, make_batch, make_plan
    batch = make_batch(SMALL, [70, 30, 64, 5])
    assert np.array_equal(make_plan(SMALL, WEIGHTS, 4).forward(batch), make_plan(SMALL, WEIGHTS, 1).forward(batch))
"""

NO_THREADS = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <pthread.h>
    #include <stdlib.h>
    int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
        static int made;
        if (made == atoi(getenv("THREADS_GRANTED"))) return EAGAIN;
        made++;
        typedef int creates(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        return ((creates *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attr, start, arg);
    }
"""


@pytest.fixture(scope="module")
def no_threads(tmp_path_factory):
    """Return the path of a library that grants as many threads as THREADS_GRANTED says."""
    if not shutil.which("gcc") or sys.platform != "linux":
        pytest.skip("needs gcc and LD_PRELOAD")
    folder = tmp_path_factory.mktemp("none")
    source, library = folder / "none.c", folder / "none.so"
    source.write_text(textwrap.dedent(NO_THREADS), encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("granted", [0, 1, 2, 3])
def test_fewer_threads_do_the_work_when_the_system_grants_no_more(granted, no_threads):
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {no_threads}".strip()     # after a sanitizer's own library
    environment = {"LD_PRELOAD": preloaded, "THREADS_GRANTED": str(granted), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], check=True, env=os.environ | environment)


@pytest.mark.parametrize("backend", ["cython", "reference"])
def test_timeouts_of_an_engine(backend):
    engine = engine_of(random_model(tiny_text(), max_positions=600), backend=backend)
    ids = [np.full(500, 5)] * 3000
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        engine.forward(ids, timeout=1e-3)
    with pytest.raises(TimedOut):
        engine.encode(["a b c d e"] * 100_000, timeout=0.05)
    assert time.monotonic() - begun < 30
    assert engine.forward([[4, 5]], timeout=60)[0].shape == engine.forward([[4, 5]])[0].shape
    for wrong in (0, -1, True, "1", float("nan")):
        with pytest.raises(InputError, match="timeout must be"):
            engine.forward([[4]], timeout=wrong)


@pytest.mark.parametrize(("name", "sequences"), [("amx", 800), ("amxemulated", 20)])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_signal_handler_may_use_tiles(name, sequences, precision):
    """It configures and releases them for itself, and the pass that it interrupted goes on with its own."""
    if reason := isa.why_not(name):
        pytest.skip(reason)
    plan = make_plan(SMALL, WEIGHTS, 1, name, precision=precision)
    batch, ran = make_batch(SMALL, [120] * sequences), []
    expected = plan.forward(batch)
    product, zeros = isa.load(name).product(precision), np.zeros((16, 64), np.float32)
    weight, scale = (zeros.astype(np.int8), zeros[:, 0]) if precision == "int8" else (zeros, None)
    packed = tools.pack(isa.load(name), weight, zeros[:, 0], 0, precision, scale)
    arguments = packed, np.zeros((16, 128), np.uint8), np.empty((16, 16), np.float32), None, zeros[:, :2].copy()

    def handler(signum, frame):
        if plan._turn.held:
            product.multiply(*arguments)
            ran.append(signum)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        for _ in range(100):
            assert np.array_equal(plan.forward(batch), expected)
            if ran:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ran
