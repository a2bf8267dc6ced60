"""The adapters of jina-embeddings-v3, merged at load, against transformers with the adapters beside its weights."""

import json
import pickle
import shutil

import numpy as np
import pytest

from engine import Engine, InputError, UnsupportedError, WeightsError
from engine.cli.main import main
from engine.families import get_family
from engine.families.adapters import merge_adapters

from ..tools.encoders import load_encoder, names_of
from ..tools.golden_models import GOLDEN, load
from ..tools.module_folders import TYPES
from ..tools.tiny_models import safetensors, write_json, write_modules_json

MODELS = {"jina_v3_tasks": ("retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"),
          "jina_v3_two": ("a", "b"), "jina_v3_one": ("only",)}
WEIGHT = "layers.0.ffn.up.weight"
VALUES = {"lora_adaptations": ["a", "b"], "lora_rank": 2, "lora_alpha": 3.0}


def expected(name, task):
    """Return the ids of the sequences, and their vectors for a task."""
    with np.load(GOLDEN / name / "tasks.npz") as file:
        return ([file[f"ids_{i}"].astype(int) for i in range(4)],
                [file[f"hidden_{task or 'none'}_{i}"] for i in range(4)])


def farthest(found, hidden):
    return max(np.abs(a - b).max() for a, b in zip(found, hidden, strict=True))


@pytest.mark.parametrize(("name", "task"), [(name, task) for name, tasks in MODELS.items() for task in (None, *tasks)])
def test_vectors_of_a_task(name, task, backend):
    engine = load(GOLDEN / name, backend, task=task)
    ids, hidden = expected(name, task)
    together = engine.forward(ids)
    assert farthest(together, hidden) <= 3e-5
    if backend != "reference":
        assert all(np.array_equal(engine.forward([row])[0], found) for row, found in zip(ids, together, strict=True))
    for other in {None, *MODELS[name]} - {task}:
        assert farthest(together, expected(name, other)[1]) > 0.05


def test_without_a_task_the_tasks_are_named(caplog):
    load_encoder(GOLDEN / "jina_v3_two")
    assert "without an adapter. For one of its tasks, a, b, pass it to Engine.load(path, task=...)" in caplog.text
    caplog.clear()
    load_encoder(GOLDEN / "jina_v3_two", task="b")
    assert not caplog.text


def test_tasks_that_a_model_does_not_have(refusals):
    refusals(lambda name, task: load_encoder(GOLDEN / name, task=task), [
        ("jina_v3_tasks", "retrieval"), ("jina_v3_tasks", ""), ("jina_v3_tasks", 0), ("jina_v3", "a"), ("bert", "a"),
    ])


def test_the_command_line_and_a_file(tmp_path, capsys):
    out = tmp_path / "model.npz"
    assert main(["convert", str(GOLDEN / "jina_v3_two"), str(out), "--task", "b"]) == 0
    ids, hidden = expected("jina_v3_two", "b")
    assert farthest(Engine.load(out, backend="reference").forward(ids), hidden) <= 3e-5
    with pytest.raises(InputError, match="task='b' chooses an adapter of a folder, and a file has none"):
        load_encoder(out, task="b")
    assert main(["convert", str(GOLDEN / "jina_v3_two"), str(out), "--task", "c"]) == 1
    assert "no adapter for the task 'c'; its tasks are a, b" in capsys.readouterr().err


def test_a_pickled_engine_keeps_its_task():
    engine = pickle.loads(pickle.dumps(Engine.load(GOLDEN / "jina_v3_two", backend="reference", task="b")))
    ids, hidden = expected("jina_v3_two", "b")
    assert farthest(engine.forward(ids), hidden) <= 3e-5


def test_the_folder_of_the_hub(tmp_path):
    """Its modules.json has code of its own in place of the module Transformer."""
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "jina_v3_tasks", folder)
    write_modules_json(folder, ("", "custom_st.Transformer"), ("1_Pooling", TYPES["Pooling"]),
                       ("2_Normalize", TYPES["Normalize"]))
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    assert load_encoder(folder, task="separation").config.family == "jina_embeddings_v3"
    bert = json.loads((GOLDEN / "bert" / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", bert)
    with pytest.raises(UnsupportedError, match=r"the module custom_st\.Transformer is code in the folder"):
        load_encoder(folder)


def test_adapters_that_do_not_fit(refusals):
    def call(changes, values):
        weights = {WEIGHT: np.ones((3, 5), np.float32), f"{WEIGHT} lora_A": np.ones((2, 2, 5), np.float32),
                   f"{WEIGHT} lora_B": np.ones((2, 3, 2), np.float32)}
        merged = merge_adapters(VALUES, weights, "a")
        assert list(merged) == [WEIGHT]
        assert np.array_equal(merged[WEIGHT], np.full((3, 5), 1 + 2 * 1.5, np.float32))
        weights = {name: array for name, array in (weights | changes).items() if array is not None}
        merge_adapters(VALUES | values, weights, "a")

    refusals(call, [
        ({f"{WEIGHT} lora_A": np.ones((2, 2, 4), np.float32)}, {}),
        ({f"{WEIGHT} lora_B": np.ones((1, 3, 2), np.float32)}, {}), ({WEIGHT: None}, {}),
        ({f"{WEIGHT} lora_B": None}, {}), ({}, {"lora_rank": 3}), ({}, {"lora_rank": "2"}),
        ({}, {"lora_alpha": float("nan")}), ({}, {"lora_adaptations": "ab"}),
        ({}, {"lora_adaptations": ["a", "b", "c"]}),
    ])


@pytest.mark.parametrize(("key", "value"), [
    ("rotary_emb_interleaved", True), ("rotary_emb_scale_base", 512), ("rotary_emb_base", "x"),
    ("lora_adaptations", [1]), ("hidden_act", "silu")])
def test_the_dialect_of_the_models_own_code_is_refused_by_name(key, value):
    values = json.loads((GOLDEN / "jina_v3_tasks" / "config.json").read_text(encoding="utf-8"))
    family = get_family(values)
    assert family.read_encoder(values).config.attention_kinds[0].rotary_theta == 20000.0
    del values["rotary_emb_base"]
    assert family.read_encoder(values).config.attention_kinds[0].rotary_theta == 10000.0
    with pytest.raises((UnsupportedError, WeightsError), match=key):
        family.read_encoder(values | {key: value})


def test_names_of_adapters():
    names = names_of("jina_embeddings_v3")
    start = "roberta.encoder.layers.3.mixer.Wqkv.parametrizations.weight"
    assert names.rename(f"{start}.original") == "layers.3.attention.qkv.weight"
    assert names.rename(f"{start}.0.lora_A") == "layers.3.attention.qkv.weight lora_A"
    assert names.rename("roberta.pooler.dense.parametrizations.weight.0.lora_B") is None
    assert names.rename("embeddings.word_embeddings.parametrizations.weight.0.lora_B") == "embeddings.word lora_B"
    assert names_of("bert").rename("x.parametrizations.weight.original") == "x.parametrizations.weight.original"


def test_infinite_adapters_are_refused(tmp_path):
    shutil.copytree(GOLDEN / "jina_v3_two", tmp_path / "model")
    model = load_encoder(GOLDEN / "jina_v3_two")
    n, (rows, columns) = 2, model.weights["layers.0.ffn.up.weight"].shape
    name = "layers.0.mlp.fc1.parametrizations.weight.0.lora_"
    tensors = {f"{name}A": np.full((n, 3, columns), np.inf, np.float32), f"{name}B": np.ones((n, rows, 3), np.float32),
               "layers.0.mlp.fc1.weight": np.ones((rows, columns), np.float32)}
    (tmp_path / "model" / "model.safetensors").write_bytes(safetensors(tensors))
    with pytest.raises(WeightsError, match=r"layers\.0\.ffn\.up\.weight"):
        load_encoder(tmp_path / "model", task="a")
