"""Test the GEMM of rows in 16-bit integers and weights of 8 or 4 bits, also in blocks, on every instruction set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.native import PackedLinear, Product
from engine.backends.cpu.packer import ACTIVATIONS
from engine.backends.reference import formulas as reference
from engine.model.precision import BLOCKS, FORMATS
from engine.weights.blocks import quantize_q8_0, widen_blocks
from engine.weights.int4 import quantize_int4, widen_int4

from .tools import assert_guards, available, guarded, load, round_up

EPS = np.finfo(np.float32).eps
LARGEST = 2047
GUARD = 77
NAMES = ["int8", "int4", *BLOCKS]


def product_of(kernels):
    return Product(kernels, "int4")


def convert(kernels, x):
    """Return the integers [M,K] of rows, their steps [M] and the operands; nothing may be written beyond a row."""
    product, (M, K) = product_of(kernels), x.shape
    stride, padded = product.operands_stride(K), round_up(K, 32)
    operands, ranges = np.full((M + 1, stride), GUARD, np.int16), guarded(M, 2, 2)
    product.convert(x, operands, ranges)
    assert_guards(ranges)
    assert (operands[M] == GUARD).all()
    codes, sums = operands[:M, :padded].astype(np.int64), operands[:M, padded : padded + padded // 16]
    if np.isfinite(x).all():
        assert not codes[:, K:].any()
        assert np.array_equal(codes.reshape(M, -1, 16).sum(axis=2), sums)
    return codes[:, :K], np.array(ranges[:, 1]), operands, np.ascontiguousarray(ranges)


def random_weights(seed, format_name, N, K):
    """Return stored weights and their scales, none for those in blocks."""
    rng = np.random.default_rng(seed)
    if format_name == "int8":
        w = rng.integers(-127, 128, (N, K)).astype(np.int8)
        return w, rng.random((N, 1), np.float32) / 100 + np.float32(1e-4)
    if format_name in BLOCKS:
        stored = np.empty(FORMATS[format_name].shape((N, K)), FORMATS[format_name].dtype)
        codes = np.iinfo(stored["codes"].dtype)
        stored["codes"] = rng.integers(codes.min, codes.max + 1, stored["codes"].shape)
        for name in set(stored.dtype.names) - {"codes"}:     # also subnormal, negative and zero
            stored[name] = (rng.standard_normal(stored.shape) * 10.0 ** rng.integers(-9, -1, stored.shape))
        return stored, np.empty((N, 0), np.float32)
    stored = rng.integers(0, 256, FORMATS["int4"].shape((N, K)), np.uint8)
    blocks = stored.reshape(N, -1, 19)
    blocks[..., 16] |= 0x11      # multipliers of 1 at least
    blocks[..., 17:][blocks[..., 17:] == 128] = 127
    return stored, rng.random((N, 2), np.float32) / 100 + np.float32(1e-4)


def packed_map(kernels, format_name, w, scales, K, bias, activation=0):
    product, N = product_of(kernels), round_up(len(w), kernels.VL)
    padded = [np.pad(scale, (0, N - len(w))) for scale in scales.T]
    packed = PackedLinear(product, np.zeros(product.packed_bytes(N, K, format_name), np.uint8), K,
                          np.pad(bias, (0, N - len(w))), padded[0] if padded else None, activation,
                          offset_scale=padded[1] if padded[1:] else None, format=format_name)
    assert packed.format == format_name
    packed.fill(w)
    return packed


def check(kernels, format_name, x, w, scales, bias, activation=None, residual=None):
    """Compare with float64 and return the result [M,N]."""
    codes, steps, operands, ranges = convert(kernels, x)
    N, K = round_up(len(w), kernels.VL), x.shape[1]
    out, extra = guarded(len(x), N), None
    if residual is not None:    # it has the strides of the output
        extra = guarded(len(x), N)
        extra[:] = np.pad(residual, ((0, 0), (0, N - len(w))))
    packed = packed_map(kernels, format_name, w, scales, K, bias, ACTIVATIONS.get(activation, 0))
    product_of(kernels).multiply(packed, operands, out, extra, ranges)
    assert_guards(out)
    wide = widened(format_name, w, scales, K)
    rows = steps[:, None].astype(np.float64) * codes
    exact = rows @ wide.T.astype(np.float64) + bias + (0 if residual is None else residual)
    size = np.abs(rows) @ np.abs(wide.T) + np.abs(bias) + np.abs(exact)
    if format_name == "q4_1":       # whose scaled codes and minima are added apart
        size += np.abs(rows).sum(axis=1, keepdims=True) * np.abs(w["minimum"].astype(np.float64)).max(axis=1)
    result = reference.ACTIVATIONS[activation](exact) if activation else exact
    roundings = 6 + (K // 32 if format_name in BLOCKS else 0)       # sums of blocks are added in float32
    assert (np.abs(out[:, : len(w)] - result) <= roundings * EPS * size).all()
    return np.array(out[:, : len(w)])


def widened(format_name, w, scales, K):
    """Return the matrix [N,K] in float64."""
    if format_name in BLOCKS:
        return widen_blocks(w, K).astype(np.float64)
    return w * scales.astype(np.float64) if format_name == "int8" else widen_int4(w, scales.astype(np.float64), K)


def problem(seed, format_name, M, N, K):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((M, K), np.float32), *random_weights(seed, format_name, N, K),
            rng.standard_normal(N, np.float32))


@pytest.fixture(params=NAMES)
def format_name(request):
    """Return each format of weights."""
    return request.param


def test_integers_of_every_width(kernels):
    for K in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100]:
        x = np.random.default_rng(K).standard_normal((5, K), np.float32)
        codes, steps, *_ = convert(kernels, x)
        assert (np.abs(codes).max(axis=1) == LARGEST).all()
        assert np.array_equal(steps, np.abs(x).max(axis=1) / np.float32(LARGEST))
        assert (np.abs(steps[:, None] * codes - x) <= steps[:, None] * (0.5 + 1e-3)).all()


def test_rows_without_a_range_or_with_a_huge_one(kernels):
    x = np.repeat(np.array([[0], [1e-38], [1e38]], np.float32), 33, axis=1)
    codes, _, *_ = convert(kernels, x)
    assert not codes[:2].any()
    assert (codes[2] == LARGEST).all()


def test_what_is_not_finite_fills_its_row(kernels, format_name):
    for bad in [np.nan, np.inf, -np.inf]:
        x, w, scales, bias = problem(1, format_name, 7, 16, 37)
        x[2, 36] = bad
        *_, operands, ranges = convert(kernels, x)
        out = np.empty((7, round_up(16, kernels.VL)), np.float32)
        product_of(kernels).multiply(packed_map(kernels, format_name, w, scales, 37, bias), operands, out, None, ranges)
        assert np.isnan(out[2]).all()
        assert np.isfinite(np.delete(out, 2, axis=0)).all()


def test_every_height(kernels, format_name):
    for M in [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 63, 64, 65, 130]:
        check(kernels, format_name, *problem(M, format_name, M, 40, 50))


def test_around_every_panel(kernels, format_name):
    for N in sorted({edge + step for edge in (kernels.VL, kernels.NR, 2 * kernels.NR) for step in (-1, 0, 1)} | {1}):
        check(kernels, format_name, *problem(N, format_name, 7, N, 33))
        check(kernels, format_name, *problem(N, format_name, 3, N, 33))


def test_every_depth(kernels, format_name):
    for K in [1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 544, 4095, 4096, 4097, 9000]:
        check(kernels, format_name, *problem(K, format_name, 2, 20, K))
        check(kernels, format_name, *problem(K, format_name, 6, 20, K))


def test_largest_sums(kernels, format_name):
    for sign in (1, -1):
        x, K = np.full((5, 8192), sign, np.float32), 8192
        if format_name == "int8":
            w, scales = np.full((9, K), 127, np.int8), np.full((9, 1), 1e-4, np.float32)
        elif format_name in BLOCKS:
            w, scales = np.zeros(FORMATS[format_name].shape((9, K)), FORMATS[format_name].dtype), np.empty((9, 0))
            w["scale"], w["codes"] = 1e-4, -128 if format_name == "q8_0" else 255
        else:
            w, scales = np.full(FORMATS["int4"].shape((9, K)), 255, np.uint8), np.full((9, 2), 1e-4, np.float32)
            w.reshape(9, -1, 19)[..., 17:] = 127
        bias = np.zeros(9, np.float32)
        together = check(kernels, format_name, x, w, scales, bias)
        assert np.array_equal(check(kernels, format_name, x[:1], w, scales, bias)[0], together[0])


def test_activation_and_residual(kernels, format_name):
    for activation in [None, *ACTIVATIONS]:
        x, w, scales, bias = problem(3, format_name, 13, 45, 60)
        check(kernels, format_name, x, w, scales, bias, activation)
        if activation is None:
            extra = np.random.default_rng(4).standard_normal((13, 45), np.float32)
            check(kernels, format_name, x, w, scales, bias, None, extra)


def test_a_row_does_not_depend_on_its_neighbours(kernels, format_name):
    for K in (70, 4200):
        x, w, scales, bias = problem(5, format_name, 70, 37, K)
        together = check(kernels, format_name, x, w, scales, bias)
        for first, last in ((0, 1), (5, 7), (6, 10), (64, 70)):
            own = check(kernels, format_name, x[first:last], w, scales, bias)
            assert np.array_equal(own, together[first:last])


def test_all_instruction_sets_with_fused_products_agree(format_name):
    """Sums are exact, so the bits of results are those of every instruction set that fuses the last two operations."""
    x, w, scales, bias = problem(9, format_name, 9, 50, 100)
    results = {name: check(load(name), format_name, x, w, scales, bias) for name in available()}
    fused = [out for name, out in results.items() if name not in ("portable", "wide", "amxemulated")]
    assert all(np.array_equal(out, fused[0]) for out in fused)


@pytest.mark.parametrize("heads", [1, 3])
def test_quantized_weights(kernels, heads):
    """The map of quantized weights is that of the widened matrix."""
    K, rng = 32 * heads, np.random.default_rng(heads)
    w = rng.standard_normal((20, K), np.float32)
    stored, scales = quantize_int4(w, heads)
    x, bias = rng.standard_normal((4, K), np.float32), np.zeros(20, np.float32)
    out = check(kernels, "int4", x, stored, scales, bias)
    assert np.linalg.norm(out - x @ w.T) <= 0.1 * np.linalg.norm(x @ w.T)


def test_float16_scales_are_read_exactly(kernels):
    """A column of one weight is its scale, for every kind of float16."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)][:: 37]
    w = np.zeros((len(halves), 1), FORMATS["q8_0"].dtype)
    w["scale"][:, 0], w["codes"][..., 0] = halves, 1
    x = np.array([[LARGEST]], np.float32)
    out = check(kernels, "q8_0", x, w, np.empty((len(w), 0)), np.zeros(len(w), np.float32))
    assert np.array_equal(out[0], halves.astype(np.float32) * np.float32(LARGEST))


def test_q8_0_is_near_its_matrix(kernels):
    w = np.random.default_rng(2).standard_normal((20, 96), np.float32)
    wide = widen_blocks(quantize_q8_0(w), 96)
    assert (np.abs(wide - w) <= np.abs(w).reshape(20, 3, 32).max(axis=2).repeat(32, axis=1) / 127 * 0.505).all()


@settings(max_examples=30, deadline=None)
@given(M=st.integers(1, 70), N=st.integers(1, 150), K=st.integers(1, 300), name=st.sampled_from(available()),
       format_name=st.sampled_from(NAMES))
def test_any_size(M, N, K, name, format_name):
    check(load(name), format_name, *problem(M * N * K, format_name, M, N, K))
