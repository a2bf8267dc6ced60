"""The queue of a decoder gives each request the bits of the request alone, whatever comes, leaves or fails beside it.

    ENGINE_STEP_OPERATIONS=100000 python -m pytest tests/generation/test_step_queue.py -k threads
"""

import gc
import os
import random
import sys
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.step_checks import finite_rows
from engine.backends.steps import Scores
from engine.base.errors import Cancelled, InputError, TimedOut, UnsupportedError, WeightsError
from engine.base.stop import NEVER
from engine.generation import step_queue
from engine.generation.checks import checked
from engine.generation.results import Request
from engine.generation.schedule import FEWEST, Budget, Pace
from engine.generation.scoring import AllLogits, LastLogits, Scoring
from engine.generation.step_queue import SHARED, StepQueue
from engine.model.generation_config import GenerationConfig

from ..golden.table_model import table_logits
from ..tools import outside
from ..tools.clocks import jumping_clock
from ..tools.limited import outcome
from ..tools.step_queues import finish, generate, last_logits, queue_of, score, step_often, submit
from ..tools.threads import begin, together
from .table_stepper import TableStepper

pytestmark = pytest.mark.usefixtures("quick_collections")
OPERATIONS = int(os.environ.get("ENGINE_STEP_OPERATIONS", "800"))
WAIT = 60 + OPERATIONS // 200
"""Seconds after which a test of threads fails that waits."""
BIAS = {2: 2.0}
IDLE = Pace().idle_seconds
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


@pytest.fixture
def stepper():
    """Return a stepper, of which nothing may be left when the test ends."""
    stepper = TableStepper(bias=BIAS)
    yield stepper
    stepper.assert_clean()


@pytest.fixture
def queue(stepper):
    return queue_of(stepper)


@settings(max_examples=50, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=12), st.randoms(use_true_random=False), st.integers(1, 16),
       st.integers(1, 40))
def test_any_arrival_and_any_parts(requests, rng, rows, tokens):
    stepper = TableStepper(bias=BIAS)
    queue = queue_of(stepper, rng, Budget(rows, tokens))
    handles = []
    for request in requests:
        handles.append(submit(queue, request, rng.randrange(3), rng.choice("abc")))
        step_often(queue, rng.randrange(4))
    finish(queue)
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


def test_each_row_has_its_own_settings(stepper, queue, monkeypatch):
    """Rows whose settings differ in all but what a group has in common are computed together, one step for all."""
    options = [{"temperature": 0.5 + i / 8, "top_p": 0.5 + i / 40, "min_p": i / 200, "seed": i, "top_k": 4,
                "max_new_tokens": 12 + i % 3, "eos_token_id": 2 + i % 5, "do_sample": True} for i in range(20)]
    options += [{**own, "suppress_tokens": [3 + i % 7]} for i, own in enumerate(options)]
    requests = [request_of(i, GenerationConfig(**own)) for i, own in enumerate(options)]
    monkeypatch.setattr(queue.schedule, "prompt_tokens", lambda *_: 300)       # on a busy machine, too
    handles = [submit(queue, request) for request in requests]
    finish(queue)
    assert len(queue._groups) == 0
    assert len(stepper.steps) < 20
    assert {len({row.wants[0].draw for row in step}) for step in stepper.steps} >= {20}
    assert [handle.result() for handle in handles] == [alone(request) for request in requests]


def test_parts_of_prompts_ask_for_no_scores(stepper, queue):
    first = submit(queue, request_of(0, GenerationConfig(max_new_tokens=60)))
    step_often(queue, 3)
    long = Request(None, [3 + i % 19 for i in range(400)], CONFIGS[0])
    second = submit(queue, long)
    finish(queue)
    parts = [row for step in stepper.steps for row in step if len(row.tokens) > 2]
    assert len(parts) > 2
    assert parts[0].tokens.tolist() == long.prompt[: len(parts[0].tokens)]
    assert [row.scored for row in parts] == [0] * (len(parts) - 1) + [1]
    assert all(any(len(row.tokens) == 1 for row in step) for step in stepper.steps[3:50]), "the other one goes on"
    assert min(len(row.tokens) for row in parts[:-1]) >= FEWEST
    assert second.result() == alone(long)
    assert first.done


def test_scores_and_last_logits_beside_generations(stepper):
    rng = random.Random(3)
    queue = queue_of(stepper, rng)
    prompts = [np.array([4, 5, 6, 7, *range(3, 3 + n)]) for n in (1, 9, 4)]
    scored = [(Request(None, [5] * n, CONFIGS[0]), [*range(3, 3 + m)]) for n, m in ((1, 0), (3, 19), (30, 5))]
    generated = [submit(queue, request_of(i, config)) for i, config in enumerate(CONFIGS)]
    ranks = submit(queue, LastLogits(prompts, [4, 9]))
    text = np.arange(3, 18)
    logits = submit(queue, AllLogits(text, 23))
    scores = [submit(queue, Scoring(stepper, *each)) for each in scored]
    finish(queue)
    assert np.array_equal(ranks.result(), last_logits(TableStepper(bias=BIAS), [prompts], [4, 9])[0])
    assert np.array_equal(logits.result(), [table_logits(text[: i + 1], 23, BIAS) for i in range(len(text))])
    for handle, (request, ids) in zip(scores, scored, strict=True):
        assert handle.result() == score(TableStepper(bias=BIAS), [request], [ids])[0]
    assert [handle.result() for handle in generated] == [alone(request_of(i, own)) for i, own in enumerate(CONFIGS)]


class Damaged(TableStepper):
    """Computes NaN for hypotheses of more than three tokens that begin with the token 20."""

    def step(self, rows, stop=NEVER):
        scores = super().step(rows, stop)
        lines = {True: [], False: []}
        for row, number in zip(rows, scores.hypotheses.tolist(), strict=True):
            ids = self.tokens[number][1]
            lines[row.wants_logits] += [ids[0] == 20 and len(ids) > 3] * row.scored
        logits, total = scores.logits.copy(), scores.chosen.log_sum_exp.copy()
        logits[np.array(lines[True], bool)], total[np.array(lines[False], bool)] = np.nan, np.nan
        chosen = replace(scores.chosen, log_sum_exp=total)
        return Scores(scores.hypotheses, finite_rows(rows, logits, total), logits, chosen)


def test_all_logits_may_be_nan_and_come_in_large_parts():
    stepper = Damaged(bias=BIAS)
    queue = queue_of(stepper, budget=Budget(64, 100))
    handle = queue.submit(AllLogits(np.array([20, *range(3, 19)] * 10), 23))
    finish(queue)
    stepper.assert_clean()
    assert [len(row.tokens) for [row] in stepper.steps] == [100, 70]
    assert handle.result().shape == (170, 23)
    assert np.isnan(handle.result()).all()


@pytest.mark.parametrize("seed", range(6))
def test_wrong_cancelled_and_damaged_requests_change_no_neighbour(seed):
    rng, stepper = random.Random(seed), Damaged(bias=BIAS)
    queue = queue_of(stepper, rng, Budget(20, 60))
    kept, left, hurt = [], [], []
    for i in range(40):
        config = replace(rng.choice(CONFIGS), min_new_tokens=3, max_new_tokens=9)
        request = Request(None, [rng.randrange(3, 20), *[4] * rng.randrange(30)], config)
        kept.append((submit(queue, request), request))
        if i % 3 == 0:
            left.append(submit(queue, request_of(i, config)))
        if i % 4 == 0:
            bad = Request(None, [20, 3], config)
            hurt.append(submit(queue, bad))
        for wrong in (Request(None, [-1], config), Request(None, [99], replace(config, eos_token_id=99))):
            with pytest.raises(InputError):
                submit(queue, wrong)
        step_often(queue, rng.randrange(3))
        if left and rng.random() < 0.5:
            rng.choice(left).cancel()
    for handle in left:
        handle.cancel()
    finish(queue)
    stepper.assert_clean()
    for handle, request in kept:
        assert handle.result() == alone(request)
    for handle in hurt:
        with pytest.raises(WeightsError, match="NaN"):
            handle.result()
    assert sum(isinstance(handle.error, Cancelled) for handle in left) > 3


def test_a_handle_gives_its_tokens_and_then_its_error_once(stepper, queue):
    handle = submit(queue, request_of(0, GenerationConfig(max_new_tokens=50)))
    step_often(queue, 6)
    handle.cancel()
    assert handle.done
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


def test_deadlines(stepper, monkeypatch):
    queue, jump = queue_of(stepper, budget=Budget(1)), jumping_clock(monkeypatch)
    now = time.monotonic()
    runs, waits = (submit(queue, request_of(i, GenerationConfig(max_new_tokens=10**6)),
                                  deadline=now + 1000) for i in range(2))
    later = submit(queue, request_of(2), deadline=now + 10**6)
    step_often(queue, 5)
    assert not runs.done
    jump(2000)
    finish(queue)
    for handle in (runs, waits):
        with pytest.raises(TimedOut):
            handle.result()
    assert runs.tokens(0)
    assert later.result() == alone(request_of(2))


def test_a_request_that_ends_before_its_deadline_leaves_nothing(queue):
    handles = [submit(queue, request_of(i), deadline=deadline) for i in range(100)
               for deadline in (10**400, float("inf"))]
    finish(queue)
    assert all(handle.result() for handle in handles)
    queue.step()
    assert len(queue._deadlines) < 100


def test_an_abandoned_handle_ends_its_request(stepper, monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    queue = queue_of(stepper, budget=Budget(8))
    endless = GenerationConfig(max_new_tokens=10**6)

    def leave():
        handle = submit(queue, request_of(0, endless))
        cycle = [handle, iter(handle)]
        cycle.append(cycle)

    for i in range(100):
        leave()
        if i % 10 == 0:
            queue.step()
            gc.collect(1)       # what is young: the others live until the end of all tests
    gc.collect()
    assert not queue.step() or not queue.step()
    assert not queue._open
    assert not ignored


class Broken(TableStepper):
    """Raises an exception at its third step."""

    def __init__(self, error):
        super().__init__(bias=BIAS)
        self.error = error

    def step(self, rows, stop=NEVER):
        if len(self.steps) == 2:
            self.steps.append([])
            raise self.error
        return super().step(rows, stop)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), WeightsError("torn"), RuntimeError("a handler")])
def test_requests_that_an_exception_tears_begin_anew(error):
    """They come to the same results, and give no token twice."""
    stepper = Broken(error)
    queue = queue_of(stepper, budget=Budget(4))
    requests = [request_of(i, GenerationConfig(max_new_tokens=30)) for i in range(9)]
    handles = [submit(queue, request) for request in requests]
    if not isinstance(error, MemoryError):      # no request raises it alone, so it came to this thread from outside
        with pytest.raises(type(error)):
            finish(queue)
    finish(queue)
    stepper.assert_clean()
    for handle, request in zip(handles, requests, strict=True):
        [result] = alone(request)
        assert handle.result() == [result]
        assert [token.id for token in handle] == result.ids


def test_an_interrupt_while_the_last_request_ends_keeps_nothing(stepper, queue, monkeypatch):
    """Nobody asks for anything afterwards."""
    def forget(queue, entry):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(StepQueue, "_forget", forget)
    with pytest.raises(KeyboardInterrupt):
        generate(queue, [request_of(0)])
    stepper.assert_clean()
    assert queue.counts == (0, 0)
    assert generate(queue, [request_of(0)]) == [alone(request_of(0))]


def test_an_interrupt_while_a_request_that_waits_is_cancelled(monkeypatch):
    def forget(queue, entry):
        monkeypatch.undo()
        raise KeyboardInterrupt

    queue = queue_of(TableStepper(bias=BIAS), budget=Budget(1))
    first, second, third = (submit(queue, request_of(i)) for i in range(3))
    queue.step()
    monkeypatch.setattr(StepQueue, "_forget", forget)
    with pytest.raises(KeyboardInterrupt):
        second.cancel()
    finish(queue)
    assert [first.result(), third.result()] == [alone(request_of(0)), alone(request_of(2))]
    with pytest.raises(Cancelled):
        second.result()


class Poisoned(TableStepper):
    """Raises an exception for each step that has a row of a request whose prompt begins with the token 20."""

    def __init__(self, error):
        super().__init__(bias=BIAS)
        self.error, self.poisoned = error, set()

    def step(self, rows, stop=NEVER):
        self.poisoned |= {row.request for row in rows if row.parent is None and row.tokens[0] == 20}
        for row in rows:
            if row.request in self.poisoned and (row.parent is None or len(self.tokens[row.parent][1]) > 4):
                raise self.error
        return super().step(rows, stop)

    def close(self, request):
        self.poisoned.discard(request)
        super().close(request)


@pytest.mark.parametrize("error", [MemoryError("none left"), WeightsError("torn"), RuntimeError("a fault")])
def test_a_request_whose_steps_raise_fails_alone(error):
    stepper = Poisoned(error)
    queue = queue_of(stepper, budget=Budget(16))
    config = GenerationConfig(max_new_tokens=12)
    requests = [request_of(i % 15, own) for i, own in enumerate(CONFIGS)]
    handles = [submit(queue, request) for request in requests]
    bad = [submit(queue, Request(None, prompt, config)) for prompt in ([20, 3], [20], [20, 4, 5, 6, 7])]
    finish(queue)
    stepper.assert_clean()
    for handle in bad:
        with pytest.raises(type(error), match=str(error)):
            handle.result()
    assert [handle.result() for handle in handles] == [alone(request) for request in requests]


@pytest.mark.parametrize(("how", "times"), [("from_handler", 1), ("from_thread", 1), ("from_thread", 2)])
@pytest.mark.parametrize("error", [TimedOut, ValueError, MemoryError])
@pytest.mark.parametrize("place", ["step", "split"])
def test_an_error_that_is_set_from_outside_is_for_its_thread(stepper, error, how, times, place, monkeypatch):
    """The thread steps for itself and for others. Each request comes to its end, whoever waits for it.

    A second error may come while it looks whose the first one is.
    """
    queue, calls = queue_of(stepper), []
    owner = StepQueue if place == "split" else TableStepper
    own = {"split": StepQueue._hand_out, "step": TableStepper.step}[place]

    def once(*given):
        calls.append(1)
        if 5 <= len(calls) < 5 + times:
            getattr(outside, how)(error)
        return own(*given)

    monkeypatch.setattr(owner, {"split": "_hand_out", "step": "step"}[place], once)
    requests = [request_of(i, GenerationConfig(max_new_tokens=20)) for i in range(4)]
    handles = [submit(queue, request, owner=str(i)) for i, request in enumerate(requests)]
    with outside.raising(error):
        if how == "from_thread" and error is MemoryError:
            handles[0].result()
        else:
            with pytest.raises(error):
                handles[0].result()
    assert [handle.result() for handle in handles] == [alone(request) for request in requests]


@pytest.mark.parametrize("rows", [2, 5, 16])
def test_a_caller_gets_a_row_soon_beside_one_who_fills_all(rows):
    """The last sequences of the large call pause, and go on as soon as there are rows."""
    stepper = TableStepper(bias={2: -50.0})
    queue = queue_of(stepper, budget=Budget(rows))
    requests = [request_of(i, GenerationConfig(max_new_tokens=30)) for i in range(rows + 3)]
    handles = [submit(queue, request, owner="large") for request in requests]
    step_often(queue, 5)
    assert queue.counts == (rows, 3)
    small = [submit(queue, request_of(i, GenerationConfig(max_new_tokens=6)), owner=name) for i, name in
             enumerate("abb")]
    step_often(queue, 4)
    assert len(small[0].entry.parts) >= 3
    assert len(queue._paused) == min(2, rows - 1), "each caller without a row gets one, if the large call keeps more"
    finish(queue)
    stepper.assert_clean()
    expected = [generate(TableStepper(bias={2: -50.0}), [request])[0] for request in requests]
    assert [handle.result() for handle in handles] == expected
    assert all(len(handle.result()[0].ids) == 6 for handle in small)
    assert not queue._paused


@pytest.mark.parametrize(("source", "options"), [
    (None, {}), ([8, 9], {}), (None, {"logprobs": 2}), (None, {"logprobs": 1, "echo": True}),
    (None, {"temperature": 0.0}), (None, {"repetition_penalty": 1.4, "top_k": 4}),
    (None, {"max_new_tokens": 0, "echo": True})])
def test_samples_apart_are_those_of_one_work_and_leave_rows_to_others(stepper, source, options):
    queue = queue_of(stepper, budget=Budget(3), keep_tokens=64)
    config = GenerationConfig(**BASE | {"do_sample": True, "num_return_sequences": 6} | options)
    request = Request(source, [*range(3, 22), 5], config)
    parts = checked(stepper, request, queue.budget).apart()
    handles = [queue.submit(part, owner="large") for part in parts]
    queue.step()
    small = submit(queue, request_of(1, GenerationConfig(max_new_tokens=2)), owner="small")
    while not small.done:
        queue.step()
    assert config.max_new_tokens < 8 or sum(not handle.done for handle in handles) >= 3
    finish(queue)
    queue.prefixes.let_go(64)
    assert [result for handle in handles for result in handle.result()] == alone(request)
    if source is None and not config.echo:
        assert queue.tokens_read == 16 + 6 * 4 + 2, "the samples share the whole block of their prompt"


def test_samples_apart_draw_the_numbers_of_their_rows():
    uniforms = np.random.default_rng(1).random((3, 8))
    request = replace(request_of(2, GenerationConfig(**BASE, do_sample=True, num_return_sequences=3)),
                      uniforms=uniforms)
    queue = queue_of(TableStepper(bias=BIAS))
    handles = [queue.submit(part) for part in checked(TableStepper(bias=BIAS), request, queue.budget).apart()]
    finish(queue)
    assert [result for handle in handles for result in handle.result()] == alone(request)


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"do_sample": True, "num_return_sequences": 2}])
def test_who_promises_all_room_keeps_its_rows(options):
    stepper = TableStepper(bias={2: -50.0})
    queue = queue_of(stepper, budget=Budget(4))
    large = [submit(queue, request_of(i, GenerationConfig(max_new_tokens=20, **options)), owner="large")
             for i in range(2)]
    queue.step()
    small = submit(queue, request_of(5), owner="small")
    finish(queue)
    assert queue.room.gave_way == 0
    assert all(handle.done for handle in (*large, small))


def test_wrong_requests_are_refused_to_the_submitter_alone():
    stepper = TableStepper(bias=BIAS, longest=20)
    queue = queue_of(stepper)
    for request, error, match in (
        (Request(None, [3] * 21), InputError, "the prompt has 21 tokens, but the model reads at most 20"),
        (request_of(0, GenerationConfig(do_sample=True, num_beams=2)), UnsupportedError, "num_beams=1"),
        (request_of(0, GenerationConfig(num_return_sequences=2)), InputError, "needs do_sample"),
        (request_of(0, GenerationConfig(num_beams=1025)), InputError, "1,024 beams or samples"),
    ):
        with pytest.raises(error, match=match):
            submit(queue, request)


def test_given_numbers_that_end_too_early_fail_alone(queue):
    sampled = GenerationConfig(do_sample=True, max_new_tokens=5)
    short = submit(queue, Request(None, [5], sampled, [[0.5, 0.5]]))
    other = submit(queue, Request(None, [5], sampled))
    finish(queue)
    with pytest.raises(InputError, match="only 2"):
        short.result()
    assert other.result() == alone(Request(None, [5], sampled))


def test_a_request_that_never_fits_fails_alone(stepper):
    queue = StepQueue(stepper, cache_tokens=50)
    handles = [submit(queue, request_of(i, GenerationConfig(max_new_tokens=n)))
               for i, n in enumerate((5, 60, 5))]
    finish(queue)
    with pytest.raises(InputError, match="cache_tokens=50"):
        handles[1].result()
    assert [len(handles[i].result()) for i in (0, 2)] == [1, 1]


def test_a_wait_ends_with_its_timeout_and_the_request_goes_on(queue):
    queue.start()
    handle = submit(queue, request_of(0, GenerationConfig(max_new_tokens=10**6)))
    for timeout, error in ((0.01, TimedOut), ("x", InputError), (-1, InputError)):
        with pytest.raises(error):
            handle.result(timeout)
    assert not handle.entry.end_bells
    assert not handle.done
    handle.cancel()
    queue.stop()
    with pytest.raises(Cancelled):
        handle.result()


def test_requests_that_wait_for_room_are_left_to_do():
    """Otherwise `close` would leave them, and a thread of the queue would sleep before each of them."""
    queue = queue_of(TableStepper(bias=BIAS), budget=Budget(rows=1))
    handles = [submit(queue, request_of(i)) for i in range(3)]
    queue.close()
    assert all(handle.done for handle in handles)
    assert [handle.result() for handle in handles] == [alone(request_of(i)) for i in range(3)]


def test_requests_go_on_in_a_forked_child(stepper, queue):
    """Also one of another thread, which does not exist there."""
    handle = submit(queue, request_of(0))
    [other] = together([lambda: submit(queue, request_of(1))])
    for _ in zip(range(3), handle, strict=False):
        pass
    expected = [alone(request_of(i)) for i in range(3)]
    queue._sleeps = True        # as while a thread of the queue waits for works

    def check():
        assert together([lambda: handle.result(30)] * 2) == [expected[0]] * 2
        assert [other.result(), submit(queue, request_of(2)).result()] == expected[1:]
        assert [token.id for token in handle] == expected[0][0].ids
        submit(queue, request_of(3)).cancel()
        assert queue._bell.qsize() <= 1
        stepper.assert_clean()
        assert not queue._arrived

    assert outcome(check, seconds=60) == "ok: None"
    queue._sleeps = False
    finish(queue)
    assert [handle.result(), other.result()] == expected[:2]


class Crowded(TableStepper):
    """Lets another caller come in the middle of each of the first steps that read a prompt."""

    comers = ()

    def step(self, rows, stop=NEVER):
        if self.comers and any(len(row.tokens) > 1 for row in rows):
            self.comers.pop()()
            stop.check()
        return super().step(rows, stop)


@pytest.mark.parametrize("options", [{}, {"num_return_sequences": 3}, {"uniforms": [[0.1, 0.9, 0.5, 0.2]]}])
def test_a_step_that_another_caller_ends_draws_no_number_twice(options):
    uniforms = options.get("uniforms")
    settings = {name: value for name, value in options.items() if name != "uniforms"}
    config = GenerationConfig(do_sample=True, max_new_tokens=4, ignore_eos=True, repetition_penalty=1.3, **settings)
    stepper = Crowded(bias=BIAS)
    queue = StepQueue(stepper)
    others = [Request(None, [i + 3], config) for i in range(2)]
    stepper.comers = [lambda one=one: queue.submit(checked(stepper, one, queue.budget), owner=one.prompt[0])
                      for one in others]
    request = Request(None, [5, 6, 7], config, uniforms)
    handle = queue.submit(checked(stepper, request, queue.budget), owner=1)
    assert handle.result() == alone(request)
    assert len(stepper.comers) < 2, "a step was ended"


class Counting(StepQueue):
    """Counts how often each request ends."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.ends = []

    def _finish(self, entry, end):
        if entry.end is None:
            self.ends.append(entry.number)
        super()._finish(entry, end)


@pytest.mark.parametrize("own_thread", [False, True])
def test_threads_submit_cancel_and_wait(stepper, own_thread):
    """Nothing is lost and nothing comes twice."""
    queue = Counting(stepper, Budget(64))
    requests = [request_of(i, config) for i, config in enumerate(CONFIGS * 2)]
    expected = [[result.ids for result in alone(request)] for request in requests]

    def use(seed):
        rng = random.Random(seed)
        for _ in range(OPERATIONS // 16):
            which = rng.randrange(len(requests))
            handle = submit(queue, requests[which], rng.randrange(2), rng.choice("abcd"))
            kind = rng.random()
            if kind < 0.2:
                handle.cancel()
                with pytest.raises(Cancelled):
                    handle.result(WAIT)
            elif kind < 0.5:
                found = {i: [] for i in range(len(expected[which]))}
                for token in handle:
                    found[token.sample].append(token.id)
                assert [*found.values()] == expected[which]
            elif kind < 0.9:
                assert [result.ids for result in handle.result(WAIT)] == expected[which]

    if own_thread:
        queue.start()
    try:
        together([partial(use, seed) for seed in range(8)])
        gc.collect()
    finally:
        queue.stop()        # does nothing if the queue has no thread
    finish(queue)
    assert sorted(queue.ends) == [*range(OPERATIONS // 16 * 8)]
    assert not queue._open
    assert not queue._reading
    assert not queue._asleep


class Visited(TableStepper):
    """Gets a request of another caller in the middle of a step of more than 1,000 tokens; the clock counts tokens."""

    def __init__(self, clock):
        super().__init__(bias=BIAS)
        self.clock, self.queue, self.visitors, self.sizes, self.shared = clock, None, [], [], []

    def step(self, rows, stop=NEVER):
        self.sizes.append(sum(len(row.tokens) for row in rows))
        if not all(handle.done for handle in self.visitors):
            self.shared.append(self.sizes[-1])
        if self.sizes[-1] > 1000 and self.queue is not None:
            self.visitors.append(submit(self.queue, request_of(len(self.visitors)), owner=str(len(self.visitors))))
        scores = super().step(rows, stop)
        self.clock.now += self.sizes[-1] / 1000
        return scores


class Clock:
    """The time of a queue."""

    now = 0.0
    monotonic = time.monotonic

    def perf_counter(self):
        return self.now


@pytest.mark.parametrize("prompts", [[9000], [130] * 64])
def test_a_long_step_of_one_caller_ends_when_another_one_comes(prompts, monkeypatch):
    """Steps are as short then as the pace wants. One caller alone loses nothing, and others end few of its steps."""
    requests = [Request(None, [3 + (i // 19 if j == 1 else i + j) % 19 for j in range(n)], CONFIGS[0])
                for i, n in enumerate(prompts)]     # no two begin alike
    expected = [alone(request) for request in requests]
    for visited in (False, True):
        monkeypatch.setattr(step_queue, "time", clock := Clock())
        stepper = Visited(clock)
        queue = StepQueue(stepper)
        if visited:
            stepper.queue = queue
        works = [checked(stepper, request, queue.budget) for request in requests]
        handles = [queue.submit(work, owner="one") for work in works]
        while not all(handle.done for handle in handles):
            queue.step()
        if visited:
            long = [size for size in stepper.sizes if size > 1000]
            assert 1 <= len(long) == len(stepper.visitors) <= 3
            assert sum(long) <= sum(prompts)
            assert max(stepper.shared) <= 1000 * IDLE
            finish(queue)
            assert [handle.result() for handle in stepper.visitors] == [alone(request_of(i)) for i in range(len(long))]
        else:
            assert stepper.sizes[:2] == [4096, 4096]
        assert [handle.result() for handle in handles] == expected
        stepper.assert_clean()


def test_the_shortest_pace_holds_for_all(stepper):
    """A session that wants short steps has them beside callers who want none; alone, these share theirs."""
    queue = queue_of(stepper)
    tickets = [submit(queue, request_of(i), pace=pace) for i, pace in enumerate((SHARED, None))]
    queue.step()
    assert queue.schedule.pace == SHARED
    tickets.append(submit(queue, request_of(2), pace=Pace(0.01, 1.0)))
    queue.step()
    assert queue.schedule.pace == Pace(0.01, SHARED.idle_seconds)
    finish(queue)


def test_statistics(stepper):
    queue = queue_of(stepper, budget=Budget(2))
    handles = [submit(queue, request_of(i)) for i in range(4)]
    handles.append(submit(queue, Request(None, [3] * 200), priority=1))
    assert queue.statistics(queue).waiting == 5
    queue.step()
    statistics = queue.statistics(queue)
    assert (statistics.waiting, statistics.rows) == (3, 0)
    assert statistics.prompt_tokens == 200 - FEWEST + 2
    assert statistics.step_seconds > 0
    queue.cancel_session(queue)
    assert queue.statistics(queue).waiting == 0
    for handle in handles:
        with pytest.raises(Cancelled):
            handle.result()


def test_no_room_for_one_request_fails_it_alone():
    """Also in the thread of the queue, which goes on."""
    class Full(TableStepper):
        def open(self, source):
            if self.opened in (1, 2, 3):      # also when the request is tried alone, twice
                self.opened += 1
                raise MemoryError("no room")
            return super().open(source)

    stepper = Full(bias=BIAS)
    queue = queue_of(stepper)
    queue.start()
    handles = [submit(queue, request_of(i)) for i in range(4)]
    with pytest.raises(MemoryError, match="no room"):
        handles[1].result(60)
    assert [handles[i].result(60) for i in (0, 2, 3)] == [alone(request_of(i)) for i in (0, 2, 3)]
    assert submit(queue, request_of(4)).result(60) == alone(request_of(4))
    queue.stop()
    stepper.assert_clean()


def test_the_end_of_the_thread_waits_for_no_caller():
    """A caller that has the turn goes on with its own request."""
    begun, goes_on = threading.Event(), threading.Event()

    class Held(TableStepper):
        def step(self, rows, stop=NEVER):
            begun.set()
            assert goes_on.wait(60)
            return super().step(rows, stop)

    stepper = Held(bias=BIAS)
    queue, long = queue_of(stepper), request_of(0, GenerationConfig(max_new_tokens=400))
    found = begin(lambda: submit(queue, long).result(60))
    assert begun.wait(60)
    queue.start()
    queue.stop()
    assert not found.done()
    goes_on.set()
    assert found.result(60) == alone(long)


def test_requests_enter_while_the_cache_has_room_for_their_ids(stepper):
    queue, request = StepQueue(stepper, cache_tokens=64), Request(None, [5] * 20, GenerationConfig(max_new_tokens=10))
    handles = [submit(queue, replace(request, prompt=[5 + i] * 20)) for i in range(3)]
    queue.step()
    assert queue.counts == (2, 1)
    finish(queue)
    assert [handle.result() for handle in handles] == [alone(replace(request, prompt=[5 + i] * 20)) for i in range(3)]
