"""The real SmolLM2-135M-Instruct, from its GGUF file: the logits and the texts of transformers with the same weights.

tests/golden/make/smollm2.py made the golden file. Many mixed requests:

    ENGINE_MIXED_REQUESTS=200 ENGINE_DRAWS=20000 python -m pytest tests/real_models/test_smollm2.py -k "alone or draws"
"""

import os
import random

import numpy as np
import pytest

from engine import load_model
from engine.backends import get_backend
from engine.backends.choice import drawn_of
from engine.backends.steps import Row
from engine.backends.wants import Draw, Want
from engine.interface.generator import Generator
from engine.model.run_config import RunConfig

from ..tools.mixed_requests import check_mixed_requests, configs_of
from ..tools.paths import DECODERS
from ..tools.smollm2 import FILE, MISSING

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=MISSING)
GOLDEN = DECODERS / "smollm2.npz"
DRAWS = int(os.environ.get("ENGINE_DRAWS", "600"))


@pytest.fixture(scope="module")
def model():
    return load_model(FILE, kind="generate")


def test_the_logits_of_transformers(model):
    config, weights = model.decoder.config, model.decoder.weights
    decoder = get_backend("auto").prepare_decoder(config, weights, RunConfig())
    with np.load(GOLDEN) as golden:
        for i in range(2):
            ids = golden[f"ids_{i}"].astype(np.int64)
            logits = decoder.step([Row(decoder.open(), None, ids, len(ids))]).logits
            found = np.take_along_axis(logits, golden[f"best_{i}"].astype(np.int64), axis=1)
            np.testing.assert_allclose(found, golden[f"values_{i}"], rtol=0, atol=2e-4)


def test_the_texts_of_transformers(model):
    """test_llama_cpp.py has texts of 200 tokens."""
    pytest.importorskip("tokenizers")
    generator = Generator(model, precision="float32")
    with np.load(GOLDEN) as golden:
        results = generator.generate([golden[f"ids_{i}"].tolist() for i in range(2)], max_new_tokens=40)
        assert [result.ids for result in results] == [golden[f"greedy_{i}"][:40].tolist() for i in range(2)]


def test_draws_are_those_of_all_logits(model):
    """The kernels add in another order than NumPy, which may draw another token in rare cases only."""
    decoder = get_backend("auto").prepare_decoder(model.decoder.config, model.decoder.weights,
                                                  RunConfig(precision="int8"))
    rng, different, draws = np.random.default_rng(3), 0, [
        Draw(), Draw(0.7), Draw(top_p=0.95), Draw(0.8, top_p=0.9), Draw(1.5, min_p=0.02), Draw(top_k=50, top_p=0.8)]
    with np.load(GOLDEN) as golden:
        ids = golden["ids_0"].astype(np.int64)
    ids = np.concatenate([ids] * (DRAWS // len(ids) + 1))[: max(6, DRAWS // 20)]
    numbers = [tuple(rng.random(DRAWS // len(ids)).tolist()) for _ in ids]
    lines = decoder.step([Row(decoder.open(), None, ids, len(ids))]).logits
    wants = [Want(draw=draws[i % 6], numbers=own) for i, own in enumerate(numbers)]
    found = decoder.step([Row(decoder.open(), None, ids, len(ids), tuple(wants))]).chosen.drawn.ids
    right = np.concatenate([drawn_of(line, want.draw, want.numbers) for line, want in zip(lines, wants, strict=True)])
    different = int((found != right).sum())
    assert different <= 5 * DRAWS / 20_000, different


def test_requests_of_a_session_have_the_bits_of_each_alone():
    """Prompts come in parts of random sizes, and settings differ: ENGINE_MIXED_REQUESTS says how many requests come."""
    generator = Generator.load(FILE, precision="int8", keep_tokens=0)
    count = int(os.environ.get("ENGINE_MIXED_REQUESTS", "7"))
    check_mixed_requests(generator, generator, random.Random(5), count,
                         configs_of(generator.generation.changed(max_new_tokens=4)), tokens=range(100, 49000),
                         longest=400 if count > 100 else 60)
