"""The `.npz` of a model that generates: wrong files are refused with a message that says what is wrong."""

import json

import numpy as np
import pytest

from engine import Model, Transformer, WeightsError, load_model, save
from engine.files.npz import read_npz, write_npz
from engine.model.config import ModelConfig
from engine.model.generation_config import GenerationConfig

from ..tools.decoders import DECODERS, make_weights

ENCODER = ModelConfig("test", 38, 1, 2, 19, 30, vocab_size=50, max_positions=90)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the parsed JSON and the arrays of a file."""
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    decoder = DECODERS["2017"]
    save(Model(decoder=Transformer(decoder, make_weights(decoder)),
               encoder=Transformer(ENCODER, make_weights(ENCODER, 1)),
               generation=GenerationConfig(eos_token_id=3)), path)
    arrays = dict(read_npz(path))
    return json.loads(arrays.pop("config").tobytes()), arrays


def load(tmp_path, document, arrays, **options):
    config = np.frombuffer(json.dumps(document).encode(), np.uint8)
    write_npz(tmp_path / "changed.npz", {"config": config} | arrays)
    return load_model(tmp_path / "changed.npz", **options, kind="generate")


@pytest.mark.parametrize("memory", ["map", "copy"])
def test_what_was_written_is_read(saved, tmp_path, memory):
    document, arrays = saved
    assert document["version"] == 3
    assert document["generation"] == {"eos_token_id": [3]}
    model = load(tmp_path, document, arrays, memory=memory)
    assert model.generation == GenerationConfig(eos_token_id=3)
    assert set(model.parts) == {"encoder", "decoder"}


def test_wrong_entries_are_refused(saved, refusals):
    def call(tmp_path, changes):
        document, arrays = saved
        load(tmp_path, document | changes, arrays)

    refusals(call, [
        {"version": 7}, {"version": 2}, {"version": "3"}, {"format": "another"}, {"surprise": 1}, {"generation": []},
        {"generation": {"num_beams": 0}}, {"decoder": {}},
        {"decoder": {"model": {"family": "x"}}}, {"decoder": 5}, {"shared": "embeddings.word"},
        {"shared": ["layers.7.ffn.up.weight"]}, {"shared": ["embeddings.word"]},
    ])


def test_arrays_without_a_half_are_refused(saved, tmp_path):
    document, arrays = saved
    with pytest.raises(WeightsError, match="which stray do not"):
        load(tmp_path, document, arrays | {"stray": np.ones(3, np.float32)})
    alone = {name: value for name, value in document.items() if name != "encoder"}
    with pytest.raises(WeightsError, match="arrays of the encoder, which the config does not describe"):
        load(tmp_path, alone, arrays)


def test_missing_and_wrong_arrays_are_named(saved, tmp_path):
    document, arrays = saved
    less = {name: array for name, array in arrays.items() if name != "decoder.layers.1.cross.key.weight"}
    with pytest.raises(WeightsError, match=r"decoder: weights do not fit.*\n.*missing layers.1.cross.key.weight"):
        load(tmp_path, document, less)
    wrong = arrays | {"encoder.embeddings.word": np.ones((50, 37), np.float32)}
    with pytest.raises(WeightsError, match=r"encoder: weights do not fit.*\n.*embeddings.word has shape \[50, 37\]"):
        load(tmp_path, document, wrong)
