"""Test attention with relative positions against the formula in float64: near and far distances, blocks, and bits."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.native import RelativeWeights
from engine.model.positions import relative_rows

from .tools import FAR, assert_as_good, attend, attended, available, load, round_up


def panels(kernels, rows):
    """Return rows [n,d] as panels [1, n/NR, d, NR], the last panel filled with zeros."""
    NR, (n, d) = kernels.NR, rows.shape
    padded = np.zeros((round_up(n, NR), d), np.float32)
    padded[:n] = rows
    return np.ascontiguousarray(padded.reshape(1, -1, NR, d).transpose(0, 1, 3, 2))


def packed(kernels, K, Q, limit, buckets):
    """Return the RelativeWeights of K and Q [rows,d], either of which may be None."""
    row = relative_rows(np.arange(-limit, limit + 1), limit, buckets)
    keys, queries = (None if rows is None else panels(kernels, rows) for rows in (None if K is None else K[::-1], Q))
    return RelativeWeights(keys, queries, row, 2 * (buckets or limit))


def formula(q, k, v, K, Q, rows, scale, dtype, **band):
    """Return the formula's [T,e] in the given precision."""
    bias = np.zeros(rows.shape, dtype)
    if K is not None:
        bias += np.take_along_axis(q.astype(dtype) @ K.astype(dtype).T, rows, 1)
    if Q is not None:
        bias += np.take_along_axis(k.astype(dtype) @ Q.astype(dtype).T, rows.T, 1).T
    return attended(q, k, v, scale, dtype, bias=bias, **band)


def run(kernels, q, k, v, relative, scale, low, high, first, precision="float32"):
    product, e = kernels.product(precision), round_up(v.shape[1], kernels.VL)
    values = np.zeros((len(v), e), np.float32)
    values[:, : v.shape[1]] = v
    return attend(product, q, k, values, scale, relative=relative, low=low, high=high, query=first)[:, : v.shape[1]]


def make(seed, T, S, d, limit, buckets, terms="both"):
    rng = np.random.default_rng(seed)
    R = 2 * (buckets or limit)
    q, k, v, K, Q = (rng.standard_normal((n, d), dtype=np.float32) for n in (T, S, S, R, R))
    scale = 1 / math.sqrt(3 * d)
    K, Q = K * np.float32(scale), Q * np.float32(scale)
    return q, k, v, None if terms == "p2c" else K, None if terms == "c2p" else Q, scale


@cache
def results(seed, T, S, d, limit, buckets, terms, low, high, first):
    """Return the formula's results in float64 and in float32, which are those of all kernels."""
    q, k, v, K, Q, scale = make(seed, T, S, d, limit, buckets, terms)
    distances = first + np.arange(T)[:, None] - np.arange(S)
    rows = relative_rows(distances, limit, buckets).astype(int)
    return [formula(q, k, v, K, Q, rows, scale, dtype, low=low, high=high) for dtype in (np.float64, np.float32)]


def check(kernels, seed, T, S, d, limit, buckets, terms="both", low=-FAR, high=FAR, first=0):
    q, k, v, K, Q, scale = make(seed, T, S, d, limit, buckets, terms)
    exact, naive = results(seed, T, S, d, limit, buckets, terms, low, high, first)
    out = run(kernels, q, k, v, packed(kernels, K, Q, limit, buckets), scale, low, high, first)
    assert_as_good(out, exact, naive, factor=6.0, operand=v)


DISTANCES = [(320, 32), (24, 0), (600, 0), (20, 8), (10, 12), (512, 256), (3, 2)]


@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
def test_distances_with_and_without_rows_of_their_own(kernels, terms):
    for limit, buckets in DISTANCES:
        for T in (1, 2, 17, 40, 130):
            check(kernels, T, T, T, 11, limit, buckets, terms)


def test_around_every_block(kernels):
    for T, S in [(255, 255), (256, 257), (300, 300), (530, 530), (64, 900), (600, 30)]:
        for limit, buckets in ((512, 256), (700, 0), (90, 40)):
            check(kernels, T, T, S, 16, limit, buckets)


def test_every_head_width(kernels):
    for d in [1, 7, 16, 33, 64, 80]:
        check(kernels, d, 50, 70, d, 100, 24)


def test_a_call_may_begin_at_any_query(kernels):
    for first in (1, 15, 64, 300, 2000):
        check(kernels, first, 40, 310, 12, 200, 64, first=first)


def test_band(kernels):
    for low, high in [(-3, 1), (-64, 65), (0, 1), (-300, FAR), (200, 300)]:
        check(kernels, 1, 330, 330, 10, 100, 24, low=low, high=high)


def test_rows_that_are_more_than_the_distances(kernels):
    """Half of the buckets near the limit: the row rises by many between two distances."""
    check(kernels, 2, 300, 300, 8, 131, 256)
    check(kernels, 3, 300, 300, 8, 200, 380)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bits_do_not_depend_on_neighbouring_queries(kernels, precision):
    q, k, v, K, Q, scale = make(4, 300, 520, 16, 200, 64)
    relative = packed(kernels, K, Q, 200, 64)
    together = run(kernels, q, k, v, relative, scale, -FAR, FAR, 0, precision)
    for i in (0, 15, 16, 63, 64, 255, 256, 299):
        alone = run(kernels, q[i : i + 1], k, v, relative, scale, -FAR, FAR, i, precision)
        assert np.array_equal(alone[0], together[i])


def test_nan_stays_with_the_queries_that_see_it(kernels):
    q, k, v, K, Q, scale = make(5, 40, 40, 8, 30, 8)
    relative = packed(kernels, K, Q, 30, 8)
    clean = run(kernels, q, k, v, relative, scale, -FAR, 1, 0)
    q[3], k[20] = np.nan, np.nan
    out = run(kernels, q, k, v, relative, scale, -FAR, 1, 0)
    assert np.isnan(out[3]).all()
    assert np.isnan(out[20:]).all()
    rest = np.r_[0:3, 4:20]
    assert np.array_equal(out[rest], clean[rest])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), name=st.sampled_from(available()))
def test_any_combination(data, name):
    T, S, d = (data.draw(st.integers(1, most)) for most in (300, 600, 40))
    limit = data.draw(st.integers(4, 700))
    buckets = data.draw(st.sampled_from([0, 2, 6, 40, 256]).filter(lambda b: b // 2 < limit - 1))
    check(load(name), T + S, T, S, d, limit, buckets, data.draw(st.sampled_from(["both", "c2p", "p2c"])),
          low=data.draw(st.sampled_from([-FAR, -40])), high=data.draw(st.sampled_from([FAR, 1, 300])),
          first=data.draw(st.integers(0, 700)))
