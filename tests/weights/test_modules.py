"""Modules before and after pooling: the formula, the bits, the files, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine import WeightsError
from engine.weights.bfloat16 import to_bfloat16
from engine.weights.modules import Dense, LayerNorm

from ..tools.encoders import engine_of, load_encoder, save_encoder
from ..tools.model_files import st_folder
from ..tools.tiny_models import D, random_model, safetensors
from ..tools.tiny_text import tiny_text
from ..tools.torch_files import checkpoint

SENTENCES = ["the cat sat", "dog", "a dog ran far and away", "the mat", "on a mat the cat sat", "far"]
IDENTITY, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


MAPS = (Dense(random(0, 37, D)), Dense(random(1, 5, 37), random(2, 5), "tanh"))


@pytest.fixture
def model():
    return replace(random_model(tiny_text(normalize=True)), modules=MAPS)


def test_the_formula(model, backend):
    plain = replace(model, text=replace(model.text, normalize=False), modules=())
    pooled = engine_of(plain, backend=backend).encode(SENTENCES).astype(np.float64)
    expected = np.tanh(pooled @ MAPS[0].weight.T @ MAPS[1].weight.T + MAPS[1].bias)
    engine = engine_of(replace(model, text=plain.text), backend=backend)
    assert np.abs(engine.encode(SENTENCES) - expected).max() < 1e-5
    assert engine.get_embedding_dimension() == 5
    assert engine.encode([]).shape == (0, 5)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    engine = engine_of(model, backend=backend)
    assert np.abs(engine.encode(SENTENCES) - unit).max() < 1e-5
    assert np.abs(engine.encode(SENTENCES, truncate_dim=3) - unit[:, :3]).max() < 1e-5
    everything = engine.encode(SENTENCES, output_value=None)
    assert np.abs(np.stack([entry["sentence_embedding"] for entry in everything]) - unit).max() < 1e-5
    assert everything[1]["token_embeddings"].shape == (3, D)


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_depend_on_the_sentence_alone(model, compiled_backend, threads):
    engine = engine_of(model, backend=compiled_backend, threads=threads)
    together = engine.encode(SENTENCES)
    assert np.array_equal(together, np.stack([engine.encode(sentence) for sentence in SENTENCES]))
    assert np.array_equal(together, engine.encode(SENTENCES, batch_size=2))


def test_the_engines_own_file(model, tmp_path):
    save_encoder(model, tmp_path / "model.npz")
    loaded = load_encoder(tmp_path / "model.npz")
    for one, other in zip(loaded.modules, MAPS, strict=True):
        assert one.activation == other.activation
        assert np.array_equal(one.weight, other.weight)
    assert loaded.modules[0].bias is None
    assert np.array_equal(loaded.modules[1].bias, MAPS[1].bias)
    expected = engine_of(model, backend="reference").encode(SENTENCES)
    assert np.array_equal(engine_of(loaded, backend="reference").encode(SENTENCES), expected)


def dense_folder(folder, tensors, *, kinds=("Transformer", "Pooling", "Dense", "Normalize"), dtypes=None, **values):
    config = {"in_features": D, "out_features": 7, "bias": False, "activation_function": IDENTITY} | values
    st_folder(folder, *kinds, files={"2_Dense/config.json": config})
    (folder / "2_Dense" / "model.safetensors").write_bytes(safetensors(tensors, **dtypes or {}))
    return folder



def test_a_dense_module_in_a_file_of_torch(tmp_path):
    tensors = {"linear.weight": random(0, 7, D)}
    path = dense_folder(tmp_path, tensors)
    (path / "2_Dense" / "model.safetensors").unlink()
    (path / "2_Dense" / "pytorch_model.bin").write_bytes(checkpoint(tensors))
    np.testing.assert_array_equal(load_encoder(path).modules[0].weight, tensors["linear.weight"])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.uint16])
def test_a_sentence_transformers_folder(tmp_path, dtype):
    exact = np.round(random(0, 7, D) * 8) / np.float32(8)       # numbers that every dtype can hold
    stored = to_bfloat16(exact) if dtype == np.uint16 else exact.astype(dtype)
    dtypes = {"linear.weight": "BF16"} if dtype == np.uint16 else {}
    (dense,) = load_encoder(dense_folder(tmp_path, {"linear.weight": stored}, dtypes=dtypes)).modules
    assert dense.weight.dtype == np.float32
    assert np.array_equal(dense.weight, exact)
    assert dense.bias is None
    assert dense.activation == "identity"


def test_weights_in_a_checkpoint(tmp_path):
    tensors = {"linear.weight": random(0, 7, D)}
    folder = dense_folder(tmp_path, tensors)
    (folder / "2_Dense" / "model.safetensors").unlink()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(checkpoint(tensors))
    assert np.array_equal(load_encoder(folder).modules[0].weight, tensors["linear.weight"])


def test_a_bias_and_tanh_are_the_defaults(tmp_path):
    tensors = {"linear.weight": random(0, 7, D), "linear.bias": random(1, 7)}
    folder = dense_folder(tmp_path, tensors, kinds=("Transformer", "Pooling", "Dense"), bias=True,
                          activation_function=TANH, module_output_name=None, module_input_name="sentence_embedding")
    model = load_encoder(folder)
    assert np.array_equal(model.modules[0].bias, tensors["linear.bias"])
    assert model.modules[0].activation == "tanh"
    assert not model.text.normalize


def test_other_dense_modules_are_refused_by_name(refusals):
    def call(tmp_path, values, tensors):
        folder = dense_folder(tmp_path, tensors or {"linear.weight": random(0, 7, D)}, **values)
        load_encoder(folder)

    refusals(call, [
        ({"activation_function": "torch.nn.modules.activation.SiLU"}, {}),
        ({"activation_function": "my.code.Tanh"}, {}), ({"activation_function": None}, {}),
        ({"use_residual": True}, {}), ({"use_residual": "yes"}, {}), ({"module_input_name": "token_embeddings"}, {}),
        ({"module_output_name": 3}, {}), ({"bias": True}, {}), ({"out_features": 8}, {}),
        ({}, {"linear.weight": random(0, 12)}), ({}, {"linear.weight": random(0, 7, 12), "other": random(0, 3)}),
        ({"in_features": 24}, {"linear.weight": random(0, 7, 24)}),
        ({}, {"linear.weight": random(0, 7, 12) * np.float32(np.inf)}),
    ])


def test_impossible_maps_are_refused(model, refusals):
    refusals(lambda maps: engine_of(replace(model, modules=maps), backend="reference"), [
        [MAPS[0]], ((MAPS[0],) * 17,), ((MAPS[1],),), ((Dense(MAPS[0].weight.astype(np.float64)),),),
        ((Dense(MAPS[0].weight, random(0, 36)),),), ((Dense(MAPS[0].weight.tolist()),),),
        ((Dense(MAPS[0].weight, None, "silu"),),), ((Dense(MAPS[0].weight, use_residual=True),),),
        ((Dense(MAPS[0].weight, residual=MAPS[0].weight),),), ((Dense(MAPS[0].weight, source=["other"]),),),
        ((Dense(MAPS[0].weight, source="other"),),), ((LayerNorm(random(0, 12), random(0, 11)),),),
        ((LayerNorm(random(0, 12), random(0, 12), 2.0),),),
    ])


@pytest.mark.parametrize("names", [["tanh", "tanh", "tanh"], "tanh", 3, [None, "tanh"]])
def test_a_damaged_list_of_maps_is_refused(model, tmp_path, names):
    save_encoder(model, tmp_path / "model.npz")
    arrays = dict(np.load(tmp_path / "model.npz"))
    document = json.loads(arrays["config"].tobytes())
    document["text"]["dense"] = names
    arrays["config"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(WeightsError, match=r"module"):
        load_encoder(tmp_path / "model.npz")
