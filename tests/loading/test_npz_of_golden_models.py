"""Every golden model is the same to the bit in its folder and in the engine's .npz: other tests need not run both."""

import numpy as np
import pytest

from engine import Engine, load_model, save
from engine.weights.input_layers import stem_arrays, stem_document

from ..tools.encoders import load_encoder, save_encoder
from ..tools.golden_generating import GOLDEN as GENERATING
from ..tools.golden_generating import NAMES
from ..tools.golden_models import ENCODERS, GOLDEN, Golden, assert_same_bits
from ..tools.model_files import same


def assert_same_model(found, expected):
    assert same(found, expected)
    assert found.layout is expected.layout is None
    assert (found.stem is None) == (expected.stem is None)
    if expected.stem is not None:
        assert stem_document(found.stem) == stem_document(expected.stem)
        arrays, others = stem_arrays(found.stem), stem_arrays(expected.stem)
        assert list(arrays) == list(others)
        assert_same_bits(list(arrays.values()), list(others.values()))


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name, tmp_path):
    model = load_encoder(GOLDEN / name)
    save_encoder(model, tmp_path / "model.npz")
    assert_same_model(load_encoder(tmp_path / "model.npz"), model)


@pytest.mark.parametrize("name", NAMES)
def test_generating_models(name, tmp_path):
    model = load_model(GENERATING / name, kind="generate")
    save(model, tmp_path / "model.npz")
    found = load_model(tmp_path / "model.npz", kind="generate")
    assert found.generation == model.generation
    assert_same_model(found.decoder, model.decoder)
    assert (found.encoder is None) == (model.encoder is None)
    if model.encoder is not None:
        assert_same_model(found.encoder, model.encoder)
        shared = [key for key in model.decoder.weights if key in model.encoder.weights
                  and np.shares_memory(model.decoder.weights[key], model.encoder.weights[key])]
        assert all(np.shares_memory(found.decoder.weights[key], found.encoder.weights[key]) for key in shared)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert"])
def test_vectors_of_weights_that_are_mapped_from_a_file(name, backend, tmp_path):
    """bfloat16, float16 and float32: tables and maps are read where they lie in either file."""
    save_encoder(load_encoder(GOLDEN / name), tmp_path / "model.npz")
    golden = Golden(name)
    vectors = [golden.forward(Engine.load(path, backend=backend)) for path in (GOLDEN / name, tmp_path / "model.npz")]
    assert_same_bits(*vectors)
