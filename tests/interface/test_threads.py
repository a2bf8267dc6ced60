"""Calls of several threads over one model are computed together, and each has the bits of the call alone.

    ENGINE_CALLS=5000 ENGINE_INTERRUPTS=2000 python -m pytest tests/interface/test_threads.py
"""

import os
import random
from functools import partial

import numpy as np
import pytest

from engine import InputError, TimedOut

from ..tools import served
from ..tools.batches import batches
from ..tools.bits import same
from ..tools.encoders import engine_of
from ..tools.examples import example
from ..tools.head_models import folder_of
from ..tools.head_texts import TEXTS
from ..tools.interrupts import interrupt_often
from ..tools.limited import outcome
from ..tools.paths import ROOT
from ..tools.served import load, requests_of
from ..tools.threads import begin, wait_for
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

pytest.importorskip("tokenizers")

CALLS = int(os.environ.get("ENGINE_CALLS", "96"))
INTERRUPTS = int(os.environ.get("ENGINE_INTERRUPTS", "60"))
THREADS = 12
SENTENCES = ["the cat", "the dog sat on a mat", "far away", "", "a mat and a mat and the cat"]


def results(futures):
    return [future.result(60) for future in futures]


def queue_of(model):
    return getattr(model, "_engine", model)._queue


def wait_for_callers(queue, callers):
    """Wait until so many callers wait for their results."""
    wait_for(lambda: sum(len(one.bells) for one in [*queue._arrived, *queue._open.values()]) >= callers)


def calls_of(name):
    """Return functions of a model: requests for all its methods, and some of what no server serves."""
    calls = [one.alone for one in requests_of(name)]
    if name == "prompts":
        calls += [lambda model: model.forward([[3, 4, 5], [6, 7]]),
                  lambda model: model.encode(SENTENCES, batch_size=2),
                  lambda model: model.forward([[3, 4, 5]], output_hidden_states=True).hidden_states[2]]
    if name == "bert_fill_mask":
        calls += [lambda model, n=n: model.fill_mask(["The [MASK] is [MASK].", "A [MASK]."][:n]) for n in (1, 2)]
    return calls


@pytest.mark.parametrize("name", [name for name in served.MODELS if name != "language"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_each_call_has_the_bits_of_the_call_alone(name, precision, one_backend):
    model, calls = load(name, backend=one_backend, precision=precision, threads=1), calls_of(name)
    alone = [call(model) for call in calls]

    def use(seed):
        rng = random.Random(seed)
        for _ in range(CALLS // THREADS):
            i = rng.randrange(len(calls))
            assert same(calls[i](model), alone[i]), (seed, i)

    with queue_of(model)._turn.take():      # so that they begin together
        threads = [begin(partial(use, seed)) for seed in range(THREADS)]
    results(threads)
    queue = queue_of(model)
    assert queue.counts.mixed_batches > 0
    assert [*queue._open, *queue._arrived, *queue.order] == []


@pytest.fixture
def engine(one_backend):
    return engine_of(random_model(tiny_text()), backend=one_backend, threads=1)


def test_texts_of_several_threads_are_one_batch(engine):
    expected = [engine.encode(sentence) for sentence in SENTENCES]
    queue = engine._queue
    before = queue.counts.batches
    with queue._turn.take():
        threads = [begin(partial(engine.encode, one)) for one in SENTENCES]
        wait_for_callers(queue, len(SENTENCES))
    assert all(map(same, results(threads), expected))
    assert queue.counts.batches == before + 1


def test_the_reference_computes_each_call_by_itself():
    engine = engine_of(random_model(tiny_text()), backend="reference", threads=1)
    expected = [engine.encode(sentence) for sentence in SENTENCES]
    queue = engine._queue
    with queue._turn.take():
        threads = [begin(partial(engine.encode, one)) for one in SENTENCES]
        wait_for_callers(queue, len(SENTENCES))
    assert all(map(same, results(threads), expected))
    assert queue.counts.mixed_batches == 0


def test_different_methods_are_different_batches():
    engine = load("bert_classify", threads=1)
    text = TEXTS[0]
    expected = engine.encode(text), engine.classify(text), engine.predict((text, text))
    queue = engine._queue
    before = queue.counts.batches
    with queue._turn.take():
        threads = [begin(lambda: engine.encode(text)), begin(lambda: engine.classify(text)),
                   begin(lambda: engine.predict((text, text)))]
        wait_for_callers(queue, 3)
    assert all(map(same, results(threads), expected))
    assert queue.counts.batches == before + 2       # classify and predict read the logits of one head


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_call_alone_is_cut_into_batches_by_length(batch_size):
    engine = engine_of(random_model(tiny_text()), threads=1, max_batch_tokens=40)
    texts = [" ".join(["cat"] * (i % 9)) for i in range(50)]
    engine.encode(texts, batch_size=batch_size)
    lengths = [i % 9 + 2 for i in range(50)]
    assert engine._queue.counts.batches == len([*batches(lengths, 40, batch_size)])


def test_a_timeout_ends_a_call_that_waits_for_another_thread(engine):
    with engine._queue._turn.take():
        ends, waits = begin(lambda: engine.encode(SENTENCES, timeout=0.05)), begin(lambda: engine.encode(SENTENCES))
        assert isinstance(ends.exception(60), TimedOut)
    assert same(waits.result(60), engine.encode(SENTENCES))


def test_a_text_that_is_too_long_for_one_caller_fails_alone(engine):
    expected = engine.encode(SENTENCES[0])
    with engine._queue._turn.take():
        wrong, right = begin(lambda: engine.forward([[3] * 400])), begin(lambda: engine.encode(SENTENCES[0]))
        wait_for_callers(engine._queue, 1)
    assert isinstance(wrong.exception(60), InputError)
    assert same(right.result(60), expected)


def test_an_interrupt_of_one_caller_leaves_the_others_right(engine):
    """The main thread gets the interrupts, in any line and in a pass, while it computes for others, too."""
    texts, over = [*SENTENCES] * 20, []
    expected = engine.encode(texts)

    def use():
        while not over:
            assert same(engine.encode(texts), expected)

    threads = [begin(use), begin(use)]
    try:
        interrupt_often(lambda: same(engine.encode(texts), expected), INTERRUPTS, random.Random(3))
    finally:
        over.append(True)
    results(threads)


def test_a_child_of_a_thread_that_computes_calls_the_model(engine):
    expected = engine.encode(SENTENCES)
    with engine._queue._turn.take():
        call = begin(lambda: engine.encode(SENTENCES))
        wait_for_callers(engine._queue, 1)
        assert outcome(lambda: same(engine.encode(SENTENCES), expected), seconds=30) == "ok: True"
    assert same(call.result(60), expected)
    assert np.isfinite(expected).all()


def test_the_example_of_threads(capsys):
    lines = (ROOT / "examples/many_threads.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 30
    example("many_threads")["main"](str(folder_of("bert_classify")), repeats=1)
    assert "equal bits: True" in capsys.readouterr().out
