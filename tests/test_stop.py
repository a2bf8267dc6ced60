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

from engine import Engine
from engine.errors import EngineError, InputError, TimedOut

from .plans import SMALL, WEIGHTS, make_batch, make_plan, make_weights
from .tiny_models import random_model
from .tiny_text import tiny_text

BATCH = make_batch(SMALL, [120] * 4000)
"""About a second of work."""


@pytest.fixture(scope="module", params=[1, 2], ids="{} threads".format)
def plan(request):
    return make_plan(SMALL, WEIGHTS, request.param, max_tokens=8192)


def after(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_stops_a_pass(plan):
    small = make_batch(SMALL, [3, 120])
    expected = plan.forward(small)
    timer = after(0.1, interrupt)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        plan.forward(BATCH)
    assert time.monotonic() - begun < 0.9, "not stopped, but finished"
    timer.join()
    assert np.array_equal(plan.forward(small), expected)


@pytest.mark.parametrize("lengths", [[120] * 4000, [4000]], ids=["bundles", "one long sequence"])
def test_a_deadline_stops_a_pass(plan, lengths):
    config = replace(SMALL, max_positions=0, token_types=0, hidden_size=128, num_heads=32, head_width=64)
    slow = make_plan(config, make_weights(config), plan._run.threads, max_tokens=8192)
    with pytest.raises(TimedOut, match="timeout"):
        slow.forward(make_batch(config, lengths), time.monotonic() + 0.05)
    small = make_batch(config, [3, 120])
    assert np.array_equal(slow.forward(small, time.monotonic() + 60), slow.forward(small))


def test_a_handler_that_calls_the_engine_gets_an_error(plan):
    other = make_plan(SMALL, WEIGHTS, 2)
    small, problems = make_batch(SMALL, [3, 120]), []

    def handler(number, frame):
        for called in (plan, other):
            try:
                called.forward(small)
            except EngineError as error:
                problems.append(str(error))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        timer = after(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        out = plan.forward(BATCH)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(problems) == 2
    assert all("signal handler" in problem for problem in problems)
    assert np.array_equal(out[:120], plan.forward(make_batch(SMALL, [120] * 4000))[:120])


PROGRAM = """
    import numpy as np
    from tests.plans import SMALL, WEIGHTS, make_batch, make_plan
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


@pytest.mark.skipif(not shutil.which("gcc") or sys.platform != "linux", reason="needs gcc and LD_PRELOAD")
@pytest.mark.parametrize("granted", [0, 1, 2, 3])
def test_fewer_threads_do_the_work_when_the_system_grants_no_more(granted, tmp_path):
    source, library = tmp_path / "none.c", tmp_path / "none.so"
    source.write_text(textwrap.dedent(NO_THREADS), encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()     # after a sanitizer's own library
    environment = {"LD_PRELOAD": preloaded, "THREADS_GRANTED": str(granted), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], check=True, env=os.environ | environment)


@pytest.mark.parametrize("backend", ["cython", "reference"])
def test_timeouts_of_an_engine(backend):
    engine = Engine(random_model(tiny_text(), max_positions=600), backend=backend)
    ids = [np.full(500, 5)] * 3000
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        engine.forward(ids, timeout=1e-3)
    with pytest.raises(TimedOut):
        engine.encode(["a b c d e"] * 100_000, timeout=0.05)
    assert time.monotonic() - begun < 5
    assert engine.forward([[4, 5]], timeout=60)[0].shape == engine.forward([[4, 5]])[0].shape
    for wrong in (0, -1, True, "1", float("nan")):
        with pytest.raises(InputError, match="timeout must be"):
            engine.forward([[4]], timeout=wrong)
