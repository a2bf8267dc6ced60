"""Each change of the scores: what it does to one row, and that no other row of the batch has a part in it."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.processors import (
    BadWords,
    NoRepeatNGram,
    NoRepeatOfSource,
    RepetitionPenalty,
    followers_of,
    processors_of,
)
from engine.generation.texts import Texts
from engine.model.generation_config import GenerationConfig

V = 9
CONFIGS = [
    GenerationConfig(eos_token_id=2, **options)
    for options in (
        {"repetition_penalty": 1.5}, {"repetition_penalty": 0.5}, {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 3}, {"bad_words_ids": [[1], [3, 4], [4, 3, 4], [5, 3]]},
        {"bad_words_ids": [[2], [2, 2]]}, {"min_new_tokens": 3}, {"min_length": 4}, {"suppress_tokens": [0, 8]},
        {"begin_suppress_tokens": [1]}, {"begin_suppress_tokens": [1], "forced_bos_token_id": 3},
    )
]  # fmt: skip
ROWS = st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(0, V + 2), min_size=3, max_size=12)), min_size=1,
                max_size=6)  # fmt: skip


def texts_of(rows, penalty=1.0):
    """Return texts with these (tokens of the prompt, ids)."""
    return Texts.of((np.array(ids), len(ids), prompt, penalty, {}) for prompt, ids in rows)


def simple(config, prompt, ids, scores):
    """Return the changed scores of one row, written token by token."""
    scores, n = scores.copy(), config.no_repeat_ngram_size
    for token in {*ids} if config.repetition_penalty != 1 else ():
        if token < V:
            p = np.float32(config.repetition_penalty)
            scores[token] = scores[token] * p if scores[token] < 0 else scores[token] / p
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


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CONFIGS), ROWS, st.integers(0, 2**32 - 1))
def test_each_row_is_changed_as_its_formula_says(config, rows, seed):
    scores = np.random.default_rng(seed).normal(size=(len(rows), V)).astype(np.float32)
    expected = np.array([simple(config, *row, s) for row, s in zip(rows, scores, strict=True)])
    ids = np.broadcast_to(np.arange(V), scores.shape)
    changed, removed = scores.copy(), np.zeros(scores.shape, bool)
    processors = processors_of(config, V)
    for processor in processors:
        change = processor.change(texts_of(rows, config.repetition_penalty))
        if change is not None:
            change.apply(changed)
            if processor.removes_only:
                here = change.removes(ids)
                removed |= here
                assert here.sum(axis=1).max() <= change.most
    np.testing.assert_array_equal(changed, expected)
    if all(processor.removes_only for processor in processors):
        np.testing.assert_array_equal(removed, np.isneginf(expected))


def test_the_order_is_that_of_transformers():
    config = GenerationConfig(
        repetition_penalty=2.0, no_repeat_ngram_size=2, bad_words_ids=[[1], [3, 4]], min_new_tokens=1, eos_token_id=2,
        suppress_tokens=[0], begin_suppress_tokens=[0],
    )  # fmt: skip
    names = [type(processor).__name__ for processor in processors_of(config, V)]
    assert names == ["RepetitionPenalty", "NoRepeatNGram", "Suppressed", "BadWords", "MinimumLength", "Suppressed",
                     "SuppressedAtBegin"]  # fmt: skip
    assert processors_of(GenerationConfig(eos_token_id=2, bad_words_ids=[[2]]), V) == []


@pytest.mark.parametrize("processor", [NoRepeatNGram(3, V), BadWords(((3, 4),), V)])
def test_nothing_is_changed_where_nothing_matches(processor):
    assert processor.change(texts_of([(1, [5, 6])])) is None


def test_a_token_counts_once_for_the_penalty():
    scores = np.full((1, V), 3.0, np.float32)
    RepetitionPenalty(V).change(texts_of([(1, [5, 5, 5])], 2.0)).apply(scores)
    assert scores.tolist() == [[3, 3, 3, 3, 3, 1.5, 3, 3, 3]]


def test_a_token_that_many_windows_remove_counts_once():
    change = NoRepeatNGram(3, V).change(texts_of([(1, [7] * 50), (1, [1, 2, 3, 1, 2]), (1, [5])]))
    assert change.most == 1
    assert change.removes(np.array([[3, 7], [3, 7], [3, 7]])).tolist() == [[False, True], [True, False], [False, False]]


def test_a_long_prompt_without_repetitions_takes_little_memory():
    """It took an array [rows, tokens, tokens]: 64 prompts of 8,000 tokens would have been 4 GB."""
    tokens = np.random.default_rng(0).permutation(4000)
    change = NoRepeatNGram(1, 5000).change(texts_of([(4000, tokens), (4000, tokens)]))
    ids = np.tile(np.arange(4001), (2, 1))
    tracemalloc.start()
    try:
        removed = change.removes(ids)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert (removed == (ids < 4000)).all()


def test_runs_of_the_source_that_do_not_come_again():
    """As EncoderNoRepeatNGramLogitsProcessor: each token that would end a run of 3 tokens of the source."""
    processor = NoRepeatOfSource(3, V)
    sources = [followers_of(np.array(source), 3) for source in ([1, 2, 3, 4, 1, 2, 5], [7, 7, 7, 7], [1, 2])]
    rows = [(0, [0, 1, 2]), (0, [3, 4]), (1, [7, 7]), (2, [1, 2]), (0, [2])]
    change = processor.change(Texts.of((np.array(ids), len(ids), 1, 1.0, sources[source]) for source, ids in rows))
    removed = change.removes(np.broadcast_to(np.arange(V), (len(rows), V)))
    assert [np.flatnonzero(row).tolist() for row in removed] == [[3, 5], [1], [7], [], []]
    assert processor.change(texts_of([(1, [3, 3])])) is None
