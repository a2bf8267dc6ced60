"""Test what is observed of a pass on the emulated device against the reference: hidden states, weights, entropies."""

from dataclasses import replace

import numpy as np
import pytest

from engine.backends.interfaces import ObservingPlan
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.reference import ReferenceBackend
from engine.base.errors import TimedOut
from engine.base.stop import Stop
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.programs.observe import Observed

from ...tools.batches import make_batch
from ...tools.decoders import make_weights
from ...tools.emulated_device import EmulatedDevice
from ...tools.encoders import engine_of
from ...tools.tiny_models import random_model
from ...tools.tiny_text import tiny_text

POST = ModelConfig("test", hidden_size=12, num_layers=2, num_heads=2, head_width=5, ffn_size=12, vocab_size=30,
                   max_positions=20, token_types=2)
PRE = replace(POST, position_table=False, norm="rms", norm_place="pre", gated=True, num_kv_heads=1, head_norm=True,
              activation="silu", head_width=6, layer_kinds=(0, 0), attention_kinds=(AttentionKind(2, 500.0),))
EVERYTHING = Observed((0, 1), ((0, 1), (1, 0)), ((1, 1), (0, 0)))
ONE_LAYER = Observed((0,), ((0, 1),), ((0, 0),))
CASES = {
    "post-norm, two groups": (POST, [2, 0, 1], EVERYTHING, "float32", 1e-5),
    "a window": (replace(PRE, num_layers=1, layer_kinds=(0,)), [3], ONE_LAYER, "float32", 1e-5),
    "bfloat16": (replace(POST, num_layers=1, head_width=8), [2], ONE_LAYER, "bfloat16", 3e-2),
}


@pytest.mark.parametrize("name", CASES)
def test_arrays(name):
    """The token vectors have the bits of `forward`."""
    config, lengths, observed, precision, tolerance = CASES[name]
    batch, weights = make_batch(config, lengths), make_weights(config)
    plan = CudaPlan(EmulatedDevice(), config, weights, RunConfig(1, precision, max(lengths)))
    assert isinstance(plan, ObservingPlan)
    found = plan.observe(batch, observed)
    assert np.array_equal(plan.forward(batch), found[0])
    expected = ReferenceBackend().prepare(config, weights, RunConfig()).observe(batch, observed)
    assert [array.shape for array in found] == [array.shape for array in expected]
    for array, other in zip(found, expected, strict=True):
        assert np.abs(array - other).max() <= tolerance * max(1, np.abs(other).max())


def test_a_stop_ends_the_pass():
    plan = CudaPlan(EmulatedDevice(), POST, make_weights(POST), RunConfig(1, "float32", 8))
    with pytest.raises(TimedOut):
        plan.observe(make_batch(POST, [2]), EVERYTHING, Stop.after(1e-9))


def test_look(emulated):
    """The entropies and the rollout of one text, from an `Engine`."""
    model = random_model(tiny_text(), num_layers=1)
    found, expected = (engine_of(model, backend=backend).look("the cat") for backend in ("cuda", "reference"))
    assert found.tokens == expected.tokens
    assert np.abs(found.rollout - expected.rollout).max() <= 1e-5
    assert np.abs(found.shares - expected.shares).max() <= 1e-4
