"""The weights of a model folder: which files they are read from, in one part or in several."""

from pathlib import Path

import numpy as np
import pytest

from engine import Engine
from engine.base.errors import WeightsError
from engine.cli.main import main
from engine.files.folder import FORMATS, read_shards

from ..tools.encoders import load_encoder
from ..tools.model_files import same
from ..tools.tiny_models import CONFIGS, hf_folder, hf_tensors, safetensors, write_json
from ..tools.torch_files import checkpoint

WRITERS = {"model.safetensors": safetensors, "pytorch_model.bin": checkpoint}
TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([-0.0, np.nan, 1e-45], np.float32)}


def bin_folder(folder: Path, family: str = "bert", **changes: np.ndarray) -> Path:
    """Write a folder whose weights are in a pytorch_model.bin."""
    hf_folder(folder, family)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(checkpoint(hf_tensors(family) | changes))
    return folder


@pytest.mark.parametrize("family", CONFIGS)
def test_a_checkpoint_gives_the_same_model(tmp_path, family):
    assert same(load_encoder(bin_folder(tmp_path / "bin", family)), load_encoder(hf_folder(tmp_path / "hf", family)))


def test_a_checkpoint_runs_and_converts(tmp_path, capsys):
    folder = bin_folder(tmp_path / "bin")
    assert main(["convert", str(folder), str(tmp_path / "m.npz")]) == 0
    assert same(load_encoder(tmp_path / "m.npz"), load_encoder(folder))
    tokens = [Engine.load(path, backend="reference").forward([[1, 2, 3]])[0] for path in (folder, tmp_path / "m.npz")]
    np.testing.assert_array_equal(*tokens)


def test_safetensors_are_preferred(tmp_path):
    folder = bin_folder(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    (folder / "model.safetensors").write_bytes(safetensors(hf_tensors("bert")))
    assert load_encoder(folder).config.family == "bert"


@pytest.mark.parametrize("file", ["model.safetensors", "model.bin", "model.pt", "model.pth"])
def test_a_file_of_weights_alone(tmp_path, file):
    (tmp_path / file).write_bytes(b"x")
    with pytest.raises(WeightsError, match="alone does not describe a model; load the folder"):
        load_encoder(tmp_path / file)


def test_a_folder_without_weights(tmp_path):
    (hf_folder(tmp_path) / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"no model\.safetensors, no pytorch_model\.bin and no index"):
        load_encoder(tmp_path)


def test_an_unknown_tensor_of_a_checkpoint_is_named(tmp_path):
    folder = bin_folder(tmp_path, **{"encoder.layer.0.adapter.weight": np.zeros((2, 2), np.float32)})
    with pytest.raises(WeightsError, match=r"unexpected encoder\.layer\.0\.adapter\.weight, shape \[2, 2\]"):
        load_encoder(folder)


@pytest.mark.parametrize("file", FORMATS)
def test_a_sharded_folder(tmp_path, file):
    tensors, suffix = hf_tensors("bert"), Path(file).suffix
    folder = hf_folder(tmp_path / "sharded", tensors=tensors)
    (folder / "model.safetensors").unlink()
    halves = {f"one{suffix}": sorted(tensors)[::2], f"two{suffix}": sorted(tensors)[1::2]}
    for shard, names in halves.items():
        (folder / shard).write_bytes(WRITERS[file]({name: tensors[name] for name in names}))
    places = {name: shard for shard, names in halves.items() for name in names}
    write_json(folder / f"{file}.index.json", {"weight_map": places})
    assert same(load_encoder(folder), load_encoder(hf_folder(tmp_path / "whole")))


@pytest.fixture(params=FORMATS)
def file(request) -> str:
    return request.param


def shards(folder: Path, file: str, **more: str) -> Path:
    suffix, index = Path(file).suffix, folder / f"{file}.index.json"
    for name, tensor in (("one", "a"), ("two", "b")):
        (folder / f"{name}{suffix}").write_bytes(WRITERS[file]({tensor: TENSORS[tensor]}))
    write_json(index, {"weight_map": {"a": f"one{suffix}", "b": f"two{suffix}"} | more})
    return index


def test_shards_are_read_together(tmp_path, file):
    found = read_shards(shards(tmp_path, file), FORMATS[file], lambda name: name.upper())
    expected = {name.upper(): array.tobytes() for name, array in TENSORS.items()}
    assert {name: array.tobytes() for name, array in found.items()} == expected


@pytest.mark.parametrize("name", ["../m{}", "/etc/m{}", "c:m{}", "a\\m{}", "m.txt"])
def test_a_shard_cannot_lie_outside_the_folder(tmp_path, file, name):
    suffix = Path(file).suffix
    with pytest.raises(WeightsError, match=rf"not the name of a \{suffix} file in the same folder"):
        read_shards(shards(tmp_path, file, c=name.format(suffix)), FORMATS[file])


def test_a_missing_shard_is_named(tmp_path, file):
    suffix = Path(file).suffix
    with pytest.raises(WeightsError, match=rf"three\{suffix}: cannot be read: No such file"):
        read_shards(shards(tmp_path, file, c=f"three{suffix}"), FORMATS[file])


def test_a_tensor_in_two_shards_is_refused(tmp_path, file):
    index, suffix = shards(tmp_path, file), Path(file).suffix
    (tmp_path / f"two{suffix}").write_bytes(WRITERS[file](TENSORS))
    with pytest.raises(WeightsError, match=rf"two shards hold a, the second is two\{suffix}"):
        read_shards(index, FORMATS[file])


@pytest.mark.parametrize("index", [[], {}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_a_wrong_index_is_refused(tmp_path, file, index):
    write_json(tmp_path / f"{file}.index.json", index)
    with pytest.raises(WeightsError, match=r"index\.json: expected"):
        read_shards(tmp_path / f"{file}.index.json", FORMATS[file])
