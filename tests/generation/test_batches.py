"""A request gives the same result alone, in any batch and order and within any budget, and leaves nothing behind."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.backends.step_checks import finite_rows
from engine.backends.steps import Scores
from engine.base.errors import InputError, TimedOut, WeightsError
from engine.base.stop import NEVER, Stop
from engine.generation.results import Request
from engine.generation.schedule import Budget
from engine.model.generation_config import GenerationConfig

from ..tools.step_queues import finish, generate, queue_of, submit
from .table_stepper import TableStepper

BIAS = {2: 2.0}
BASE = {"max_new_tokens": 8, "eos_token_id": 2, "decoder_start_token_id": 1}
CONFIGS = [GenerationConfig(**BASE, **options) for options in (
    {},
    {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 2, "suppress_tokens": [3], "forced_bos_token_id": 7},
    {"num_beams": 2, "early_stopping": True},
    {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.4},
    {"num_beams": 3, "early_stopping": "never", "no_repeat_ngram_size": 1, "min_new_tokens": 2},
    {"num_beams": 3, "renormalize_logits": True, "bad_words_ids": [[5], [6, 7]], "forced_eos_token_id": 2},
    {"num_beams": 3, "renormalize_logits": True, "no_repeat_ngram_size": 2},
    {"do_sample": True, "num_return_sequences": 3},
    {"do_sample": True, "top_k": 0, "seed": 9},
    {"do_sample": True, "top_k": 0, "top_p": 0.6, "temperature": 1.5},
    {"do_sample": True, "top_k": 4, "no_repeat_ngram_size": 1, "prefix": [9, 9]},
)]  # fmt: skip

IDS = st.lists(st.integers(3, 22), min_size=1, max_size=6)
REQUESTS = st.builds(
    Request, st.one_of(st.none(), IDS), st.one_of(IDS, st.just([1])), st.sampled_from(CONFIGS)
) | st.builds(Request, IDS, st.none(), st.sampled_from(CONFIGS))


def alone(request):
    stepper = TableStepper(bias=BIAS)
    (results,) = generate(stepper, [request])
    stepper.assert_clean()
    return results


@settings(max_examples=70, deadline=None)
@given(st.lists(REQUESTS, max_size=9), st.integers(1, 14), st.integers(1, 40), st.randoms())
@example([Request(None, [5], CONFIGS[4])] * 4, 14, 6, Random(1))
@example([Request(None, [1], CONFIGS[2])] * 2, 2, 2, Random(1))
def test_any_batch_order_and_budget(requests, rows, tokens, random):
    expected = [alone(request) for request in requests]
    order = [*range(len(requests))]
    random.shuffle(order)
    stepper = TableStepper(bias=BIAS)
    found = generate(stepper, (requests[i] for i in order), budget=Budget(rows, tokens))
    stepper.assert_clean()
    assert found == [expected[i] for i in order]
    for step in stepper.steps:
        if len({row.request for row in step}) > 1:
            assert len(step) <= rows
            assert sum(len(row.tokens) for row in step) <= tokens


def test_large_batches_give_the_same_bits():
    """Rows of a full vocabulary, whose sums NumPy computes for many rows at once."""
    config = GenerationConfig(num_beams=3, max_new_tokens=6, eos_token_id=2, repetition_penalty=1.3)
    requests = [Request(None, [3 + i, 5], config) for i in range(40)]
    alone = [generate(TableStepper(1501, BIAS), [request])[0] for request in requests]
    assert generate(TableStepper(1501, BIAS), requests, budget=Budget(120)) == alone


@pytest.mark.parametrize("options", [
    {"no_repeat_ngram_size": 2}, {"bad_words_ids": [[5, 5]]}, {"min_length": 4}, {"begin_suppress_tokens": [7]}])
def test_renormalized_logits_have_the_same_bits_beside_rows_that_are_changed(options):
    """A row was only renormalized where some row of the batch was changed."""
    config = GenerationConfig(num_beams=3, max_new_tokens=6, eos_token_id=2, renormalize_logits=True, **options)
    requests = [Request(None, [3 + i] * (1 + i % 5), config) for i in range(20)]
    alone = [generate(TableStepper(1501, BIAS), [request])[0] for request in requests]
    assert generate(TableStepper(1501, BIAS), requests, budget=Budget(60)) == alone


def test_a_batch_is_filled_up_as_requests_end():
    lengths = [9, 1, 2, 1, 1, 4]
    requests = [Request(None, [5], GenerationConfig(max_new_tokens=n)) for n in lengths]
    stepper = TableStepper()
    generate(stepper, requests, budget=Budget(rows=2))
    assert [len(step) for step in stepper.steps] == [2] * 9, "short ones ran one after the other beside the long one"


@settings(max_examples=60, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=5))
def test_a_stream_gives_the_tokens_of_the_results(requests):
    queue = queue_of(TableStepper(bias=BIAS))
    handles = [submit(queue, request) for request in requests]
    tokens = [[*handle] for handle in handles]
    results = [handle.result() for handle in handles]
    for own, of_request in zip(tokens, results, strict=True):
        assert [[token.id for token in own if token.sample == s] for s in range(len(of_request))] == [
            result.ids for result in of_request]
    assert results == generate(TableStepper(bias=BIAS), requests)


class Interrupting(TableStepper):
    """Raises an exception at a step."""

    def __init__(self, at, error):
        super().__init__(bias=BIAS)
        self.at, self.error = at, error

    def step(self, rows, stop=NEVER):
        self.at -= 1
        if not self.at:
            raise self.error
        return super().step(rows, stop)


@pytest.mark.parametrize("at", range(1, 7))
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_call_closes_its_requests(at, error):
    """Memory that is short once is enough for each request alone, which begins anew."""
    stepper = Interrupting(at, error)
    requests = [Request([4, 4], [5 + i], config) for i, config in enumerate(CONFIGS)]
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            generate(stepper, requests, budget=Budget(12))
    else:
        assert generate(stepper, requests, budget=Budget(12)) == [alone(request) for request in requests]
    stepper.assert_clean()


def test_a_timeout_closes_the_requests():
    stepper = TableStepper()
    with pytest.raises(TimedOut):
        generate(stepper, [Request(None, [5], CONFIGS[0])], stop=Stop(1e-9))
    stepper.assert_clean()


def test_a_wrong_request_stops_the_call():
    stepper = TableStepper(longest=10)
    good = Request(None, [5], CONFIGS[0])
    for wrong, match in (
        (Request(None, [], CONFIGS[0]), "at least one token"),
        (Request(None, None, CONFIGS[0]), "needs a prompt"),
        (Request([3], None, GenerationConfig()), "no start token"),
        (Request(None, [3, -1], CONFIGS[0]), "token ids"),
        (Request(None, [[3]], CONFIGS[0]), "flat"),
        (Request(None, [3] * 11, CONFIGS[0]), "at most 10"),
        (Request(None, [3] * 5, CONFIGS[0]), "give at most 6"),
        (Request(None, [3] * 5, GenerationConfig(max_length=5)), "no room"),
        (Request(None, [3], GenerationConfig(max_new_tokens=1, forced_bos_token_id=4)), "two new tokens"),
        (Request(None, [3], GenerationConfig(eos_token_id=23)), "23 tokens"),
        ([3], "Request objects"),
    ):
        with pytest.raises(InputError, match=match):
            generate(stepper, [good, good, wrong])
        stepper.assert_clean()


def test_the_longest_hypothesis_of_the_model_is_used():
    for config in (GenerationConfig(), GenerationConfig(max_length=50), GenerationConfig(max_new_tokens=6)):
        stepper = TableStepper(longest=10)  # which fails on a longer one
        assert [len(r.ids) for (r,) in generate(stepper, [Request(None, [5] * 5, config)])] == [6]


def test_samples_share_the_prompt_and_differ():
    config = GenerationConfig(do_sample=True, num_return_sequences=5, max_new_tokens=8)
    stepper = TableStepper()
    (results,) = generate(stepper, [Request(None, [5, 6, 7], config)])
    assert [len(step) for step in stepper.steps] == [1] + [5] * 7
    assert len({tuple(result.ids) for result in results}) == 5


def test_the_seed_and_the_ids_choose_the_numbers():
    def ids(seed, prompt, source=None):
        config = GenerationConfig(do_sample=True, top_k=0, max_new_tokens=20, seed=seed, temperature=50.0)
        return generate(TableStepper(), [Request(source, prompt, config)])[0][0].ids

    runs = [ids(0, [5]), ids(1, [5]), ids(2**63, [5]), ids(0, [6]), ids(0, [5], [6]), ids(0, [5], [])]
    assert len({tuple(run) for run in runs}) == len(runs)
    assert ids(0, [5]) == runs[0]


@pytest.mark.parametrize("top_k", [0, 50])
def test_a_temperature_of_almost_zero_is_greedy(top_k):
    [[greedy]] = generate(TableStepper(), [Request(None, [5], GenerationConfig(max_new_tokens=12))])
    for temperature in (0, 1e-300, 9e-7):
        config = GenerationConfig(do_sample=True, temperature=temperature, top_k=top_k, num_return_sequences=3,
                                  max_new_tokens=12)
        assert generate(TableStepper(), [Request(None, [5], config)]) == [[greedy] * 3]


def test_given_numbers_are_checked():
    config = GenerationConfig(do_sample=True, max_new_tokens=3)
    too_short, too_many, too_large = [[0.5, 0.5]], [[0.5], [0.5]], [[1.0] * 3]
    for uniforms, match in ((too_short, "only 2"), (too_many, "1 rows"), (too_large, "0, 1"), ("x", "numbers")):
        stepper = TableStepper()
        with pytest.raises(InputError, match=match):
            generate(stepper, [Request(None, [5], config, uniforms)])
        stepper.assert_clean()


def test_rows_that_need_no_logits_do_not_get_any():
    """The best tokens, or a draw, are enough; all logits are computed where they must be."""
    for options, k in (
        ({}, 1), ({"num_beams": 3}, 6), ({"num_beams": 3, "eos_token_id": [1, 2]}, 9),
        ({"do_sample": True, "top_k": 4}, 0), ({"do_sample": True, "top_k": 0}, 0),
        ({"do_sample": True, "repetition_penalty": 1.2, "suppress_tokens": [3]}, 0),
        ({"suppress_tokens": [3, 4]}, 1), ({"num_beams": 2, "suppress_tokens": [3], "begin_suppress_tokens": [4]}, 4),
        ({"repetition_penalty": 1.2}, 1), ({"num_beams": 2, "repetition_penalty": 1.2}, None),
        ({"num_beams": 2, "suppress_tokens": [3], "renormalize_logits": True}, None),
        ({"num_beams": 2, "renormalize_logits": True}, 4),
        ({"return_timestamps": True, "no_timestamps_token_id": 20, "eos_token_id": 2}, None),
    ):  # fmt: skip
        stepper = TableStepper()
        generate(stepper, [Request(None, [5], GenerationConfig(max_new_tokens=1, **options))])
        [[row]] = stepper.steps
        want = row.wants[0]
        assert (None if want.logits else want.best) == k, options
        assert (want.draw is not None) == (k == 0)
        assert (want.changes is not None) == (k is not None and any("pen" in name or "sup" in name for name in options))


def test_a_forced_first_token_costs_no_step():
    stepper = TableStepper()
    config = GenerationConfig(num_beams=2, max_new_tokens=4, forced_bos_token_id=9)
    generate(stepper, [Request([8], [5], config)])
    assert [row.tokens.tolist() for row in stepper.steps[0]] == [[5, 9]]
    assert len(stepper.steps) == 3


def test_children_share_their_parent():
    """A beam search never reads a prompt twice: each row behind the first step has one token."""
    stepper = TableStepper()
    generate(stepper, [Request(None, [5, 6, 7], GenerationConfig(num_beams=4, max_new_tokens=9))])
    assert [sum(len(row.tokens) for row in step) for step in stepper.steps] == [3] + [4] * 8
    parents = [[row.parent for row in step] for step in stepper.steps[1:]]
    assert any(len(set(step)) < len(step) for step in parents)


def test_ids_of_any_integer_type():
    config = GenerationConfig(max_new_tokens=2)
    expected = generate(TableStepper(), [Request((3,), [5], config)])
    for kind in (np.uint8, np.int32, np.int64, np.uint64):
        assert generate(TableStepper(), [Request(np.array([3], kind), np.array([5], kind), config)]) == expected


def test_a_result_ends_where_every_token_is_forbidden():
    """After two of three tokens, no pair of tokens is left that has not been there."""
    everything = {"suppress_tokens": [*range(3, 23)], "no_repeat_ngram_size": 1, "max_new_tokens": 9}
    for options in ({}, {"num_beams": 2}, {"do_sample": True}, {"do_sample": True, "top_k": 0},
                    {"repetition_penalty": 1.1}, {"repetition_penalty": 1.1, "num_beams": 3}):  # fmt: skip
        stepper = TableStepper()
        (results,) = generate(stepper, [Request(None, [0], GenerationConfig(**everything, **options))])
        stepper.assert_clean()
        assert all(sorted(result.ids) == [1, 2] and not result.ended for result in results)
        assert np.isfinite([result.score for result in results]).all()
    nothing = GenerationConfig(suppress_tokens=[*range(23)])
    ((result,),) = generate(TableStepper(), [Request(None, [0], nothing)])
    assert (result.ids, result.score, result.ended) == ([], 0.0, False)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"repetition_penalty": 2.0},
                                     {"repetition_penalty": 2.0, "num_beams": 2}])  # fmt: skip
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_damaged_logits_are_an_error(options, value):
    stepper = TableStepper(bias={7: value})
    with np.errstate(invalid="ignore"), pytest.raises(WeightsError, match="NaN or infinite"):
        generate(stepper, [Request(None, [0], GenerationConfig(**options))])
    stepper.assert_clean()


class Damaged(TableStepper):
    """Computes NaN for hypotheses of at least four tokens of one request."""

    def step(self, rows, stop=NEVER):
        scores = super().step(rows, stop)
        hurt = [row.request == 4 * 7 and len(self.tokens[number][1]) > 3
                for row, number in zip(rows, scores.hypotheses.tolist(), strict=True)]
        kinds = np.array([not row.wants_logits for row in rows])
        logits, total = scores.logits.copy(), scores.chosen.log_sum_exp.copy()
        logits[np.array(hurt)[~kinds]], total[np.array(hurt)[kinds]] = np.nan, np.nan
        chosen = replace(scores.chosen, log_sum_exp=total)
        return Scores(scores.hypotheses, finite_rows(rows, logits, total), logits, chosen)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_request_with_nan_fails_alone(config):
    requests = [Request([4], [5 + i], replace(config, min_new_tokens=6)) for i in range(8)]
    stepper = Damaged(bias=BIAS)
    queue = queue_of(stepper)
    handles = [submit(queue, request) for request in requests]
    finish(queue)
    stepper.assert_clean()
    assert isinstance(handles[3].error, WeightsError)
    alone = TableStepper(bias=BIAS)
    assert [handles[i].result() for i in range(8) if i != 3] == generate(alone, requests[:3] + requests[4:])



@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, {"do_sample": True, "num_return_sequences": 4}])
def test_only_hypotheses_that_go_on_are_kept(options):
    """During a step, the parents and their children are live; afterwards, only the parents of the next step are."""
    stepper = TableStepper()
    rows = options.get("num_beams", options.get("num_return_sequences", 1))
    live = []
    step = stepper.step
    stepper.step = lambda *a: (live.append(set(stepper.tokens)), step(*a))[1]
    config = GenerationConfig(max_new_tokens=40, **options)
    generate(stepper, [Request(None, [5, 6], config), Request(None, [7], config)])
    stepper.assert_clean()
    assert len(live) == 40
    for before, made in zip(live, stepper.steps, strict=True):
        assert before == {row.parent for row in made} - {None}
        assert len(before) <= 2 * rows
