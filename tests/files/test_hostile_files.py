"""Hostile model files raise an `EngineError`, soon and in little memory; each case once took a process down."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from engine import load_model
from engine.base.errors import WeightsError, listed, shown
from engine.cli.main import main
from engine.families import FAMILIES
from engine.files.reading import FormatError, parse_json
from engine.model.config import MOST_LAYERS

from ..families.cases import CONFIGS
from ..fuzz.binaries import write_gguf_model
from ..fuzz.corpus import family_folder, tensor_file, tensors_of
from ..tools.encoders import load_encoder, save_encoder
from ..tools.limited import outcome
from ..tools.model_files import by_hand, document, st_folder
from ..tools.module_folders import TYPES
from ..tools.tiny_models import hf_folder, random_model, write_json

LARGE_JSON: dict[str, Callable[[], bytes]] = {
    "many keys twice": lambda: b'{"a":1,' + b",".join(b'"k%d":0,"k%d":0' % (i, i) for i in range(100_000)) + b"}",
    "one key twice, at the end": lambda: b"{" + b",".join(b'"k%d":0' % i for i in range(200_000)) + b',"k199999":0}',
    "many lists": lambda: b'{"a":[' + b"[]," * 20_000_000 + b"[]]}",
    "many objects": lambda: b'{"a":[' + b'{"":0},' * 1_000_000 + b"{}]}",
    "deep": lambda: b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
    "a huge integer": lambda: b'{"layer_norm_eps":' + b"9" * 400 + b"}",
}


MEMORY = 350_000_000
"""Bytes that a large JSON text may take: 229 MB are those of its value, of which there may be one at a time."""


def loaded(path: Path) -> str:
    return outcome(lambda: load_encoder(path) and None, memory=MEMORY)


@pytest.mark.parametrize(("name", "case"), [
    *[("config.json", case) for case in LARGE_JSON],
    *[(name, "many lists") for name in ("modules.json", "model.safetensors.index.json")],
    *[(name, case) for name in ("tokenizer_config.json", "1_Pooling/config.json")
      for case in ("one key twice, at the end", "a huge integer")],
    ("1_Pooling/config.json", "many objects")])
def test_large_json_in_a_folder(tmp_path, name, case):
    """All files have one reader: the first file shows every case, and the others that they go through it."""
    folder = st_folder(tmp_path, "Transformer", "Pooling")
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(LARGE_JSON[case]())
    result = loaded(folder)
    harmless = name != "config.json" and case in ("many objects", "a huge integer")
    assert result.startswith("ok" if harmless else "EngineError"), result


@pytest.mark.parametrize("case", LARGE_JSON)
def test_large_json_in_an_npz(tmp_path, case):
    config = np.frombuffer(LARGE_JSON[case](), np.uint8)
    np.savez_compressed(tmp_path / "m.npz", config=config)
    assert loaded(tmp_path / "m.npz").startswith("EngineError")


def test_large_header_of_safetensors(tmp_path):
    header = LARGE_JSON["many lists"]()
    (hf_folder(tmp_path) / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "at most 8,000,000 are allowed" in loaded(tmp_path)


def test_json_is_as_deep_as_the_limit():
    assert parse_json(b"[" * 64 + b"]" * 64)
    with pytest.raises(FormatError, match="at most 64 levels"):
        parse_json(b"[" * 65 + b"]" * 65)
    assert parse_json(b'["' + b"[" * 65 + b'"]') == ["[" * 65]


def test_many_pooling_modes(tmp_path):
    modes = ["mean"] * 100_000
    folder = st_folder(tmp_path / "folder", "Transformer", "Pooling", pooling={"pooling_mode": modes})
    assert "pooling_mode" in loaded(folder)
    path = by_hand(tmp_path / "m.npz", document(text={"pooling": modes}), tokenizer="{}")
    assert "pooling must be one or more of" in loaded(path)


@pytest.mark.parametrize("changes", [
    {"layer_norm_eps": 10**400}, {"num_attention_heads": 10**400}, {"hidden_size": -10**400},
    {"model_type": "x" * 10**6}, {"model_type": [[1] * 10**5] * 9}, {"num_hidden_layers": 10_000},
])
def test_extreme_values_of_config_json(tmp_path, changes):
    result = loaded(hf_folder(tmp_path, **changes))
    assert result.startswith("EngineError")
    assert len(result) < 3000


def test_the_most_layers_that_a_configuration_may_state(tmp_path):
    """Their shapes are computed before the weights are seen to be missing."""
    file = tmp_path / "m.gguf"
    write_gguf_model(Random(0), file, untouched=1.0, settings={"block_count": MOST_LAYERS})
    result = outcome(lambda: load_model(file, kind="generate") and None)
    assert "missing layers.1.attention" in result


@pytest.mark.parametrize("changes", [
    {"attention_kinds": [{}] * 200_000}, {"biases": [["query"]] * 200_000}, {"layer_kinds": list(range(200_000))},
    {"family": "\ud800"}, {"family": "\x1b[2J"}, {"family": "x" * 10**6}, {"norm_eps": 10**400}, {"x" * 10**6: 1},
])
def test_extreme_values_of_an_npz(tmp_path, changes):
    result = loaded(by_hand(tmp_path / "m.npz", document(model=random_model().config.to_json() | changes)))
    assert result.startswith("EngineError")
    assert len(result) < 3000


@pytest.mark.parametrize("name", ["new", "modernbert", "neobert", "jina_embeddings_v3"])
def test_a_joined_tensor_without_axes(tmp_path, name):
    """The reader asked such a tensor for its length."""
    files = family_folder(name, CONFIGS[name])
    config = json.loads(files["config.json"])
    tensors = tensors_of(FAMILIES[name].read_encoder(config), new=False)
    joined = next(name for name in tensors if "qkv" in name)
    files["model.safetensors"] = tensor_file(tensors | {joined: np.array(1.0, np.float32)})
    for path, data in files.items():
        (tmp_path / path).write_bytes(data)
    with pytest.raises(WeightsError, match=r"unexpected layers.0.attention.qkv.weight, shape \[\]"):
        load_encoder(tmp_path)


def test_a_width_that_no_float_holds(tmp_path):
    for path, data in family_folder("gemma3_text", CONFIGS["gemma3_text"]).items():
        (tmp_path / path).write_bytes(data)
    values = {"model_type": "gemma3_text", **CONFIGS["gemma3_text"], "hidden_size": 10**400}
    write_json(tmp_path / "config.json", values)
    with pytest.raises(WeightsError, match="hidden_size must be an integer of 64 bits"):
        load_encoder(tmp_path)


def test_a_signalling_nan_in_a_norm_gives_no_warning(tmp_path):
    files = family_folder("gemma3_text", CONFIGS["gemma3_text"])
    family = FAMILIES["gemma3_text"]
    tensors = tensors_of(family.read_encoder(json.loads(files["config.json"])), new=False)
    tensors["norm.weight"] = np.full(8, 0x7F800001, np.uint32).view(np.float32)
    files["model.safetensors"] = tensor_file(tensors)
    for path, data in files.items():
        (tmp_path / path).write_bytes(data)
    with pytest.raises(WeightsError, match="holds NaN or infinity"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("changes", [{"rope_parameters": {"rope_theta": math.nan}}, {"rope_theta": math.nan}])
def test_a_rotary_base_that_is_no_number(tmp_path, changes):
    values = {key: value for key, value in CONFIGS["qwen3"].items() if key != "rope_theta"}
    for path, data in family_folder("qwen3", values).items():
        (tmp_path / path).write_bytes(data)
    write_json(tmp_path / "config.json", {"model_type": "qwen3"} | values | changes)
    with pytest.raises(WeightsError, match="rope_theta must be above 0, not nan"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("limit", ["1e400", "1e30", "Infinity", "9" * 4000])
def test_a_length_limit_that_is_none(tmp_path, limit):
    folder = st_folder(tmp_path, "Transformer", "Pooling")
    (folder / "sentence_bert_config.json").write_text(f'{{"max_seq_length": {limit}}}')
    assert load_encoder(folder).text.max_seq_length == 16


@pytest.mark.parametrize("prompts", [{"q": "\ud800"}, {"\ud800": "q"}])
def test_half_a_surrogate_in_a_prompt(tmp_path, prompts, capsys):
    files = {"config_sentence_transformers.json": {"prompts": prompts}}
    folder = st_folder(tmp_path, "Transformer", "Pooling", files=files)
    assert main(["info", str(folder)]) == 1
    assert "both valid Unicode" in capsys.readouterr().err


def test_half_a_surrogate_in_the_family(tmp_path, capsys):
    config = random_model().config.to_json() | {"family": "\ud800"}
    path = by_hand(tmp_path / "m.npz", document(model=config))
    assert main(["info", str(path)]) == 1
    assert "family must be at most 100 printable characters" in capsys.readouterr().err


def test_a_module_path_that_is_too_long(tmp_path):
    modules = [{"type": TYPES["Transformer"], "path": "x" * 5000}, {"type": TYPES["Pooling"], "path": "p/" * 400}]
    write_json(st_folder(tmp_path, "Transformer", "Pooling") / "modules.json", modules)
    with pytest.raises(WeightsError, match="too long"):
        load_encoder(tmp_path)
    modules[0]["path"] = "x" * 900
    write_json(tmp_path / "modules.json", modules)
    with pytest.raises(WeightsError, match="cannot be read: File name too long"):
        load_encoder(tmp_path)


def test_a_folder_that_cannot_be_read(tmp_path, monkeypatch):
    stat = Path.stat

    def refuse(path: Path, **options: Any) -> os.stat_result:
        if path.name == "modules.json":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    hf_folder(tmp_path)
    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(WeightsError, match="cannot be read: Permission denied"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "modules.json", "tokenizer.json", "tokenizer_config.json",
                                  "model.safetensors", "shard.safetensors", "1_Pooling/config.json"])
def test_a_fifo_is_not_read(tmp_path, name):
    folder = st_folder(tmp_path, "Transformer", "Pooling")
    if name == "shard.safetensors":
        (folder / "model.safetensors").unlink()
        write_json(folder / "model.safetensors.index.json", {"weight_map": {"x": name}})
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert "not a regular file" in loaded(folder)


def test_a_fifo_in_place_of_a_model(tmp_path):
    os.mkfifo(tmp_path / "m.npz")
    assert loaded(tmp_path / "m.npz").startswith("EngineError")


def test_values_in_messages_are_short():
    assert shown("x" * 200) == "'" + "x" * 76 + "..."
    assert len(shown(int("1" * 4000) ** 2)) < 60
    assert listed(["a", "b"]) == "a, b"
    assert listed(map(str, range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."


def test_a_good_model_still_loads(tmp_path):
    assert loaded(st_folder(tmp_path, "Transformer", "Pooling")) == "ok: None"
    save_encoder(random_model(), tmp_path / "m.npz")
    assert loaded(tmp_path / "m.npz") == "ok: None"
