from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.encoding.pooling import pool
from engine.model.text_config import POOLINGS
from engine.weights.modules import normalize

TOKENS = np.array([[1, -2], [3, 0], [5, 8], [9, 9]], np.float32)
CU_SEQLENS = np.array([0, 3, 3, 4], np.int32)
"""Three sequences, of three, zero and one tokens."""


@pytest.mark.parametrize(
    ("mode", "whole", "without_first"),
    [
        ("cls", [1, -2], [3, 0]),
        ("lasttoken", [5, 8], [5, 8]),
        ("max", [5, 8], [5, 8]),
        ("mean", [3, 2], [4, 4]),
        ("mean_sqrt_len_tokens", np.array([9, 6]) / np.sqrt(3), np.array([8, 8]) / np.sqrt(2)),
        ("weightedmean", np.array([1 + 6 + 15, -2 + 0 + 24]) / 6, np.array([6 + 15, 0 + 24]) / 5),
    ],
)
def test_modes(mode, whole, without_first):
    pooled = pool(TOKENS, CU_SEQLENS, [mode])
    assert pooled.dtype == np.float32
    np.testing.assert_allclose(pooled, [whole, [0, 0], [9, 9]], rtol=1e-6)
    # The last sequence consists of the prompt: no token is left to pool, and cls uses the first token as always.
    np.testing.assert_allclose(
        pool(TOKENS, CU_SEQLENS, [mode], 1), [without_first, [0, 0], [9, 9] if mode == "cls" else [0, 0]], rtol=1e-6
    )


def test_every_mode_is_there():
    assert pool(TOKENS, CU_SEQLENS, POOLINGS).shape == (3, 2 * len(POOLINGS))


def test_modes_side_by_side():
    np.testing.assert_array_equal(pool(TOKENS, CU_SEQLENS, ["max", "cls"])[0], [5, 8, 1, -2])


def test_no_sequences():
    assert pool(TOKENS[:0], CU_SEQLENS[:1], ["mean", "cls"]).shape == (0, 4)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.sampled_from([1, 2, 3, 17, 64]), st.integers(0, 3))
def test_a_sequence_never_feels_its_neighbours(lengths, width, skip):
    cu_seqlens = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.random.default_rng(sum(lengths)).standard_normal((cu_seqlens[-1], width), np.float32)
    together = normalize(pool(tokens, cu_seqlens, POOLINGS, skip))
    for b, length in enumerate(lengths):
        own = np.array(tokens[cu_seqlens[b] : cu_seqlens[b + 1]])
        np.testing.assert_array_equal(normalize(pool(own, np.array([0, length]), POOLINGS, skip))[0], together[b])


def test_normalize():
    np.testing.assert_allclose(normalize(np.array([[3, 4], [0, 0]], np.float32)), [[0.6, 0.8], [0, 0]])


def test_vectors_whose_sum_float32_cannot_hold_give_no_warning():
    tokens = np.full((3, 2), 3e38, np.float32)
    with np.errstate(all="raise"):
        pooled = pool(tokens, np.array([0, 3], np.int32), POOLINGS)
        normalize(pooled)
    assert np.isinf(pooled).sum() == 6


@pytest.mark.parametrize("mode", POOLINGS)
def test_neighbours_of_one_length_change_no_bit(mode):
    rng = np.random.default_rng(0)
    for width in (1, 2, 8, 24, 65):
        lengths = np.repeat(rng.integers(0, 40, 12), rng.integers(1, 5, 12))
        ends = np.append(0, np.cumsum(lengths))
        tokens = rng.standard_normal((ends[-1], width), np.float32)
        for skips in (np.zeros(len(lengths), int), rng.integers(0, 4, len(lengths))):
            together = pool(tokens, ends, (mode,), skips)
            for i, (start, end) in enumerate(pairwise(ends)):
                alone = pool(np.array(tokens[start:end]), np.array([0, end - start]), (mode,), int(skips[i]))
                assert alone.tobytes() == together[i].tobytes()
