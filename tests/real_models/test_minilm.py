"""The real all-MiniLM-L6-v2 against transformers and sentence-transformers; golden/make/bert.py wrote the numbers."""

import json

import numpy as np
import pytest

from engine import Engine

from ..tools.encoders import load_encoder, save_encoder
from ..tools.golden_models import GOLDEN, cosine
from ..tools.minilm import FOLDER, MISSING
from ..tools.running import RUNNING

EXPECTED = GOLDEN / "minilm"


pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason=MISSING)


@pytest.fixture(scope="module", params=[*((name, "folder") for name in RUNNING), (RUNNING[0], "npz")], ids="-".join)
def minilm(request, tmp_path_factory):
    backend, form = request.param
    if form == "folder":
        return Engine.load(FOLDER, backend=backend)
    npz = tmp_path_factory.mktemp("npz") / "model.npz"
    save_encoder(load_encoder(FOLDER), npz)
    return Engine.load(npz, backend=backend)


def assert_same_vectors(actual, expected):
    """Assert that the rows of `actual` are within 2e-5 of those of `expected`, and have the same direction."""
    assert actual.dtype == np.float32
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= 2e-5
    assert cosine(actual, expected).min() >= 0.999999


def test_token_vectors(minilm):
    golden = np.load(EXPECTED / "expected.npz")
    sentences = [key.removeprefix("ids_") for key in golden.files if key.startswith("ids_")]
    hidden = minilm.forward([golden[f"ids_{i}"] for i in sentences])
    for i, vectors in zip(sentences, hidden, strict=True):
        assert_same_vectors(vectors[golden[f"rows_{i}"]], golden[f"hidden_{i}"])


def test_embeddings(minilm):
    pytest.importorskip("tokenizers")
    sentences = json.loads((EXPECTED / "sentences.json").read_text(encoding="utf-8"))
    assert_same_vectors(minilm.encode(sentences), np.load(EXPECTED / "expected.npz")["embeddings"])
