"""Log probabilities of given continuations: right, and the same in any batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import InputError, TimedOut
from engine.base.stop import Stop
from engine.generation import schedule
from engine.generation.results import Request
from engine.generation.schedule import Budget
from engine.model.generation_config import GenerationConfig

from ..golden.table_model import table_logits
from ..tools.step_queues import generate, score
from .table_stepper import TableStepper

IDS = st.lists(st.integers(0, 22), max_size=9)
CONFIG = GenerationConfig(decoder_start_token_id=1, prefix=[4])


def simple(request, ids):
    tokens = [*(request.prompt or [1]), 4]
    found = []
    for token in ids:
        logits = table_logits(tokens, 23, {}, request.source or ()).astype(np.float64)
        found.append(logits[token] - np.log(np.exp(logits).sum()))
        tokens.append(token)
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.none() | IDS, IDS, IDS), max_size=7), st.integers(1, 5), st.integers(1, 30))
def test_in_any_batch(texts, rows, tokens):
    requests = [Request(source, prompt or None if source is not None else [1, *prompt], CONFIG)
                for source, prompt, _ in texts]  # fmt: skip
    stepper = TableStepper()
    found = score(stepper, requests, [ids for *_, ids in texts], budget=Budget(rows, tokens))
    stepper.assert_clean()
    for request, (*_, ids), values in zip(requests, texts, found, strict=True):
        assert values == pytest.approx(simple(request, ids), abs=1e-5)
        assert [values] == score(TableStepper(), [request], [ids])
    assert max(map(len, stepper.steps), default=0) <= rows


def test_long_continuations_are_read_in_parts(monkeypatch):
    monkeypatch.setattr(schedule, "MOST_SCORES", 23)
    request, ids = Request(None, [3], CONFIG), [*range(11)] * 5
    stepper = TableStepper(longest=56)
    (found,) = score(stepper, [request], [ids])
    stepper.assert_clean()
    assert [[len(row.tokens) for row in step] for step in stepper.steps] == [[24], [23], [9]]
    assert found == pytest.approx(simple(request, ids), abs=1e-5)
    with pytest.raises(InputError, match="at most 57"):
        score(stepper, [request], [[*range(11)] * 5 + [1]])


def test_few_logits_at_once(monkeypatch):
    """A temperature needs all logits."""
    monkeypatch.setattr(schedule, "MOST_SCORES", 23 * 6)
    requests, ids = [Request(None, [3], CONFIG)] * 3, [[*range(9)]] * 3
    for temperature, most in ((1, 27), (1 + 1e-9, 6)):
        stepper = TableStepper()
        for found in score(stepper, requests, ids, temperature=temperature):
            assert found == pytest.approx(simple(requests[0], ids[0]), abs=1e-5)
        assert {sum(row.scored for row in step) for step in stepper.steps[:4]} == {most}


def test_a_greedy_result_has_the_sum_as_its_score():
    config = GenerationConfig(max_new_tokens=7, length_penalty=0.0)
    request = Request([5], [7], config)
    ((result,),) = generate(TableStepper(), [request])
    (found,) = score(TableStepper(), [request], [result.ids])
    assert sum(found) == pytest.approx(result.score, abs=1e-5)


def test_wrong_calls_leave_nothing():
    stepper, good = TableStepper(), Request(None, [3], CONFIG)
    for ids, message in (([23], "23 tokens"), ([-1], "at least 0"), ([0.5], "token ids"), ("a", "token ids")):
        with pytest.raises(InputError, match=message):
            score(stepper, [good, good], [[1, 2, 3], ids])
        stepper.assert_clean()
    with pytest.raises(TimedOut):
        score(stepper, [good], [[1]], stop=Stop(1e-9))
    stepper.assert_clean()
