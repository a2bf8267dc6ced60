"""Test attention of bfloat16 rows on tiles against float64, at sizes around every tile and block."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from .table import attention_call, function, ready, stride
from .tools import ATTENDING_ROWS, assert_guards, attention_weights, fixture_of, guarded, load

UNIT = 2.0**-8
"""The largest relative error of rounding to bfloat16."""


kernels = fixture_of(ATTENDING_ROWS)


def attend_rows(kernels, q, k, v, out, scale):
    """One head: out [T,e] from bfloat16 rows q [T,d], k [S,d], v [S,e]; d and e are multiples of 32."""
    call = attention_call(q, k, v, scale, out=out, out_stride=stride(out))
    scratch = guarded(1, function(kernels, "attend_rows_scratch", "bfloat16")(q.shape[1], v.shape[1]))
    with ready(kernels, "bfloat16"):
        function(kernels, "attend_rows", "bfloat16")(call, scratch)
    assert_guards(scratch)


def strided(x, extra=32):
    """Return bfloat16 rows of x with NaN between them, and their values."""
    wide = np.full((len(x) + 1, x.shape[1] + extra), 0x7FC0, np.uint16)
    wide[:-1, : x.shape[1]] = to_bfloat16(x)
    return wide[:-1, : x.shape[1]], from_bfloat16(to_bfloat16(x)).astype(np.float64)


def check(kernels, T, S, d, e, seed=0, sharpness=1.0, scale=None):
    rng = np.random.default_rng(seed)
    (q, wide_q), (k, wide_k), (v, wide_v) = (
        strided(factor * rng.standard_normal(shape, np.float32))
        for factor, shape in ((np.float32(sharpness), (T, d)), (1, (S, d)), (1, (S, e))))
    scale = scale or d**-0.5
    out = guarded(T, e)
    attend_rows(kernels, q, k, v, out, scale)
    assert_guards(out)
    scores, p = scale * wide_q @ wide_k.T, attention_weights(wide_q, wide_k, scale, np.float64)
    # p is rounded, its 2^x is approximate, and scores are sums in float32.
    error = (UNIT + 2e-4 + 1e-5 * np.abs(scores).max()) * (p @ np.abs(wide_v))
    assert (np.abs(out - p @ wide_v) <= error + 1e-6).all()
    return np.array(out)


def test_queries(kernels):
    for T in [1, 15, 16, 17, 31, 32, 33, 64, 257]:
        check(kernels, T, 40, 64, 32)


def test_keys(kernels):
    for S in [1, 2, 15, 16, 17, 31, 32, 33, 63, 65, 511, 512, 513, 1030]:
        check(kernels, 18, S, 32, 64)


def test_widths(kernels):
    for d, e in [(32, 32), (64, 64), (96, 160), (128, 32)]:
        check(kernels, 35, 70, d, e)


def test_flat_and_sharp_scores(kernels):
    for sharpness in [0.0, 30.0]:
        check(kernels, 20, 600, 32, 32, sharpness=sharpness)


def test_huge_scores_are_finite(kernels):
    rng = np.random.default_rng(0)
    q, k, v = (to_bfloat16(rng.standard_normal((40, 32), np.float32) * np.float32(f)) for f in (1e4, 1, 1))
    out = guarded(40, 32)
    attend_rows(kernels, q, k, v, out, 1.0)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("name", ATTENDING_ROWS)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(1, 600), st.sampled_from([32, 64, 96]), st.sampled_from([32, 64]),
       st.integers(0, 9))
def test_any_sizes(name, T, S, d, e, seed):
    check(load(name), T, S, d, e, seed)


def test_a_query_has_the_same_bits_at_every_place(kernels):
    rng = np.random.default_rng(0)
    k, v = (to_bfloat16(rng.standard_normal((530, 32), np.float32)) for _ in range(2))
    q = to_bfloat16(rng.standard_normal((300, 32), np.float32))
    out = np.empty((300, 32), np.float32)
    attend_rows(kernels, q, k, v, out, 0.2)
    for first, last in ((0, 1), (5, 6), (64, 200), (256, 300), (290, 300)):
        part = np.empty((last - first, 32), np.float32)
        attend_rows(kernels, q[first:last], k, v, part, 0.2)
        assert np.array_equal(part, out[first:last])


def test_nan_stays_in_its_row(kernels):
    """A query of NaN changes no other; NaN in a key or a value reaches all queries of its sequence."""
    rng = np.random.default_rng(0)
    q, k, v = (to_bfloat16(rng.standard_normal((33, 32), np.float32)) for _ in range(3))
    whole, out = np.empty((33, 32), np.float32), np.empty((33, 32), np.float32)
    attend_rows(kernels, q, k, v, whole, 0.2)
    q[7, 3] = 0x7FC0
    attend_rows(kernels, q, k, v, out, 0.2)
    assert np.isnan(out[7]).all()
    assert np.array_equal(np.delete(out, 7, 0), np.delete(whole, 7, 0))
    v[4, 5] = 0x7FC0
    attend_rows(kernels, q, k, v, out, 0.2)
    assert np.isnan(out[:, 5]).all()
    assert not np.isnan(out[0, :5]).any()
