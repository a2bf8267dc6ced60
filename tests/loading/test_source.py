"""Opened paths of models: what was found by attacking them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine import InputError, Model, Transformer, WeightsError, load_model, save
from engine.files.folder import ModelFolder
from engine.files.npz import read_npz, write_npz
from engine.loading.load import open_source

from ..tools.paths import DECODERS, ENCODERS
from ..tools.tiny_models import random_model, write_json


def copied(source, folder, names=None):
    folder.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (folder / (names or {}).get(path.name, path.name)).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_stray_model_bin_makes_no_folder_of_ctranslate2(tmp_path, split, is_folder):
    shard = "model-00001-of-00001.safetensors"
    folder = copied(ENCODERS / "bert", tmp_path / "model", {"model.safetensors": shard} if split else None)
    if split:
        names = read_names(folder / shard)
        write_json(folder / "model.safetensors.index.json", {"weight_map": dict.fromkeys(names, shard)})
    if is_folder:
        (folder / "model.bin").mkdir()
    else:
        (folder / "model.bin").write_bytes(b"stray")
    assert load_model(folder).encoder.config.family == "bert"


def read_names(path):
    data = path.read_bytes()
    return [name for name in json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]) if name != "__metadata__"]


def test_vocabularies_of_translation_do_not_concern_other_encoders(tmp_path):
    folder = copied(ENCODERS / "t5_own", tmp_path / "model")
    (folder / "source.spm").mkdir()
    assert load_model(folder, kind="encode").encoder is not None


@pytest.mark.parametrize("name", ["bart", "whisper"])
def test_a_source_can_be_read_again_and_gives_arrays_of_its_own(tmp_path, name):
    save(load_model(DECODERS / name, kind="generate"), tmp_path / "model.npz")
    source = open_source(tmp_path / "model.npz")
    first, second = load_model(source), load_model(source)
    assert first.decoder.weights is not second.decoder.weights
    assert first.decoder.weights.keys() == second.decoder.weights.keys()
    with pytest.raises(InputError, match="memory must be"):
        open_source(source, "bogus")


def test_objects_of_a_folder_are_copies(tmp_path):
    write_json(tmp_path / "config.json", {"architectures": ["A"]})
    folder = ModelFolder(tmp_path)
    folder.read_object("config.json")["architectures"].clear()
    assert folder.read_object("config.json") == {"architectures": ["A"]}


@pytest.mark.parametrize("names", [[3], [None], [["BartForConditionalGeneration"]], {"a": 1}])
def test_architectures_that_are_no_names_decide_nothing(tmp_path, names):
    folder = copied(DECODERS / "bart", tmp_path / "model")
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", values | {"architectures": names})
    with pytest.raises(InputError, match="the key architectures does not say"):
        load_model(folder)


def test_settings_of_a_file_that_name_arguments_of_methods(tmp_path):
    save(load_model(DECODERS / "bart"), tmp_path / "model.npz")
    arrays = dict(read_npz(tmp_path / "model.npz", keep_float16=True))
    document = json.loads(arrays.pop("config").tobytes())
    document["generation"] = {"self": 1}
    write_npz(tmp_path / "changed.npz", {"config": np.frombuffer(json.dumps(document).encode(), np.uint8)} | arrays)
    with pytest.raises(WeightsError, match="the settings of generation are wrong"):
        load_model(tmp_path / "changed.npz")


@pytest.mark.parametrize("changes", [{"weights": None}, {"layout": 5}, {"stem": 5}], ids=str)
def test_a_part_of_other_types_is_refused(tmp_path, changes):
    wrong = replace(random_model(), **changes)
    assert isinstance(wrong, Transformer)
    with pytest.raises(WeightsError, match="must"):
        save(Model(encoder=wrong), tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()
