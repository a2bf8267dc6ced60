"""Compare floats on AMX's tiles with the compiled kernels that use them: equal bits of panels, operands and results."""

import itertools

import numpy as np
import pytest

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.cython_cpu import isa

from ..kernels.tools import assert_guards, convert, guarded, load, pack
from .peers import FLOAT32_PEER, WITHOUT

target = pytest.importorskip("engine.backends.numba_cpu.target", reason=WITHOUT)
pytestmark = pytest.mark.skipif(not target.TILES, reason=f"no tiles here: {target.WHY_NO_TILES}")

SPECIAL = np.array([np.inf, 3.4e38, 3.3961776e38, 1e30, 2.0**-103, 2.0**-126, 1e-40, 1e-45, 0], np.float32)
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


@pytest.fixture(scope="module")
def both():
    """(Numba's table, the compiled one)"""
    if reason := isa.why_not(FLOAT32_PEER):
        pytest.skip(reason)
    return load("numba"), isa.load(FLOAT32_PEER)


@pytest.fixture(params=["float32", "bfloat16x3"])
def precision(request):
    return request.param


def run(kernels, precision, x, w, bias, residual, activation):
    """Return the panels, the operands and the results."""
    product, out, extra = kernels.product(precision), guarded(len(x), len(w)), guarded(len(x), len(w))
    extra[:] = residual
    packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), precision)
    operands = convert(product, x, guard=0xFF)
    product.multiply(packed, operands, out, extra)
    assert_guards(out)
    return packed.arrays[0], operands, np.array(out)


@pytest.mark.parametrize("M", [1, 15, 16, 17, 33, 65, 130])
def test_sizes(both, precision, M):
    for N, K, activation in itertools.product((16, 48, 80), (1, 31, 33, 768, 769, 1600), (None, "gelu")):
        rng = np.random.default_rng(M * N * K)
        arrays = [rng.standard_normal(shape, np.float32) for shape in ((M, K), (N, K), N, (M, N))]
        for ours, theirs in zip(*(run(kernels, precision, *arrays, activation) for kernels in both), strict=True):
            assert np.array_equal(ours, theirs), (N, K)


@pytest.mark.parametrize("K", [1, 33, 900])
@pytest.mark.parametrize("share", [0.01, 1])
def test_special_values(both, precision, K, share):
    """Infinity, numbers that would round to it, denormal numbers, and zeros of both signs."""
    rng = np.random.default_rng(K)
    shapes = (40, K), (48, K), 48, (40, 48)
    arrays = [np.where(rng.random(shape) < share, rng.choice(SPECIAL, shape), rng.standard_normal(shape, np.float32))
              for shape in shapes]
    (panels, operands, out), (*theirs, expected) = (run(kernels, precision, *arrays, None) for kernels in both)
    assert np.array_equal(panels, theirs[0])
    assert np.array_equal(operands, theirs[1])
    assert np.array_equal(out, expected, equal_nan=True)
    numbers = ~np.isnan(out)
    assert np.array_equal(np.signbit(out[numbers]), np.signbit(expected[numbers]))


def test_nan(both, precision):
    """NaN of either side stays in its row or its column."""
    x, w = np.ones((20, 70), np.float32), np.ones((48, 70), np.float32)
    x[3, 5], w[7, 40] = np.nan, -np.nan
    results = [run(kernels, precision, x, w, np.zeros(48, np.float32), 0, None)[2] for kernels in both]
    wrong = np.zeros((20, 48), bool)
    wrong[3], wrong[:, 7] = True, True
    for out in results:
        assert np.array_equal(np.isnan(out), wrong)
    assert np.array_equal(*results, equal_nan=True)
