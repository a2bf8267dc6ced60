"""Each change of the logits by the rules of a request, for ids that come at once or one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.choice import change_logits
from engine.generation.processors import Follower, Rules, followers_of, rules_of
from engine.model.generation_config import GenerationConfig

V = 9
CONFIGS = [
    GenerationConfig(eos_token_id=2, **options)
    for options in (
        {}, {"repetition_penalty": 1.5}, {"repetition_penalty": 0.5}, {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 3}, {"bad_words_ids": [[1], [3, 4], [4, 3, 4], [5, 3]]},
        {"bad_words_ids": [[2], [2, 2]]}, {"min_new_tokens": 3}, {"min_length": 4}, {"suppress_tokens": [0, 8]},
        {"begin_suppress_tokens": [1]}, {"begin_suppress_tokens": [1], "forced_bos_token_id": 3},
        {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "bad_words_ids": [[1], [3, 4]], "min_new_tokens": 2},
        {"no_repeat_ngram_size": 1, "bad_words_ids": [[3, 4]], "suppress_tokens": [5], "begin_suppress_tokens": [6]},
        {"presence_penalty": 0.7}, {"frequency_penalty": -1.3}, {"logit_bias": {0: 5.5, 8: -100}},
        {"repetition_penalty": 1.4, "presence_penalty": -0.5, "frequency_penalty": 0.25, "logit_bias": {3: 2},
         "suppress_tokens": [3]},
    )
]  # fmt: skip
PROMPT_AND_IDS = st.tuples(st.integers(1, 3), st.lists(st.integers(0, V + 2), min_size=3, max_size=12))


def follower_of(config, prompt, source=()):
    """Return a new follower for a prompt of this number of ids, and a source."""
    followers = followers_of(np.array(source), config.encoder_no_repeat_ngram_size, V) if len(source) else {}
    return Follower(Rules(config, V), prompt, followers)


def allowed_after(follower, ids):
    """Return the ids that may follow these ones."""
    changes = follower.follow(np.array(ids), len(ids))
    return np.flatnonzero(np.ones(V, bool) if changes is None else changes.allowed.mask()).tolist()


def simple(config, prompt, ids, scores):
    """Return the changed scores of one row, written token by token."""
    scores, n = scores.copy(), config.no_repeat_ngram_size
    for token in {*ids} if config.repetition_penalty != 1 else ():
        if token < V:
            p = np.float32(config.repetition_penalty)
            scores[token] = scores[token] * p if scores[token] < 0 else scores[token] / p
    for token in range(V):      # as vLLM has it: the penalties count new tokens alone
        count = ids[prompt:].count(token)
        added = dict(config.logit_bias).get(token, 0) - config.frequency_penalty * count
        scores[token] += np.float32(added - config.presence_penalty * (count > 0))
    removed = [*config.suppress_tokens]
    removed += [ids[i + n - 1] for i in range(len(ids) - n + 1) if n and ids[i : i + n - 1] == ids[len(ids) + 1 - n :]]
    removed += [word[-1] for word in config.bad_words_ids
                if word != (2,) and ids[len(ids) - len(word) + 1 :] == list(word[:-1])]  # fmt: skip
    if len(ids) < config.min_length or len(ids) - prompt < config.min_new_tokens:
        removed.append(2)
    begin = prompt + 1 if prompt == 1 and config.forced_bos_token_id is not None else prompt
    if len(ids) == begin:
        removed += config.begin_suppress_tokens
    for token in removed:
        if token < V:
            scores[token] = -np.inf
    return scores


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CONFIGS), PROMPT_AND_IDS, st.integers(0, 2**32 - 1), st.data())
def test_each_row_is_changed_as_its_formula_says(config, row, seed, data):
    """Also where the ids come one by one, and where a fork of the hypothesis went on with other ids before."""
    prompt, ids = row
    logits = np.random.default_rng(seed).normal(size=V).astype(np.float32)
    expected = simple(config, prompt, ids, logits)
    array, n = np.array(ids), data.draw(st.integers(1, len(ids)))
    at_once, step_by_step = follower_of(config, prompt), follower_of(config, prompt)
    for i in range(n, len(ids)):
        step_by_step.follow(array, i)
        other = step_by_step.fork()
        other.follow(np.append(array[:i], [3, 4, 5, 3]), i + 4)
    for follower in (at_once, step_by_step, step_by_step.fork()):
        np.testing.assert_array_equal(change_logits(logits, follower.follow(array, len(ids))), expected)
    assert bool(Rules(config, V)) == any(vars(config)[name] != vars(GenerationConfig())[name] for name in vars(config)
                                         if name not in ("eos_token_id", "forced_bos_token_id"))


def test_requests_with_equal_rules_share_their_sets():
    one = GenerationConfig(eos_token_id=2, suppress_tokens=[0], seed=1, max_new_tokens=3)
    rules = rules_of(one, V)
    assert rules_of(GenerationConfig(eos_token_id=2, suppress_tokens=[0], do_sample=True), V) is rules
    assert rules_of(one, V + 1) is not rules
    assert rules.allowed(5, 3) is rules.allowed(9, 1)
    assert rules.allowed(5, 3).mask().tolist() == [False] + [True] * (V - 1)


def test_an_end_token_alone_is_no_bad_word():
    assert not Rules(GenerationConfig(eos_token_id=2, bad_words_ids=[[2]]), V)


@pytest.mark.parametrize("options", [{"no_repeat_ngram_size": 3}, {"bad_words_ids": [[3, 4]]},
                                     {"encoder_no_repeat_ngram_size": 3}])
def test_nothing_is_changed_where_nothing_matches(options):
    assert follower_of(GenerationConfig(**options), 1).follow(np.array([5, 6]), 2) is None


def test_a_token_counts_once_for_the_penalty():
    changes = follower_of(GenerationConfig(repetition_penalty=2.0), 1).follow(np.array([5, 5, 5]), 3)
    assert change_logits(np.full(V, 3, np.float32), changes).tolist() == [3, 3, 3, 3, 3, 1.5, 3, 3, 3]


def test_a_long_prompt_is_read_once():
    """What a rule knows of 4,000 ids is not made anew for the next one."""
    ids = np.random.default_rng(0).permutation(4000) % V
    config = GenerationConfig(no_repeat_ngram_size=3, repetition_penalty=1.1)
    follower = follower_of(config, 4000)
    follower.follow(ids, 4000)
    for n in range(4000, 4050):
        ids = np.append(ids, n % 7)
        found = follower.follow(np.where(np.arange(n + 1) < n - 2, -1, ids), n + 1)     # it looks at no older id
        assert found.allowed.mask().tolist() == follower_of(config, 4000).follow(ids, n + 1).allowed.mask().tolist()


def test_runs_of_the_source_that_do_not_come_again():
    """As EncoderNoRepeatNGramLogitsProcessor: each token that would end a run of 3 tokens of the source."""
    config = GenerationConfig(encoder_no_repeat_ngram_size=3)
    sources = [1, 2, 3, 4, 1, 2, 5], [7, 7, 7, 7], [1, 2]
    rows = [(0, [0, 1, 2]), (0, [3, 4]), (1, [7, 7]), (2, [1, 2]), (0, [2])]
    found = [allowed_after(follower_of(config, 1, sources[source]), ids) for source, ids in rows]
    assert [sorted({*range(V)} - {*ids}) for ids in found] == [[3, 5], [1], [7], [], []]
    one = follower_of(GenerationConfig(encoder_no_repeat_ngram_size=1), 1, [1, V + 1, 2])
    assert allowed_after(one, [4]) == [0, *range(3, V)]
