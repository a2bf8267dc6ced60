"""The best tokens of a row, the numbers that draw tokens, and how often each token is drawn.

    ENGINE_SEEDS=2000 python -m pytest tests/generation/test_sampling.py
"""

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Generator, Model, Transformer
from engine.backends.choice import change_logits, drawn_of, keep_words
from engine.backends.steps import Row
from engine.backends.wants import Draw
from engine.generation.processors import Follower, Rules
from engine.generation.results import Request
from engine.generation.sampling import stream_of_numbers
from engine.generation.top_k import best, log_sum_exp
from engine.model.generation_config import GenerationConfig

from ..tools.decoders import DECODERS as TINY
from ..tools.decoders import make_weights
from ..tools.generators import SETTINGS
from ..tools.step_queues import generate

SEEDS = int(os.environ.get("ENGINE_SEEDS", "150"))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.sampled_from([1, 7, 128, 129, 500, 1100]), st.integers(1, 9), st.integers(0, 2**32 - 1),
       st.sampled_from([3, 50, 10**6]), st.sampled_from([0.0, 0.5, 0.99, 1.0]))  # fmt: skip
def test_best_are_the_best(R, V, k, seed, distinct, absent):
    """Ties go to the lowest id; -inf is never among the best."""
    random = np.random.default_rng(seed)
    scores = random.integers(0, distinct, (R, V)).astype(np.float32)
    scores[random.random((R, V)) < absent] = -np.inf
    values, ids = best(scores, k)
    for row, row_values, row_ids in zip(scores, values, ids, strict=True):
        order = [i for i in np.argsort(-row, kind="stable")[:k] if row[i] > -np.inf]
        fill = k - len(order)
        assert row_ids.tolist() == order + [0] * fill
        assert row_values.tolist() == row[order].tolist() + [-np.inf] * fill


def test_log_sum_exp():
    scores = np.array([[1, 2, -np.inf], [-np.inf] * 3, [1000, 1000, 1000], [-1000, -1000, -1000]], np.float32)
    expected = [np.log(np.exp(1) + np.exp(2)), -np.inf, 1000 + np.log(3), -1000 + np.log(3)]
    np.testing.assert_allclose(log_sum_exp(scores), np.float32(expected), rtol=1e-6)


def test_many_draws_have_the_right_frequencies():
    logits = np.array([0.0, 1.0, 2.0, -1.0], np.float32)
    p = np.exp(logits / 2)
    numbers = stream_of_numbers(3, None, np.array([1]), 0)
    drawn = drawn_of(logits, Draw(temperature=2.0), [numbers.random() for _ in range(20000)])
    np.testing.assert_allclose(np.bincount(drawn) / 20000, p / p.sum(), atol=0.012)


@pytest.fixture(scope="module")
def generator():
    config = replace(TINY["Llama"], vocab_size=700)
    return Generator(Model(decoder=Transformer(config, make_weights(config)), generation=SETTINGS), backend="cython")


@pytest.mark.parametrize("settings", [
    {}, {"temperature": 0.4}, {"temperature": 3.0}, {"top_k": 5}, {"top_k": 200, "temperature": 0.7}, {"top_p": 0.7},
    {"top_p": 0.95, "temperature": 2.0}, {"min_p": 0.05}, {"top_k": 50, "top_p": 0.8, "min_p": 0.02},
    {"repetition_penalty": 1.5, "top_p": 0.9, "suppress_tokens": [8, 9, 10]},
], ids=str)
def test_tokens_come_as_often_as_their_probabilities_say(generator, settings):
    """The chi-square statistic of the first tokens of many seeds; no token outside the kept set comes."""
    prompt = [5, 77, 450, 77, 612]
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **settings})
    decoder = generator._model.decoder
    logits = decoder.step([Row(decoder.open(), None, np.array(prompt))]).logits[0].astype(np.float64)
    draw = Draw(config.temperature, config.top_k, config.top_p, config.min_p)
    ids, y = keep_words(change_logits(logits, Follower(Rules(config, 700), 5, {}).follow(np.array(prompt), 5)), draw)
    requests = [Request(None, prompt, replace(config, max_new_tokens=1, seed=seed)) for seed in range(SEEDS)]
    found = np.array([result.ids[0] for [result] in generate(generator._model.queue, requests)])
    assert np.isin(found, ids).all()
    expected, counts = SEEDS * np.exp(y) / np.exp(y).sum(), (found[:, None] == ids).sum(axis=0)
    order = np.argsort(-expected)       # tokens that are expected less than 5 times are counted together
    groups = np.minimum(np.arange(len(ids)), max(1, (expected >= 5).sum()))
    expected, counts = (np.bincount(groups, numbers[order]) for numbers in (expected, counts))
    square, k = ((counts - expected) ** 2 / expected).sum(), len(expected) - 1
    if k:       # Wilson and Hilferty (1931): the cube root of square / k is nearly normal
        assert abs((square / k) ** (1 / 3) - 1 + 2 / (9 * k)) < 4 * np.sqrt(2 / (9 * k))


def test_numbers_depend_on_the_seed_the_ids_and_the_sample():
    def first(seed, source, prompt, sample):
        return stream_of_numbers(seed, source and np.array(source), np.array(prompt), sample).random(4).tolist()

    cases = [(0, None, [1], 0), (1, None, [1], 0), (0, None, [1], 1), (0, [1], [1], 0), (0, None, [2], 0),
             (0, None, [1, 1], 0), (0, [1, 1], [1], 0), (0, [1], [1, 1], 0), (2**64, None, [1], 0)]  # fmt: skip
    assert len({tuple(first(*case)) for case in cases}) == len(cases)


def philox(counter, key):
    """Return the four 64-bit words of Philox4x64 with 10 rounds, by the paper."""
    c, k, mask = list(counter), list(key), 2**64 - 1
    for _ in range(10):
        high0, low0 = divmod(c[0] * 0xD2E7470EE14C6C93, 2**64)
        high1, low1 = divmod(c[2] * 0xCA5A826395121157, 2**64)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return c


def test_the_numbers_are_those_of_philox():
    """The documented key and counter give them, so that they never change."""
    for seed, source, prompt, sample in ((0, None, [1], 0), (7, [3, 4], [1, 2], 5), (2**65, [], [9], 1)):
        head = f"{seed} {-1 if source is None else len(source)} {len(prompt)}".encode()
        parts = [head, *(np.array(ids, "<i8").tobytes() for ids in (source, prompt) if ids is not None)]
        key = np.frombuffer(hashlib.blake2b(b" ".join(parts), digest_size=16).digest(), "<u8").tolist()
        words = [word for block in range(1, 4) for word in philox([block, 0, 0, sample], key)]
        source = None if source is None else np.array(source, np.int64)
        numbers = stream_of_numbers(seed, source, np.array(prompt), sample)
        assert [(word >> 11) * 2.0**-53 for word in words] == numbers.random(12).tolist()
