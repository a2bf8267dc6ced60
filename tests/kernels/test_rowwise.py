"""LayerNorm and the activations against float64."""

import numpy as np
import pytest

from engine.backends.cython_cpu.native import NormWeights
from engine.backends.cython_cpu.plan import ACTIVATIONS
from engine.backends.reference.ops import ACTIVATIONS as FORMULAS
from engine.backends.reference.ops import layer_norm

from .tools import assert_as_good, assert_guards, guarded

WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 44, 64, 100, 768)


def normed(kernels, x, weight, bias, eps):
    out = guarded(*x.shape)
    kernels.layer_norm(NormWeights(weight, bias, eps), x, out)
    assert_guards(out)
    return out


@pytest.mark.parametrize("mean", [0.0, 3.0, 1000.0])
def test_layer_norm(kernels, mean):
    rng = np.random.default_rng(0)
    for D in WIDTHS:
        x = rng.standard_normal((5, D), dtype=np.float32) + np.float32(mean)
        weight, bias = rng.standard_normal((2, D), dtype=np.float32)
        exact, naive = (layer_norm(*(a.astype(dtype) for a in (x, weight, bias)), 1e-5)
                        for dtype in (np.float64, np.float32))
        # Lanes are summed in another order than NumPy's pairs: at 1000 times the spread that shows.
        assert_as_good(normed(kernels, x, weight, bias, 1e-5), exact, naive, factor=8.0)


def test_layer_norm_of_a_constant_row_is_its_bias(kernels):
    bias = np.arange(20, dtype=np.float32)
    assert np.array_equal(normed(kernels, np.full((3, 20), 0.5, np.float32), np.ones(20, np.float32), bias, 1e-12),
                          np.tile(bias, (3, 1)))


def test_layer_norm_in_place(kernels):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 45), dtype=np.float32)
    weight, bias = rng.standard_normal((2, 45), dtype=np.float32)
    expected = normed(kernels, x, weight, bias, 1e-12)
    kernels.layer_norm(NormWeights(weight, bias, 1e-12), x, x)
    assert np.array_equal(x, expected)


def test_norm_weights_must_agree():
    with pytest.raises(ValueError, match="3 and a bias of 4"):
        NormWeights(np.ones(3, np.float32), np.ones(4, np.float32), 1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_is_within_an_ulp_of_its_argument(kernels, name):
    """|error| <= 1.5 eps |x| everywhere, for gelu also where x is far below zero and the result next to nothing."""
    x = np.concatenate([np.linspace(-12, 12, 40_001), np.geomspace(1e-30, 1e4, 500), -np.geomspace(1e-30, 1e4, 500)])
    x = x.astype(np.float32)
    y = x[None].copy()
    kernels.activate(ACTIVATIONS[name], y)
    exact = FORMULAS[name](x.astype(np.float64))
    assert (np.abs(y[0] - exact) <= 1.5 * np.finfo(np.float32).eps * np.abs(x)).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_at_every_width(kernels, name):
    rng = np.random.default_rng(2)
    for N in WIDTHS:
        x = rng.standard_normal((3, N), dtype=np.float32)
        out = guarded(3, N)
        out[:] = x
        kernels.activate(ACTIVATIONS[name], out)
        assert_guards(out)
        exact, naive = (FORMULAS[name](x.astype(dtype)) for dtype in (np.float64, np.float32))
        assert_as_good(np.array(out), exact, naive, operand=x)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_passes_nan_and_infinity(kernels, name):
    x = np.array([[np.nan, np.inf, 1.0]], np.float32)
    kernels.activate(ACTIVATIONS[name], x)
    assert np.isnan(x[0, 0])
    assert x[0, 1] == np.inf
    assert 0.8 < x[0, 2] <= 1
