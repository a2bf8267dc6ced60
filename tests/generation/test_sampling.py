"""The best tokens of a row, and the numbers that draw tokens."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.choice import drawn_of
from engine.backends.wants import Draw
from engine.generation.sampling import stream_of_numbers
from engine.generation.top_k import best, log_sum_exp


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
