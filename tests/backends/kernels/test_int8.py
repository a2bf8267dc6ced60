"""Test the GEMM in 8-bit integers: the codes of rows, and the exact sums, on every instruction set."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.reference import formulas as reference

from . import tools
from .tools import assert_guards, available, convert, guarded, input_groups, load, pack, random_int8, round_up, rows_of

EPS = np.finfo(np.float32).eps


def quantize(kernels, x):
    """Return codes [M,K] as int64, ranges [M,2] and the codes for the GEMM; nothing may be written beyond a row."""
    M, K = x.shape
    ranges = guarded(M, 2, 2)
    product = kernels.product("int8")
    stored = convert(product, x, ranges)
    assert_guards(ranges)
    codes = rows_of(product, stored)[:M, :K] - np.uint8(product.code_zero)      # modulo 256
    return codes.astype(np.int64), np.ascontiguousarray(ranges), stored


def problem(seed, M, N, K):
    rng = np.random.default_rng(seed)
    x, bias = rng.standard_normal((M, K), np.float32), rng.standard_normal(N, np.float32)
    return x, random_int8(rng, N, K), rng.random(N, np.float32) / 100, bias


def check(kernels, x, w, scale, bias, activation=None, residual=None):
    codes, ranges, stored = quantize(kernels, x)
    N = round_up(len(w), kernels.VL)
    out = guarded(len(x), N)
    packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), "int8", scale)
    kernels.product("int8").multiply(packed, stored, out, tools.guarded_copy(residual, N), ranges)
    assert_guards(out)
    low, step = ranges.astype(np.float64).T[..., None]
    sums = codes.astype(np.float64) @ w.T.astype(np.float64)     # exact: below 2^53
    parts = step * sums * scale, low * w.sum(axis=1, dtype=np.int64) * scale
    exact = parts[0] + parts[1] + bias + (0 if residual is None else residual)
    size = np.abs(parts[0]) + np.abs(parts[1]) + np.abs(exact) + np.abs(bias)
    result = reference.ACTIVATIONS[activation](exact) if activation else exact
    assert (np.abs(out[:, : len(w)] - result) <= 6 * EPS * size).all()
    return np.array(out[:, : len(w)])


def test_codes_of_every_width(kernels):
    for K in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100]:
        x = np.random.default_rng(K).standard_normal((5, K), np.float32)
        codes, ranges, _ = quantize(kernels, x)
        low, step = ranges.T[..., None]
        assert codes.min() >= 0
        assert codes.max() <= 255
        assert np.array_equal(ranges[:, 0], x.min(axis=1))
        assert (np.abs(low + step * codes - x) <= step * (0.5 + 1e-4)).all()
        if K > 1:
            assert (codes.min(axis=1) == 0).all()
            assert (codes.max(axis=1) == 255).all()


def test_rows_without_a_range(kernels):
    x = np.repeat(np.array([[0], [-3.5], [1e-38], [1e38]], np.float32), 9, axis=1)
    codes, ranges, _ = quantize(kernels, x)
    assert not codes.any()
    assert np.array_equal(ranges[:, 0], x[:, 0])
    assert not ranges[:, 1].any()


def test_what_is_not_finite_fills_its_row(kernels):
    for bad in [np.nan, np.inf, -np.inf]:
        x, w, scale, bias = problem(1, 4, 16, 37)
        for column in (0, 20, 36):
            spoilt = x.copy()
            spoilt[2, column] = bad
            _, ranges, stored = quantize(kernels, spoilt)
            out = np.empty((4, round_up(16, kernels.VL)), np.float32)
            kernels.product("int8").multiply(pack(kernels, w, bias, 0, "int8", scale), stored, out, None, ranges)
            assert np.isnan(out[2]).all()
            assert np.isfinite(out[[0, 1, 3]]).all()


def test_every_height(kernels):
    for M in [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 64]:
        check(kernels, *problem(M, M, 40, 50))


def test_around_every_panel(kernels):
    for N in sorted({edge + step for edge in (kernels.VL, kernels.NR, 2 * kernels.NR) for step in (-1, 0, 1)} | {1}):
        check(kernels, *problem(N, 7, N, 33))


def test_every_depth(kernels):
    for K in [1, 2, 3, 4, 5, 6, 7, 8, 9, 255, 256, 257, 3072]:
        check(kernels, *problem(K, 7, 20, K))


GROUPS = [(32, 32, 32, 32), (127, 1, 0, 0), (0, 64, 0, 64), (127, -127, 1, -1), (0, 0, 3, 125)]


def test_largest_sums(kernels):
    """Groups with the largest allowed sums, of either sign, times codes of 255 give sums of products close to 2^15."""
    for four in GROUPS:
        K = 4096
        x = np.ones((3, K), np.float32)
        x[:, 8:16] = 0
        w = np.zeros((9, K), np.int8)
        for group in input_groups(K).T:
            w[:, group] = four
        w[1::2] *= -1
        check(kernels, x, w, np.full(9, 1e-4, np.float32), np.zeros(9, np.float32))


def test_activation_and_residual(kernels):
    for activation in [None, *ACTIVATIONS]:
        x, w, scale, bias = problem(3, 13, 45, 60)
        check(kernels, x, w, scale, bias, activation)
        if activation is None:
            check(kernels, x, w, scale, bias, None, np.random.default_rng(4).standard_normal((13, 45), np.float32))


def test_a_row_does_not_depend_on_its_neighbours(kernels):
    x, w, scale, bias = problem(5, 20, 37, 70)
    together = check(kernels, x, w, scale, bias)
    for i in (0, 5, 6, 19):
        assert np.array_equal(check(kernels, x[i : i + 1], w, scale, bias)[0], together[i])


@settings(max_examples=30, deadline=None)
@given(M=st.integers(1, 30), N=st.integers(1, 150), K=st.integers(1, 200), name=st.sampled_from(available()))
def test_any_size(M, N, K, name):
    check(load(name), *problem(M * N * K, M, N, K))
