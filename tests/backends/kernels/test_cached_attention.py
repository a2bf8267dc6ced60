"""Test attention over the rows of a cache: against float64, and against the bits of float32's attention."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from .tools import CONSECUTIVE, Cache, assert_as_good, assert_guards, available, guarded, load

FAR = 2**40


def run(kernels, q, cache, S, e, scale, heads_first=False, **options):
    """Run q [T,heads,d] -> [T,heads,e]; heads_first: lay heads out one after the other, each with all rows."""
    T, heads, d = q.shape
    out = guarded(T * heads, e, e + 3)
    shape, strides = ((heads, T, e), (T, 1)) if heads_first else ((T, heads, e), (heads, 1))
    step = out.strides[0]
    view = np.lib.stride_tricks.as_strided(out, shape, (*(step * n for n in strides), 4))
    if heads_first:
        view, q = view.swapaxes(0, 1), np.ascontiguousarray(q.swapaxes(0, 1)).swapaxes(0, 1)
    scratch = guarded(1, kernels.cached_attention_scratch(d, e))
    rows = options.pop("rows", cache.rows)
    kernels.cached_attention(q, cache.blocks, cache.shift, cache.keys, cache.values, view, S, scale, scratch[0], rows,
                             **options)
    assert_guards(out)
    assert_guards(scratch)
    return np.array(view)


def formula(q, k, v, scale, dtype, low=-FAR, high=FAR, softcap=0.0, bias=None):
    """Return the formula's [T,heads,e] in the given precision; zeros for a query that sees no key."""
    t, s = np.arange(len(q))[:, None], np.arange(len(k))
    visible = ((t + low <= s) & (s < t + high))[:, None]
    scores = np.einsum("thd,sd->ths", q.astype(dtype), k.astype(dtype)) * dtype(scale)
    if softcap:
        scores = dtype(softcap) * np.tanh(scores / dtype(softcap))
    if bias is not None:
        scores = scores + bias.astype(dtype).swapaxes(0, 1)
    scores = np.where(visible, scores, -np.inf)
    powers = np.where(visible, np.exp(scores - np.maximum(scores.max(2, keepdims=True), -1e30)), dtype(0))
    weights = powers / np.maximum(powers.sum(2, keepdims=True), np.finfo(dtype).tiny)
    return weights @ v.astype(dtype)


def make(seed, T, heads, S, d, e, sharpness=1.0):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in ((T, heads, d), (S, d), (S, e)))
    return rng, q * np.float32(sharpness), k, v


def whole(kernels, q, k, v, scale, bias=None, **options):
    """Return what float32's attention gives the same queries, head by head."""
    product, out = kernels.product("float32"), np.empty((*q.shape[:2], v.shape[1]), np.float32)
    scratch = np.empty(product.attention_scratch(k.shape[1], v.shape[1]), np.float32)
    for h in range(q.shape[1]):
        product.attention(q[:, h], k, v, out[:, h], scale, scratch, bias=None if bias is None else bias[h], **options)
    return out


def check(kernels, seed, T, heads, S, d, e, shift=3, sharpness=1.0, **options):
    """Compare with float64, and bit for bit with attention over the same keys in one array."""
    rng, q, k, v = make(seed, T, heads, S, d, e, sharpness)
    scale = 1 / math.sqrt(d)
    out = run(kernels, q, Cache(rng, k, v, shift), S, e, scale, **options)
    exact, naive = (formula(q, k, v, scale, dtype, **options) for dtype in (np.float64, np.float32))
    assert_as_good(out, exact, naive, factor=6.0, operand=v)
    assert np.array_equal(out, whole(kernels, q, k, v, scale, **options))


def test_every_head_width(kernels):
    for d in [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 128, 192]:
        check(kernels, d, 1, 3, 19, d, d)
        check(kernels, d, 2, 1, 19, d, 24)
        check(kernels, d, 1, 2, 19, 24, d)


QUERIES = [
    (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (4, 4), (15, 1), (16, 1), (17, 1), (1, 16), (3, 11),
    (70, 2)]


def test_every_number_of_queries(kernels):
    for T, heads in QUERIES:
        check(kernels, T * heads, T, heads, 40, 16, 16)
        check(kernels, T * heads, T, heads, 40, 16, 16, high=40 - T + 1)


def test_around_every_block_of_keys(kernels):
    edges = {edge + step for edge in (kernels.VL, kernels.NR, 256, 512) for step in (-1, 0, 1)}
    for S in sorted({1, 2, 3} | edges):
        check(kernels, S, 1, 3, S, 12, 20)
        check(kernels, S, 1, 3, S, 12, 20, shift=CONSECUTIVE)


def test_blocks_of_every_size(kernels):
    for shift in [0, 1, 6, 10, CONSECUTIVE]:
        check(kernels, shift, 2, 3, 300, 16, 16, shift=shift)


BANDS = [
    (-FAR, 1), (-FAR, 290), (-3, 1), (200, 291), (0, 1), (250, 257), (256, 260), (-5, -2), (FAR, 2 * FAR), (299, FAR)]


def test_band(kernels):
    for low, high in BANDS:
        for T in (1, 3, 9, 40):
            check(kernels, T, T, 2, 300, 10, 12, low=low, high=high)


def test_a_prompt_of_many_tokens(kernels):
    """All queries of a prompt at once, in both kernels, causal and with a window."""
    check(kernels, 1, 300, 1, 300, 16, 16, high=1)
    check(kernels, 2, 530, 1, 530, 8, 8, low=-40, high=1)


def test_bias_and_softcap(kernels):
    for T in (1, 5):
        line = np.random.default_rng(T).standard_normal((3, 400 + T), np.float32)
        # Head h adds line[h, 399 + t - s]: the same numbers as an array, by distance, and in the order of keys.
        by_distance = np.lib.stride_tricks.as_strided(line[:, 399:], (3, T, 400), (line.strides[0], 4, -4))
        options = {"high": 401 - T}
        for bias in (by_distance, np.ascontiguousarray(by_distance)):
            check(kernels, T, T, 3, 400, 16, 16, sharpness=3.0, bias=bias, **options)
            check(kernels, T, T, 3, 400, 16, 16, sharpness=3.0, bias=bias, softcap=4.0, low=100, **options)
        check(kernels, T, T, 3, 400, 16, 16, sharpness=3.0, softcap=4.0, **options)


def test_bias_that_hides_keys(kernels):
    _, q, k, v = make(1, 2, 1, 30, 8, 8)
    bias = np.zeros((1, 2, 30), np.float32)
    bias[0, 0, 3:] = -np.inf
    bias[0, 1] = -np.inf
    cache = Cache(np.random.default_rng(2), k, v, 2)
    out = run(kernels, q, cache, 30, 8, 0.5, bias=bias)
    assert np.array_equal(out[:1], run(kernels, q[:1], cache, 3, 8, 0.5, bias=bias[:, :1]))
    assert np.array_equal(out[1], np.zeros((1, 8)))


def test_heads_may_lie_one_after_the_other(kernels):
    rng, q, k, v = make(3, 5, 4, 50, 24, 20)
    cache = Cache(rng, k, v, 4)
    assert np.array_equal(run(kernels, q, cache, 50, 20, 0.3, heads_first=True), run(kernels, q, cache, 50, 20, 0.3))


def test_a_query_does_not_depend_on_its_neighbours(kernels):
    rng, q, k, v = make(7, 40, 3, 600, 24, 40)
    cache, options = Cache(rng, k, v, 6), {"low": 100, "high": 561}
    together = run(kernels, q, cache, 600, 40, 0.3, **options)
    for t in (0, 1, 5, 16, 39):
        for h in range(3):
            alone = run(kernels, q[t : t + 1, h : h + 1], cache, 600, 40, 0.3, low=100 + t, high=561 + t)
            assert np.array_equal(alone[0, 0], together[t, h])


def test_a_token_at_a_time_has_the_bits_of_all_at_once(kernels):
    """With a cache or without one: each query of a prompt, computed when only the keys before it exist."""
    rng, q, k, v = make(8, 300, 1, 300, 16, 16)
    cache, at_once = Cache(rng, k, v, 5), whole(kernels, q, k, v, 0.25, high=1)
    for t in range(300):
        step = run(kernels, q[t : t + 1], cache, t + 1, 16, 0.25, rows=cache.rows[: t + 1])
        assert np.array_equal(step[0], at_once[t])
    for t in (7, 100, 250, 255, 256, 290):      # the rest of a prompt in one call of either kernel
        rest = whole(kernels, q[t:], k, v, 0.25, high=t + 1)
        assert np.array_equal(rest, at_once[t:])
        assert np.array_equal(run(kernels, q[t:], cache, 300, 16, 0.25, high=t + 1), rest)


def test_keys_that_no_query_sees_are_not_read(kernels):
    """Nor are their rows: the window has passed them, and their blocks may be in use elsewhere."""
    rng, q, k, v = make(9, 2, 2, 90, 8, 8)
    cache, options = Cache(rng, k, v, 3), {"low": 50, "high": 81}
    right = run(kernels, q, cache, 90, 8, 0.3, **options)
    cache.rows[:50] = 2**31 - 1
    cache.rows[82:] = 2**31 - 1
    assert np.array_equal(run(kernels, q, cache, 90, 8, 0.3, **options), right)


def test_nan_stays_with_the_queries_that_see_it(kernels):
    rng, q, k, v = make(10, 40, 2, 40, 8, 8)
    clean = run(kernels, q, Cache(rng, k, v, 3), 40, 8, 0.3, high=1)
    q[3, 1], k[20], v[30, 2] = np.nan, np.nan, np.inf
    out = run(kernels, q, Cache(rng, k, v, 3), 40, 8, 0.3, high=1)
    assert np.isnan(out[3, 1]).all()
    assert np.isnan(out[20:]).all()
    seen = np.arange(40)[:, None] < 20
    seen = np.concatenate([seen, seen], axis=1)
    seen[3, 1] = False
    assert np.array_equal(out[seen], clean[seen])
    assert np.isfinite(out[seen]).all()


def test_flat_and_steep_scores(kernels):
    for sharpness in [1e-30, 30.0, 1000.0]:
        rng, q, k, v = make(11, 2, 3, 600, 32, 32, sharpness)
        out = run(kernels, q, Cache(rng, k, v, 6), 600, 32, 1 / math.sqrt(32))
        assert np.isfinite(out).all()
        assert np.array_equal(out, whole(kernels, q, k, v, 1 / math.sqrt(32)))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(available()))
def test_any_combination(data, name):
    T, heads, S, d, e = (data.draw(st.integers(1, most)) for most in (20, 6, 600, 70, 70))
    shift = data.draw(st.sampled_from([0, 2, 6, CONSECUTIVE]))
    low = data.draw(st.one_of(st.just(-FAR), st.integers(-300, 300)))
    high = data.draw(st.one_of(st.just(FAR), st.integers(-30, 600)))
    softcap = data.draw(st.sampled_from([0.0, 0.0, 5.0]))
    bias = None
    if data.draw(st.booleans()):
        bias = np.random.default_rng(S).standard_normal((heads, T, S), np.float32)
    check(load(name), S, T, heads, S, d, e, shift, low=low, high=high, softcap=softcap, bias=bias)
