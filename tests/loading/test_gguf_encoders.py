"""Embedders in GGUF files: the same model as in the folder, and the tokenizer of a vocabulary of WordPiece."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import engine
from engine import Engine, Generator, load_model
from engine.base.errors import UnsupportedError, WeightsError
from engine.weights.bfloat16 import widened

from ..tools.encoders import load_encoder
from ..tools.gguf_encoders import FILES, config_of, file_of
from ..tools.golden_models import GOLDEN
from ..tools.paths import DECODERS
from ..tools.tiny_models import write_json


@pytest.mark.parametrize("name", FILES)
def test_the_model_is_that_of_the_folder(tmp_path, name):
    path = tmp_path / "m.gguf"
    path.write_bytes(file_of(name)[0])
    found, right = load_model(path).encoder, load_encoder(GOLDEN / name)
    like = {key: getattr(right.config, key) for key in ("pad_token_id", "norm_eps", "attention_scale")}
    like |= {"biases": (*found.config.biases, "gate")} if name == "bert" else {}   # it has no gate, so no bias of it
    assert abs(found.config.norm_eps - right.config.norm_eps) < 1e-6
    # A file does not state the scale of the scores of Gemma, which is that of its heads in all published sizes but one.
    assert found.config.attention_scale == (16**-0.5 if name == "gemma_new" else right.config.attention_scale)
    found_config, right_config = (replace(config, biases=tuple(sorted(config.biases))) for config in (
        replace(found.config, **like), right.config))
    assert found_config == right_config
    assert found.weights.keys() == right.weights.keys()
    for key, array in right.weights.items():
        np.testing.assert_array_equal(widened(found.weights[key]), widened(array), key)
    assert (found.text.pooling, found.text.normalize) == ((
        {1: "mean", 2: "cls", 3: "lasttoken"}[FILES[name][3]["pooling_type"]],), True)


def test_texts_become_the_tokens_of_the_vocabulary(tmp_path):
    """The tokenizer is that of a vocab.txt with the same pieces; texts in nasty forms give the same ids and vectors."""
    data, words = file_of("bert")
    (tmp_path / "m.gguf").write_bytes(data)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    write_json(folder / "config.json", config_of("bert"))
    (folder / "model.safetensors").write_bytes((GOLDEN / "bert" / "model.safetensors").read_bytes())
    found, right = engine.load(tmp_path / "m.gguf"), Engine.load(folder)
    right = right.with_text(pooling=("cls",), normalize=True)
    texts = ["The cats sat on a mat!", "", "ÉTÉ [MASK] [SEP]", "北北 't 'tb", "a\u0301 \u200b x", "CATMAT [unused3]"]
    np.testing.assert_array_equal(found.tokenize(texts)["input_ids"], right.tokenize(texts)["input_ids"])
    np.testing.assert_array_equal(found.encode(texts), right.encode(texts))


def test_maps_behind_the_pooling(tmp_path):
    rng = np.random.default_rng(0)
    maps = {"dense_2.weight": rng.standard_normal((9, 42), np.float32),
            "dense_3.weight": rng.standard_normal((6, 9), np.float32)}
    (tmp_path / "m.gguf").write_bytes(file_of("gemma_new", more=maps)[0])
    (tmp_path / "plain.gguf").write_bytes(file_of("gemma_new")[0])
    vectors, plain = (Engine.load(tmp_path / name).encode(["the cat"]) for name in ("m.gguf", "plain.gguf"))
    mapped = plain @ maps["dense_2.weight"].T @ maps["dense_3.weight"].T
    np.testing.assert_allclose(vectors, mapped / np.linalg.norm(mapped), atol=1e-6)


def test_bad_embedders(refusals):
    def call(tmp_path, changes):
        path = tmp_path / "m.gguf"
        path.write_bytes(file_of("bert", **changes)[0])
        engine.load(path)

    refusals(call, [
        {"ARCH.pooling_type": 4}, {"ARCH.pooling_type": None}, {"ARCH.pooling_type": "mean"},
        {"ARCH.attention.causal": True}, {"tokenizer.ggml.bos_token_id": None},
        {"tokenizer.ggml.normalizer.lowercase": 3}, {"ARCH.attention.layer_norm_epsilon": None},
    ])


@pytest.mark.parametrize("base", [1e-30, 1e-9, 1e-4, 1e-45, 1e20])
def test_a_base_of_positions_without_an_exact_table(tmp_path, base):
    """The same check is made of a folder."""
    path, folder = tmp_path / "m.gguf", tmp_path / "model"
    path.write_bytes(file_of("qwen3_old", **{"ARCH.rope.freq_base": base})[0])
    shutil.copytree(GOLDEN / "qwen3_old", folder)
    write_json(folder / "config.json", config_of("qwen3_old") | {"rope_theta": base, "rope_parameters": None})
    for place in (path, folder):
        with pytest.raises(WeightsError, match=r"rotary_theta .*|rope_theta must be above 0"):
            engine.load(place)


@pytest.mark.parametrize(("name", "words"), [
    ("bert", "'bert' is an encoder"), ("qwen3_old", "qwen3.pooling_type makes it an embedding model")])
def test_the_other_class_is_refused(tmp_path, name, words):
    path = tmp_path / "m.gguf"
    path.write_bytes(file_of(name)[0])
    with pytest.raises(UnsupportedError, match=f"{words}; load it with Engine"):
        Generator.load(path)


@pytest.mark.parametrize("name", FILES)
def test_vectors_of_llama_cpp(tmp_path, name):
    """The golden vectors are those of llama-server, which computes GELU with a table of float16."""
    path = tmp_path / "m.gguf"
    path.write_bytes(file_of(name)[0])
    with np.load(DECODERS / "gguf_architectures.npz") as file:
        expected = file[name]
    found = Engine.load(path).encode(["the cats sat on a mat!"])[0]
    assert np.abs(found - expected).max() <= (1e-5 if name in ("nomic_new", "qwen3_old") else 1e-3)
