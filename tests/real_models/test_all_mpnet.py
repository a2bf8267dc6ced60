"""Test the real all-mpnet-base-v2; tests/golden/make/mpnet.py says how to get it, and wrote the numbers."""

import os
from pathlib import Path

import numpy as np
import pytest

from engine import Engine

from ..tools.golden_models import GOLDEN
from ..tools.paths import MODELS

FOLDER = Path(os.environ.get("ENGINE_MPNET", MODELS / "all-mpnet-base-v2"))
MISSING = f"no all-mpnet-base-v2 at {FOLDER}: see tests/golden/make/mpnet.py. ENGINE_MPNET points to another place"
EXPECTED = np.load(GOLDEN / "all_mpnet.npz")
TEXTS = EXPECTED["texts"].tolist()


@pytest.fixture(scope="module")
def folder():
    if not FOLDER.exists():
        pytest.skip(MISSING)
    pytest.importorskip("tokenizers")
    return FOLDER


def test_the_vectors_of_transformers(folder, backend):
    engine = Engine.load(folder, backend=backend)
    tokens = engine.tokenize(TEXTS)
    for i, ids in enumerate(tokens["input_ids"]):
        assert np.array_equal(ids[: tokens["attention_mask"][i].sum()], EXPECTED[f"ids_{i}"])
    vectors = engine.encode(TEXTS)
    assert np.abs(vectors - EXPECTED["vectors"]).max() <= 1e-6
    if backend != "reference":
        assert np.array_equal(np.stack([engine.encode(text) for text in TEXTS]), vectors)


@pytest.mark.parametrize(("precision", "least"), [("bfloat16", 0.999), ("int8", 0.98)])
def test_precisions(folder, precision, least):
    pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    vectors = Engine.load(folder, backend="cython", precision=precision).encode(TEXTS)
    assert (vectors * EXPECTED["vectors"]).sum(axis=1).min() >= least
