"""Test the GEMM of rows in integers and weights of 8 or 4 bits, also in blocks, on every instruction set."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.cpu.native.native import PackedLinear, Product
from engine.backends.reference import formulas as reference
from engine.model.precision import BLOCKS, FORMATS
from engine.weights.blocks import quantize_q8_0, widen_blocks
from engine.weights.int4 import quantize_int4, widen_int4

from . import tools
from .tools import assert_guards, guarded, guarded_copy, load, round_up

EPS = np.finfo(np.float32).eps
LARGEST = 2047
GUARD = 77
NAMES = ["int8", "int4", *BLOCKS]
OF_TABLES = [(name, format_name) for name in tools.available() for format_name in NAMES
             if name != "numba" or format_name == "int8"]
"""Each kernel table with the formats of weights that it has products for."""


def pytest_generate_tests(metafunc):
    """Run a test on the compiled kernels, or on all of `OF_TABLES` if it takes a format, too."""
    if {"kernels", "format_name"} <= {*metafunc.fixturenames}:
        metafunc.parametrize(("kernels", "format_name"), OF_TABLES, indirect=["kernels"],
                             ids=[*map("-".join, OF_TABLES)])
    elif "kernels" in metafunc.fixturenames:
        metafunc.parametrize("kernels", tools.compiled(), indirect=True)
    elif "format_name" in metafunc.fixturenames:
        metafunc.parametrize("format_name", NAMES)


@pytest.fixture
def kernels(request):
    return load(request.param)


def product_of(kernels, format_name):
    """Return the product of a decoder in this format, whose rows are in 12 bits, or in 12 and in 8."""
    return Product(kernels, format_name, decodes=True)


def convert(kernels, x, format_name):
    """Return rows [M,K] as they are rounded, sums of groups [M,K/16] or None, and operands and ranges for `multiply`.

    Nothing may be written beyond a row.
    """
    product, (M, K) = product_of(kernels, format_name), x.shape
    if product.strip > 1:
        return convert_to_tiles(product, x)
    stride, padded = product.operands_stride(K), round_up(K, 32)
    operands, ranges = np.full((M + 1, stride), GUARD, np.int16), guarded(M, 2, 2)
    product.convert(x, operands, ranges)
    assert_guards(ranges)
    assert (operands[M] == GUARD).all()
    rows, groups = operands[:M, :padded] * ranges[:, 1:].astype(np.float64), None
    if FORMATS[format_name].rounds_blocks:
        rows, groups = rows_of_blocks(operands[:M, padded:], padded, ranges[:, 1:])
    if np.isfinite(x).all():
        assert not rows[:, K:].any()
    return rows[:, :K], groups, operands, np.ascontiguousarray(ranges)


def convert_to_tiles(product, x):
    """Do the same where a tile of the upper bytes of a line lies before one of its lower bytes."""
    (M, K), ranges = x.shape, guarded(len(x), 2, 2)
    operands = tools.convert(product, x, ranges)
    assert_guards(ranges)
    upper, lower = tools.rows_of(product, operands)[:M].reshape(M, -1, 2, 64).transpose(2, 0, 1, 3).reshape(2, M, -1)
    rows = (upper.view(np.int8) * 256.0 + lower) * ranges[:, 1:].astype(np.float64)
    if np.isfinite(x).all():
        assert not rows[:, K : round_up(K, product.kernels.VL)].any()
    return rows[:, :K], None, operands, np.ascontiguousarray(ranges)


def rows_of_blocks(behind, padded, in_steps):
    """Return rows [M,padded] rounded in blocks and the sums of their groups, in float64; see nibbles.pxi."""
    parts = np.cumsum([padded, padded // 8, padded // 8, padded // 8])
    parts = np.split(np.ascontiguousarray(behind).view(np.int8), parts, axis=1)[:4]
    codes, steps, sums, groups = (np.ascontiguousarray(part).view(dtype).astype(np.float64) for part, dtype in
                                  zip(parts, (np.int8, np.float32, np.int32, np.int16), strict=True))
    groups, finite = groups * in_steps, np.isfinite(in_steps[:, 0])
    of_groups = codes.reshape(len(codes), -1, 16).sum(axis=2)
    assert np.array_equal(of_groups.reshape(*sums.shape, 2).sum(axis=2)[finite], sums[finite])
    assert (np.abs(of_groups * steps.repeat(2, axis=1) - groups)[finite] <= in_steps[finite] * (0.5 + 1e-2)).all()
    return codes * steps.repeat(32, axis=1), groups


def halves(stored):
    """Return the names of the scales and minima of blocks; every other field holds integers."""
    return [name for name in stored.dtype.names if stored.dtype[name] == np.float16]


def random_weights(seed, format_name, N, K):
    """Return stored weights and their scales, none for those in blocks."""
    rng = np.random.default_rng(seed)
    if format_name == "int8":
        w = rng.integers(-127, 128, (N, K)).astype(np.int8)
        return w, rng.random((N, 1), np.float32) / 100 + np.float32(1e-4)
    if format_name in BLOCKS:
        stored = rng.integers(0, 256, (N, FORMATS[format_name].row_bytes(K)), np.uint8).view(FORMATS[format_name].dtype)
        for name in halves(stored):     # also subnormal, negative and zero
            stored[name] = (rng.standard_normal(stored.shape) * 10.0 ** rng.integers(-9, -1, stored.shape))
        return stored, np.empty((N, 0), np.float32)
    stored = rng.integers(0, 256, FORMATS["int4"].shape((N, K)), np.uint8)
    blocks = stored.reshape(N, -1, 19)
    blocks[..., 16] |= 0x11      # multipliers of 1 at least
    blocks[..., 17:][blocks[..., 17:] == 128] = 127
    return stored, rng.random((N, 2), np.float32) / 100 + np.float32(1e-4)


def packed_map(kernels, format_name, w, scales, K, bias, activation=0, product=None):
    product, N = product or product_of(kernels, format_name), round_up(len(w), kernels.VL)
    padded = [np.pad(scale, (0, N - len(w))) for scale in scales.T]
    packed = PackedLinear(product, np.zeros(product.packed_bytes(N, K, format_name), np.uint8), K,
                          np.pad(bias, (0, N - len(w))), padded[0] if padded else None, activation,
                          offset_scale=padded[1] if padded[1:] else None, format=format_name)
    assert packed.format == format_name
    packed.fill(w)
    return packed


def check(kernels, format_name, x, w, scales, bias, activation=None, residual=None):
    """Compare with float64 and return the result [M,N]."""
    rows, groups, operands, ranges = convert(kernels, x, format_name)
    N, K = round_up(len(w), kernels.VL), x.shape[1]
    out = guarded(len(x), N)
    packed = packed_map(kernels, format_name, w, scales, K, bias, ACTIVATIONS.get(activation, 0))
    product_of(kernels, format_name).multiply(packed, operands, out, guarded_copy(residual, N), ranges)
    assert_guards(out)
    offset = bias + (0 if residual is None else residual)
    exact, size = products(format_name, rows, groups, w, scales, K)
    exact, size = exact + offset, size + np.abs(bias) + np.abs(exact + offset)
    result = reference.ACTIVATIONS[activation](exact) if activation else exact
    roundings = 6 + (0 if format_name == "int8" else K // 32)       # sums of blocks are added in float32
    assert (np.abs(out[:, : len(w)] - result) <= roundings * EPS * size).all()
    return np.array(out[:, : len(w)])


def products(format_name, rows, groups, w, scales, K):
    """Return rows w^T, and the same of all magnitudes, where weights are sums of what is multiplied apart."""
    scales, apart = scales.astype(np.float64), []
    if format_name == "int4":
        offsets = widen_int4(w, scales * [0, 1], K)[:, ::16]
        apart = [(rows, widen_int4(w, scales * [1, 0], K)), (groups[:, : offsets.shape[1]], offsets)]
    elif "minimum" in (w.dtype.names or ()):
        plain = w.copy()
        plain["minimum"] = 0
        apart = [(rows, widen_blocks(plain, K).astype(np.float64)),
                 (rows, w["minimum"].astype(np.float64).repeat(32, axis=1)[:, :K])]
    else:
        apart = [(rows, widen_blocks(w, K).astype(np.float64) if format_name in BLOCKS else w * scales)]
    return sum(x @ y.T for x, y in apart), sum(np.abs(x) @ np.abs(y.T) for x, y in apart)


def problem(seed, format_name, M, N, K):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((M, K), np.float32), *random_weights(seed, format_name, N, K),
            rng.standard_normal(N, np.float32))


def test_rows_of_every_width(kernels, format_name):
    for K in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100]:
        x = np.random.default_rng(K).standard_normal((5, K), np.float32)
        rows, *_, ranges = convert(kernels, x, format_name)
        step = np.abs(x).max(axis=1, keepdims=True) / np.float32(LARGEST)
        assert np.array_equal(ranges[:, 1:], step)
        if FORMATS[format_name].rounds_blocks:
            blocks = np.pad(np.abs(x), ((0, 0), (0, -K % 32))).reshape(5, -1, 32)
            steps = (blocks.max(axis=2) / np.float32(127)).repeat(32, axis=1)[:, :K]
            assert (np.abs(rows - x) <= steps * (0.5 + 1e-4)).all()
        else:
            assert (np.abs(rows - x) <= step * (0.5 + 1e-3)).all()


def test_rows_without_a_range_or_with_a_huge_one(kernels, format_name):
    x = np.repeat(np.array([[0], [1e-38], [1e38]], np.float32), 33, axis=1)
    rows, *_ = convert(kernels, x, format_name)
    assert not rows[:2].any()
    assert np.allclose(rows[2], 1e38)


def test_a_block_with_a_range_beside_one_without(kernels):
    x = np.zeros((2, 96), np.float32)
    x[0, 32:64], x[1, 40] = 1, -3
    rows, *_ = convert(kernels, x, "int4")
    assert np.abs(rows - x).max() <= 3e-7


def test_what_is_not_finite_fills_its_row(kernels, format_name):
    for bad in [np.nan, np.inf, -np.inf]:
        x, w, scales, bias = problem(1, format_name, 7, 16, 37)
        x[2, 36] = bad
        *_, operands, ranges = convert(kernels, x, format_name)
        out = np.empty((7, round_up(16, kernels.VL)), np.float32)
        packed = packed_map(kernels, format_name, w, scales, 37, bias)
        product_of(kernels, format_name).multiply(packed, operands, out, None, ranges)
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
            w = np.full((9, FORMATS[format_name].row_bytes(K)), 128 if format_name == "q8_0" else 255, np.uint8)
            w, scales = w.view(FORMATS[format_name].dtype), np.empty((9, 0))
            for name in halves(w):
                w[name] = 1e-4 if name == "scale" else 0
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
        for first, last in ((0, 1), (5, 7), (6, 9), (6, 10), (16, 21), (64, 70)):
            own = check(kernels, format_name, x[first:last], w, scales, bias)
            assert np.array_equal(own, together[first:last])


def test_all_instruction_sets_with_fused_products_agree(format_name):
    """Sums are exact, so the bits of results are those of every instruction set that fuses the last two operations."""
    x, w, scales, bias = problem(9, format_name, 9, 50, 100)
    results = {name: check(load(name), format_name, x, w, scales, bias) for name, known in OF_TABLES
               if known == format_name}
    fused = [out for name, out in results.items() if name not in ("baseline", "wide", "amxemulated")]
    assert all(np.array_equal(out, fused[0]) for out in fused)


@pytest.mark.parametrize("name", tools.WITH_TILES)
@pytest.mark.parametrize("M", [1, 2, 3, 4, 5, 16, 17, 32, 33, 65, 300])
def test_tiles_give_the_bits_of_vectors(name, M):
    """Few rows, slices of the depth, and depths at which sums begin anew."""
    kernels = load(name)
    on_tiles, by_vectors = product_of(kernels, "int8"), Product(kernels, "q8_0")
    assert on_tiles.strip == 16
    depths = (1, 63, 64, 65, 12 * 64 + 1, 25 * 64 - 3, 4096, 4097, 8200) if M < 40 else (65, 25 * 64 - 3, 4097)
    for N, K in itertools.product((16, 48, 80) if M < 40 else (48,), depths):
        x, w, scales, bias = problem(M * N * K, "int8", M, N, K)
        residual, results = np.random.default_rng(K).standard_normal((M, N), np.float32), []
        for product in (on_tiles, by_vectors):
            packed = packed_map(kernels, "int8", w, scales, K, bias, product=product)
            out, ranges = guarded(M, N), np.empty((M, 2), np.float32)
            operands = np.empty((round_up(M, product.strip), product.operands_stride(K)), np.int16)
            product.convert(x, operands, ranges)
            product.multiply(packed, operands, out, guarded_copy(residual), ranges)
            assert_guards(out)
            results.append(np.array(out))
        assert np.array_equal(*results), (N, K)


@pytest.mark.parametrize("finer", ["int8", "q8_0"])
def test_weights_of_8_bits_beside_those_of_4(kernels, finer):
    """The product of a model with weights of 4 bits gives the bits of that of 8 bits."""
    x, w, scales, bias = problem(3, finer, 7, 20, 70)
    alone = check(kernels, finer, x, w, scales, bias)
    product = product_of(kernels, "int4")
    operands, ranges = np.empty((7, product.operands_stride(70)), np.int16), np.empty((7, 2), np.float32)
    product.convert(x, operands, ranges)
    out = np.empty((7, round_up(20, kernels.VL)), np.float32)
    packed = packed_map(kernels, finer, w, scales, 70, bias, product=product)
    product.multiply(packed, operands, out, None, ranges)
    assert np.array_equal(out[:, :20], alone)


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
@given(M=st.integers(1, 70), N=st.integers(1, 150), K=st.integers(1, 300), table=st.sampled_from(OF_TABLES))
def test_any_size(M, N, K, table):
    name, format_name = table
    check(load(name), format_name, *problem(M * N * K, format_name, M, N, K))
