"""Test the attention kernel's band, mask, bias, soft-capping and score function against the formula in float64."""

import ctypes
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from .tools import BANDS, FAR, assert_as_good, attend, attended, available, load

SCORE_MOD = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), *[ctypes.c_ssize_t] * 7, ctypes.c_void_p)


@SCORE_MOD
def halve_and_tilt(scores, stride, b, h, query, n, key, keys, captured):
    """Return score/2 + (kv - q)/8, and hide keys that are multiples of 5 from odd queries."""
    block = np.ctypeslib.as_array(scores, (keys, stride))[:, :n]
    t, s = query + np.arange(n), (key + np.arange(keys))[:, None]
    block[:] = np.where((t % 2 == 1) & (s % 5 == 0), -np.inf, block / 2 + (s - t) / 8)


def halved(scores, t, s):
    """Return what `halve_and_tilt` makes of scores [T,S] of queries t and keys s."""
    return np.where((t % 2 == 1) & (s % 5 == 0), -np.inf, scores / 2 + ((s - t) / 8).astype(scores.dtype))


def run(kernels, q, k, v, scale, **options):
    if options.pop("score_mod", False):
        options["score_mod"] = ctypes.cast(halve_and_tilt, ctypes.c_void_p).value
    return attend(kernels.product("float32"), q, k, v, scale, **options)


def make(seed, T, S, d, e):
    rng = np.random.default_rng(seed)
    return rng, *(rng.standard_normal(shape, dtype=np.float32) for shape in ((T, d), (S, d), (S, e)))


def check(kernels, q, k, v, score_mod=False, **options):
    scale = 1 / math.sqrt(q.shape[1])
    exact, naive = (attended(q, k, v, scale, dtype, score_mod=halved if score_mod else None, **options)
                    for dtype in (np.float64, np.float32))
    out = run(kernels, q, k, v, scale, score_mod=score_mod, **options)
    finite = np.nan_to_num(v, posinf=0, neginf=0)
    assert_as_good(out, exact, naive, factor=6.0, operand=finite)
    return out


def test_every_value_width(kernels):
    for e in [1, 3, 4, 5, 8, 9, 15, 16, 17, 31, 63, 65, 100, 130]:
        for T in (1, 5, 70):
            check(kernels, *make(e, T, 270, 12, e)[1:])


def test_band(kernels):
    for low, high in BANDS:
        for T, S in ((1, 1), (16, 16), (65, 65), (130, 600), (600, 130)):
            check(kernels, *make(T, T, S, 10, 10)[1:], low=low, high=high)


def test_softcap(kernels):
    for cap in (0.5, 5.0, 50.0):
        _, q, k, v = make(1, 40, 300, 16, 16)
        check(kernels, q * 6, k, v, softcap=cap)


def test_bias_and_mask_of_any_strides(kernels):
    for layout in ["rows", "columns", "per key", "per query", "one"]:
        T, S = 37, 301
        rng, q, k, v = make(2, T, S, 16, 20)
        shape = {"rows": (T, S), "columns": (S, T), "per key": (1, S), "per query": (T, 1), "one": (1, 1)}[layout]
        bias, mask = rng.standard_normal(shape, dtype=np.float32), (rng.random(shape) < 0.6).astype(np.uint8)
        if layout == "columns":
            bias, mask = bias.T, mask.T
        bias, mask = np.broadcast_to(bias, (T, S)), np.broadcast_to(mask, (T, S))
        check(kernels, q, k, v, bias=bias)
        check(kernels, q, k, v, mask=mask)
        check(kernels, q, k, v, bias=bias, mask=mask, softcap=4.0, low=-20, high=200)


def test_a_bias_by_distance_is_a_line(kernels):
    for T, S in [(1, 1), (17, 16), (70, 301), (130, 65)]:
        # Element (t, s) is entry S - 1 + t - s of the line. The numbers beside the line must not get into the result.
        rng, q, k, v = make(2, T, S, 16, 20)
        line = np.full(T + S + 99, np.nan, np.float32)
        line[50 : 49 + T + S] = rng.standard_normal(T + S - 1, np.float32)
        bias = np.lib.stride_tricks.sliding_window_view(line[50 : 49 + T + S], S)[:, ::-1]
        assert bias.shape == (T, S)
        assert bias.strides == (4, -4)
        check(kernels, q, k, v, bias=bias)
        check(kernels, q, k, v, bias=bias, low=-9, high=40)
        assert np.array_equal(run(kernels, q, k, v, 0.25, bias=bias), run(kernels, q, k, v, 0.25, bias=bias.copy()))


def test_infinite_bias_hides(kernels):
    rng, q, k, v = make(3, 20, 280, 8, 8)
    bias = np.where(rng.random((20, 280)) < 0.5, -np.inf, 0).astype(np.float32)
    bias[7] = -np.inf
    out = check(kernels, q, k, v, bias=bias)
    assert not out[7].any()


def test_a_query_that_sees_no_key_gets_zeros(kernels):
    rng, q, k, v = make(4, 30, 40, 8, 9)
    mask = (rng.random((30, 40)) < 0.5).astype(np.uint8)
    mask[[0, 13, 29]] = 0
    out = check(kernels, q, k, v, mask=mask)
    assert not out[[0, 13, 29]].any()
    assert not run(kernels, q, k, v, 0.3, low=100).any()


def test_score_mod_comes_after_bias_and_before_mask(kernels):
    rng, q, k, v = make(5, 75, 300, 16, 16)
    bias = rng.standard_normal((75, 300), dtype=np.float32)
    check(kernels, q, k, v, score_mod=True)
    check(kernels, q, k, v, score_mod=True, bias=bias, softcap=3.0, low=-30, high=30)


def test_what_is_hidden_may_hold_anything(kernels):
    for bad in [np.nan, np.inf, -np.inf]:
        T = S = 300
        q, k, v = make(6, T, S, 16, 19)[1:]
        clean = run(kernels, q, k, v, 0.25, high=1, mask=np.ones((T, S), np.uint8))
        k[200], v[150], v[290, 3] = bad, bad, bad
        mask = np.ones((T, S), np.uint8)
        mask[:, [150, 200, 290]] = 0
        hidden = check(kernels, q, k, v, high=1, mask=mask)
        assert np.array_equal(run(kernels, q, k, v, 0.25, high=1)[:150], clean[:150])
        assert np.isfinite(hidden).all()


def test_nan_that_is_seen_is_not_swallowed(kernels):
    for where in range(3):
        inputs = make(7, 40, 40, 8, 8)[1:]
        inputs[where][5] = np.nan
        out = run(kernels, *inputs, 0.3, high=1)
        assert np.isnan(out[5 if where == 0 else slice(5, None)]).all()
        assert np.isfinite(out[:5]).all()


def test_bits_do_not_depend_on_neighbouring_queries(kernels):
    T, S = 150, 600
    rng, q, k, v = make(8, T, S, 16, 16)
    bias, mask = rng.standard_normal((T, S), dtype=np.float32), (rng.random((T, S)) < 0.8).astype(np.uint8)
    together = run(kernels, q, k, v, 0.25, low=-100, high=300, bias=bias, mask=mask)
    for i in (0, 15, 16, 63, 64, 149):
        alone = run(kernels, q[i : i + 1], k, v, 0.25, low=i - 100, high=i + 300, bias=bias[i : i + 1],
                    mask=mask[i : i + 1])
        assert np.array_equal(alone[0], together[i])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(available()))
def test_any_combination(data, name):
    T, S, d, e = (data.draw(st.integers(1, most)) for most in (90, 600, 40, 40))
    rng, q, k, v = make(T * S + d, T, S, d, e)
    low = data.draw(st.sampled_from([-FAR, -200, -17, 0, 5]))
    high = data.draw(st.sampled_from([FAR, 300, 18, 1, 6]))
    options = {"softcap": data.draw(st.sampled_from([0.0, 2.0, 30.0])), "score_mod": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        options["bias"] = 3 * rng.standard_normal((T, S), dtype=np.float32)
    if data.draw(st.booleans()):
        options["mask"] = (rng.random((T, S)) < data.draw(st.sampled_from([0.02, 0.5, 0.98]))).astype(np.uint8)
    check(load(name), q, k, v, low=low, high=high, **options)
