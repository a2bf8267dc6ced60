"""The real table of wordllama 0.4.0.post1 (MIT), float16 [32000, 256], as a static model.

tests/golden/make/modules.py wrote the vectors.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from engine import Engine, convert_model, load_model, save

from ..tools.head_texts import TEXTS
from ..tools.module_folders import write_wordllama
from ..tools.paths import HEADS, MODELS

PACKAGE = Path(os.environ.get("ENGINE_WORDLLAMA", MODELS / "wordllama"))
EXPECTED = np.load(HEADS / "wordllama.npy")

pytest.importorskip("tokenizers")


@pytest.fixture
def folder(tmp_path):
    if not PACKAGE.exists():
        pytest.skip(f"no wordllama at {PACKAGE}: pip install --no-deps --target models wordllama==0.4.0.post1. "
                    "ENGINE_WORDLLAMA points to another place")
    return write_wordllama(tmp_path / "folder", PACKAGE)


def test_the_vectors_of_sentence_transformers(folder, backend):
    engine = Engine.load(folder, backend=backend)
    found = engine.encode(TEXTS)
    assert np.abs(found - EXPECTED).max() <= 1e-5
    assert np.array_equal(engine.encode(TEXTS[::-1])[::-1], found)


def test_fewer_bits(folder, tmp_path, one_backend):
    exact = Engine.load(folder, backend=one_backend)
    for precision, size, least in (("bfloat16", 17e6, 0.99999), ("int8", 9e6, 0.9999)):
        model = convert_model(load_model(folder), precision)
        save(model, tmp_path / "model.npz")
        assert sum(array.nbytes for array in model.encoder.weights.values()) < size
        found = Engine.load(tmp_path / "model.npz", backend=one_backend).encode(TEXTS)
        a, b = (x[x.any(axis=1)] for x in (found, exact.encode(TEXTS)))
        assert ((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min() > least
