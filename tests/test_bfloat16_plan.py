"""The encoder with weights in bfloat16: as its definition says, and the same bits whatever the batch."""

import numpy as np
import pytest

from engine.backends.reference import ReferenceBackend
from engine.backends.reference.encoder import ReferencePlan
from engine.config import RunConfig
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from .test_cython_plan import SHAPES, SMALL, WEIGHTS, isa, make_batch, make_plan, make_weights, one_sequence


class BFloat16Reference(ReferencePlan):
    """The forward pass in float64, the weights of its linear maps rounded to bfloat16 and, where asked, their rows."""

    round_rows = False

    def linear(self, x, name):
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return (rounded(x) if self.round_rows else x) @ rounded(weight).T + bias


def rounded(x):
    return from_bfloat16(to_bfloat16(x.astype(np.float32))).astype(np.float64)


def mean_square(x):
    return float((x * x).mean())


@pytest.mark.parametrize("name", isa.available())
@pytest.mark.parametrize("shape", ["awkward", "a head of 256", "no tables but the words", "tanh", "relu", "deep"])
def test_as_defined(name, shape):
    config = SHAPES[shape]
    weights, batch = make_weights(config), make_batch(config, [2, 70, 130])
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    reference = BFloat16Reference(config, weights, np.float64)
    reference.round_rows = isa.load(name).operand_bytes == 2
    defined = reference.forward_unrounded(batch)
    out = make_plan(config, weights, 2, name, precision="bfloat16").forward(batch)
    rounding = mean_square(defined - exact)
    assert rounding > 0
    # Where rows are rounded, float32 lets one here and there fall to the other side of a half.
    assert mean_square(out - defined) < (0.1 if reference.round_rows else 1e-4) * rounding


@pytest.mark.parametrize("name", isa.available())
def test_bits_depend_on_the_sequence_alone(name):
    lengths = [40, 130, 1, 17, 64, 65]
    batch = make_batch(SMALL, lengths)
    alone = make_plan(SMALL, WEIGHTS, 1, name, precision="bfloat16")
    expected = np.concatenate([alone.forward(one_sequence(batch, i)) for i in range(len(lengths))])
    for threads in (1, 2, 3, 4):
        plan = make_plan(SMALL, WEIGHTS, threads, name, precision="bfloat16")
        assert np.array_equal(plan.forward(batch), expected)
        assert np.array_equal(plan.forward(one_sequence(batch, 0)), expected[:40])
        assert np.array_equal(plan.forward(one_sequence(batch, 1)), expected[40:170])
