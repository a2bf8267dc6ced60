"""Test one layer of golden encoders on the emulated device: one of each family in one precision, or all in both with
ALL_CUDA=1.

A model whose layers are of several kinds, such as with and without a window, runs its first layers up to one of each.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

from engine import load_model
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.reference import ReferenceBackend
from engine.model.config import static_config
from engine.model.run_config import RunConfig

from ...families.cases import CASES
from ...tools.batches import make_batch
from ...tools.emulated_device import EmulatedDevice
from ...tools.golden_models import ENCODERS as ALL
from ...tools.paths import ENCODERS

SOME = [case.golden[0] for case in CASES if case.golden]
TOKENS, NEIGHBOUR = 11, 2
ALL_CUDA = bool(os.environ.get("ALL_CUDA"))
BOUNDS = {"float32": 1e-5, "bfloat16": 1.5e-2}


def one_layer(name):
    """Return the config and the weights of a golden encoder with its first layer, or with one of each kind."""
    model = load_model(ENCODERS / name, kind="encode")
    encoder = model.encoder or next(iter(model.routes.values()))
    config = encoder.config
    kinds = [config.attention_kind(layer) for layer in range(config.num_layers)]
    layers = max(kinds.index(kind) for kind in kinds) + 1
    return replace(config, num_layers=layers, layer_kinds=config.layer_kinds[:layers],
                   weight_sets=config.weight_sets[:layers]), encoder.weights


@pytest.mark.filterwarnings("ignore:.*does not run its head")
@pytest.mark.parametrize("name", ALL if ALL_CUDA else SOME)
def test_one_layer(name):
    config, weights = one_layer(name)
    batch = make_batch(config, [TOKENS, NEIGHBOUR])
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    number = ALL.index(name)
    for precision, bound in [*BOUNDS.items()] if ALL_CUDA else [[*BOUNDS.items()][number // 2 % 2]]:
        device = EmulatedDevice([(8, 0), (9, 0)][number % 2])
        out = CudaPlan(device, config, weights, RunConfig(1, precision, 2 * TOKENS)).forward(batch)
        assert np.linalg.norm(out - exact) <= bound * np.linalg.norm(exact), precision


def test_a_model_without_layers():
    config = static_config("static", 8, 20)
    weights = {"embeddings.word": np.random.default_rng(0).standard_normal((20, 8), np.float32)}
    batch = make_batch(config, [TOKENS, NEIGHBOUR])
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    for precision in BOUNDS:
        out = CudaPlan(EmulatedDevice((8, 0)), config, weights, RunConfig(1, precision, 2 * TOKENS)).forward(batch)
        assert np.array_equal(out, exact)
