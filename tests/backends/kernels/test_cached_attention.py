"""Test attention over the cells of a cache: against float64, and that no division of the work changes a bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.layout import RANGE

from .table import FAR, function
from .tools import Cells, assert_as_good, assert_guards, attended, available, guarded, load, round_up, turn

MANY = 13
"""From this many queries on, the kernel unpacks ranges."""


def run(kernels, q, cache, S, e, scale, heads_first=False, **options):
    """Run q [T,heads,d] -> [T,heads,e]; heads_first: lay heads out one after the other, each with all rows."""
    T, heads, d = q.shape
    out = guarded(T * heads, e, e + 3)
    shape, strides = ((heads, T, e), (T, 1)) if heads_first else ((T, heads, e), (heads, 1))
    step = out.strides[0]
    view = np.lib.stride_tricks.as_strided(out, shape, (*(step * n for n in strides), 4))
    if heads_first:
        view, q = view.swapaxes(0, 1), np.ascontiguousarray(q.swapaxes(0, 1)).swapaxes(0, 1)
    scratch = guarded(1, function(kernels, "cached_attention_scratch")(d, e))
    cache.attend(kernels, q, view, S, scale, scratch[0], **options)
    assert_guards(out, scratch)
    return np.array(view)


def by_ranges(kernels, q, cache, S, e, scale, **options):
    """The same, each range alone, the last one first, and then the fold."""
    (T, heads, d), E, ranges = q.shape, round_up(e, kernels.VL), -(-S // RANGE)
    sums = guarded(ranges * T * heads, E + 2, E + 2).reshape(ranges, T, heads, E + 2)
    scratch = np.empty(function(kernels, "cached_attention_scratch")(d, e), np.float32)
    out, fold = np.empty((T, heads, e), np.float32), function(kernels, "fold_ranges")
    for r in reversed(range(ranges)):
        cache.attend(kernels, q, out, S, scale, scratch, sums=sums[r], range=r, **options)
    for t, h in np.ndindex(T, heads):
        fold(np.ascontiguousarray(sums[:, t, h]), E + 2, ranges, e, out[t, h])
    return out


def row_by_row(kernels, q, cache, S, e, scale, low=-FAR, high=FAR, bias=None, **options):
    """The same, each query alone, into rows with guards between them."""
    T, heads, d = q.shape
    out, scratch = guarded(T * heads, e, e + 3), guarded(1, function(kernels, "cached_attention_scratch")(d, e))
    for row, (t, h) in zip(out, np.ndindex(T, heads), strict=True):
        cache.attend(kernels, q[t : t + 1, h : h + 1], row[None, None], S, scale, scratch[0], low=low + t,
                     high=high + t, bias=None if bias is None else bias[h : h + 1, t : t + 1], **options)
    assert_guards(out, scratch)
    return np.array(out).reshape(T, heads, e)


def formula(q, k, v, scale, dtype, bias=None, **options):
    """Return the formula's [T,heads,e] in the given precision; zeros for a query that sees no key."""
    return np.stack([attended(q[:, h], k, v, scale, dtype, bias=None if bias is None else bias[h], **options)
                     for h in range(q.shape[1])], axis=1)


def make(seed, T, heads, S, d, e, sharpness=1.0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in ((T, heads, d), (S, d), (S, e)))
    return rng, q * np.float32(sharpness), k, v


def check(kernels, seed, T, heads, S, d, e, storage=0, sharpness=1.0, alone=True, **options):
    """Compare with float64 over the rounded keys, and bit for bit with other divisions of the work."""
    rng, q, k, v = make(seed, T, heads, S, d, e, sharpness)
    scale, cache = 1 / math.sqrt(d), Cells(rng, k, v, storage, kernels.VL)
    out = run(kernels, q, cache, S, e, scale, **options)
    exact, naive = (formula(q, cache.k, cache.v, scale, dtype, **options) for dtype in (np.float64, np.float32))
    assert_as_good(out, exact, naive, factor=6.0, operand=v)
    assert np.array_equal(out, by_ranges(kernels, q, cache, S, e, scale, **options))
    if alone:
        assert np.array_equal(out, row_by_row(kernels, q, cache, S, e, scale, **options))


@pytest.mark.parametrize("storage", [0, 1, 2])
def test_every_head_width(kernels, storage):
    """Of keys, of values and of both: each on every table in one format or another."""
    for i, width in enumerate([1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 128, 192]):
        T, heads, d, e = ((1, 3, width, width), (7, 2, width, 24), (1, 2, 24, width))[turn(kernels, storage, i) % 3]
        check(kernels, width, T, heads, 19, d, e, storage)


QUERIES = [
    (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (4, 4), (12, 1), (13, 1), (17, 1), (1, 16), (3, 11),
    (70, 2), (130, 2)]


def test_every_number_of_queries(kernels):
    for T, heads in QUERIES:
        check(kernels, T * heads, T, heads, 40, 16, 16, T % 3)
        check(kernels, T * heads, T, heads, 40, 16, 16, T % 3, high=40 - T + 1)


@pytest.mark.parametrize("storage", [0, 1, 2])
def test_around_every_block_of_keys(kernels, storage):
    edges = {edge + step for edge in (16, 32, 48, 64, 256, 512) for step in (-1, 0, 1)}
    for i, S in enumerate(sorted({1, 2, 3} | edges)):
        if turn(kernels, storage, i) % 2:
            check(kernels, S, 1, 3, S, 12, 20, storage)
        else:
            check(kernels, S, 5, 3, S, 12, 20, storage, high=S - 4)


BANDS = [
    (-FAR, 1), (-FAR, 290), (-3, 1), (200, 291), (0, 1), (250, 257), (256, 260), (-5, -2), (FAR, 2 * FAR), (299, FAR)]


def test_band(kernels):
    for i, (low, high) in enumerate(BANDS):
        for T in (1, 3, 9, 40):
            check(kernels, T, T, 2, 300, 10, 12, i % 3, low=low, high=high)


def test_a_prompt_of_many_tokens(kernels):
    """All queries of a prompt at once, causal and with a window."""
    check(kernels, 1, 300, 1, 300, 16, 16, high=1)
    check(kernels, 2, 530, 1, 530, 8, 8, 1, low=-40, high=1)


def test_bias_and_softcap(kernels):
    for T in (1, 7):
        line = np.random.default_rng(T).standard_normal((3, 400 + T), np.float32)
        # Head h adds line[h, 399 + t - s]: the same numbers as an array, by distance, and in the order of keys.
        by_distance = np.lib.stride_tricks.as_strided(line[:, 399:], (3, T, 400), (line.strides[0], 4, -4))
        options = {"high": 401 - T}
        for bias in (by_distance, np.ascontiguousarray(by_distance)):
            check(kernels, T, T, 3, 400, 16, 16, T % 3, sharpness=3.0, bias=bias, **options)
            check(kernels, T, T, 3, 400, 16, 16, sharpness=3.0, bias=bias, softcap=4.0, low=100, **options)
        check(kernels, T, T, 3, 400, 16, 16, sharpness=3.0, softcap=4.0, **options)


def test_bias_that_hides_keys(kernels):
    for T in (2, MANY):
        _, q, k, v = make(1, T, 1, 30, 8, 8)
        bias = np.zeros((1, T, 30), np.float32)
        bias[0, 0, 3:] = -np.inf
        bias[0, 1] = -np.inf
        cache = Cells(np.random.default_rng(2), k, v, 0, kernels.VL)
        out = run(kernels, q, cache, 30, 8, 0.5, bias=bias)
        assert np.array_equal(out[:1], run(kernels, q[:1], cache, 3, 8, 0.5, bias=bias[:, :1]))
        assert np.array_equal(out[1], np.zeros((1, 8)))


def test_heads_may_lie_one_after_the_other(kernels):
    for T in (2, 5):
        rng, q, k, v = make(3, T, 4, 50, 24, 20)
        cache = Cells(rng, k, v, 0, kernels.VL)
        assert np.array_equal(run(kernels, q, cache, 50, 20, 0.3, heads_first=True),
                              run(kernels, q, cache, 50, 20, 0.3))


@pytest.mark.parametrize("storage", [0, 1, 2])
def test_a_token_at_a_time_has_the_bits_of_all_at_once(kernels, storage):
    """Each query of a prompt, computed when only the keys before it exist, and the rest of the prompt in one call."""
    rng, q, k, v = make(8, 300, 1, 300, 16, 16)
    cache = Cells(rng, k, v, storage, kernels.VL)
    at_once = run(kernels, q, cache, 300, 16, 0.25, high=1)
    for t in (*range(20), *range(250, 300)):
        assert np.array_equal(run(kernels, q[t : t + 1], cache, t + 1, 16, 0.25)[0], at_once[t])
    for t in (7, 100, 250, 255, 256, 290):
        assert np.array_equal(run(kernels, q[t:], cache, 300, 16, 0.25, high=t + 1), at_once[t:])


def test_cells_that_no_query_sees_are_not_read(kernels):
    """Nor are their addresses: the window has passed them, and they may be in use elsewhere."""
    for T in (2, MANY):
        rng, q, k, v = make(9, T, 2, 900, 8, 8)
        cache, options = Cells(rng, k, v, 0, kernels.VL), {"low": 512, "high": 768 - T}
        right = run(kernels, q, cache, 900, 8, 0.3, **options)
        cache.cells[: 512 // 16] = 1
        cache.cells[768 // 16 :] = cache.cells[40]
        assert np.array_equal(run(kernels, q, cache, 900, 8, 0.3, **options), right)


@pytest.mark.parametrize("storage", [0, 1, 2])
@pytest.mark.parametrize("heads", [1, 2])
def test_nan_stays_with_the_queries_that_see_it(kernels, storage, heads):
    rng, q, k, v = make(10, 40, heads, 40, 8, 8)
    clean = run(kernels, q, Cells(rng, k, v, storage, kernels.VL), 40, 8, 0.3, high=1)
    q[3, heads - 1], k[20], v[30, 2] = np.nan, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        cache = Cells(rng, k, v, storage, kernels.VL)
    out = run(kernels, q, cache, 40, 8, 0.3, high=1)
    assert np.isnan(out[3, heads - 1]).all()
    assert np.isnan(out[20:]).all()
    seen = np.arange(40)[:, None] < np.full(heads, 20)
    seen[3, heads - 1] = False
    assert np.array_equal(out[seen], clean[seen])
    assert np.isfinite(out[seen]).all()


def test_flat_and_steep_scores(kernels):
    for sharpness in [1e-30, 30.0, 1000.0]:
        rng, q, k, v = make(11, 2, 3, 600, 32, 32, sharpness)
        cache = Cells(rng, k, v, 0, kernels.VL)
        out = run(kernels, q, cache, 600, 32, 1 / math.sqrt(32))
        assert np.isfinite(out).all()
        assert np.array_equal(out, by_ranges(kernels, q, cache, 600, 32, 1 / math.sqrt(32)))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(available()))
def test_any_combination(data, name):
    T, heads, S, d, e = (data.draw(st.integers(1, most)) for most in (20, 6, 600, 70, 70))
    low = data.draw(st.one_of(st.just(-FAR), st.integers(-300, 300)))
    high = data.draw(st.one_of(st.just(FAR), st.integers(-30, 600)))
    softcap = data.draw(st.sampled_from([0.0, 0.0, 5.0]))
    bias = None
    if data.draw(st.booleans()):
        bias = np.random.default_rng(S).standard_normal((heads, T, S), np.float32)
    check(load(name), S, T, heads, S, d, e, data.draw(st.integers(0, 2)), alone=False, low=low, high=high,
          softcap=softcap, bias=bias)
