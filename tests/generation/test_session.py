"""A session gives each request the bits of the request alone, whatever comes, leaves or fails beside it.

    ENGINE_SESSION_OPERATIONS=100000 python -m pytest tests/generation/test_session.py -k threads
"""

import gc
import os
import random
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.step_checks import finite_rows
from engine.backends.steps import Scores
from engine.base.errors import Cancelled, EngineError, InputError, TimedOut, UnsupportedError, WeightsError
from engine.generation.calls import generate, last_logits, score
from engine.generation.results import Request
from engine.generation.schedule import FEWEST, Budget, Pace
from engine.generation.scoring import AllLogits, LastLogits, Scoring
from engine.generation.session import Session
from engine.model.generation_config import GenerationConfig

from ..golden.table_model import table_logits
from ..tools.sessions import finish, shared_session
from .table_stepper import TableStepper

OPERATIONS = int(os.environ.get("ENGINE_SESSION_OPERATIONS", "800"))
BIAS = {2: 2.0}
BASE = {"max_new_tokens": 8, "eos_token_id": 2, "decoder_start_token_id": 1}
CONFIGS = [GenerationConfig(**{**BASE, **options}) for options in (
    {}, {"eos_token_id": [2, 5]}, {"max_new_tokens": 3}, {"length_penalty": 0.3}, {"forced_eos_token_id": 4},
    {"repetition_penalty": 1.4}, {"repetition_penalty": 0.7, "no_repeat_ngram_size": 2},
    {"encoder_no_repeat_ngram_size": 2}, {"encoder_no_repeat_ngram_size": 1, "num_beams": 2},
    {"no_repeat_ngram_size": 2, "suppress_tokens": [3], "forced_bos_token_id": 7}, {"bad_words_ids": [[5], [6, 7]]},
    {"num_beams": 2, "early_stopping": True}, {"num_beams": 2, "no_repeat_ngram_size": 2},
    {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.4},
    {"num_beams": 3, "renormalize_logits": True, "bad_words_ids": [[5], [6, 7]]},
    {"num_beams": 3, "repetition_penalty": 1.3},
    {"do_sample": True, "num_return_sequences": 3}, {"do_sample": True, "top_k": 4, "seed": 3, "temperature": 2.0},
    {"do_sample": True, "top_k": 4, "top_p": 0.6, "min_new_tokens": 3}, {"do_sample": True, "top_k": 4, "min_p": 0.2},
    {"do_sample": True, "top_k": 0, "seed": 9}, {"do_sample": True, "top_k": 0, "top_p": 0.6, "temperature": 1.5},
    {"do_sample": True, "top_k": 4, "no_repeat_ngram_size": 1, "prefix": [9, 9]},
)]  # fmt: skip
IDS = st.lists(st.integers(3, 22), min_size=1, max_size=40)
REQUESTS = st.builds(Request, st.none() | IDS, IDS, st.sampled_from(CONFIGS))


def request_of(number, config=CONFIGS[0]):
    return Request(None, [3 + number % 19, 5], config)


def alone(request):
    return generate(TableStepper(bias=BIAS), [request])[0]


@settings(max_examples=50, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=12), st.randoms(use_true_random=False), st.integers(1, 16),
       st.integers(1, 40))
def test_any_arrival_and_any_parts(requests, rng, rows, tokens):
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper, rng, Budget(rows, tokens))
    handles = []
    for request in requests:
        handles.append(session.submit(request, rng.randrange(3), rng.choice("abc")))
        for _ in range(rng.randrange(4)):
            session.step()
    finish(session)
    stepper.assert_clean()
    for request, handle in zip(requests, handles, strict=True):
        expected = alone(request)
        assert handle.result() == expected
        found = [[token.id for token in handle if token.sample == i] for i in range(len(expected))]
        assert found == [result.ids for result in expected]
    for step in stepper.steps:
        if len({row.request for row in step}) > 1:
            assert len(step) <= max(rows, 2)
            assert sum(len(row.tokens) for row in step) <= max(tokens, 2)


def test_each_row_has_its_own_settings():
    """Rows whose settings differ in all but what a group has in common are computed together, one step for all."""
    options = [{"temperature": 0.5 + i / 8, "top_p": 0.5 + i / 40, "min_p": i / 200, "seed": i, "top_k": 4,
                "max_new_tokens": 12 + i % 3, "eos_token_id": 2 + i % 5, "do_sample": True} for i in range(20)]
    options += [{**own, "suppress_tokens": [3 + i % 7]} for i, own in enumerate(options)]
    requests = [request_of(i, GenerationConfig(**own)) for i, own in enumerate(options)]
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    handles = [session.submit(request) for request in requests]
    finish(session)
    assert len(session._groups) == 0
    assert len(stepper.steps) < 20
    assert {len({row.best for row in step}) for step in stepper.steps} <= {1, 2}
    assert [handle.result() for handle in handles] == [alone(request) for request in requests]


def test_slots_are_reused():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    sampled = GenerationConfig(do_sample=True, max_new_tokens=200)
    long = session.submit(request_of(0, sampled))
    for i in range(30):
        short = session.submit(request_of(i, replace(sampled, max_new_tokens=2, temperature=1 + i)))
        while short.end is None:
            session.step()
    [group] = session._groups.values()
    assert len(group.slots._filters.top_p) == 2
    finish(session)
    assert long.result() == alone(request_of(0, sampled))


def test_parts_of_prompts_ask_for_no_scores():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    first = session.submit(request_of(0, GenerationConfig(max_new_tokens=60)))
    for _ in range(3):
        session.step()
    long = Request(None, [3 + i % 19 for i in range(400)], CONFIGS[0])
    second = session.submit(long)
    finish(session)
    parts = [row for step in stepper.steps for row in step if len(row.tokens) > 2]
    assert len(parts) > 2
    assert parts[0].tokens.tolist() == long.prompt[: len(parts[0].tokens)]
    assert [row.scored for row in parts] == [0] * (len(parts) - 1) + [1]
    assert all(any(len(row.tokens) == 1 for row in step) for step in stepper.steps[3:50]), "the other one goes on"
    assert min(len(row.tokens) for row in parts[:-1]) >= FEWEST
    assert second.result() == alone(long)
    assert first.end is not None


def test_scores_and_last_logits_beside_generations():
    rng = random.Random(3)
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper, rng)
    prompts = [np.array([4, 5, 6, 7, *range(3, 3 + n)]) for n in (1, 9, 4)]
    scored = [(Request(None, [5] * n, CONFIGS[0]), [*range(3, 3 + m)]) for n, m in ((1, 0), (3, 19), (30, 5))]
    generated = [session.submit(request_of(i, config)) for i, config in enumerate(CONFIGS)]
    ranks = session.submit(LastLogits(prompts, [4, 9]))
    text = np.arange(3, 18)
    logits = session.submit(AllLogits(text, 23))
    scores = [session.submit(Scoring(stepper, *each)) for each in scored]
    finish(session)
    stepper.assert_clean()
    assert np.array_equal(ranks.result(), last_logits(TableStepper(bias=BIAS), [prompts], [4, 9])[0])
    assert np.array_equal(logits.result(), [table_logits(text[: i + 1], 23, BIAS) for i in range(len(text))])
    for handle, (request, ids) in zip(scores, scored, strict=True):
        assert handle.result() == score(TableStepper(bias=BIAS), [request], [ids])[0]
    assert [handle.result() for handle in generated] == [alone(request_of(i, own)) for i, own in enumerate(CONFIGS)]


class Damaged(TableStepper):
    """Computes NaN for hypotheses of more than three tokens that begin with the token 20."""

    def step(self, rows):
        scores = super().step(rows)
        lines = {True: [], False: []}
        for row, number in zip(rows, scores.hypotheses.tolist(), strict=True):
            ids = self.tokens[number][1]
            lines[row.best is None] += [ids[0] == 20 and len(ids) > 3] * row.scored
        logits, total = scores.logits.copy(), scores.top.log_sum_exp.copy()
        logits[np.array(lines[True], bool)], total[np.array(lines[False], bool)] = np.nan, np.nan
        top = replace(scores.top, log_sum_exp=total)
        return Scores(scores.hypotheses, finite_rows(rows, logits, top), logits, top)


def test_all_logits_may_be_nan_and_come_in_large_parts():
    stepper = Damaged(bias=BIAS)
    session = Session(stepper, Budget(64, 100))
    handle = session.submit(AllLogits(np.array([20, *range(3, 19)] * 10), 23))
    finish(session)
    stepper.assert_clean()
    assert [len(row.tokens) for [row] in stepper.steps] == [100, 70]
    assert handle.result().shape == (170, 23)
    assert np.isnan(handle.result()).all()


@pytest.mark.parametrize("seed", range(6))
def test_wrong_cancelled_and_damaged_requests_change_no_neighbour(seed):
    rng, stepper = random.Random(seed), Damaged(bias=BIAS)
    session = shared_session(stepper, rng, Budget(20, 60))
    kept, left, hurt = [], [], []
    for i in range(40):
        config = replace(rng.choice(CONFIGS), min_new_tokens=3, max_new_tokens=9)
        request = Request(None, [rng.randrange(3, 20), *[4] * rng.randrange(30)], config)
        kept.append((session.submit(request), request))
        if i % 3 == 0:
            left.append(session.submit(request_of(i, config)))
        if i % 4 == 0:
            bad = Request(None, [20, 3], config)
            hurt.append(session.submit(bad))
        for wrong in (Request(None, [-1], config), Request(None, [99], replace(config, eos_token_id=99))):
            with pytest.raises(InputError):
                session.submit(wrong)
        for _ in range(rng.randrange(3)):
            session.step()
        if left and rng.random() < 0.5:
            rng.choice(left).cancel()
    for handle in left:
        handle.cancel()
    finish(session)
    stepper.assert_clean()
    for handle, request in kept:
        assert handle.result() == alone(request)
    for handle in hurt:
        with pytest.raises(WeightsError, match="NaN"):
            handle.result()
    assert sum(isinstance(getattr(handle.end, "error", None), Cancelled) for handle in left) > 3


def test_a_handle_gives_its_tokens_and_then_its_error_once():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    handle = session.submit(request_of(0, GenerationConfig(max_new_tokens=50)))
    for _ in range(6):
        session.step()
    handle.cancel()
    assert handle.end is None
    session.step()
    stepper.assert_clean()
    expected = alone(request_of(0, GenerationConfig(max_new_tokens=50)))[0].ids[:6]
    for _ in range(2):
        tokens = iter(handle)
        assert [next(tokens).id for _ in range(6)] == expected
        with pytest.raises(Cancelled):
            next(tokens)
        assert list(tokens) == []
        with pytest.raises(Cancelled):
            handle.result()


def test_deadlines():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper, budget=Budget(1))
    now = time.monotonic()
    runs, waits = (session.submit(request_of(i, GenerationConfig(max_new_tokens=10**6)),
                                  deadline=now + 0.05) for i in range(2))
    later = session.submit(request_of(2), deadline=now + 1000)
    while runs.end is None:
        session.step()
    finish(session)
    for handle in (runs, waits):
        with pytest.raises(TimedOut):
            handle.result()
    assert runs.tokens(0)
    assert later.result() == alone(request_of(2))
    stepper.assert_clean()


def test_a_request_that_ends_before_its_deadline_leaves_nothing():
    session = shared_session(TableStepper(bias=BIAS))
    handles = [session.submit(request_of(i), deadline=deadline) for i in range(100)
               for deadline in (10**400, float("inf"))]
    finish(session)
    assert all(handle.result() for handle in handles)
    session.step()
    assert len(session._deadlines) < 100


def test_an_abandoned_handle_ends_its_request(monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper, budget=Budget(8))
    endless = GenerationConfig(max_new_tokens=10**6)

    def leave():
        handle = session.submit(request_of(0, endless))
        cycle = [handle, iter(handle)]
        cycle.append(cycle)

    for i in range(100):
        leave()
        if i % 10 == 0:
            session.step()
            gc.collect(1)       # what is young: the others live until the end of all tests
    gc.collect()
    assert not session.step() or not session.step()
    stepper.assert_clean()
    assert not session._works
    assert not ignored


class Broken(TableStepper):
    """Raises an exception at its third step."""

    def __init__(self, error):
        super().__init__(bias=BIAS)
        self.error = error

    def step(self, rows):
        if len(self.steps) == 2:
            raise self.error
        return super().step(rows)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), WeightsError("torn")])
def test_an_exception_out_of_a_step_ends_the_session(error):
    stepper = Broken(error)
    session = shared_session(stepper, budget=Budget(4))
    handles = [session.submit(request_of(i, GenerationConfig(max_new_tokens=30))) for i in range(9)]
    with pytest.raises(type(error)):
        finish(session)
    stepper.assert_clean()
    expected = WeightsError if isinstance(error, WeightsError) else EngineError
    for handle in handles:
        with pytest.raises(expected, match="torn" if expected is WeightsError else type(error).__name__):
            handle.result()
    for call in (lambda: session.submit(request_of(0)), session.step):
        with pytest.raises(InputError, match=r"takes no more requests.*make a new one"):
            call()


@pytest.mark.parametrize(("options", "match"), [
    ({"priority": "high"}, "priority must be an int, not 'high'"), ({"priority": True}, "priority must be an int"),
    ({"owner": 3}, "owner must be a str, such as the name of a user, not 3"), ({"owner": None}, "owner must be a str"),
    ({"deadline": 1.0}, r"deadline=1\.0 has passed: time\.monotonic\(\) is"),
    ({"deadline": "soon"}, "deadline must be a number"), ({"deadline": float("nan")}, "has passed"),
    ({"deadline": -(10**400)}, "has passed"),
])
def test_wrong_arguments_of_submit(options, match):
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    other = session.submit(request_of(0))
    with pytest.raises(InputError, match=match):
        session.submit(request_of(1), **options)
    finish(session)
    assert other.result() == alone(request_of(0))


def test_wrong_requests_are_refused_to_the_submitter_alone():
    stepper = TableStepper(bias=BIAS, longest=20)
    session = shared_session(stepper)
    for request, error, match in (
        (Request(None, [3] * 21), InputError, "the prompt has 21 tokens, but the model reads at most 20"),
        (request_of(0, GenerationConfig(do_sample=True, num_beams=2)), UnsupportedError, "num_beams=1"),
        (request_of(0, GenerationConfig(num_return_sequences=2)), InputError, "needs do_sample"),
        (request_of(0, GenerationConfig(num_beams=1025)), InputError, "1,024 beams or samples"),
        ([3], InputError, "Request objects"),
    ):
        with pytest.raises(error, match=match):
            session.submit(request)


def test_given_numbers_that_end_too_early_fail_alone():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    sampled = GenerationConfig(do_sample=True, max_new_tokens=5)
    short = session.submit(Request(None, [5], sampled, [[0.5, 0.5]]))
    other = session.submit(Request(None, [5], sampled))
    finish(session)
    stepper.assert_clean()
    with pytest.raises(InputError, match="only 2"):
        short.result()
    assert other.result() == alone(Request(None, [5], sampled))


def test_a_request_that_never_fits_fails_alone():
    class Bounded(TableStepper):
        def open(self, source, tokens, stop=None):
            if tokens > 50:
                raise InputError(f"up to {tokens} tokens, and cache_tokens=50")
            return super().open(source, tokens, stop)

    stepper = Bounded(bias=BIAS)
    session = shared_session(stepper)
    handles = [session.submit(request_of(i, GenerationConfig(max_new_tokens=n)))
               for i, n in enumerate((5, 60, 5))]
    finish(session)
    with pytest.raises(InputError, match="cache_tokens=50"):
        handles[1].result()
    assert [len(handles[i].result()) for i in (0, 2)] == [1, 1]
    stepper.assert_clean()


def test_steps_and_waits_in_the_wrong_thread():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    handle, found = session.submit(request_of(0)), []

    def elsewhere():
        for call in (session.step, session.close):
            with pytest.raises(InputError, match="belongs to one thread"):
                call()
        found.append(handle.result(timeout=60))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with pytest.raises(InputError, match="would wait for itself"):
        handle.result()
    with pytest.raises(InputError, match="would wait for itself"):
        next(iter(handle))
    finish(session)
    thread.join()
    assert found == [alone(request_of(0))] == [handle.result()]


def test_a_wait_ends_with_its_timeout_and_the_request_goes_on():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    handle, found = session.submit(request_of(0)), []

    def wait():
        for timeout in (0.01, "x", -1):
            with pytest.raises(TimedOut if timeout == 0.01 else InputError):
                handle.result(timeout)
        found.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert found
    assert not handle._waiters
    finish(session)
    assert handle.result() == alone(request_of(0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_session_does_not_go_on_in_a_forked_child():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper)
    handle = session.submit(request_of(0))
    child = os.fork()
    if not child:
        try:
            for call in (session.step, session.close, handle.result, lambda: session.submit(request_of(1))):
                with pytest.raises(InputError, match="forked child"):
                    call()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finish(session)
    assert handle.result() == alone(request_of(0))


class Counting(Session):
    """Counts how often each request ends."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.ends = []

    def _end_one(self, work, end):
        self.ends.append(work.entry.number)
        super()._end_one(work, end)


def test_threads_submit_cancel_and_wait_while_another_steps():
    """Nothing is lost and nothing comes twice."""
    stepper = TableStepper(bias=BIAS)
    session = Counting(stepper, Budget(64), pace=Pace())
    requests = [request_of(i, config) for i, config in enumerate(CONFIGS * 2)]
    expected = [[result.ids for result in alone(request)] for request in requests]
    wrong, leaves = [], threading.Event()

    def use(seed):
        rng = random.Random(seed)
        try:
            for _ in range(OPERATIONS // 8):
                which = rng.randrange(len(requests))
                handle = session.submit(requests[which], rng.randrange(2), rng.choice("abcd"))
                kind = rng.random()
                if kind < 0.2:
                    handle.cancel()
                    with pytest.raises(Cancelled):
                        handle.result(60)
                elif kind < 0.5:
                    found = {i: [] for i in range(len(expected[which]))}
                    for token in handle:
                        found[token.sample].append(token.id)
                    if [*found.values()] != expected[which]:
                        wrong.append((which, found))
                elif kind < 0.9 and [result.ids for result in handle.result(60)] != expected[which]:
                    wrong.append(which)
        except BaseException as error:
            wrong.append(error)

    def step():
        session.adopt()
        while not leaves.is_set():
            if not session.step():
                session.sleep(0.2)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
    owner = threading.Thread(target=step)
    owner.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    leaves.set()
    session.wake()
    owner.join()
    session.adopt()
    finish(session)
    assert not wrong
    stepper.assert_clean()
    assert sorted(session.ends) == [*range(OPERATIONS // 8 * 8)]
    assert not session._works
    assert not session._reading


def test_statistics():
    stepper = TableStepper(bias=BIAS)
    session = shared_session(stepper, budget=Budget(2))
    handles = [session.submit(request_of(i)) for i in range(4)]
    handles.append(session.submit(Request(None, [3] * 200), priority=1))
    assert session.statistics().waiting == 5
    session.step()
    statistics = session.statistics()
    assert (statistics.waiting, statistics.rows) == (3, 0)
    assert statistics.prompt_tokens == 200 - FEWEST + 2
    assert statistics.step_seconds > 0
    session.close()
    assert session.statistics().waiting == 0
    session.close()
    for handle in handles:
        with pytest.raises(Cancelled):
            handle.result()
    stepper.assert_clean()
