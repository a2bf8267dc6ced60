"""Test the GEMM with bfloat16 weights against float64, at sizes around every tile, K block and pair."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.reference.formulas import ACTIVATIONS as FORMULAS
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from . import tools
from .tools import assert_guards, available, convert, guarded, load, operand_width, pack, round_up, rows_of

EPS = np.finfo(np.float32).eps


def operands(kernels, x):
    """Return the rows as numbers [M,K], and the bytes that the GEMM reads; bytes that are no operands are NaN."""
    M, K = x.shape
    product = kernels.product("bfloat16")
    if not product.converts:
        return x, np.ascontiguousarray(x)
    out = convert(product, x, guard=0xFF)
    stored = rows_of(product, out)[:M].view(np.uint16)
    assert not stored[:, K : operand_width(product, K) // 2].any(), "padding must be zero"
    return from_bfloat16(stored[:, :K]), out


def problem(seed, M, N, K):
    rng = np.random.default_rng(seed)
    x, w, bias = (rng.standard_normal(shape, np.float32) for shape in ((M, K), (N, K), N))
    return x, from_bfloat16(to_bfloat16(w)), bias


def check(kernels, x, w, bias, activation=None, residual=None):
    numbers, stored = operands(kernels, x)
    N = round_up(len(w), kernels.VL)
    out = guarded(len(x), N)
    packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), "bfloat16")
    kernels.product("bfloat16").multiply(packed, stored, out, tools.guarded_copy(residual, N))
    assert_guards(out)
    assert not out[:, len(w) :].any(), "padding must stay zero"
    numbers, wide = numbers.astype(np.float64), w.astype(np.float64)
    exact = numbers @ wide.T + bias + (0 if residual is None else residual)
    # Jeannerod and Rump (10.1137/120894488): a sum in any order has an error of at most n eps times the sum of
    # magnitudes.
    size = np.abs(numbers) @ np.abs(wide).T + np.abs(bias) + (0 if residual is None else np.abs(residual))
    bound = EPS * (0.5 * (x.shape[1] + 2) * size + 4 * np.abs(exact))
    assert (np.abs(out[:, : len(w)] - (FORMULAS[activation](exact) if activation else exact)) <= 1.2 * bound).all()
    return np.array(out[:, : len(w)])


def test_rounded_half_to_even_or_not_at_all(kernels):
    x = np.random.default_rng(0).standard_normal((3, 1000), np.float32)
    x[0, :8] = np.array([0x3F800000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0xBF808000, 0, 0x80000000],
                        np.uint32).view(np.float32)
    expected = from_bfloat16(to_bfloat16(x)) if kernels.product("bfloat16").converts else x
    assert np.array_equal(operands(kernels, x)[0], expected)


def test_what_is_not_finite_stays_in_its_row(kernels):
    for bad in [np.nan, np.inf, -np.inf]:
        x, w, bias = problem(1, 4, 16, 37)
        for column in (0, 20, 36):
            spoilt = x.copy()
            spoilt[2, column] = bad
            out = np.empty((4, round_up(16, kernels.VL)), np.float32)
            packed = pack(kernels, w, bias, 0, "bfloat16")
            kernels.product("bfloat16").multiply(packed, operands(kernels, spoilt)[1], out)
            assert not np.isfinite(out[2, :16]).any()
            assert np.isfinite(out[[0, 1, 3]]).all()


def test_every_height(kernels):
    for M in [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 64]:
        check(kernels, *problem(M, M, kernels.NR + 3, 50))


def test_around_every_panel(kernels):
    widths = {1, kernels.NR + kernels.VL, kernels.NR + 3 * kernels.VL}
    widths |= {edge + step for edge in (kernels.VL, kernels.NR, 2 * kernels.NR) for step in (-1, 0, 1)}
    for N in sorted(widths):
        check(kernels, *problem(N, 7, N, 33))


def test_around_every_slice_of_the_depth(kernels):
    for K in [1, 2, 3, 4, 37, 1535, 1536, 1537, 2047, 2048, 2049, 3072, 4099]:
        check(kernels, *problem(K, 7, 20, K))


def test_activation_and_residual(kernels):
    for activation in [None, *ACTIVATIONS]:
        x, w, bias = problem(3, 13, 45, 60)
        check(kernels, x, w, bias, activation)
        if activation is None:
            check(kernels, x, w, bias, None, np.random.default_rng(4).standard_normal((13, 45), np.float32))


def test_a_row_does_not_depend_on_its_neighbours(kernels):
    for K in (71, 4000):
        x, w, bias = problem(5, 20, 37, K)
        together = check(kernels, x, w, bias)
        for i in (0, 5, 6, 19):
            assert np.array_equal(check(kernels, x[i : i + 1], w, bias)[0], together[i])


def test_fill_refuses_what_does_not_fit(kernels):
    packed = pack(kernels, np.ones((3, 4), np.float32), np.ones(3, np.float32), 0, "bfloat16")
    for shape, column in (((3, 5), 0), ((kernels.VL, 4), 1), ((1, 4), -1)):
        with pytest.raises(ValueError, match="outside"):
            packed.fill(np.ones(shape, np.uint16), column)


@settings(max_examples=30, deadline=None)
@given(M=st.integers(1, 30), N=st.integers(1, 150), K=st.integers(1, 200), name=st.sampled_from(available()))
def test_any_size(M, N, K, name):
    check(load(name), *problem(M * N * K, M, N, K))


def test_portable_bits_widen_the_weights(kernels):
    """Each sum has the bits of fused multiply-adds of the widened weights, in the order of the depth."""
    product = kernels.product("bfloat16", portable=True)
    assert product.name == "bfloat16_weights"
    assert not product.converts
    for M, N, K in [(1, 1, 1), (2, 3, 2), (7, kernels.NR + 1, 3), (13, kernels.NR + kernels.VL, 37), (6, 20, 1023)]:
        x, w, bias = problem(M * K, M, N, K)
        results = []
        for own, precision in ((product, "bfloat16"), (kernels.fma, "float32")):
            out = guarded(M, round_up(N, kernels.VL))
            own.multiply(pack(kernels, w, bias, ACTIVATIONS["silu"], precision, product=own), x, out)
            assert_guards(out)
            results.append(np.array(out))
        assert np.array_equal(*results)
