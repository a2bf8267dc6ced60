"""Test the kernel of attention weights and entropies against float64, and against attention itself."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.reference.formulas import entropy

from .table import attention_call, function, stride
from .tools import BANDS, assert_as_good, assert_guards, attention_weights, available, guarded, load


def run(kernels, q, k, scale, weights=True, entropies=True, **options):
    """Return weights [T,S] and entropies [T], or None where they are not asked for."""
    table = guarded(len(q), len(k), len(k) + 5) if weights else None
    nats = guarded(1, len(q)) if entropies else None
    d = q.shape[1]
    scratch = guarded(1, kernels.product("float32").attention_scratch(d, d))
    call = attention_call(q, k, k, scale, **options)        # prefetches go to v; nothing is read
    function(kernels, "weigh")(call, table, 0 if table is None else stride(table), nats, scratch)
    for array in (table, nats, scratch):
        if array is not None:
            assert_guards(array)
    return None if table is None else np.array(table), None if nats is None else np.array(nats[0])


def make(seed, T, S, d, sharpness=1.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((T, d), np.float32) * np.float32(sharpness), rng.standard_normal((S, d), np.float32)


def check(kernels, q, k, **options):
    scale = 1 / math.sqrt(q.shape[1])
    exact, naive = ((weights, entropy(weights)) for weights in (
        attention_weights(q, k, scale, dtype, **options) for dtype in (np.float64, np.float32)))
    # The last step of a weight divides numbers up to 1; that of an entropy subtracts numbers up to ln S and more.
    operands = np.ones(1), np.full(1, max(1.0, math.log(len(k))))
    for found, right, plain, operand in zip(run(kernels, q, k, scale, **options), exact, naive, operands, strict=True):
        assert_as_good(found, right, plain, factor=6.0, operand=operand)
    return exact


def test_every_head_width(kernels):
    for d in [1, 7, 8, 16, 17, 33, 64, 100]:
        check(kernels, *make(d, 5, 19, d))


def test_around_every_block_of_queries(kernels):
    for T in sorted({edge + step for edge in (kernels.VL, kernels.NR, 256, 512) for step in (-1, 0, 1)} | {1}):
        check(kernels, *make(T, T, 20, 12))


def test_around_every_block_of_keys(kernels):
    for S in [1, 2, 5, 8, 15, 16, 17, 255, 256, 257, 513]:
        check(kernels, *make(S, 9, S, 16))


def test_band(kernels):
    for low, high in BANDS:
        for T, S in ((1, 1), (16, 16), (65, 65), (130, 600), (600, 130)):
            check(kernels, *make(T, T, S, 10), low=low, high=high)


def test_bias_mask_and_softcap(kernels):
    q, k = make(2, 37, 301, 16, sharpness=3)
    rng = np.random.default_rng(3)
    bias = rng.standard_normal((37, 301), np.float32)
    mask = (rng.random((37, 301)) < 0.6).astype(np.uint8)
    check(kernels, q, k, bias=bias)
    check(kernels, q, k, mask=mask)
    check(kernels, q, k, bias=bias, mask=mask, softcap=4.0, low=-20, high=200)


def test_one_key_and_even_weights(kernels):
    """Entropy is 0 for one key, also for one that outweighs all others, and ln n for n equal keys."""
    q, k = make(4, 20, 300, 16)
    assert 0 <= run(kernels, q, k[:1], 1.0)[1].max() < 1e-6
    k[7] = 40 * q[0]
    weights, nats = run(kernels, q[:1], k, 1.0)
    assert weights[0, 7] == 1
    assert 0 <= nats[0] < 1e-6
    nats = run(kernels, q, np.zeros_like(k), 1.0)[1]
    assert np.abs(nats - math.log(300)).max() < 1e-5


def test_rows_sum_to_one_and_give_the_context(kernels):
    q, k = make(5, 70, 300, 32)
    v = np.random.default_rng(6).standard_normal((300, 32), np.float32)
    product = kernels.product("float32")
    out = np.empty((70, 32), np.float32)
    product.attention(q, k, v, out, 0.2, np.empty(product.attention_scratch(32, 32), np.float32), low=-20, high=33)
    weights, _ = run(kernels, q, k, 0.2, low=-20, high=33)
    assert np.abs(weights.sum(axis=1, dtype=np.float64) - 1).max() < 3e-6
    assert np.abs(weights.astype(np.float64) @ v - out).max() < 2e-6


def test_either_alone_has_the_same_bits(kernels):
    q, k = make(7, 50, 280, 24)
    weights, nats = run(kernels, q, k, 0.3, low=-30, high=40)
    assert np.array_equal(run(kernels, q, k, 0.3, entropies=False, low=-30, high=40)[0], weights)
    assert np.array_equal(run(kernels, q, k, 0.3, weights=False, low=-30, high=40)[1], nats)


def test_a_query_does_not_depend_on_its_neighbours(kernels):
    q, k = make(8, 70, 300, 24)
    weights, nats = run(kernels, q, k, 0.3)
    for i in (0, 1, 15, 16, 63, 64, 69):
        one, alone = run(kernels, q[i : i + 1], k, 0.3)
        assert np.array_equal(one[0], weights[i])
        assert alone[0] == nats[i]


def test_nan_stays_in_its_row(kernels):
    q, k = make(9, 18, 30, 16)
    clean = run(kernels, q, k, 0.3)
    q[4] = np.nan
    rest = np.arange(18) != 4
    for found, before in zip(run(kernels, q, k, 0.3), clean, strict=True):
        assert np.isnan(found[4]).all()
        assert np.array_equal(found[rest], before[rest])


@settings(max_examples=30, deadline=None)
@given(T=st.integers(1, 80), S=st.integers(1, 600), d=st.integers(1, 80), low=st.integers(-300, 5),
       high=st.integers(-4, 300), name=st.sampled_from(available()))
def test_any_size(T, S, d, low, high, name):
    check(load(name), *make(T * S * d, T, S, d), low=low, high=high)
