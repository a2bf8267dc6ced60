"""Test the GEMMs on AMX's tiles to the last bit, on silicon and on the emulation of the tiles in plain C.

The definition is here, in NumPy: how a tile instruction adds the products of bfloat16 pairs, and exact integers.
"""

import itertools

import numpy as np
import pytest

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from . import tools
from .table import function, stride
from .tools import assert_guards, convert, guarded, guarded_copy, load, pack, round_up, rows_of, without_denormals

ROWS = (1, 15, 16, 17, 31, 32, 33, 65)
COLUMNS = (16, 48, 64, 80)
DEPTHS = (1, 2, 30, 32, 34, 63, 64, 65, 96)

kernels = tools.fixture_of(tools.WITH_TILES)


def added_in_tiles(a, w):
    """Return a [M,K] w [N,K]^T as TDPBF16PS adds it: even and odd steps of each 32 apart, from 0, then to the sum.

    The products of bfloat16 numbers are exact in float32, unless they are denormal or beyond its range. A tile adds a
    product beyond the range unrounded, which this definition does not.
    """
    K = round_up(a.shape[1], 32)
    a, w = (without_denormals(np.pad(x, ((0, 0), (0, K - x.shape[1])))) for x in (a, w))
    total = np.zeros((len(a), len(w)), np.float32)
    for first in range(0, K, 32):
        halves = [np.zeros_like(total), np.zeros_like(total)]
        for k in range(first, first + 32):
            halves[k % 2] = without_denormals(halves[k % 2] + a[:, k, None] * w[:, k])
        total = without_denormals(total + without_denormals(halves[0] + halves[1]))
    return total


def product_of(kernels, name):
    """Return the product of a precision, or that of a decoder's int8, which is called int16."""
    return kernels.product("int8", decodes=True) if name == "int16" else kernels.product(name)


def rounded(rng, *shape):
    return from_bfloat16(to_bfloat16(rng.standard_normal(shape, np.float32)))


def multiply_bfloat16(kernels, x, w, bias, activation=None, residual=None):
    """Return the product of rows that lie between rows of NaN."""
    product = kernels.product("bfloat16")
    out = guarded(len(x), len(w))
    packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), "bfloat16")
    product.multiply(packed, convert(product, x, guard=0xFF), out, guarded_copy(residual))
    assert_guards(out)
    return np.array(out)


@pytest.mark.parametrize("M", ROWS)
def test_bfloat16_to_the_bit(kernels, M):
    for N, K in itertools.product(COLUMNS, DEPTHS):
        rng = np.random.default_rng(M * N * K)
        x, w = rounded(rng, M, K), rounded(rng, N, K)
        assert np.array_equal(multiply_bfloat16(kernels, x, w, np.zeros(N, np.float32)), added_in_tiles(x, w)), (N, K)


def test_bfloat16_over_the_whole_range_of_numbers(kernels):
    """Exponents from end to end, so that sums cancel, become denormal, or reach infinity."""
    rng = np.random.default_rng(0)
    x, w = (rounded(rng, n, 64) * 2.0 ** rng.integers(-60, 62, (n, 64)) for n in (40, 48))
    x, w = (from_bfloat16(to_bfloat16(each.astype(np.float32))) for each in (x, w))
    expected = added_in_tiles(x, w)
    assert np.isfinite(expected).any()
    assert np.array_equal(multiply_bfloat16(kernels, x, w, np.zeros(48, np.float32)), expected)


ENDS = [
    (2.0**-127, 1.0, 0.0),              # a denormal number counts as zero
    (1.0, 2.0**-127, 0.0),
    (2.0**-127, 2.0**100, 0.0),         # also where the product would be a normal number
    (2.0**100, 2.0**-127, 0.0),
    (2.0**-63, 2.0**-63, 2.0**-126),    # the least result
    (2.0**-64, 2.0**-63, 0.0),          # a denormal result is zero
    (1.5 * 2.0**-64, 1.328125 * 2.0**-63, 0.0),     # just below
    (2.0**100, 2.0**100, np.inf),
    (np.inf, 0.0, np.nan),
]


def test_the_ends_of_the_range(kernels):
    for x, w, result in ENDS:
        x, w = (np.full((16, 1), value, np.float32) for value in (x, w))
        out = multiply_bfloat16(kernels, x, w, np.zeros(16, np.float32))
        assert np.array_equal(out, np.full((16, 16), result, np.float32), equal_nan=True)


def test_a_product_below_the_denormal_numbers_still_counts_in_a_sum(kernels):
    """The product is added before anything is rounded: 2^-126 + 2^-149 is a float, though 2^-149 is denormal."""
    x = np.array([[2.0**-63, 0, 2.0**-75]], np.float32)
    w = np.repeat(np.array([[2.0**-63, 0, 2.0**-74]], np.float32), 16, axis=0)
    expected = np.float32(2.0**-126) + np.float32(2.0**-149)
    assert np.array_equal(multiply_bfloat16(kernels, x, w, np.zeros(16, np.float32)), np.full((1, 16), expected))


def test_a_sum_that_a_later_step_makes_denormal_is_zero(kernels):
    """An instruction adds 32 products to a sum: 1.5 of 2^-126 of the first 32, and then -2^-126."""
    x, w = np.zeros((1, 64), np.float32), np.zeros((16, 64), np.float32)
    x[0, 0], x[0, 32], w[:, 0], w[:, 32] = 1.5 * 2.0**-63, -(2.0**-63), 2.0**-63, 2.0**-63
    assert not multiply_bfloat16(kernels, x, w, np.zeros(16, np.float32)).any()


@pytest.mark.parametrize("M", ROWS)
def test_int8_is_exact(kernels, M):
    """Codes of all values, weights of all values, garbage in the padding of the codes, and a scale of 1."""
    for N, K in itertools.product(COLUMNS, DEPTHS):
        rng = np.random.default_rng(M * N * K)
        w = rng.integers(-127, 128, (N, K)).astype(np.int8)
        codes = rng.integers(0, 256, (round_up(M, 16), round_up(K, 64)), np.uint8)
        lines = codes.reshape(-1, 16, codes.shape[1] // 64, 64).transpose(0, 2, 1, 3)
        operands = np.ascontiguousarray(lines).reshape(codes.shape)
        assert np.array_equal(rows_of(kernels.product("int8"), operands), codes)
        out = guarded(M, N)
        packed = pack(kernels, w, np.zeros(N, np.float32), 0, "int8", np.ones(N, np.float32))
        ranges = np.tile(np.array([[0, 1]], np.float32), (M, 1))
        kernels.product("int8").multiply(packed, operands, out, None, ranges)
        assert_guards(out)
        assert np.array_equal(out, codes[:M, :K].astype(np.int64) @ w.T.astype(np.int64)), (N, K)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_epilogues_are_those_of_vectors(kernels, activation):
    """Bias, activation and residual are applied to the sums as to any row of floats."""
    rng = np.random.default_rng(0)
    x, w, bias = rounded(rng, 33, 70), rounded(rng, 80, 70), rounded(rng, 80)
    residual = None if activation else rounded(rng, 33, 80)
    expected = added_in_tiles(x, w) + bias
    if activation:
        function(kernels, "activate")(ACTIVATIONS[activation], expected, stride(expected), *expected.shape)
    else:
        expected += residual
    assert np.array_equal(multiply_bfloat16(kernels, x, w, bias, activation, residual), expected)


def test_heads_lie_head_by_head(kernels):
    """N = 80 columns in five heads of 16, each [M,16]."""
    rng = np.random.default_rng(0)
    M, x, w = 35, rounded(rng, 35, 44), rounded(rng, 80, 44)
    product = kernels.product("bfloat16")
    out = np.full((5 * M, 16), np.nan, np.float32)
    packed = pack(kernels, w, np.zeros(80, np.float32), 0, "bfloat16")
    product.multiply(packed, convert(product, x), out[:M], None, width=16, block=16 * M)
    heads = out.reshape(5, M, 16).transpose(1, 0, 2).reshape(M, 80)
    assert np.array_equal(heads, added_in_tiles(x, w))


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int16"])
def test_a_row_has_the_same_bits_at_every_place(kernels, precision):
    """Alone, and at each place among rows of NaN and of other numbers."""
    rng = np.random.default_rng(0)
    product = product_of(kernels, precision)
    row, w, bias = rounded(rng, 1, 100), rounded(rng, 48, 100), rounded(rng, 48)
    scale = None
    if precision != "bfloat16":
        w, scale = rng.integers(-127, 128, w.shape).astype(np.int8), np.full(48, 0.01, np.float32)
    packed = pack(kernels, w, bias, ACTIVATIONS["gelu"], precision, scale, product)

    def result(x):
        out, ranges = np.empty((len(x), 48), np.float32), np.empty((len(x), 2), np.float32)
        product.multiply(packed, convert(product, x, ranges, guard=0xFF), out, None, ranges)
        return out

    alone = result(row)[0]
    for place in (0, 1, 15, 16, 30, 31, 32, 65):
        x = rounded(rng, 66, 100)
        x[place - 1], x[place - 2, 7] = np.nan, np.inf
        x[place] = row
        assert np.array_equal(result(x)[place], alone)


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int16"])
def test_rows_are_converted_at_any_place(kernels, precision):
    """Threads that share a block convert rows that begin anywhere in a strip."""
    product, rng = product_of(kernels, precision), np.random.default_rng(0)
    x = rng.standard_normal((40, 70), np.float32)
    ranges, parts = np.empty((40, 2), np.float32), np.empty((40, 2), np.float32)
    whole = convert(product, x, ranges)
    apart = np.full_like(whole, 77)
    for first, last in ((0, 1), (1, 15), (15, 17), (17, 32), (32, 40)):
        product.convert(x[first:last], apart, parts[first:last], first)
    assert np.array_equal(whole, apart)
    if precision != "bfloat16":
        assert np.array_equal(ranges, parts)


@pytest.mark.parametrize("M", [32, 33, 65, 512, 513])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_slices_of_the_depth_change_no_bit(kernels, precision, M):
    """A slice has 12 lines of 64 bytes; up to 512 rows are computed in slices, if they are more than one block."""
    product, line, N = kernels.product(precision), 32 if precision == "bfloat16" else 64, 48
    for K in (12 * line, 12 * line + 1, 25 * line - 3, 37 * line):
        rng = np.random.default_rng(M * K)
        x, w = rounded(rng, M, K), rounded(rng, N, K)
        if precision == "bfloat16":
            out, expected = multiply_bfloat16(kernels, x, w, np.zeros(N, np.float32)), added_in_tiles(x, w)
        else:
            w = rng.integers(-127, 128, (N, K)).astype(np.int8)
            out, ranges = guarded(M, N), np.empty((M, 2), np.float32)
            packed = pack(kernels, w, np.zeros(N, np.float32), 0, precision, np.ones(N, np.float32))
            operands = convert(product, x, ranges)
            ranges[:] = 0, 1        # the sums of the codes themselves
            product.multiply(packed, operands, out, None, ranges)
            assert_guards(out)
            expected = rows_of(product, operands)[:M, :K].astype(np.int64) @ w.T.astype(np.int64)
        assert np.array_equal(out, expected), K


@pytest.mark.parametrize("name", tools.WITH_TILES)
@pytest.mark.parametrize("M", [1, 17, 32, 65])
def test_parts_of_the_depth_change_no_bit(name, M):
    kernels = load(name)
    product = kernels.product("bfloat16")
    assert product.hidden_columns
    rng = np.random.default_rng(M)
    for N, K in ((16, 70), (80, 96), (64, 330), (48, 1000)):
        x, w, bias, residual = (rounded(rng, *shape) for shape in ((M, K), (N, K), (N,), (M, N)))
        packed = pack(kernels, w, bias, 0, "bfloat16")
        operands, whole, out = convert(product, x), np.empty((M, N), np.float32), guarded(M, N)
        product.multiply(packed, operands, whole, residual)
        extra = guarded_copy(residual)
        lines = -(-K // 32)
        sums = np.full(round_up(M, 32) * round_up(N, 32), np.nan, np.float32)
        for first, last in ((0, 1), (1, lines - 1), (lines - 1, lines)):
            if first < last:
                part = operands.reshape(-1, operands.shape[1] // 64, 16, 64)[:, first:]
                part = np.pad(part, ((0, 0), (0, first), (0, 0), (0, 0))).reshape(operands.shape)
                product.multiply(packed, part, out, extra, lines=(first, last), sums=sums)
        assert_guards(out)
        assert np.array_equal(out, whole), (N, K)


@pytest.mark.parametrize(("precision", "depth"), [("bfloat16", 32), ("int8", 64), ("int16", 32)])
def test_rounds_count_the_operations_of_tiles(kernels, precision, depth):
    """Two products of bytes are one of 16-bit integers."""
    assert product_of(kernels, precision).rounds(3, 2) == 2 * 3 * 4 * 2 * 16 * 16 * depth
