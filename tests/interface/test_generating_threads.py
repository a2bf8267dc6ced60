"""Calls of several threads over one generator share its steps, and each has the bits of the call alone.

    ENGINE_CALLS=5000 ENGINE_INTERRUPTS=2000 ENGINE_FORKS=50 python -m pytest tests/interface/test_generating_threads.py
"""

import os
import random
import time
from contextlib import suppress
from functools import partial

import pytest

from engine import Generator, TimedOut
from engine.base.errors import Cancelled

from ..tools.generators import SOURCES, language_model, translator
from ..tools.interrupts import interrupt_often
from ..tools.limited import outcome
from ..tools.threads import begin
from ..tools.tiny_text import tiny_text

CALLS = int(os.environ.get("ENGINE_CALLS", "240"))
INTERRUPTS = int(os.environ.get("ENGINE_INTERRUPTS", "40"))
FORKS = int(os.environ.get("ENGINE_FORKS", "3"))
THREADS = 32
WAIT = 60 + CALLS
"""Seconds after which a call fails that waits."""
SETTINGS = ({}, {"num_beams": 3}, {"do_sample": True, "seed": 5, "temperature": 2.0}, {"repetition_penalty": 1.3},
            {"do_sample": True, "num_return_sequences": 3}, {"no_repeat_ngram_size": 2, "max_new_tokens": 5},
            {"max_new_tokens": 25}, {"do_sample": True, "top_k": 0, "top_p": 0.7})


def generated(generator, session, source, settings):
    return generator.generate([source], **settings)


def several(generator, session, source, settings):
    return generator.generate([source, *SOURCES], **settings)


def scored(generator, session, source, settings):
    if generator.encoder_config is None:
        return [one.log_probabilities.tolist() for one in generator.score([[1, *source]])]
    return [one.log_probabilities.tolist() for one in generator.score([source], [[5, 6, 7]])]


def streamed(generator, session, source, settings):
    if "num_return_sequences" in settings:
        settings = {}
    return [piece.id for piece in generator.stream(source, **settings)]


def left(generator, session, source, settings):
    """A stream that its reader leaves after two tokens."""
    with generator.stream(source, max_new_tokens=25) as stream:
        return [piece.id for _, piece in zip(range(2), stream, strict=False)]


def submitted(generator, session, source, settings):
    return session.submit(source, **settings).result(WAIT)


def cancelled(generator, session, source, settings):
    answer = session.submit(source, priority=1, **settings)
    answer.cancel()
    with pytest.raises(Cancelled):
        answer.result(WAIT)


def late(generator, session, source, settings):
    with suppress(TimedOut):
        generator.generate([source], timeout=0.0005, **settings)


KINDS = (generated, several, scored, streamed, left, submitted, cancelled, late)


@pytest.mark.parametrize(("model", "precision"), [
    (language_model, "float32"), (language_model, "int8"), (translator, "bfloat16")])
def test_each_call_has_the_bits_of_the_call_alone(model, precision):
    threads = {"float32": 1, "bfloat16": 3, "int8": 4}[precision]
    generator = Generator(model(tiny_text()), precision=precision, threads=threads, max_rows=24)
    cases = [(kind, source, settings) for kind in KINDS for source in SOURCES for settings in SETTINGS]
    session = generator.session()
    alone = [kind(generator, session, source, settings) for kind, source, settings in cases]

    def use(seed):
        rng = random.Random(seed)
        for _ in range(-(-CALLS // 3 // THREADS)):
            i = rng.randrange(len(cases))
            kind, source, settings = cases[i]
            assert kind(generator, session, source, settings) == alone[i], cases[i]

    for call in [begin(partial(use, seed)) for seed in range(THREADS)]:
        call.result(10 * WAIT)
    statistics = generator.statistics()
    assert (statistics.open_requests, statistics.waiting_calls) == (0, 0)
    assert statistics.cache_tokens == statistics.kept_tokens


@pytest.mark.parametrize("model", [language_model, translator])
def test_a_step_that_another_caller_ends_changes_no_bit(model, monkeypatch):
    """It comes when the sources are encoded, which are not encoded again."""
    generator = Generator(model(), threads=1, keep_tokens=0)
    expected, [visit] = generator.generate(SOURCES), generator.generate(SOURCES[:1])
    decoder, session, calls = generator._model.queue._stepper._decoder, generator.session(), []
    own = decoder.step

    def step(rows, stop):
        calls.append(len(rows))
        if len(calls) == 1:
            calls.append(session.submit(SOURCES[0]))
        return own(rows, stop)

    monkeypatch.setattr(decoder, "step", step)
    assert generator.generate(SOURCES) == expected
    assert calls[0] == len(SOURCES) == calls[2] - 1, "the first step was given up"
    assert calls[1].result(WAIT) == visit
    statistics = generator.statistics()
    assert (statistics.open_requests, statistics.waiting_calls, statistics.cache_tokens) == (0, 0, 0)


def callers(generator, expected, over):
    """Start threads that call a generator until `over`, and return their futures, which fail with a wrong result."""
    def use(i):
        while not over:
            assert generator.generate([SOURCES[i]], max_new_tokens=12) == [expected[i]]
            assert [piece.id for piece in generator.stream(SOURCES[i], max_new_tokens=12)] == expected[i].ids

    return [begin(partial(use, i)) for i in range(3)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_call_a_generator_whatever_its_threads_do():
    """The child has none of the threads, one of which is in a step as a rule. The parent goes on."""
    generator, rng, over = Generator(language_model(), threads=1), random.Random(4), []
    expected = generator.generate(SOURCES, max_new_tokens=12)
    running = callers(generator, expected, over)
    try:
        for _ in range(FORKS):
            time.sleep(rng.uniform(0, 0.02))
            found = outcome(lambda: generator.generate(SOURCES, max_new_tokens=12) == expected, seconds=60)
            assert found == "ok: True"
    finally:
        over.append(True)
    for call in running:
        call.result(60)


def test_an_interrupt_of_one_caller_leaves_the_others_right():
    """The main thread gets the interrupts, in any line and in a pass, while it computes for others, too."""
    generator, over = Generator(language_model(), threads=1), []
    expected = generator.generate(SOURCES, max_new_tokens=12)
    running = callers(generator, expected, over)
    try:
        interrupt_often(lambda: generator.generate(SOURCES, max_new_tokens=12) == expected, INTERRUPTS,
                        random.Random(3))
    finally:
        over.append(True)
    for call in running:
        call.result(60)
    statistics = generator.statistics()
    assert (statistics.open_requests, statistics.waiting_calls) == (0, 0)
    assert statistics.cache_tokens == statistics.kept_tokens
