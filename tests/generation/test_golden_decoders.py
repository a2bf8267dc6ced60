"""Decoders against transformers, beside their readers: one token after the other, and on the compiled kernels.

tests/golden/make/generating.py made the folders. tests/families/test_generating.py compares all tokens at once.
"""

import numpy as np
import pytest

from engine import load_model
from engine.model.run_config import RunConfig

from ..tools.decoders import row
from ..tools.golden_generating import GOLDEN, NAMES, Exact, Expected

TRANSLATORS = [name for name in NAMES if Expected(name).sequences[0][0] is not None]
"""Models with an encoder. tests/families/test_company.py runs language models on the compiled kernels."""


def opened(name):
    """Return a golden model in float64, and its sequences but for those beyond its positions."""
    exact = Exact(load_model(GOLDEN / name, kind="generate"))
    longest = exact.model.decoder.config.longest_sequence or 1000
    return exact, [sequence[:3] for sequence in Expected(name).sequences if len(sequence[1]) <= longest]


@pytest.mark.parametrize("name", NAMES)
def test_one_token_after_the_other(name):
    exact, sequences = opened(name)
    source, ids, expected = sequences[2]        # 17 tokens, which every golden model has positions for
    request, parent = exact.opened(source), None
    for t, token in enumerate(ids):
        (parent,), logits = exact.decoder.step_unrounded([row(request, parent, [token])])
        assert np.abs(logits - expected[t]).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("name", TRANSLATORS)
def test_log_probabilities_on_compiled_kernels(name):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    decoder_module = pytest.importorskip("engine.backends.cpu.decoder")
    exact, sequences = opened(name)
    model = exact.model.decoder
    decoder = decoder_module.CpuDecoder(isa.chosen(), model.config, model.weights, RunConfig(2))
    numbers = [decoder.open() for _ in sequences]
    batches = [exact.batch(source) for source, _, _ in sequences]
    sources = [exact.forward(batch).astype(np.float32) for batch in batches]
    decoder.cache_sources(numbers, np.concatenate(sources), np.cumsum([0, *map(len, sources)]).astype(np.int32))
    found = decoder.step([row(number, None, ids, every=True)
                          for number, (_, ids, _) in zip(numbers, sequences, strict=True)]).logits
    expected = np.concatenate([logits for _, _, logits in sequences])
    assert np.abs(log_softmax(found) - log_softmax(expected)).max() <= 1e-4


def log_softmax(x):
    x = x.astype(np.float64)
    return x - np.log(np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) - x.max(
        axis=1, keepdims=True)
