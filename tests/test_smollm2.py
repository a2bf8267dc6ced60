"""The real SmolLM2-135M-Instruct, from its GGUF file: the logits and the texts of transformers with the same weights.

tests/golden/make_smollm2.py made the golden file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends import get_backend
from engine.config import RunConfig
from engine.generation.steps import Row
from engine.generator import Generator
from engine.sequences import load_sequence_model

from .smollm2 import FILE, MISSING

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=MISSING)
GOLDEN = Path(__file__).parent / "golden" / "smollm2.npz"


@pytest.fixture(scope="module")
def model():
    return load_sequence_model(FILE)


def test_the_logits_of_transformers(model):
    config, weights = model.decoder.config, model.decoder.weights
    decoder = get_backend("auto").prepare_decoder(config, weights, RunConfig())
    with np.load(GOLDEN) as golden:
        for i in range(2):
            ids = golden[f"ids_{i}"].astype(np.int64)
            logits = decoder.step([Row(decoder.open(), None, ids, every=True)]).logits
            found = np.take_along_axis(logits, golden[f"best_{i}"].astype(np.int64), axis=1)
            np.testing.assert_allclose(found, golden[f"values_{i}"], rtol=0, atol=2e-4)


def test_the_texts_of_transformers(model):
    pytest.importorskip("tokenizers")
    generator = Generator(model)
    with np.load(GOLDEN) as golden:
        for i in range(2):
            expected = golden[f"greedy_{i}"].tolist()
            [result] = generator.generate([golden[f"ids_{i}"].tolist()], max_new_tokens=len(expected))
            assert result.ids == expected
            assert len(expected) >= (200, 20)[i]
