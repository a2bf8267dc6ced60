"""Test attention in bfloat16 against float64, where kernels have it, at sizes around every tile and block."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .tools import ATTENDING_IN_BFLOAT16, BANDS, attend, attention_weights, fixture_of, load, round_up

UNIT = 2.0**-9
"""The relative error of rounding to bfloat16."""


kernels = fixture_of(ATTENDING_IN_BFLOAT16)


def run(kernels, q, k, v, scale, **options):
    return attend(kernels.product("bfloat16"), q, k, v, scale, round_up(v.shape[1], kernels.VL) + 3, **options)


def strided(x, extra):
    wide = np.full((len(x), x.shape[1] + extra), np.nan, np.float32)
    wide[:, : x.shape[1]] = x
    return wide[:, : x.shape[1]]


def check(kernels, T, S, d, e, seed=0, sharpness=1.0, **options):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in ((T, d), (S, d), (S, e)))
    q *= np.float32(sharpness)
    scale = d**-0.5
    out = run(kernels, strided(q, 5), strided(k, 3), strided(v, 2), scale, **options)
    p = attention_weights(q, k, scale, np.float64, **options)
    # A score has the errors of two roundings per product, which p inherits; then p and v are rounded too.
    score_error = 2 * UNIT * scale * (np.abs(q).astype(np.float64) @ np.abs(k).T)
    expected, size = p @ v, p @ np.abs(v)
    drift = np.expm1(score_error)
    bound = (p * drift) @ np.abs(v) + (p * drift).sum(axis=1, keepdims=True) * size + 3 * UNIT * size
    assert (np.abs(out - expected) <= bound + 1e-6).all()
    return out


def test_every_number_of_queries(kernels):
    for T in [1, 2, 15, 16, 17, 63, 64, 65, 130, 257, 300]:
        check(kernels, T, 37, 32, 32)


def test_every_number_of_keys(kernels):
    for S in [1, 2, 5, 6, 7, 12, 13, 255, 256, 257, 511, 513]:
        check(kernels, 20, S, 32, 32)


def test_every_width(kernels):
    for d in [1, 2, 3, 15, 16, 17, 31, 64, 65, 96, 128, 130]:
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


@pytest.mark.skipif(not ATTENDING_IN_BFLOAT16, reason="no kernels here attend in bfloat16")
@settings(max_examples=25, deadline=None)
@given(T=st.integers(1, 90), S=st.integers(1, 300), d=st.integers(1, 80), e=st.integers(1, 80),
       name=st.sampled_from(ATTENDING_IN_BFLOAT16))
def test_any_size(T, S, d, e, name):
    check(load(name), T, S, d, e, seed=T + S)


def test_band(kernels):
    for low, high in BANDS:
        for T, S in ((1, 1), (16, 16), (65, 65), (130, 600), (600, 130), (3, 257)):
            check(kernels, T, S, 10, 20, seed=T, low=low, high=high)


def test_bias_mask_and_softcap(kernels):
    rng = np.random.default_rng(5)
    bias, mask = rng.standard_normal((70, 301), np.float32), (rng.random((70, 301)) < 0.6).astype(np.uint8)
    check(kernels, 70, 301, 16, 20, bias=bias)
    check(kernels, 70, 301, 16, 20, mask=mask)
    check(kernels, 70, 301, 16, 20, softcap=4.0, sharpness=6.0)
    check(kernels, 70, 301, 16, 20, bias=bias, mask=mask, softcap=4.0, low=-20, high=200)
    check(kernels, 70, 301, 16, 20, bias=np.broadcast_to(bias[0], (70, 301)), low=-64, high=65)
    by_distance = np.lib.stride_tricks.sliding_window_view(rng.standard_normal(370, np.float32), 301)[:, ::-1]
    for band in ({}, {"low": -64, "high": 65}):
        line = check(kernels, 70, 301, 16, 20, bias=by_distance, **band)
        assert np.array_equal(line, check(kernels, 70, 301, 16, 20, bias=by_distance.copy(), **band))


def test_values_outside_the_band_may_be_anything(kernels):
    for bad in [np.nan, np.inf]:
        rng = np.random.default_rng(6)
        q, k, v = (rng.standard_normal((90, 24), np.float32) for _ in range(3))
        for row in (0, 41, 89):
            spoilt = v.copy()
            spoilt[row] = bad
            out = run(kernels, q, k, spoilt, 0.2, low=-5, high=4)
            sees = np.array([t - 5 <= row < t + 4 for t in range(90)])
            assert np.isfinite(out[~sees]).all()
            assert not np.isfinite(out[sees]).any()


def test_a_query_in_a_band_does_not_depend_on_its_neighbours(kernels):
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((300, 48), np.float32) for _ in range(3))
    together = run(kernels, q, k, v, 0.2, low=-64, high=65)
    for first, last in ((0, 64), (64, 192), (192, 300)):
        alone = run(kernels, q[first:last], k, v, 0.2, low=first - 64, high=first + 65)
        assert np.array_equal(alone, together[first:last])
