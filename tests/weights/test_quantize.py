"""Test weights in fewer bits: int8 with a scale per row, and bfloat16."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine.base.errors import InputError, UnsupportedError, WeightsError
from engine.weights import parameters
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16
from engine.weights.parameters import matrices, parameters_of
from engine.weights.quantize import quantize_balanced, quantize_bounded, quantize_linear, quantize_rows, widen

from ..backends.kernels.tools import input_groups
from ..tools.damage import peak_of
from ..tools.encoders import convert_encoder, engine_of, load_encoder, save_encoder
from ..tools.tiny_models import random_array, random_model

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
MATRICES = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=FINITE)


@given(MATRICES)
def test_rows_are_within_half_a_step(w):
    weight, scale = quantize_rows(w)
    assert (weight.dtype, scale.dtype, weight.shape, scale.shape) == (np.int8, np.float32, w.shape, w.shape[:1])
    assert scale.min() > 0
    assert weight.min() >= -127
    error = np.abs(weight * scale[:, None].astype(np.float64) - w)
    assert np.all(error <= scale[:, None] * (0.5 + 127 * 2.0**-23))


def fullest(weight, heads=1):
    """Return the largest sum of same-sign weights of a group in each row, [N]."""
    most = 0
    for head in np.split(weight.astype(int), heads, axis=1):
        groups = input_groups(head.shape[1])
        most = np.maximum(most, np.max([np.maximum(sign * head, 0) @ groups for sign in (1, -1)], axis=(0, 2)))
    return most


@given(MATRICES, st.integers(1, 3))
def test_linear_weights_stay_within_their_groups(w, heads):
    """Rounding is within half a step, except in a full group, where a weight may lose a whole step."""
    w = np.tile(w, (1, 3 * heads))
    weight, scale = quantize_bounded(w, heads)
    assert np.all(fullest(weight, heads) <= 128)
    assert np.all(np.abs(weight * scale[:, None].astype(np.float64) - w) <= scale[:, None] * 1.001)
    inside = fullest(np.abs(weight), heads) < 100
    plain = w[inside] / scale[inside, None]
    assert np.all(np.abs(weight[inside] - plain) <= 0.5 + 1e-4)


@given(MATRICES)
def test_balanced_errors_are_within_a_step_and_add_up_to_no_more(w):
    (weight, scale), (nearest, same_scale) = quantize_balanced(w), quantize_rows(w)
    np.testing.assert_array_equal(scale, same_scale)
    assert weight.min() >= -127
    assert not weight[w == 0].any()
    ratio = w / scale[:, None]
    assert np.all(np.abs(weight - ratio) <= 1)
    sums, sums_of_nearest = (np.abs((integers - ratio).sum(axis=1)) for integers in (weight, nearest))
    assert np.all(sums <= sums_of_nearest)


@pytest.mark.parametrize("K", [384, 3072])
def test_balanced_errors_nearly_cancel(K):
    """The sum of K errors is about (K / 12)^(1/2) with rounding to nearest; a fifth of it is left at most."""
    w = np.random.default_rng(0).standard_normal((200, K), np.float32)
    weight, scale = quantize_balanced(w)
    ratio = w / scale[:, None].astype(np.float64)
    nearest = np.rint(ratio)
    assert np.abs((nearest - ratio).sum(axis=1)).mean() > 0.7 * (K / 12) ** 0.5
    assert np.abs((weight - ratio).sum(axis=1)).mean() < 0.2 * (K / 12) ** 0.5
    assert np.square(weight - ratio).mean() < 1.02 * np.square(nearest - ratio).mean()


def test_linear_weights_use_what_their_groups_allow():
    """With normal numbers nearly every row has a full group; the step is about 1.7 times that of 8 bits (7 bits: 2)."""
    w = np.random.default_rng(0).standard_normal((300, 384), np.float32)
    weight, scale = quantize_bounded(w)
    assert np.median(fullest(weight)) >= 127
    assert 1.6 < np.median(scale / quantize_rows(w)[1]) < 1.8
    lost = np.abs(weight * scale[:, None] - w) > scale[:, None] * 0.501
    assert 0 < lost.mean() < 2e-3


def test_known_linear_weights():
    w = np.array([[127, 1, 50, 9, 0, 0, 60, 9, 5], [40, 40, -40, 40, 40, 41, -40, 40, 5], [-2, 0, 0, 0, 0, 0, 0, 0, 0]])
    weight, scale = quantize_bounded(w.astype(np.float32))
    np.testing.assert_array_equal(scale, np.array([1, 161 / 128, 2 / 127], np.float32))
    np.testing.assert_array_equal(weight, [[127, 1, 50, 9, 0, 0, 60, 9, 5], [31, 31, -32, 32, 31, 32, -32, 32, 4],
                                           [-127, 0, 0, 0, 0, 0, 0, 0, 0]])


def test_known_rows():
    w = np.array([[127, -127, 0.5, 1.5, -2.5], [0, 0, 0, 0, 0], [-0.25, 0, 0, 0, 0.125]], np.float32)
    weight, scale = quantize_rows(w)
    np.testing.assert_array_equal(weight, [[127, -127, 0, 2, -2], [0, 0, 0, 0, 0], [-127, 0, 0, 0, 64]])
    np.testing.assert_array_equal(scale, np.array([1, 1, 0.25 / 127], np.float32))


def test_blocks_change_nothing(monkeypatch):
    w = random_array(np.random.default_rng(0), 50, 7)
    for function in (quantize_rows, quantize_balanced, quantize_bounded):
        monkeypatch.setattr(parameters, "SLAB", 2**20)
        whole = function(w)
        monkeypatch.setattr(parameters, "SLAB", 20)
        for one, other in zip(whole, function(w), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("function", [quantize_rows, quantize_balanced, quantize_bounded])
def test_no_copy_of_a_large_matrix_is_made(function):
    w = np.ones((8192, 2048), np.float32)
    assert peak_of(function, w) < w.nbytes * 0.7


@pytest.mark.parametrize("w", [
    np.ones(3, np.float32), np.ones((2, 3)), np.ones((0, 3), np.float32), np.full((2, 3), np.nan, np.float32),
    np.array([[1, -np.inf]], np.float32)])
def test_what_is_no_finite_float32_matrix_is_refused(w):
    for function in (quantize_rows, quantize_balanced, quantize_bounded):
        with pytest.raises(InputError, match="can be quantized"):
            function(w)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_model_keeps_all_but_its_matrices(precision):
    model = random_model()
    converted = convert_encoder(model, precision)
    found = dict(converted.weights)
    for name in matrices(model.config):
        if precision == "int8":
            stored, parameter = model.weights[name], parameters_of(model.config)[name]
            linear = parameter.kind == "linear"
            weight, scale = quantize_linear(stored, parameter.heads, False) if linear else quantize_rows(stored)
            np.testing.assert_array_equal(found.pop(f"{name}_scale"), scale)
            expected = scale[:, None] * weight
        else:
            weight = to_bfloat16(model.weights[name])
            expected = from_bfloat16(weight)
        np.testing.assert_array_equal(widen(converted.weights, name), expected)
        assert found[name].dtype == weight.dtype
        np.testing.assert_array_equal(found.pop(name), weight)
    assert found == {name: model.weights[name] for name in found}
    assert converted.precision == ("int8" if precision == "int8" else "float32")


def test_what_is_converted_stays():
    for precision in ("float32", "bfloat16", "int8"):
        once = convert_encoder(random_model(), precision)
        twice = convert_encoder(once, precision)
        assert all(twice.weights[name] is array for name, array in once.weights.items())


def test_tables_of_an_older_file_follow_its_linear_maps():
    """Older files have linear maps in int8 and tables in float32."""
    model = random_model()
    whole = convert_encoder(model, "int8").weights
    older = {name: array for name, array in whole.items() if "embeddings" not in name}
    older |= {name: array for name, array in model.weights.items() if "embeddings" in name}
    found = convert_encoder(replace(model, weights=older), "int8").weights
    assert found.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(found[name], array)


def test_bfloat16_is_widened_exactly():
    model = random_model()
    bits = convert_encoder(model, "bfloat16")
    wide = convert_encoder(bits, "float32")
    assert {array.dtype for array in wide.weights.values()} == {np.dtype(np.float32)}
    for name in matrices(model.config):
        np.testing.assert_array_equal(wide.weights[name], from_bfloat16(bits.weights[name]))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_int8_gives_nothing_else(precision):
    with pytest.raises(UnsupportedError, match="weights are in int8"):
        convert_encoder(convert_encoder(random_model(), "int8"), precision)


def test_what_bfloat16_cannot_hold_is_refused():
    model = random_model()
    big = {"layers.0.ffn.up.weight": np.full((20, 12), 3.4e38, np.float32)}
    with pytest.raises(WeightsError, match=r"finite numbers up to 3\.39e38"):
        convert_encoder(replace(model, weights=dict(model.weights) | big), "bfloat16")


@given(hnp.arrays(np.float32, 5, elements=st.floats(-(2.0**127), 2.0**127, width=32)))
def test_bfloat16_is_the_nearest(values):
    bits = to_bfloat16(values).astype(np.int64)
    error = np.abs(from_bfloat16(bits.astype(np.uint16)).astype(np.float64) - values)
    for step in (-1, 1):  # one more or less in magnitude; below zero, the other sign's zero or infinity's neighbour
        magnitude = (bits & 0x7FFF) + step
        neighbour = from_bfloat16((np.maximum(magnitude, 0) | bits & 0x8000).astype(np.uint16)).astype(np.float64)
        other = np.abs(neighbour - values)
        assert np.all((error < other) | (error == other) & ((bits & 1 == 0) | (magnitude < 0)))


def test_bfloat16_in_the_middle_goes_to_the_even_number():
    middle = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0xBF818000], np.uint32).view(np.float32)
    np.testing.assert_array_equal(to_bfloat16(middle), np.array([0x3F80, 0x3F82, 0xBF80, 0xBF82], np.uint16))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38, np.uint32(2**32 - 1).view(np.float32)])
def test_bfloat16_of_what_is_not_finite_is_refused(value):
    with pytest.raises(WeightsError, match="finite numbers"):
        to_bfloat16(np.array([1, value], np.float32))


def test_float16_is_a_storage_that_is_widened_at_load(tmp_path):
    """The file has half of float32's bytes, stays mapped, and computes as float32 weights of the same numbers do."""
    model = random_model()
    half = convert_encoder(model, "float16")
    names = matrices(model.config)
    assert {half.weights[name].dtype for name in names} == {np.dtype(np.float16)}
    save_encoder(half, tmp_path / "half.npz")
    found = load_encoder(tmp_path / "half.npz")
    for name, array in half.weights.items():
        assert found.weights[name].dtype == array.dtype
        assert found.weights[name].base is not None
        np.testing.assert_array_equal(found.weights[name], array)
    wide = convert_encoder(half, "float32")
    for name in names:
        np.testing.assert_array_equal(wide.weights[name], model.weights[name].astype(np.float16))
    ids = np.array([[4, 5, 6, 7]])
    for backend in ("cython", "reference"):
        for precision in ("float32", "bfloat16", "int8")[: 1 if backend == "reference" else 3]:
            vectors = [engine_of(m, backend=backend, precision=precision).forward(ids) for m in (found, wide)]
            np.testing.assert_array_equal(*vectors)


def test_float16_refuses_what_it_cannot_hold():
    model = random_model()
    weights = dict(model.weights)
    weights["layers.0.ffn.up.weight"] = weights["layers.0.ffn.up.weight"] * np.float32(1e6)
    with pytest.raises(WeightsError, match="up to 65504"):
        convert_encoder(replace(model, weights=weights), "float16")


def test_no_plan_computes_in_float16():
    with pytest.raises(UnsupportedError, match="float16"):
        engine_of(random_model(), backend="cython", precision="float16")
