"""Test the GEMM of floats on AMX's tiles, on silicon and in emulation: to the last bit, and beside FMAs and float64.

The definition is here, in NumPy: the parts of a float, three in float32 and two in bfloat16x3, and the order in which
the tiles add their products.
"""

from functools import cache

import numpy as np
import pytest

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.cpu.native_ops import NativeOps
from engine.backends.reference.formulas import ACTIVATIONS as FORMULAS

from . import tools
from .tools import (
    TINY,
    assert_guards,
    convert,
    guarded,
    guarded_copy,
    multiply_to_operands,
    operand_width,
    pack,
    round_up,
    rows_of,
    without_denormals,
)

FRESH = 768
PRODUCTS = {"float32": ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)), "bfloat16x3": ((1, 0), (0, 0), (0, 1))}
"""The parts of a and of w that are multiplied in each precision, in this order."""
PARTS = {"float32": 3, "bfloat16x3": 2}
LEFT_OUT = {"float32": 2.0**-20, "bfloat16x3": 2.0**-14}
"""A bound on the error of a result, as a part of the sum of the magnitudes of its terms."""

ROWS = (1, 15, 16, 17, 31, 32, 33, 65)


kernels = tools.fixture_of(tools.WITH_TILES)


@pytest.fixture(params=PRODUCTS)
def precision(request):
    return request.param


def upper(x):
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def nearest(x):
    return upper((x.view(np.uint32) + np.uint32(0x8000)).view(np.float32))


def parts_of(x, of_part, count):
    """Return the parts of finite floats; of_part gives the first part of what is left."""
    left, found = np.ascontiguousarray(x), []
    for _ in range(count):
        found.append(of_part(left))
        left = left - found[-1]
    assert not left.any() if count == 3 else (np.abs(left) <= np.abs(x) * 2.0**-17).all()
    return [without_denormals(part) for part in found]


def multiplied(precision, a, w, bias=0, residual=0):
    """Return a [M,K] w [N,K]^T + bias + residual as parts.pxi defines it."""
    K, total = round_up(a.shape[1], 32), None
    a, w = (np.pad(x, ((0, 0), (0, K - x.shape[1]))) for x in (a, w))
    count = PARTS[precision]
    a, w = parts_of(a, nearest, count), parts_of(w, upper if count == 3 else nearest, count)
    for fresh in range(0, K, FRESH):
        sums = np.zeros((len(a[0]), len(w[0])), np.float32)
        for first in range(fresh, min(K, fresh + FRESH), 32):
            for i, j in PRODUCTS[precision]:
                halves = [np.zeros_like(sums), np.zeros_like(sums)]
                for k in range(32):     # numbers k and k + 16 are a pair
                    product = a[i][:, first + k, None] * w[j][:, first + k]
                    halves[k // 16] = without_denormals(halves[k // 16] + product)
                sums = without_denormals(sums + without_denormals(halves[0] + halves[1]))
        total = sums + bias if total is None else sums + total
    return total + residual


def run(kernels, precision, a, w, bias=None, activation=None, residual=None):
    """Return the product of rows that lie between rows of NaN."""
    product, N = kernels.product(precision), round_up(len(w), kernels.VL)
    bias, out = np.zeros(len(w), np.float32) if bias is None else bias, guarded(len(a), N)
    packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), precision)
    product.multiply(packed, convert(product, a, guard=0xFF), out, guarded_copy(residual, N))
    assert_guards(out)
    return np.array(out[:, : len(w)])


def make(rng, *shapes):
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


@cache
def products(precision, M):
    """Return the operands of products of M rows, each with its result, which is that of all kernels."""
    rng, sizes = np.random.default_rng(M), (
        (16, 1), (48, 31), (64, 32), (80, 33), (32, 65), (16, 767), (48, 769), (16, 1600))
    operands = [make(rng, (M, K), (N, K), (N,), (M, N)) for N, K in sizes]
    return [(*own, multiplied(precision, *own)) for own in operands]


@pytest.mark.parametrize("M", ROWS)
def test_every_bit(kernels, precision, M):
    for a, w, bias, residual, expected in products(precision, M):
        assert np.array_equal(run(kernels, precision, a, w, bias, None, residual), expected), w.shape


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_follow_the_last_slice(kernels, precision, activation):
    a, w, bias, residual = make(np.random.default_rng(0), (5, 800), (20, 800), (20,), (5, 20))
    exact = a.astype(np.float64) @ w.T.astype(np.float64) + bias + residual
    out, naive = run(kernels, precision, a, w, bias, activation, residual), multiplied(precision, a, w, bias, residual)
    tools.assert_as_good(out, FORMULAS[activation](exact), FORMULAS[activation](naive), operand=exact)


def decoded(product, a):
    """Return the parts of operands [M, lines, parts, 32], as numbers."""
    parts = PARTS[product.precision]
    rows = rows_of(product, convert(product, a))[: len(a), : operand_width(product, a.shape[1])]
    pairs = np.ascontiguousarray(rows).view(np.uint16).reshape(len(a), -1, parts, 16, 2)
    return (pairs.transpose(0, 1, 2, 4, 3).reshape(len(a), -1, parts, 32).astype(np.uint32) << 16).view(np.float32)


def test_parts_add_up_to_the_float(kernels, precision):
    """Three parts do exactly, and two nearly."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (40, 100), np.uint64).astype(np.uint32)
    bits[0, :8] = 0x7F7F7FFF, 0x7F7F8000, 0xFF7F8000, 0x7F7FFFFF, 0x80000000, 0, 0x00800000, 0x3F808000
    a = bits.view(np.float32)
    a = np.where(np.isfinite(a), a, np.float32(1))
    parts = decoded(kernels.product(precision), a)
    assert np.isfinite(parts).all()
    a = np.pad(a, ((0, 0), (0, 28))).reshape(40, -1, 32).astype(np.float64)
    lacking = np.abs(parts.astype(np.float64).sum(axis=2) - a)
    of_three = precision == "float32"
    assert not lacking[(np.abs(a) >= 2.0**-103) & of_three | (a == 0)].any()
    largest = np.abs(a) >= float.fromhex("0x1.feffp127")        # what their first part lacks is larger
    assert (lacking < 2.0**-125 + (0 if of_three else np.abs(a) * np.where(largest, 2.0**-16, 2.0**-17))).all()
    rounded = (np.abs(a) >= TINY) & (np.abs(a) < float.fromhex("0x1.feffp127"))
    assert (np.abs(parts[:, :, 1]) <= np.abs(a) * 2**-8)[rounded].all()


def test_numbers_that_are_not_finite_give_none_that_is(kernels, precision):
    """Of an infinite operand or weight, all results of its row or column are NaN or infinite, and no others."""
    rng = np.random.default_rng(0)
    for bad in (np.nan, np.inf, -np.inf):
        for in_weights in (False, True):
            a, w = make(rng, (35, 70), (48, 70))
            (w if in_weights else a)[17, 40] = bad
            out = run(kernels, precision, a, w)
            wrong = ~np.isfinite(out)
            assert wrong[:, 17].all() if in_weights else wrong[17].all()
            assert not (np.delete(wrong, 17, axis=1) if in_weights else np.delete(wrong, 17, axis=0)).any()
    # NaN whose upper half is that of infinity, or whose bits overflow when they are rounded
    for nan in np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFF8000, 0xFFBFFFFF], np.uint32):
        a, w = make(rng, (3, 40), (16, 40))
        a.view(np.uint32)[1, 3] = w.view(np.uint32)[2, 5] = nan
        wrong = ~np.isfinite(run(kernels, precision, a, w))
        assert wrong[1].all()
        assert wrong[:, 2].all()
        assert wrong.sum() == 16 + 2


def test_the_largest_and_the_smallest_numbers(kernels, precision):
    """The largest numbers have finite parts; denormal ones count as 0, in operands and in parts."""
    rng = np.random.default_rng(0)
    largest = np.finfo(np.float32).max
    a, w = make(rng, (20, 50), (32, 50))
    a[:, 7], w[:, 7] = largest, rng.uniform(-0.9, 0.9, 32)
    exact = a.astype(np.float64) @ w.T.astype(np.float64)
    assert (np.abs(run(kernels, precision, a, w) / exact - 1) < LEFT_OUT[precision]).all()
    w[:, 7], a[:, 7] = largest, rng.uniform(-0.9, 0.9, 20)
    exact = a.astype(np.float64) @ w.T.astype(np.float64)
    assert (np.abs(run(kernels, precision, a, w) / exact - 1) < LEFT_OUT[precision]).all()

    a = (rng.standard_normal((20, 50)) * 2.0 ** rng.integers(-149, -100, (20, 50))).astype(np.float32)
    w = (rng.standard_normal((32, 50)) * 2.0 ** rng.integers(-149, 20, (32, 50))).astype(np.float32)
    a64, w64 = a.astype(np.float64), w.astype(np.float64)
    lost = np.abs(a64).sum(axis=1)[:, None] + np.abs(w64).sum(axis=1) + 2 * 50 * 6       # of 2^-126, each
    bound = np.abs(a64) @ np.abs(w64.T) * LEFT_OUT[precision] + lost * 2.0**-125
    assert (np.abs(run(kernels, precision, a, w) - a64 @ w64.T) <= bound).all()


def test_zeros_have_the_sign_of_additions(kernels, precision):
    a, w = np.full((3, 40), -0.0, np.float32), np.ones((16, 40), np.float32)
    assert not np.signbit(run(kernels, precision, a, w)).any()
    assert np.signbit(run(kernels, precision, a, w, np.full(16, -0.0, np.float32))).sum() == 0


@pytest.mark.parametrize("K", [40, 800])
def test_a_row_does_not_depend_on_its_company(kernels, precision, K):
    rng = np.random.default_rng(K)
    a, w = make(rng, (1, K), (16, K))
    alone = run(kernels, precision, a, w)[0]
    for M, place in ((16, 3), (33, 32), (66, 65)):
        x = rng.standard_normal((M, K), np.float32)
        x[place - 1], x[place - 2, 7] = np.nan, np.inf
        x[place] = a[0]
        assert np.array_equal(run(kernels, precision, x, w)[place], alone)


def test_operands_that_a_product_writes(kernels, precision):
    """They are those of its results as floats, with zeros in the padding; K is at most `operands_depth`."""
    product = kernels.product(precision)
    if not product.operands_depth:
        pytest.skip("Numba's kernels write floats alone")
    rng = np.random.default_rng(0)
    for M, N, K in ((1, 16, 5), (17, 48, 33), (33, 80, 40), (65, 16, 768)):
        a, w, bias = make(rng, (M, K), (N, K), (N,))
        packed = pack(kernels, w, bias, ACTIVATIONS["gelu"], precision)
        operands = convert(product, a, guard=0xFF)
        out = guarded(M, N)
        product.multiply(packed, operands, out)
        expected = convert(product, np.array(out), guard=77)
        to = np.full_like(expected, 77)
        multiply_to_operands(product, packed, operands, to, M)
        rows, wanted = rows_of(product, to), rows_of(product, expected)
        assert np.array_equal(rows[:M], wanted[:M])
        assert (rows[round_up(M, 16) :] == 77).all()


@pytest.mark.parametrize("M", [1, 33])
def test_parts_of_the_depth_change_no_bit(kernels, precision, M):
    product = kernels.product(precision)
    if not product.hidden_columns:
        pytest.skip("Numba's kernels compute all of the depth at once")
    lines = product.fresh_depth // 32
    a, w, bias, residual = make(np.random.default_rng(M), (M, 1600), (48, 1600), (48,), (M, 48))
    packed, operands = pack(kernels, w, bias, ACTIVATIONS["gelu"], precision), convert(product, a)
    whole, out, extra = np.empty((M, 48), np.float32), guarded(M, 48), guarded_copy(residual)
    product.multiply(packed, operands, whole, residual)
    strips = operands.reshape(len(operands) // 16, -1, PARTS[precision] * 16 * 64)
    for first, last in ((0, lines), (lines, 2 * lines), (2 * lines, 50)):
        part = np.pad(strips[:, first:], ((0, 0), (0, first), (0, 0))).reshape(operands.shape)
        product.multiply(packed, part, out, extra, lines=(first, last))
    assert_guards(out)
    assert np.array_equal(out, whole)


@pytest.mark.parametrize("M", [1, 40, 600])
def test_single_operations_on_any_number_of_threads(kernels, M):
    a, w, bias = make(np.random.default_rng(M), (M, 100), (300, 100), (300,))
    expected = multiplied("float32", a[:1], w, bias)
    for threads in (1, 2, 3, 4):
        out = NativeOps(kernels, threads).linear(a, w, bias, None, None)
        assert np.array_equal(out[:1], expected)
        assert np.abs(out - (a.astype(np.float64) @ w.T + bias)).max() < 1e-4


def sampled(rng, distribution, *shape):
    x = rng.standard_normal(shape)
    if distribution == "lognormal":
        x = np.sign(x) * np.exp(1.5 * rng.standard_normal(shape))
    if distribution == "outliers":
        x[:, rng.integers(0, shape[1], 1 + shape[1] // 100)] *= 1000
    return x.astype(np.float32)


@pytest.mark.parametrize("distribution", ["normal", "lognormal", "outliers"])
def test_nearer_to_float64_than_fmas(kernels, distribution):
    """From K = 16 on the root mean square is at most that of FMAs; below, each error is at most 2^-20 of its terms."""
    rng = np.random.default_rng(0)
    for low, high in ((1, 15), (16, 63), (64, 511), (512, 4096)):
        squares = np.zeros(2)
        for _ in range(20):
            K = int(rng.integers(low, high + 1))
            a = sampled(rng, distribution, 16, K)
            w = sampled(rng, "normal" if distribution == "outliers" else distribution, 32, K)
            exact, terms = a.astype(np.float64) @ w.T, np.abs(a.astype(np.float64)) @ np.abs(w.T)
            out, fma = run(kernels, "float32", a, w), guarded(16, 32)
            kernels.fma.multiply(pack(kernels, w, np.zeros(32, np.float32), product=kernels.fma), a, fma)
            if high < 16:
                assert (np.abs(out - exact) <= 2.0**-20 * terms).all()
            squares += [(((found - exact) / terms) ** 2).sum() for found in (out, fma)]
        assert high < 16 or squares[0] <= squares[1], (low, high, squares)


@pytest.mark.parametrize("distribution", ["normal", "lognormal", "outliers"])
def test_three_products_of_two_parts_are_near_to_float64(kernels, distribution):
    """The root mean square is at most 5e-6 of that of sums with random signs, and results do not shrink."""
    rng = np.random.default_rng(0)
    for low, high in ((1, 15), (16, 511), (512, 4096)):
        squares, along = np.zeros(2), np.zeros(2)
        for _ in range(20):
            K = int(rng.integers(low, high + 1))
            a, w = sampled(rng, distribution, 16, K), sampled(rng, distribution, 32, K)
            a64, w64 = a.astype(np.float64), w.astype(np.float64)
            exact, terms = a64 @ w64.T, np.abs(a64) @ np.abs(w64.T)
            error = run(kernels, "bfloat16x3", a, w) - exact
            assert (np.abs(error) <= LEFT_OUT["bfloat16x3"] * terms).all()
            squares += (error**2 / (a64**2 @ (w64**2).T)).sum(), error.size
            along += (error * exact / terms**2).sum(), (exact**2 / terms**2).sum()
        assert squares[0] <= 5e-6**2 * squares[1], (low, high, np.sqrt(squares[0] / squares[1]))
        assert abs(along[0]) <= 1e-6 * along[1], (low, high, along[0] / along[1])
