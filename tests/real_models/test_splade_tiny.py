"""Test the encoder of the real splade-tiny, a model for masked words; tests/golden/make/splade.py wrote the numbers."""

import numpy as np
import pytest

from engine import Engine

from ..tools.golden_models import GOLDEN
from ..tools.splade import FOLDER, MISSING

EXPECTED = np.load(GOLDEN / "splade_tiny.npz")


@pytest.fixture(scope="module")
def engine(backend):
    if not FOLDER.exists():
        pytest.skip(MISSING)
    return Engine.load(FOLDER, backend=backend)


@pytest.mark.parametrize("i", [0, 1])
def test_the_numbers_of_transformers(engine, i):
    text, ids, hidden, attentions = (EXPECTED[f"{name}_{i}"] for name in ("text", "ids", "hidden", "attentions"))
    given = engine.tokenize([str(text)])
    assert np.array_equal(given["input_ids"][0], ids)
    out = engine.forward(**given, output_hidden_states=True, output_attentions=True)
    for layer, expected in enumerate(hidden):
        assert np.abs(out.hidden_states[layer][0] - expected).max() <= 2e-5
    for head, weights in out.attentions.items():
        assert np.abs(weights[0] - attentions[head]).max() <= 1e-5
