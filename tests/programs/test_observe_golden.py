"""Test hidden states and attention weights against transformers; tests/golden/make/hidden_states.py wrote the file."""

import numpy as np
import pytest

from engine import Engine

from ..tools.golden_models import GOLDEN

TAPS = np.load(GOLDEN / "taps.npz")


@pytest.mark.parametrize("name", sorted({key.partition(".")[0] for key in TAPS.files}))
def test_the_numbers_of_transformers(backend, name):
    ids, hidden, attentions = (TAPS[f"{name}.{key}"] for key in ("ids", "hidden", "attentions"))
    out = Engine.load(GOLDEN / name, backend=backend).forward(
        ids.astype(int)[None], output_hidden_states=True, output_attentions=True)
    assert list(out.hidden_states) == list(range(len(hidden)))
    for layer, expected in enumerate(hidden):
        allowed = 3e-5 * max(1, np.abs(expected).max())     # the residual stream of a pre-norm model grows
        assert np.abs(out.hidden_states[layer][0] - expected).max() <= allowed
    assert list(out.attentions) == list(np.ndindex(attentions.shape[:2]))
    for head, weights in out.attentions.items():
        assert np.abs(weights[0] - attentions[head]).max() <= 1e-5
