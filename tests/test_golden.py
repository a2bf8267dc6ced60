"""Test the engine against transformers and sentence-transformers: the same weights give the same vectors.

tests/golden/make_golden.py wrote the files. Every test runs on each backend of this machine, and with the weights both
from the folder and after a round trip through the engine's own .npz.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from engine import Engine
from engine.model import load_model, save_model

from .minilm import FOLDER, MISSING

GOLDEN = Path(__file__).parent / "golden"
RANDOM_MODELS = ("bert", "bert_relu", "bert_tanh", "distilbert", "roberta")
UNPADDED_ROWS = 4
"""Number of golden sequences, from the first, whose real tokens are contiguous from column 0."""


@pytest.fixture(scope="module", params=["folder", "npz"])
def load(request, backend, tmp_path_factory):
    """Return a function that loads an engine from a model's path."""

    def load_engine(path):
        if request.param == "npz":
            npz = tmp_path_factory.mktemp("npz") / "model.npz"
            save_model(load_model(path), npz)
            path = npz
        return Engine.load(path, backend=backend)

    return load_engine


@pytest.fixture(scope="module", params=RANDOM_MODELS)
def engine_and_golden(request, load):
    return load(GOLDEN / request.param), np.load(GOLDEN / request.param / "expected.npz")


@pytest.fixture(scope="module")
def minilm(load):
    if not FOLDER.exists():
        pytest.skip(MISSING)
    return load(FOLDER)


def assert_same_vectors(actual, expected):
    """Assert that the rows of `actual` are within 2e-5 of those of `expected`, and have the same direction."""
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= 2e-5
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    cosine = (a * e).sum(-1) / np.sqrt((a * a).sum(-1) * (e * e).sum(-1))
    assert cosine.min() >= 0.999999


def unpadded(golden):
    """Return ids, token types and expected vectors of each sequence without holes."""
    lengths = golden["attention_mask"].sum(1)
    hidden = np.split(golden["hidden"], lengths.cumsum()[:-1])
    ids, types = golden["input_ids"].astype(int), golden["token_type_ids"].astype(int)
    return [(ids[b, : lengths[b]], types[b, : lengths[b]], hidden[b]) for b in range(UNPADDED_ROWS)]


def test_padded_batch(engine_and_golden):
    engine, golden = engine_and_golden
    ids, mask, types = (golden[key].astype(int) for key in ("input_ids", "attention_mask", "token_type_ids"))
    hidden = engine.forward(ids, mask, types if engine.config.token_types else None)
    assert_same_vectors(hidden[mask == 1], golden["hidden"])
    assert not hidden[mask == 0].any()


def test_ragged_list(engine_and_golden):
    engine, golden = engine_and_golden
    ids, types, expected = zip(*unpadded(golden), strict=True)
    hidden = engine.forward(list(ids), token_type_ids=list(types) if engine.config.token_types else None)
    assert len(hidden) == UNPADDED_ROWS
    for actual, rows in zip(hidden, expected, strict=True):
        assert_same_vectors(actual, rows)


def test_each_alone(engine_and_golden):
    engine, golden = engine_and_golden
    for ids, types, expected in unpadded(golden):
        hidden = engine.forward(ids[None], token_type_ids=types[None] if engine.config.token_types else None)
        assert_same_vectors(hidden[0], expected)


def test_real_model_token_vectors(minilm):
    golden = np.load(GOLDEN / "minilm" / "expected.npz")
    sentences = [key.removeprefix("ids_") for key in golden.files if key.startswith("ids_")]
    hidden = minilm.forward([golden[f"ids_{i}"] for i in sentences])
    for i, vectors in zip(sentences, hidden, strict=True):
        assert_same_vectors(vectors[golden[f"rows_{i}"]], golden[f"hidden_{i}"])


def test_real_model_embeddings(minilm):
    pytest.importorskip("tokenizers")
    sentences = json.loads((GOLDEN / "minilm" / "sentences.json").read_text(encoding="utf-8"))
    assert_same_vectors(minilm.encode(sentences), np.load(GOLDEN / "minilm" / "expected.npz")["embeddings"])
