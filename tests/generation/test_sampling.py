"""The best tokens of a row, the filters of sampling, and draws."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.sampling import Filters, draw, kept, stream_of_numbers
from engine.generation.top_k import best, log_sum_exp, without
from engine.model.generation_config import GenerationConfig

ALMOST_1 = np.nextafter(1.0, 0.0)


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


def test_without():
    values, ids = np.array([[5, 4, 3], [9, 8, 7]], np.float32), np.array([[1, 0, 2], [2, 1, 0]])
    values, ids = without(values, ids, np.array([[True, False, False], [True, True, True]]), 2)
    assert values.tolist() == [[4, 3], [-np.inf, -np.inf]]
    assert ids.tolist() == [[0, 2], [0, 0]]


def test_draw_is_the_inverse_of_the_cumulative_probability():
    x = np.log(np.array([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]] * 7, np.float32) + np.float32(1e-30))
    x[:, [0, 2, 5]] = -np.inf
    u = np.array([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 0.99, ALMOST_1])
    assert draw(x, u).tolist() == [1, 1, 3, 3, 4, 4, 4]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 400))
def test_a_draw_never_takes_a_removed_token(seed, V):
    random = np.random.default_rng(seed)
    x = random.normal(size=(4, V)).astype(np.float32) * 20
    x[random.random((4, V)) < 0.6] = -np.inf
    x[:, V // 2] = 0
    for u in (0.0, 0.5, ALMOST_1):
        assert (x[np.arange(4), draw(x, np.full(4, u))] > -np.inf).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([10, 300, 3000]), st.floats(0.01, 0.999), st.floats(0.0, 3.0))
def test_top_p_looks_at_one_row(seed, V, top_p, spread):
    """Rows alone and together keep the same tokens with the same bits: the best ones, until they have top_p."""
    random = np.random.default_rng(seed)
    scores = (random.normal(size=(5, V)) * np.linspace(0, spread, 5)[:, None]).astype(np.float32)
    config = GenerationConfig(do_sample=True, top_k=0, top_p=top_p)

    def tokens(rows):
        x, ids = kept(rows, Filters.of([config] * len(rows)))
        assert ids is None
        return [{i: row[i] for i in np.flatnonzero(row > -np.inf).tolist()} for row in x]

    together = tokens(scores)
    assert together == [tokens(row[None])[0] for row in scores]
    for row, found in zip(scores.astype(np.float64), together, strict=True):
        p = np.sort(np.exp(row) / np.exp(row).sum())[::-1]
        n = len(found)
        assert p[: n - 1].sum() < top_p + 1e-5
        assert n == V or p[:n].sum() > top_p - 1e-5


def test_top_p_keeps_the_lowest_ids_among_equals():
    scores = np.array([[1, 2, 1, 2, 1, 2], [0] * 6], np.float32)
    for top_p, first, second in ((0.0, [1], [0]), (0.2, [1], [0, 1]), (0.5, [1, 3, 5], [0, 1, 2]),
                                 (0.75, [0, 1, 3, 5], [0, 1, 2, 3, 4]), (0.99, [*range(6)], [*range(6)])):  # fmt: skip
        x, _ = kept(scores, Filters.of([GenerationConfig(do_sample=True, top_k=0, top_p=top_p)] * 2))
        assert [np.flatnonzero(row > -np.inf).tolist() for row in x] == [first, second], top_p


def test_many_draws_have_the_right_frequencies():
    logits = np.array([[0.0, 1.0, 2.0, -1.0]], np.float32)
    p = np.exp(logits[0] / 2)
    numbers = stream_of_numbers(3, None, np.array([1]), 0)
    drawn = draw(np.repeat(logits / 2, 20000, axis=0), np.array([numbers.random() for _ in range(20000)]))
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
