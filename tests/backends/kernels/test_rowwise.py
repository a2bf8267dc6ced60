"""Test norms, activations and gates against float64."""

import numpy as np
import pytest

from engine.backends.cpu.native import native
from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.cpu.native.native import NormWeights
from engine.backends.reference import formulas as reference

from .table import function, stride
from .tools import WIDTHS, assert_as_good, assert_guards, guarded

EPS = np.finfo(np.float32).eps


def silu(x):
    return x * np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


FORMULAS = {**reference.ACTIVATIONS, "silu": silu}


def activate(kernels, name, x):
    """x [M,N] = activation(x), in place."""
    function(kernels, "activate")(ACTIVATIONS[name], x, stride(x), *x.shape)


def normed(kernels, operation, x, weight, bias, eps):
    out = guarded(*x.shape)
    operation(kernels, NormWeights(weight, bias, eps), x, out)
    assert_guards(out)
    return out


def test_layer_norm(kernels):
    for mean in [0.0, 3.0, 1000.0]:
        rng = np.random.default_rng(0)
        for D in WIDTHS:
            x = rng.standard_normal((5, D), dtype=np.float32) + np.float32(mean)
            weight, bias = rng.standard_normal((2, D), dtype=np.float32)
            exact, naive = (reference.layer_norm(*(a.astype(dtype) for a in (x, weight, bias)), 1e-5)
                            for dtype in (np.float64, np.float32))
            # Lanes are added in another order than NumPy's pairs. That shows when the mean is 1000 times the deviation.
            assert_as_good(normed(kernels, native.layer_norm, x, weight, bias, 1e-5), exact, naive, factor=8.0)


def test_layer_norm_of_a_constant_row_is_its_bias(kernels):
    bias = np.arange(20, dtype=np.float32)
    out = normed(kernels, native.layer_norm, np.full((3, 20), 0.5, np.float32), np.ones(20, np.float32), bias, 1e-12)
    assert np.array_equal(out, np.tile(bias, (3, 1)))


def test_rms_norm(kernels):
    for scale in [1e-15, 1.0, 1e15]:
        rng = np.random.default_rng(3)
        for D in WIDTHS:
            x = rng.standard_normal((5, D), dtype=np.float32) * np.float32(scale)
            weight, bias = rng.standard_normal((2, D), dtype=np.float32)
            exact, naive = (rms_norm(x.astype(dtype), weight.astype(dtype), 1e-6) for dtype in (np.float64, np.float32))
            assert_as_good(normed(kernels, native.rms_norm, x, weight, bias * np.nan, 1e-6), exact, naive)


def test_rms_norm_of_zeros_is_zeros(kernels):
    weights = np.ones((2, 20), np.float32)
    assert not normed(kernels, native.rms_norm, np.zeros((3, 20), np.float32), *weights, 1e-12).any()


def test_norm_in_place(kernels):
    for operation in [native.layer_norm, native.rms_norm]:
        rng = np.random.default_rng(1)
        x = rng.standard_normal((4, 45), dtype=np.float32)
        weight, bias = rng.standard_normal((2, 45), dtype=np.float32)
        expected = normed(kernels, operation, x, weight, bias, 1e-12)
        operation(kernels, NormWeights(weight, bias, 1e-12), x, x)
        assert np.array_equal(x, expected)


def test_nan_stays_in_its_row_of_a_norm(kernels):
    for operation in [native.layer_norm, native.rms_norm]:
        x = np.ones((3, 21), np.float32)
        x[1, 20] = np.nan
        out = normed(kernels, operation, x, *np.ones((2, 21), np.float32), 1e-5)
        assert np.array_equal(np.isnan(out), np.arange(3)[:, None] == np.full(21, 1))


def test_norm_weights_must_agree():
    with pytest.raises(ValueError, match="3 and a bias of 4"):
        NormWeights(np.ones(3, np.float32), np.ones(4, np.float32), 1e-12)


def test_activation_is_within_an_ulp_of_its_argument(kernels):
    """The error is at most 1.5 eps |x| everywhere; for gelu also far below zero, where the result is tiny."""
    for name in ACTIVATIONS:
        sizes = np.geomspace(1e-30, 1e4, 500)
        x = np.concatenate([np.linspace(-12, 12, 40_001), sizes, -sizes]).astype(np.float32)
        y = x[None].copy()
        activate(kernels, name, y)
        exact = FORMULAS[name](x.astype(np.float64))
        assert (np.abs(y[0] - exact) <= 1.5 * EPS * np.abs(x)).all()


def test_silu_is_within_a_few_ulp_of_its_result(kernels):
    """Far below zero the rounding of the exponent, up to |x| / 2 ulp, is larger than all other errors."""
    x = np.concatenate([np.linspace(-87, 20, 50_001), -np.geomspace(1e-30, 1, 500), np.geomspace(1e-30, 3e38, 500)])
    x = x.astype(np.float32)
    y = x[None].copy()
    activate(kernels, "silu", y)
    exact = silu(x.astype(np.float64))
    assert (np.abs(y[0] - exact) <= (3 + np.maximum(-x, 0)) * EPS * np.abs(exact)).all()


def test_activation_ends_in_zero(kernels):
    for name in ["silu", "gelu_tanh"]:
        x = np.array([[-88, -1e4, -1e30, -np.finfo(np.float32).max, -np.inf]], np.float32)
        activate(kernels, name, x)
        assert not x.any()


def test_activation_at_every_width(kernels):
    for name in ACTIVATIONS:
        rng = np.random.default_rng(2)
        for N in WIDTHS:
            x = rng.standard_normal((3, N), dtype=np.float32)
            out = guarded(3, N)
            out[:] = x
            activate(kernels, name, out)
            assert_guards(out)
            exact, naive = (FORMULAS[name](x.astype(dtype)) for dtype in (np.float64, np.float32))
            assert_as_good(np.array(out), exact, naive, operand=x)


def test_activation_passes_nan_and_infinity(kernels):
    for name in ACTIVATIONS:
        x = np.array([[np.nan, np.inf, 1.0]], np.float32)
        activate(kernels, name, x)
        assert np.isnan(x[0, 0])
        assert x[0, 1] == np.inf
        assert 0.7 < x[0, 2] <= 1


def test_gate_is_the_activation_times_the_other(kernels):
    """The results are equal to the bit, wherever vectors and pieces end."""
    for name in [*ACTIVATIONS, None]:
        rng = np.random.default_rng(4)
        number = ACTIVATIONS.get(name, 0)
        for N in (*WIDTHS, 4095, 4096, 4097, 9000):
            x, y = 4 * rng.standard_normal((2, N), dtype=np.float32)
            activated, out = guarded(1, N), guarded(1, N)
            native.activate(kernels, number, x, activated[0])
            native.activate(kernels, number, x, out[0], y)
            assert_guards(activated, out)
            assert np.array_equal(out[0], activated[0] * y)
            exact, naive = (FORMULAS.get(name, np.copy)(x.astype(dtype)) for dtype in (np.float64, np.float32))
            assert_as_good(activated[0], exact, naive, operand=x)
