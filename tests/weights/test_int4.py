"""Test weights in 4 bits: what is stored, how near it is, and how a model with them is converted, saved and checked."""

import itertools
import json

import numpy as np
import pytest

from engine import Generator, Model, load_model, save
from engine.base.errors import InputError, UnsupportedError, WeightsError
from engine.model.precision import FORMATS
from engine.weights.int4 import BYTES, GROUP, impossible_int4, quantize_int4, widen_int4
from engine.weights.parameters import kept_finer, parameters_of
from engine.weights.quantize import convert_model

from ..tools.generators import language_model
from ..tools.tiny_models import random_model


def nearest_in_group(x, steps=60):
    """Return the least squared error of 16 numbers on any 16 equidistant values, by brute force over both ends."""
    low, high = np.meshgrid(np.linspace(x.min(), x.min() + np.ptp(x) / 3, steps),
                            np.linspace(x.max() - np.ptp(x) / 3, x.max(), steps))
    step = np.maximum(high - low, 1e-9) / 15
    q = np.clip(np.rint((x[:, None, None] - low) / step), 0, 15)
    return ((low + step * q - x[:, None, None]) ** 2).sum(axis=0).min()


def test_the_error_is_near_that_of_the_best_grid_of_each_group():
    w = np.random.default_rng(0).standard_normal((8, 256), np.float32)
    error = (widen_int4(*quantize_int4(w), 256) - w).reshape(-1, GROUP)
    best = sum(nearest_in_group(group) for group in w.reshape(-1, GROUP))
    assert (error**2).sum() <= 1.25 * best


def test_groups_of_different_sizes_have_their_own_multipliers():
    w = np.random.default_rng(1).standard_normal((40, 64), np.float32) * np.repeat(np.float32([1, 0.2, 0.5, 0.1]), 16)
    error = (widen_int4(*quantize_int4(w), 64) - w).reshape(40, 4, 16)
    assert (np.sqrt((error**2).mean(axis=(0, 2))) <= 0.12 * np.float32([1, 0.2, 0.5, 0.1])).all()


def test_an_offset_serves_weights_on_one_side_of_zero():
    w = np.random.default_rng(2).random((4, 64), np.float32) + np.float32(5)
    assert np.abs(widen_int4(*quantize_int4(w), 64) - w).max() <= 0.06


@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 31), (1, 33), (3, 24), (2, 40), (4, 32)])
def test_shapes_and_heads(heads, width):
    """The weights of a head are those of a matrix of its own."""
    w = np.random.default_rng(width).standard_normal((5, heads * width), np.float32)
    stored, scales = quantize_int4(w, heads)
    assert stored.shape == FORMATS["int4"].shape(w.shape, heads) == (5, heads * -(-width // 32) * BYTES)
    assert scales.shape == FORMATS["int4"].scale_shape(w.shape)
    assert impossible_int4(stored) is None
    wide = widen_int4(stored, scales, w.shape[1], heads)
    assert np.abs(wide - w).max() <= 0.5
    bytes_of_head = stored.shape[1] // heads
    for head in range(heads):
        part = stored[:, head * bytes_of_head : (head + 1) * bytes_of_head]
        assert np.array_equal(widen_int4(part, scales, width), wide[:, head * width : (head + 1) * width])


def test_special_rows():
    zeros = np.zeros((2, 40), np.float32)
    assert not widen_int4(*quantize_int4(zeros), 40).any()
    for size in (1e-35, 1e30):
        w = np.full((2, 40), size, np.float32)
        stored, scales = quantize_int4(w)
        assert (scales > 0).all()
        assert np.isfinite(widen_int4(stored, scales, 40)).all()
    for wrong in (np.nan, np.inf):
        with pytest.raises(InputError, match="only finite numbers"):
            quantize_int4(np.float32([[1, wrong]]))
    with pytest.raises(InputError, match="only a float32 matrix"):
        quantize_int4(np.zeros((2, 3)))


def test_impossible_bytes():
    stored, _ = quantize_int4(np.ones((1, 32), np.float32))
    for place, byte, message in ((16, 0x10, "a multiplier of 0"), (16, 0x01, "a multiplier of 0"), (18, 128, "-128")):
        wrong = stored.copy()
        wrong[0, place] = byte
        assert message in impossible_int4(wrong)


def version_of(path):
    with np.load(path) as file:
        return json.loads(file["config"].tobytes())["version"]


def test_the_version_of_a_file_with_an_encoder(tmp_path):
    """Only int4 weights need a newer version, also of an encoder, and also packed."""
    encoder = Model(encoder=random_model())
    for precision in ("int8", "int4"):
        save(convert_model(encoder, precision), tmp_path / "model.npz")
        assert version_of(tmp_path / "model.npz") == {"int8": 1, "int4": 5}[precision]
        assert load_model(tmp_path / "model.npz").encoder.precision == precision


@pytest.fixture(scope="module")
def model():
    """Return a random language model."""
    return language_model()


def test_a_converted_model(model, tmp_path):
    """Linear layers are int4, what needs to be finer is int8; a file gives the same tokens as rounding at load."""
    converted = convert_model(model, "int4").checked()
    weights, parameters = converted.decoder.weights, parameters_of(converted.decoder.config)
    finer = kept_finer(converted.decoder.config)
    assert {weights[name].dtype for name in finer} == {np.dtype(np.int8)}
    linear = [name for name, parameter in parameters.items() if parameter.kind == "linear" and name not in finer]
    assert {weights[name].dtype for name in linear} == {np.dtype(np.uint8)}
    assert converted.decoder.precision == "int4"
    save(converted, tmp_path / "model.npz")
    assert version_of(tmp_path / "model.npz") == 5
    read = load_model(tmp_path / "model.npz").decoder.weights
    assert all(np.array_equal(read[name], weights[name]) for name in weights)
    save(model, tmp_path / "original.npz")
    # Tables are rounded in the converted file, so compare with a file whose tables are rounded, too.
    tables = {name for name in finer if parameters[name].kind == "table"}
    mixed = dict(model.decoder.weights)
    mixed |= {name: array for name, array in weights.items() if name.removesuffix("_scale") in tables}
    save(Model(decoder=type(model.decoder)(model.decoder.config, mixed)), tmp_path / "tables.npz")
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10]]
    ids = []
    for name, backend in itertools.product(("model.npz", "tables.npz"), ("cython", "numba")):
        generator = Generator.load(tmp_path / name, precision="int4", backend=backend)
        ids.append([result.ids for result in generator.generate(prompts, max_new_tokens=12, eos_token_id=None)])
    assert all(each == ids[0] for each in ids)


def test_refusals(model):
    converted = convert_model(model, "int4")
    with pytest.raises(UnsupportedError, match="the weights are in int4 and do not give precision 'int8'"):
        converted.decoder.precision_for("int8")
    name = next(name for name, array in converted.decoder.weights.items() if array.dtype == np.uint8)
    wrong = dict(converted.decoder.weights)
    wrong[name] = wrong[name][:, :-1]
    with pytest.raises(WeightsError, match="has shape"):
        Model(decoder=type(model.decoder)(model.decoder.config, wrong)).checked()
    wrong[name] = converted.decoder.weights[name].copy()
    wrong[name][0, 16] = 0
    with pytest.raises(WeightsError, match="a multiplier of 0"):
        Model(decoder=type(model.decoder)(model.decoder.config, wrong)).checked()
