"""Test the softmax of rows against float64, and its results for infinities and NaN."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native import native

from .tools import WIDTHS, assert_guards, available, guarded, load

LARGEST = np.finfo(np.float32).max


def softmax(x):
    with np.errstate(under="ignore"):
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def run(kernels, x):
    """Run softmax on strided rows, and write to guarded rows."""
    strided = np.full((len(x), x.shape[1] + 5), np.nan, np.float32)[:, : x.shape[1]]
    strided[:] = x
    out = guarded(*x.shape)
    native.softmax(kernels, strided, out)
    assert_guards(out)
    return np.array(out)


def check(kernels, x):
    assert_softmax(run(kernels, x), x)


def assert_softmax(out, x):
    """Compare with the exact softmax.

    An exponent of -D has an error of at most D eps, an exponential 3 ulp, and so has the sum of exponentials that
    divides it.
    """
    exact = softmax(x.astype(np.float64))
    below = x.max(axis=-1, keepdims=True, initial=-np.inf) - x
    roundings = 12 + below + (exact * below).sum(axis=-1, keepdims=True)
    assert (np.abs(out - exact) <= np.finfo(np.float32).eps * roundings * exact + 2.0**-126).all()


def test_every_width(kernels):
    for scale in [1e-30, 1.0, 30.0]:
        rng = np.random.default_rng(0)
        for N in WIDTHS:
            check(kernels, np.float32(scale) * rng.standard_normal((5, N), dtype=np.float32))


@settings(max_examples=30, deadline=None)
@given(M=st.integers(0, 5), N=st.integers(1, 300), seed=st.integers(0, 99), name=st.sampled_from(available()))
def test_any_size(M, N, seed, name):
    check(load(name), 5 * np.random.default_rng(seed).standard_normal((M, N), dtype=np.float32))


def test_large_numbers_and_large_differences(kernels):
    for N in (2, 3, 20):
        x = np.full((3, N), -LARGEST, np.float32)
        x[1, -1] = LARGEST
        x[2] = LARGEST
        exact = np.array([np.full(N, 1 / N), np.eye(N)[-1], np.full(N, 1 / N)])
        assert (np.abs(run(kernels, x) - exact) <= 2 * np.finfo(np.float32).eps * exact).all()


def test_minus_infinity_is_excluded(kernels):
    rng = np.random.default_rng(1)
    for N in (2, 7, 8, 19, 40):
        x = rng.standard_normal((6, N), dtype=np.float32) - 200
        kept = rng.random((6, N)) < 0.5
        kept[:, 0] = True
        out = run(kernels, np.where(kept, x, -np.inf).astype(np.float32))
        assert not out[~kept].any()
        for row in range(6):
            alone = x[row : row + 1, kept[row]]
            assert_softmax(out[row : row + 1, kept[row]], alone)


def test_a_row_of_minus_infinity_gives_zeros(kernels):
    for N in WIDTHS:
        x = np.zeros((3, N), np.float32)
        x[1] = -np.inf
        out = run(kernels, x)
        assert not out[1].any()
        assert (out[[0, 2]] > 0).all()


def test_nan_fills_its_row_and_no_other(kernels):
    """NaN at any place and with any payload fills its row."""
    for bits in [0x7FC00000, 0x7FC00001, 0xFFC00155]:
        nan = np.array([bits], np.uint32).view(np.float32)[0]
        for N in (1, 5, 20, 37):
            for place in {0, N // 2, N - 1}:
                x = np.zeros((3, N), np.float32)
                clean = run(kernels, x)
                x[1, place] = nan
                out = run(kernels, x)
                assert np.isnan(out[1]).all()
                assert np.array_equal(out[[0, 2]], clean[[0, 2]])


def test_infinity_gives_nan(kernels):
    """Infinity gives NaN, because the formula computes inf - inf."""
    x = np.zeros((1, 11), np.float32)
    x[0, 3] = np.inf
    assert np.isnan(run(kernels, x)).all()


def test_in_place(kernels):
    x = np.random.default_rng(2).standard_normal((4, 45), dtype=np.float32)
    expected = run(kernels, x)
    native.softmax(kernels, x, x)
    assert np.array_equal(x, expected)
