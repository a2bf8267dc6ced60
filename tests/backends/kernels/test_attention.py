"""Test the attention kernel against float64: sizes around every block, extreme scores, and NaN."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.reference.formulas import attention

from .tools import assert_as_good, attend, available, load, round_up


def run(kernels, q, k, v):
    """Run one head: q [T,d], k, v [S,d] -> [T,d]."""
    d = q.shape[1]
    e = round_up(d, kernels.VL)
    wide = np.zeros((len(v), e + 5), np.float32)[:, :e]
    wide[:, :d] = v
    out = attend(kernels.product("float32"), q, k, wide, 1 / math.sqrt(d), e + 9)
    assert not np.nan_to_num(out[:, d:]).any(), "padding must stay zero"
    return out[:, :d]


def make(rng, T, S, d, scale=1.0):
    q, k, v = (rng.standard_normal((n, d), dtype=np.float32) for n in (T, S, S))
    return q * np.float32(scale), k, v


def check(kernels, q, k, v):
    exact, naive = (attention(*(x[None].astype(dtype) for x in (q, k, v)))[0] for dtype in (np.float64, np.float32))
    # The kernel's exponential is within 3 ulp, NumPy's is correctly rounded: hence the larger factor.
    assert_as_good(run(kernels, q, k, v), exact, naive, factor=6.0, operand=v)


def test_every_head_width(kernels):
    for d in [1, 2, 7, 8, 9, 11, 16, 17, 32, 33, 63, 64, 65, 80, 96, 127, 128, 192, 255, 256]:
        check(kernels, *make(np.random.default_rng(d), 5, 19, d))


def test_around_every_block_of_queries(kernels):
    for T in sorted({edge + step for edge in (kernels.VL, kernels.NR, 2 * kernels.NR) for step in (-1, 0, 1)} | {1, 2}):
        check(kernels, *make(np.random.default_rng(T), T, 20, 12))


def test_around_every_block_of_keys(kernels):
    for S in [1, 2, 5, 6, 7, 255, 256, 257, 511, 512, 513, 1030]:
        check(kernels, *make(np.random.default_rng(S), 9, S, 16))


def test_flat_and_steep_scores(kernels):
    for scale in [1e-30, 30.0, 1000.0]:
        rng = np.random.default_rng(3)
        q, k, v = make(rng, 20, 600, 32, scale)
        exact = attention(*(x[None].astype(np.float64) for x in (q, k, v)))[0]
        out = run(kernels, q, k, v)
        assert np.isfinite(out).all()
        # A score s has an error of up to s * eps, and its key's weight is wrong by that factor.
        allowed = 8 * np.finfo(np.float32).eps * max(1.0, np.abs(q @ k.T).max()) * np.abs(v).max()
        assert np.abs(out - exact).max() <= allowed


def test_scores_far_below_zero(kernels):
    """All scores are below -126 in powers of two, where a maximum that began at 0 would make all weights equal."""
    q, k, v = make(np.random.default_rng(5), 9, 300, 16)
    q, k = np.abs(q) + 4, -np.abs(k) - 20
    exact = attention(*(x[None].astype(np.float64) for x in (q, k, v)))[0]
    allowed = 8 * np.finfo(np.float32).eps * np.abs(q @ k.T).max() * np.abs(v).max()
    assert np.abs(run(kernels, q, k, v) - exact).max() <= allowed


def test_largest_score_may_come_in_any_block(kernels):
    rng = np.random.default_rng(4)
    for place in (0, 255, 256, 599):
        q, k, v = make(rng, 3, 600, 8)
        k[place] = 40 * q[0]
        check(kernels, q, k, v)


def test_nan_stays_in_its_row(kernels):
    rng = np.random.default_rng(5)
    q, k, v = make(rng, 18, 30, 16)
    clean = run(kernels, q, k, v)
    q[4] = np.nan
    out = run(kernels, q, k, v)
    assert np.isnan(out[4]).all()
    rest = np.arange(18) != 4
    assert np.array_equal(out[rest], clean[rest])


def test_nan_in_a_key_or_value_is_not_swallowed(kernels):
    rng = np.random.default_rng(6)
    for which in (1, 2):
        inputs = make(rng, 4, 300, 16)
        inputs[which][7] = np.nan
        assert np.isnan(run(kernels, *inputs)).all()


def test_a_query_does_not_depend_on_its_neighbours(kernels):
    rng = np.random.default_rng(7)
    q, k, v = make(rng, 70, 300, 24)
    together = run(kernels, q, k, v)
    for i in (0, 1, 15, 16, 63, 64, 69):
        assert np.array_equal(run(kernels, q[i : i + 1], k, v)[0], together[i])


@settings(max_examples=30, deadline=None)
@given(T=st.integers(1, 80), S=st.integers(1, 600), d=st.integers(1, 80), name=st.sampled_from(available()))
def test_any_size(T, S, d, name):
    check(load(name), *make(np.random.default_rng(T * S * d), T, S, d))
