"""The real SmolLM2-135M-Instruct: the tokens, the logits and the texts of llama.cpp.

tests/golden/make/llama_cpp.py made the golden file.
"""

import numpy as np
import pytest

from engine import load_model
from engine.backends import get_backend
from engine.backends.steps import Row
from engine.interface.generator import Generator
from engine.model.run_config import RunConfig

from ..tools.paths import DECODERS
from ..tools.smollm2 import FILE, MISSING

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=MISSING)
GOLDEN = DECODERS / "llama_cpp.npz"
PROMPTS = range(4)


@pytest.fixture(scope="module")
def model():
    return load_model(FILE, kind="generate")


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


def test_the_logits_of_llama_cpp(model, golden):
    """In F32 nearly the same logits; with the Q4_1 file, as far apart as the rounding of inputs explains."""
    decoder = get_backend("auto").prepare_decoder(model.decoder.config, model.decoder.weights, RunConfig())
    for i in PROMPTS:
        ids = golden[f"ids_{i}"].astype(np.int64)
        logits = decoder.step([Row(decoder.open(), None, ids, len(ids))]).logits
        found = np.take_along_axis(logits, golden[f"best_{i}"].astype(np.int64), axis=1)
        np.testing.assert_allclose(found, golden[f"values_{i}"], rtol=0, atol=3e-4)
        apart = np.sqrt(((found - golden[f"quantized_{i}"]) ** 2).mean())
        assert 0.5 * golden[f"rounding_{i}"] < apart < 2 * golden[f"rounding_{i}"]


def test_the_ids_and_the_texts_of_llama_cpp(model, golden):
    pytest.importorskip("tokenizers")
    generator = Generator(model, precision="float32")
    texts = [str(golden[f"text_{i}"]) for i in PROMPTS]
    expected = [golden[f"greedy_{i}"].tolist()[:100] for i in PROMPTS]
    results = generator.generate(texts, max_new_tokens=100)
    assert [result.ids[: len(ids)] for result, ids in zip(results, expected, strict=True)] == expected
    assert max(map(len, expected)) == 100
    assert [len(scored.log_probabilities) for scored in generator.score(texts)] == [
        len(golden[f"ids_{i}"]) - 1 for i in PROMPTS]
