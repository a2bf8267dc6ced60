"""Weights in fewer bits: int8 with a scale a row, and the bits of bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine import quantize
from engine.errors import InputError, WeightsError
from engine.parameters import linear_maps
from engine.quantize import quantize_model, quantize_rows
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from .damage import peak_of
from .tiny_models import random_array, random_model

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
MATRICES = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=FINITE)


@given(MATRICES)
def test_rows_are_within_half_a_step(w):
    weight, scale = quantize_rows(w)
    assert (weight.dtype, scale.dtype, weight.shape, scale.shape) == (np.int8, np.float32, w.shape, w.shape[:1])
    assert scale.min() > 0
    assert weight.min() >= -127
    error = np.abs(weight * scale[:, None].astype(np.float64) - w)
    # Beside the rounding to int8: that of the quotient, and of a subnormal scale, off by up to half a unit, 127 times.
    assert np.all(error <= scale[:, None] * (0.5 + 127 * 2.0**-23) + 64 * 2.0**-149)


def test_known_rows():
    w = np.array([[127, -127, 0.5, 1.5, -2.5], [0, 0, 0, 0, 0], [-0.25, 0, 0, 0, 0.125]], np.float32)
    weight, scale = quantize_rows(w)
    np.testing.assert_array_equal(weight, [[127, -127, 0, 2, -2], [0, 0, 0, 0, 0], [-127, 0, 0, 0, 64]])
    np.testing.assert_array_equal(scale, np.array([1, 1, 0.25 / 127], np.float32))


def test_blocks_change_nothing(monkeypatch):
    w = random_array(np.random.default_rng(0), 50, 7)
    whole = quantize_rows(w)
    monkeypatch.setattr(quantize, "_BLOCK", 20)
    for one, other in zip(whole, quantize_rows(w), strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_copy_of_a_large_matrix_is_made():
    w = np.ones((4096, 2048), np.float32)
    assert peak_of(quantize_rows, w) < w.nbytes * 0.6


@pytest.mark.parametrize("w", [
    np.ones(3, np.float32), np.ones((2, 3)), np.ones((0, 3), np.float32), np.full((2, 3), np.nan, np.float32),
    np.array([[1, -np.inf]], np.float32)])
def test_what_is_no_finite_float32_matrix_is_refused(w):
    with pytest.raises(InputError, match="quantize_rows takes"):
        quantize_rows(w)


def test_a_model_keeps_all_but_its_linear_weights():
    model = random_model()
    quantized = quantize_model(model)
    assert (model.precision, quantized.precision) == ("float32", "int8")
    linear = {f"{name}.weight" for name in linear_maps(model.config)}
    assert quantized.weights.keys() - model.weights.keys() == {f"{name}_scale" for name in linear}
    for name, array in model.weights.items():
        if name in linear:
            weight, scale = quantize_rows(array)
            np.testing.assert_array_equal(quantized.weights[name], weight)
            np.testing.assert_array_equal(quantized.weights[f"{name}_scale"], scale)
        else:
            assert quantized.weights[name] is array
    assert quantize_model(quantized) is quantized


@given(hnp.arrays(np.float32, 5, elements=st.floats(-(2.0**127), 2.0**127, width=32)))
def test_bfloat16_is_the_nearest(values):
    bits = to_bfloat16(values).astype(np.int64)
    error = np.abs(from_bfloat16(bits.astype(np.uint16)).astype(np.float64) - values)
    for step in (-1, 1):  # one more or less in magnitude; below zero, the other sign's zero or infinity's neighbour
        magnitude = (bits & 0x7FFF) + step
        neighbour = from_bfloat16((np.maximum(magnitude, 0) | bits & 0x8000).astype(np.uint16)).astype(np.float64)
        other = np.abs(neighbour - values)
        assert np.all((error < other) | (error == other) & ((bits & 1 == 0) | (magnitude < 0)))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38])
def test_bfloat16_of_what_is_not_finite_is_refused(value):
    with pytest.raises(WeightsError, match="finite numbers"):
        to_bfloat16(np.array([1, value], np.float32))
