"""Test the product that keeps the largest number of each column, against float64 and against the whole product."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native_ops import NativeOps
from engine.backends.reference.formulas import column_maxima, linear
from engine.backends.reference.ops import ReferenceOps

from .table import function, stride
from .tools import (
    assert_as_good,
    assert_guards,
    available,
    guarded,
    linear_in_order,
    load,
    pack,
    round_up,
    widths_of_panels,
)


def make(rng, M, N, K):
    return (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (N, K), (N,)))


def update(kernels, packed, a, maximum, panel=0, last=None):
    """maximum [N] = the larger of itself and of each column of a w^T + bias, a [M,K]; by default for all panels."""
    last = -(-packed.columns // kernels.NR) if last is None else last
    function(kernels, "column_maxima")(packed.address, a, stride(a), len(a), maximum, panel, last, None)


def check(kernels, M, N, K, seed=0):
    """Run the kernel on rows with NaN between them; it must give what the whole product gives, bit for bit."""
    a, w, bias = make(np.random.default_rng(seed), M, N, K)
    packed, padded = pack(kernels, w, bias, product=kernels.fma), round_up(N, kernels.VL)
    strided = np.full((M, K + 7), np.nan, np.float32)[:, :K]
    strided[:] = a
    maximum, whole = guarded(1, padded), guarded(M, padded)
    maximum[:] = -np.inf
    update(kernels, packed, strided, maximum[0])
    assert_guards(maximum)
    kernels.fma.multiply(packed, strided, whole)
    assert np.array_equal(maximum[0], whole.max(axis=0))
    exact, naive = (rows.max(axis=0, keepdims=True) for rows in (
        linear(*(array.astype(np.float64) for array in (a, w, bias))), linear_in_order(a, w, bias)))
    # The plain formula's error may be small by chance where results are few. The k-th partial sum is about as large as
    # the root of k squares of products, so K roundings of them err by about sqrt(K / 6) roots of all K squares.
    squares = np.square(a, dtype=np.float64) @ np.square(w, dtype=np.float64).T
    assert_as_good(maximum[:, :N], exact, naive, operand=np.sqrt(squares * K / 6))


def test_every_height_of_a_tile_and_a_block(kernels):
    for M in (1, 2, 3, 5, 6, 7, 13, 63, 64, 65, 130):
        check(kernels, M, kernels.NR + 3, 37, seed=M)


def test_around_every_vector_and_panel(kernels):
    for N in widths_of_panels(kernels):
        check(kernels, 5, N, 20, seed=N)


def test_around_every_slice_of_the_depth(kernels):
    for K in (1, 2, 767, 768, 769, 1024, 1025, 2049):
        check(kernels, 67, kernels.VL + 1, K, seed=K)


def test_a_maximum_goes_on(kernels):
    """A later call for other rows, or for some of the panels, updates what is there."""
    a, w, bias = make(np.random.default_rng(1), 20, 3 * kernels.NR, 33)
    packed, whole = pack(kernels, w, bias, product=kernels.fma), np.full(3 * kernels.NR, -np.inf, np.float32)
    update(kernels, packed, a, whole)
    parts = np.full_like(whole, -np.inf)
    for first, last in ((7, 20), (0, 1), (1, 7)):
        for panel in (2, 0, 1):
            before = parts.copy()
            update(kernels, packed, a[first:last], parts, panel, panel + 1)
            other = np.delete(np.arange(len(parts)), np.s_[panel * kernels.NR : (panel + 1) * kernels.NR])
            assert np.array_equal(parts[other], before[other])
    assert np.array_equal(parts, whole)


def test_nan_and_infinity(kernels):
    """NaN stays the maximum of its column, wherever it comes; -inf never wins."""
    N = kernels.NR + 1
    for row in (0, 5, 6, 69, 99):
        a, w, bias = make(np.random.default_rng(row), 100, N, 8)
        a[3], w[0] = -np.inf, np.abs(w[0])
        w[N - 1] = 0
        packed = pack(kernels, w, bias, product=kernels.fma)
        maximum = np.full(round_up(N, kernels.VL), -np.inf, np.float32)
        a[row, 2] = np.nan
        update(kernels, packed, a, maximum)
        assert np.isnan(maximum[:N]).all()
        a[row], a[3] = 1, -np.inf
        maximum[:] = -np.inf
        update(kernels, packed, a, maximum)
        rows = np.delete(a, 3, axis=0)
        alone = np.full_like(maximum, -np.inf)
        update(kernels, packed, rows, alone)
        assert maximum[0] == alone[0]       # all products of row 3 with positive weights are -inf


SEGMENTS = ((), (0,), (1,), (0, 0, 1), (5, 0, 1, 130, 0), (1, 1, 1, 1), (600, 0, 3), (2, 511, 1, 64, 1, 0, 200))


def test_segments_on_any_number_of_threads(kernels):
    """Parts of 0, 1 and many rows; columns few enough that threads share rows, and many, so that they share panels."""
    for N in (5, 2 * kernels.NR + 1, 40 * kernels.NR + 3):
        rng = np.random.default_rng(N)
        weight, bias = rng.standard_normal((N, 70), np.float32), rng.standard_normal(N, np.float32)
        for sizes in SEGMENTS:
            parts = [rng.standard_normal((T, 70), np.float32) for T in sizes]
            columns = NativeOps(kernels, 1).columns(weight, bias)
            alone = NativeOps(kernels, 1).column_maxima(parts, columns)
            exact = column_maxima([part.astype(np.float64) for part in parts], weight.astype(np.float64), bias)
            assert alone.shape == exact.shape == (len(sizes), N)
            assert np.array_equal(np.isneginf(alone), np.isneginf(exact))
            filled = np.array(sizes, int) > 0
            assert np.abs(alone[filled] - exact[filled]).max(initial=0) < 2e-5 * np.sqrt(70)
            for threads in (2, 3, 4):
                assert np.array_equal(NativeOps(kernels, threads).column_maxima(parts, columns), alone)
            for i, part in enumerate(parts):
                assert np.array_equal(NativeOps(kernels, 2).column_maxima([part], columns)[0], alone[i])


def test_parts_of_any_layout(kernels):
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal((40, 24), np.float32), rng.standard_normal((9, 24), np.float32)
    ops = NativeOps(kernels, 2)
    columns = ops.columns(weight, None)
    parts = [x[3:9], x[20:40:3], np.asfortranarray(x[:7]), x[::-1], np.repeat(x, 2, axis=1)[:, ::2]]
    expected = ops.column_maxima([part.copy() for part in parts], columns)
    assert np.array_equal(ops.column_maxima(parts, columns), expected)
    assert np.array_equal(ops.column_maxima(parts, ops.columns(weight.T.copy().T, np.zeros(9, np.float32))), expected)


def test_no_parts_and_no_columns(kernels):
    ops, x = NativeOps(kernels, 2), np.ones((3, 4), np.float32)
    assert ops.column_maxima([], ops.columns(x, None)).shape == (0, 3)
    assert ops.column_maxima([x], ops.columns(x[:0], None)).shape == (1, 0)


def test_the_reference():
    rng = np.random.default_rng(4)
    ops, weight, bias = ReferenceOps(), rng.standard_normal((6, 5)), rng.standard_normal(6)
    parts = [rng.standard_normal((T, 5)) for T in (3, 0, 1)]
    found = ops.column_maxima(parts, ops.columns(weight, bias))
    assert np.array_equal(found[0], (parts[0] @ weight.T + bias).max(axis=0))
    assert (found[1] == -np.inf).all()


@settings(max_examples=40, deadline=None)
@given(M=st.integers(1, 150), N=st.integers(1, 150), K=st.integers(1, 300), name=st.sampled_from(available()))
def test_any_size(M, N, K, name):
    check(load(name), M, N, K, seed=M + N + K)
