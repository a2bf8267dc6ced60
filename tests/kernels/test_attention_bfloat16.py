"""Test attention in bfloat16 against float64, where kernels have it, at sizes around every tile and block."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .tools import assert_guards, available, guarded, load, round_up

UNIT = 2.0**-9
"""The relative error of rounding to bfloat16."""


@pytest.fixture(autouse=True)
def with_bfloat16(request):
    if "kernels" in request.fixturenames and request.getfixturevalue("kernels").product("bfloat16").attends_in_float32:
        pytest.skip("these kernels attend in float32 alone")


def run(kernels, q, k, v, scale, **options):
    e = round_up(v.shape[1], kernels.VL)
    out = guarded(len(q), v.shape[1], e + 3)
    product = kernels.product("bfloat16")
    size = product.attention_scratch(q.shape[1], v.shape[1])
    scratch = np.full(size + 16, np.nan, np.float32)
    product.attention(q, k, v, out, scale, scratch, **options)
    assert np.isnan(scratch[size:]).all()
    assert_guards(out)
    return np.array(out)


def strided(x, extra):
    wide = np.full((len(x), x.shape[1] + extra), np.nan, np.float32)
    wide[:, : x.shape[1]] = x
    return wide[:, : x.shape[1]]


def check(kernels, T, S, d, e, seed=0, sharpness=1.0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in ((T, d), (S, d), (S, e)))
    q *= np.float32(sharpness)
    scale = d**-0.5
    out = run(kernels, strided(q, 5), strided(k, 3), strided(v, 2), scale)
    scores = scale * q.astype(np.float64) @ k.T.astype(np.float64)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    # A score has the errors of two roundings per product, which p inherits; then p and v are rounded too.
    score_error = 2 * UNIT * scale * (np.abs(q).astype(np.float64) @ np.abs(k).T)
    expected, size = p @ v, p @ np.abs(v)
    drift = np.expm1(score_error)
    bound = (p * drift) @ np.abs(v) + (p * drift).sum(axis=1, keepdims=True) * size + 3 * UNIT * size
    assert (np.abs(out - expected) <= bound + 1e-6).all()
    return out


@pytest.mark.parametrize("T", [1, 2, 15, 16, 17, 63, 64, 65, 130, 257, 300])
def test_every_number_of_queries(kernels, T):
    check(kernels, T, 37, 32, 32)


@pytest.mark.parametrize("S", [1, 2, 5, 6, 7, 12, 13, 255, 256, 257, 511, 513])
def test_every_number_of_keys(kernels, S):
    check(kernels, 20, S, 32, 32)


@pytest.mark.parametrize("d", [1, 2, 3, 15, 16, 17, 31, 64, 65, 96, 128, 130])
def test_every_width(kernels, d):
    check(kernels, 20, 70, d, d)
    check(kernels, 7, 9, d, 24)


def test_sharp_scores(kernels):
    check(kernels, 33, 600, 64, 64, sharpness=30.0)


def test_nan_stays_in_its_rows(kernels):
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((40, 32), np.float32) for _ in range(3))
    q[7, 3] = np.nan
    out = run(kernels, q, k, v, 0.2)
    assert np.isnan(out[7]).all()
    assert np.isfinite(np.delete(out, 7, axis=0)).all()


def test_a_query_does_not_depend_on_its_neighbours(kernels):
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((n, 48), np.float32) for n in (300, 300, 300))
    together = run(kernels, q, k, v, 0.2)
    for first, last in ((0, 1), (5, 70), (64, 128), (290, 300)):
        assert np.array_equal(run(kernels, q[first:last], k, v, 0.2), together[first:last])


@settings(max_examples=25, deadline=None)
@given(T=st.integers(1, 90), S=st.integers(1, 300), d=st.integers(1, 80), e=st.integers(1, 80),
       name=st.sampled_from(available()))
def test_any_size(T, S, d, e, name):
    if not load(name).product("bfloat16").attends_in_float32:
        check(load(name), T, S, d, e, seed=T + S)
