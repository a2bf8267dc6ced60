"""Shares of entropy and rollout, against loops in float64."""

import math

import numpy as np

from engine.uncertainty.attention import entropy_limits, rollout, shares


def product(x, y):
    return x @ y.T


def weights(seed, L=3, H=4, T=9):
    rng = np.random.default_rng(seed)
    e = np.exp(rng.normal(size=(L, H, T, T)) * 3)
    return (e / e.sum(axis=-1, keepdims=True)).astype(np.float32)


def test_rollout():
    layers = weights(0)
    expected = np.eye(9)
    for heads in layers.astype(np.float64):
        mixed = sum(heads) / len(heads)
        mixed = np.array([[(mixed[i, j] + (i == j)) / 2 for j in range(9)] for i in range(9)])
        expected = mixed @ expected
    found = rollout(list(layers), product)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


def test_a_head_that_reads_each_token_itself_mixes_nothing():
    np.testing.assert_array_equal(rollout([np.eye(5, dtype=np.float32)[None]] * 4, product), np.eye(5))


def test_limits_and_shares():
    own = weights(1, L=1)[0]
    own[:, 0, 3:] = 0       # a window: token 0 may read three tokens
    own[:, 1, 1:] = 0       # and token 1 one
    own /= own.sum(axis=-1, keepdims=True)
    limits = entropy_limits(own)
    np.testing.assert_allclose(limits, [math.log(3), 0, *[math.log(9)] * 7], rtol=1e-6)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropies = -np.nansum(own * np.log(own), axis=-1).astype(np.float32)
    found = shares(entropies, limits)
    assert found[:, 1].tolist() == [0] * 4
    np.testing.assert_allclose(found[:, 2:], entropies[:, 2:] / math.log(9), rtol=1e-6)
    assert shares(np.full((1, 2), np.float32(1.0000001)), np.ones(2, np.float32)).tolist() == [[1, 1]]
