"""What the tests of all families do not see: ESM's rule for masks, BigBird's limit, and DPR's vector of a text."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from engine import Engine, UnsupportedError, WeightsError, load_model
from engine.files.safetensors import read_safetensors
from engine.model.config import ModelConfig

from ..tools.encoders import engine_of, load_encoder
from ..tools.golden_models import GOLDEN, load
from ..tools.tiny_models import safetensors


def test_a_sequence_of_masks_alone(one_backend):
    engine = load(GOLDEN / "esm2", one_backend)
    hidden = engine.forward([[32, 32], [5, 32, 6]], output_hidden_states=0)
    assert np.isfinite(hidden.last_hidden_state[0]).all()
    first, second = hidden.hidden_states[0]
    table = load_encoder(GOLDEN / "esm2").weights["embeddings.word"].astype(np.float32)
    assert not first.any()
    np.testing.assert_allclose(second, np.array([[1], [0], [1]]) * table[[5, 32, 6]] * 0.88 * 3 / 2, rtol=1e-6)


def test_impossible_options(refusals):
    refusals(lambda options: ModelConfig("esm", 8, 1, 2, 4, 6, vocab_size=30, max_positions=9, **options), [
        {"dropped_id": -1}, {"dropped_id": True}, {"dropped_id": 30}, {"dense_tokens": -1}, {"dense_tokens": 1.5},
        {"dropped_id": 3, "logits": "own"},
    ])


def test_texts_beyond_the_limit_of_big_bird(one_backend):
    """They are refused by name, alone and beside others, and never computed by full attention."""
    engine = load(GOLDEN / "big_bird_sparse", one_backend)
    ids = np.full(309, 5)
    assert engine.forward([ids[:308]])[0].shape == (308, 42)
    for call in ([ids], [ids[:4], ids]):
        with pytest.raises(UnsupportedError, match=f"sequence {len(call) - 1} has 309 tokens, and from 309 tokens on"):
            engine.forward(call)
    assert engine.forward(ids[None], np.append(np.ones(308, int), 0)[None]).shape == (1, 309, 42)


def test_the_vector_of_a_text_of_dpr(tmp_path):
    """It is the first token's, mapped where projection_dim says so."""
    shutil.copytree(GOLDEN / "dpr_context", tmp_path, dirs_exist_ok=True)
    shutil.copy(GOLDEN.parent / "heads" / "tokenizers" / "wordpiece.json", tmp_path / "tokenizer.json")
    encoder = load_model(tmp_path).encoder
    assert encoder.text.pooling == ("cls",)
    text = "! , ."
    engine = engine_of(replace(encoder, text=replace(encoder.text, special_tokens=False)))
    [module] = encoder.modules
    ids = engine.tokenizer.encode(text)
    assert all(number < 120 for number in ids)
    first = engine.forward([ids])[0][0]
    np.testing.assert_allclose(engine.encode(text), module.weight @ first + module.bias, rtol=1e-4, atol=1e-5)
    assert engine.encode(text).shape == (10,)


def test_a_projection_that_is_not_there(tmp_path):
    shutil.copytree(GOLDEN / "dpr_context", tmp_path, dirs_exist_ok=True)
    tensors = read_safetensors(tmp_path / "model.safetensors")
    kept = {name: array for name, array in tensors.items() if "encode_proj.weight" not in name}
    (tmp_path / "model.safetensors").write_bytes(safetensors(kept, **dict.fromkeys(kept, "BF16")))
    with pytest.raises(WeightsError, match=r"by projection_dim 10, encode_proj must have the shape \[10, 36\], not"):
        Engine.load(tmp_path)
