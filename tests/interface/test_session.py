"""`generator.session()`: texts in, pieces and results out, from any thread.

    ENGINE_LEFT_STREAMS=5000 ENGINE_INTERRUPTS=10000 python -m pytest tests/interface/test_session.py
"""

import copy
import gc
import os
import pickle
import random
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

from engine import Generator
from engine.base.errors import BackendUnavailable, Cancelled, EngineError, InputError, TimedOut, UnsupportedError
from engine.methods.generate import prepare_one

from ..tools.clocks import jumping_clock
from ..tools.generators import SOURCES, language_model, translator
from ..tools.interrupts import interrupt_at, interruptible
from ..tools.paths import ROOT
from ..tools.threads import begin, together, wait_for
from ..tools.tiny_text import tiny_text

pytestmark = pytest.mark.usefixtures("quick_collections")
LEFT = int(os.environ.get("ENGINE_LEFT_STREAMS", "200"))
INTERRUPTS = int(os.environ.get("ENGINE_INTERRUPTS", "100"))
SETTINGS = ({}, {"num_beams": 3}, {"do_sample": True, "seed": 5, "temperature": 2.0}, {"repetition_penalty": 1.3},
            {"do_sample": True, "top_k": 0, "top_p": 0.7}, {"no_repeat_ngram_size": 2, "max_new_tokens": 5})


@pytest.mark.parametrize("model", [language_model, translator])
def test_results_of_many_threads_are_those_of_generate(model):
    generator, found = Generator(model(tiny_text()), threads=2), {}
    expected = {(i, j): generator.generate([source], **settings)[0]
                for i, source in enumerate(SOURCES) for j, settings in enumerate(SETTINGS)}

    def use(session, i):
        for j, settings in enumerate(SETTINGS):
            answer = session.submit(SOURCES[i], owner=str(i), **settings)
            pieces = [*answer]
            found[i, j] = answer.result(60)
            assert "".join(piece.text for piece in pieces) == found[i, j].text
            assert answer.done is True

    with generator.session() as session:
        together([partial(use, session, i) for i in range(len(SOURCES))])
    assert found == expected
    statistics = generator.statistics()
    assert (statistics.open_requests, statistics.cache_tokens) == (0, statistics.kept_tokens)


def test_an_interrupt_at_the_start_or_the_end_of_a_block_leaves_no_thread():
    """It comes before the body begins, or at the n-th line that the statement runs in the session or its queue."""
    generator = Generator(language_model())
    queue, expected = generator._model.queue, generator.generate(SOURCES[:1])
    session = generator.session()
    session.__enter__()
    answer = session.submit(SOURCES[0])
    del session, answer
    wait_for(lambda: not queue.has_thread)
    n, reached = 0, True
    while reached:
        n, lines = n + 1, []

        def use(n=n):
            nonlocal lines
            with interrupt_at(n, ("interface/session.py", "queues/work_queue.py")) as lines, generator.session():
                pass

        try:
            use()
        except KeyboardInterrupt as interrupt:
            interrupt.__traceback__ = None      # of frames that hold the session
        reached = len(lines) >= n
        wait_for(lambda: not any(thread.name == "engine-queue" for thread in threading.enumerate()))
        assert generator.generate(SOURCES[:1]) == expected, n
    assert n > 20


def test_a_text_and_several_results():
    generator = Generator(language_model(tiny_text()))
    options = {"num_return_sequences": 3, "do_sample": True, "max_new_tokens": 4}
    with generator.session() as session:
        answer = session.submit("the cat", **options)
        assert answer.result() == generator.generate("the cat", **options)
        with pytest.raises(InputError, match="num_return_sequences above 1 has no order"):
            iter(answer)


def test_the_caller_steps():
    generator = Generator(language_model())
    session = generator.session(step_seconds=0.001)
    answers = [session.submit(source, max_new_tokens=4) for source in SOURCES]
    assert session.statistics().waiting == len(SOURCES)
    while session.step():
        pass
    assert all(answer.done for answer in answers)
    assert [answer.result() for answer in answers] == generator.generate(SOURCES, max_new_tokens=4)
    last = session.submit([1, 2])
    session.close()
    with pytest.raises(Cancelled):
        last.result()
    with pytest.raises(InputError, match="it was closed; make a new one"):
        session.submit([1])


def test_the_end_of_the_block_cancels_what_is_open():
    generator = Generator(language_model())
    with generator.session() as session:
        waiting = [session.submit([1, 2], max_new_tokens=80) for _ in range(100)]
        with pytest.raises(InputError, match="a thread already"), session:
            pass
    assert generator.statistics().open_requests == 0
    errors = [answer._ticket.error for answer in waiting]
    assert {type(error) for error in errors} <= {Cancelled, type(None)}
    assert Cancelled in {type(error) for error in errors}


def test_what_is_wrong_with_a_request_is_raised_to_its_submitter():
    generator = Generator(language_model(tiny_text()), cache_tokens=60)
    with generator.session() as session:
        for call, error, match in (
            (lambda: session.submit([1] * 91), InputError, "the prompt has 91 tokens, but the model reads at most 90"),
            (lambda: session.submit(["the cat", "a dog"]), InputError, "submit takes one text, not 2 in a list"),
            (lambda: session.submit([1], max_new_tokens=4, min_new_tokens=9), InputError, "min_new_tokens=9"),
            (lambda: session.submit([1], do_sample=True, num_beams=2), UnsupportedError, "num_beams=1"),
            (lambda: session.submit([1], prompt=[2]), InputError, "has no encoder"),
            (lambda: session.submit([1], owner=3), InputError, "owner must be a str"),
            (lambda: session.submit([1], deadline=time.monotonic() - 1), InputError, "has passed"),
            (lambda: session.submit([1], timeout=3), InputError, "submit has no argument timeout; deadline="),
            (lambda: session.submit([1], max_token=3), InputError, "did you mean max_new_tokens"),
            (lambda: session.submit([1], max_new_tokens=80).result(), InputError, "cache_tokens=60"),
            (lambda: session.submit([1], max_new_tokens=50).result(1e-9), TimedOut, "timeout of the wait, and the"),
        ):
            with pytest.raises(error, match=match):
                call()
        assert session.submit([5, 6], max_new_tokens=3).result() == generator.generate([[5, 6]], max_new_tokens=3)[0]
    with pytest.raises(InputError, match="step_seconds must be a number of seconds above 0"):
        generator.session(step_seconds=0)


def test_requests_that_wait_for_room_end_and_are_overtaken(monkeypatch):
    """While a stream of a call has all room of the cache, others are cancelled, time out, and go before others."""
    generator = Generator(language_model(), cache_tokens=40)
    expected = generator.generate([[3]], max_new_tokens=30)[0]
    leave, step, ended = threading.Semaphore(0), generator._decoder.step, []
    monkeypatch.setattr(generator._decoder, "step", lambda *given: leave.acquire(timeout=60) and step(*given))
    stream = generator.stream([1, 2], max_new_tokens=30)
    leave.release()
    next(stream)
    with generator.session() as session:
        waiting = session.submit([3], max_new_tokens=30)
        cancelled = session.submit([3], max_new_tokens=30)
        late = session.submit([3], max_new_tokens=30, deadline=time.monotonic() + 0.05)
        first = session.submit([3], max_new_tokens=30, priority=1)
        with pytest.raises(TimedOut, match="and the request goes on"):
            waiting.result(0.05)
        cancelled.cancel()
        leave.release(2)
        for answer, error, text in ((cancelled, Cancelled, "cancelled"), (late, TimedOut, "before its deadline")):
            with pytest.raises(error, match=text):
                answer.result(60)
        first._ticket.entry.callbacks.append(lambda: ended.append(waiting.done))
        leave.release(1000)
        assert waiting.result(60) == first.result(60) == expected
        assert ended == [False]
    assert [piece.id for piece in stream] == generator.generate([[1, 2]], max_new_tokens=30)[0].ids[1:]
    assert generator.statistics().open_requests == 0


def test_requests_that_come_during_the_end_of_the_block_end():
    """Each of them is refused or cancelled, also while another call has all room of the cache."""
    generator, ends, leaves = Generator(language_model(), cache_tokens=40), [], threading.Event()
    stream = generator.stream([1, 2], max_new_tokens=30)
    next(stream)

    def use(session):
        while not leaves.is_set():
            try:
                session.submit([3], max_new_tokens=30).result(60)
            except EngineError as error:
                ends.append(type(error))

    with generator.session() as session:
        calls = [begin(partial(use, session)) for _ in range(8)]
        time.sleep(0.05)
    wait_for(lambda: len(ends) >= 8)
    leaves.set()
    for call in calls:
        call.result(60)
    assert set(ends) <= {Cancelled, InputError}
    assert session.statistics().waiting == 0
    session.close()
    for call in (session.step, session.__enter__):
        with pytest.raises(InputError, match="takes no more requests"):
            call()


def test_a_deadline_that_comes_while_a_text_is_read(monkeypatch):
    """It was in the future when the caller gave it, so that it is no wrong argument."""
    generator, jump = Generator(language_model(tiny_text())), jumping_clock(monkeypatch)
    with generator.session() as session:
        def slow(*given, **options):
            jump(2000)
            return prepare_one(*given, **options)

        for late in (slow, lambda *given, **options: (prepare_one(*given, **options), jump(2000))[0]):
            monkeypatch.setattr("engine.interface.session.prepare_one", late)
            with pytest.raises(TimedOut, match="the request did not end before its deadline"):
                session.submit("the cat", deadline=time.monotonic() + 1000).result(60)


def test_what_belongs_to_one_process_says_so():
    generator = Generator(language_model())
    with generator.session() as session, generator.stream([1, 2], max_new_tokens=2) as stream:
        answer = session.submit([1, 2], max_new_tokens=2)
        for each, advice in ((session, r"call session\(\) of that there"), (answer, r"send what result\(\) returns"),
                             (stream, r"send the pieces that list\(stream\) reads"), (iter(answer), "send the pieces")):
            for copied in (pickle.dumps, copy.copy):
                with pytest.raises(UnsupportedError, match=f"belongs to this process, and is neither .*; .*{advice}"):
                    copied(each)
        assert len(answer.result().ids) == len([*stream]) == 2


def test_an_iterator_belongs_to_one_thread(monkeypatch):
    generator = Generator(language_model())
    leave, step = threading.Event(), generator._decoder.step
    monkeypatch.setattr(generator._decoder, "step", lambda *given: leave.wait(60) and step(*given))
    with generator.session() as session:
        answer = session.submit([1, 2], max_new_tokens=5)
        pieces = iter(answer)
        found = begin(lambda: [piece.id for piece in pieces])
        wait_for(lambda: answer._ticket.entry.bells)
        with pytest.raises(InputError, match="two threads read one stream"):
            next(pieces)
        leave.set()
        assert found.result(60) == answer.result().ids == [piece.id for piece in answer]


def test_any_thread_computes_what_it_waits_for():
    """Also a request of a thread that has ended, outside of a `with` statement."""
    generator = Generator(language_model())
    [answer] = together([lambda: generator.session().submit([1], max_new_tokens=4)])
    assert answer.result(60) == generator.generate([[1]], max_new_tokens=4)[0]


@pytest.mark.parametrize("arguments", [{"priority": "high"}, {"priority": True}, {"owner": 3}, {"owner": None},
                                       {"deadline": 1.0}, {"deadline": "soon"}, {"deadline": float("nan")},
                                       {"deadline": -(10**400)}])
def test_wrong_arguments_of_a_place(arguments):
    [name] = arguments
    with Generator(language_model()).session() as session, pytest.raises(
            InputError, match=f"{name} must be a|deadline=.* has passed: time"):
        session.submit([1], **arguments)


def test_no_thread_for_a_session(monkeypatch):
    session = Generator(language_model()).session()

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(BackendUnavailable, match="no thread for the queue: can't start new thread; end other"):
            session.__enter__()
    with session:
        assert session.submit([1], max_new_tokens=2).result(60).ids


def test_an_error_of_each_step_ends_the_requests_and_not_the_session(monkeypatch):
    generator = Generator(language_model())

    def broken(*_):
        raise MemoryError("none left")

    with generator.session() as session:
        with monkeypatch.context() as patched:
            patched.setattr(generator._decoder, "step", broken)
            answers = [session.submit([1]) for _ in range(3)]
            for answer in answers:
                with pytest.raises(MemoryError, match="none left"):
                    answer.result(60)
        assert session.submit([1], max_new_tokens=2).result(60).ids
    assert generator.statistics().open_requests == 0


def test_a_long_prompt_does_not_stop_the_others():
    generator = Generator(language_model(), threads=1)
    session = generator.session(step_seconds=1e-9)      # 16 tokens of a prompt in a step
    short = session.submit([1, 2], max_new_tokens=40)
    while not session.statistics().rows:
        session.step()
    long = session.submit(np.arange(80) % 50, max_new_tokens=2)
    begun = len(short._ticket.tokens(0))
    while not long._ticket.tokens(0):
        session.step()
    assert len(short._ticket.tokens(0)) - begun >= 5
    while session.step():
        pass
    assert long.result() == generator.generate([np.arange(80) % 50], max_new_tokens=2)[0]


def test_the_thread_of_a_session_computes_while_nobody_waits():
    with Generator(language_model(), threads=1).session() as session:
        answers = [session.submit(source) for source in SOURCES]
        wait_for(lambda: all(answer.done for answer in answers))


def test_the_example_is_short():
    for name in ("many_users", "one_document"):
        assert len((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_submissions_that_are_left_in_cycles_keep_no_cell():
    generator, collected = Generator(language_model(), threads=1), gc.get_threshold()
    expected = generator.generate([[5, 6]], max_new_tokens=3)[0]

    def leave(session, i):
        cycle = [session.submit([1 + i % 9, 2, 3], max_new_tokens=80)]
        cycle.append(cycle)

    gc.set_threshold(50)
    try:
        with generator.session() as session:
            for i in range(LEFT):
                leave(session, i)
                if i % 20 == 0:
                    assert session.submit([5, 6], max_new_tokens=3).result(60) == expected
            gc.collect()
            assert session.submit([5, 6], max_new_tokens=3).result(60) == expected
            statistics = generator.statistics()
            assert (statistics.open_requests, statistics.cache_tokens) == (0, statistics.kept_tokens)
            assert session.statistics().waiting == 0
    finally:
        gc.set_threshold(*collected)


def test_interrupts_of_steps_arrive_and_keep_nothing():
    """The thread that steps is the main thread, which gets the interrupts."""
    generator, rng, arrived = Generator(language_model(), threads=1), random.Random(1), 0
    expected = generator.generate(SOURCES, max_new_tokens=6)
    with interruptible():
        while arrived < INTERRUPTS:
            session = generator.session()
            answers = [session.submit(source, max_new_tokens=6) for source in SOURCES]
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-5, 0.01))
                while session.step():
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                arrived += 1
                session.close()
                continue
            assert [answer.result() for answer in answers] == expected
    del session, answers
    gc.collect()
    statistics = generator.statistics()
    assert (statistics.open_requests, statistics.cache_tokens) == (0, statistics.kept_tokens)


def test_owners_share_nothing_unless_they_say_so():
    generator = Generator(language_model())
    session, found = generator.session(), []
    for owner, key in (("a", None), ("b", None), ("a", None), ("b", "a"), ("", None)):
        session.submit([1, *[2] * 40], owner=owner, cache_key=key, max_new_tokens=1).result()
        found.append(generator.statistics().found_tokens)
    assert found == [0, 0, 32, 64, 64]
    generator.generate([[1, *[2] * 40]], max_new_tokens=1)
    assert generator.statistics().found_tokens == 96, "calls share with requests without an owner"
    with pytest.raises(InputError, match="cache_key must be a text"):
        generator.generate([[1]], cache_key=3)
