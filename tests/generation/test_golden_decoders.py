"""Decoders against transformers: the logits of small random models, at once and one token after the other."""

import json

import numpy as np
import pytest

from engine.backends.reference import ReferenceBackend
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.weights.parameters import check

from ..tools.decoders import row
from ..tools.paths import DECODERS

NAMES = sorted(path.stem.removeprefix("decoder_") for path in DECODERS.glob("decoder_*.npz"))


class GoldenDecoder:
    """A model of transformers, and its logits for some sequences."""

    def __init__(self, name):
        arrays = dict(np.load(DECODERS / f"decoder_{name}.npz"))
        self.config = ModelConfig.from_json(json.loads(arrays.pop("config").tobytes()))
        self.sequences = []
        while f"ids_{len(self.sequences)}" in arrays:
            i = len(self.sequences)
            self.sequences.append((arrays.pop(f"ids_{i}").astype(np.int64), arrays.pop(f"memory_{i}", None),
                                   arrays.pop(f"logits_{i}")))
        self.weights = arrays

    def requests(self, decoder):
        """Open a request for each sequence, with its source, and return their numbers."""
        numbers = [decoder.open() for _ in self.sequences]
        if self.config.memory_size:
            sources = [memory for _, memory, _ in self.sequences]
            cu_seqlens = np.cumsum([0, *map(len, sources)]).astype(np.int32)
            decoder.cache_sources(numbers, np.concatenate(sources), cu_seqlens)
        return numbers


@pytest.fixture(params=NAMES)
def golden(request):
    return GoldenDecoder(request.param)


def test_the_golden_models_are_complete():
    assert NAMES == ["bart", "llama", "m2m_100", "marian", "qwen3", "t5", "t5_own"]


def test_all_tensors_are_used(golden):
    check(golden.config, golden.weights, "the golden model")


def test_logits_of_transformers(golden):
    decoder = ReferenceBackend(np.float64).prepare_decoder(golden.config, golden.weights, RunConfig())
    for request, (ids, _, expected) in zip(golden.requests(decoder), golden.sequences, strict=True):
        _, whole = decoder.step_unrounded([row(request, None, ids, every=True)])
        assert np.abs(whole - expected).max() <= 1e-6 * np.abs(expected).max()
        parent = None
        for t, token in enumerate(ids):
            (parent,), logits = decoder.step_unrounded([row(request, parent, [token])])
            assert np.abs(logits - expected[t]).max() <= 1e-6 * np.abs(expected).max()


def test_log_probabilities_on_compiled_kernels(golden):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    decoder_module = pytest.importorskip("engine.backends.cpu.decoder")
    decoder = decoder_module.CpuDecoder(isa.chosen(), golden.config, golden.weights, RunConfig(2))
    requests = golden.requests(decoder)
    logits = decoder.step([row(request, None, ids, every=True)
                           for request, (ids, _, _) in zip(requests, golden.sequences, strict=True)]).logits
    expected = np.concatenate([logits for _, _, logits in golden.sequences])
    assert np.abs(log_softmax(logits) - log_softmax(expected)).max() <= 1e-4


def log_softmax(x):
    x = x.astype(np.float64)
    return x - np.log(np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) - x.max(
        axis=1, keepdims=True)
