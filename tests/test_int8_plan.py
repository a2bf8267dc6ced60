"""The encoder in 8-bit integers: as its definition says, and the same bits whatever the batch."""

import numpy as np
import pytest

from engine.backends import get_backend
from engine.backends.reference import ReferenceBackend
from engine.backends.reference.encoder import ReferencePlan
from engine.config import RunConfig
from engine.errors import UnsupportedError
from engine.parameters import linear_maps
from engine.quantize import quantize_rows

from .test_cython_plan import SHAPES, SMALL, WEIGHTS, isa, make_batch, make_plan, make_weights, one_sequence


class Int8Reference(ReferencePlan):
    """The forward pass in float64, its linear maps of weights and rows rounded to 8 bits."""

    def linear(self, x, name):
        weight, scale = quantize_rows(self.weights[f"{name}.weight"].astype(np.float32))
        low = x.min(axis=1, keepdims=True)
        step = (x.max(axis=1, keepdims=True) - low) / 255
        rounded = low + step * np.rint((x - low) / np.where(step > 0, step, 1))
        return rounded @ (weight * scale[:, None].astype(np.float64)).T + self.weights[f"{name}.bias"]


def mean_square(x):
    return float((x * x).mean())


@pytest.mark.parametrize("name", isa.available())
@pytest.mark.parametrize("shape", ["awkward", "a head of 256", "no tables but the words", "tanh", "relu", "deep"])
def test_as_defined(name, shape):
    config = SHAPES[shape]
    weights, batch = make_weights(config), make_batch(config, [2, 70, 130])
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    defined = Int8Reference(config, weights, np.float64).forward_unrounded(batch)
    out = make_plan(config, weights, 2, name, precision="int8").forward(batch)
    rounding = mean_square(defined - exact)
    assert rounding > 0
    # Float32 lets a code here and there fall to the other side of a half, which is little against rounding to 8 bits.
    assert mean_square(out - defined) < 0.1 * rounding


@pytest.mark.parametrize("name", isa.available())
def test_bits_depend_on_the_sequence_alone(name):
    lengths = [40, 130, 1, 17, 64, 65]
    batch = make_batch(SMALL, lengths)
    alone = make_plan(SMALL, WEIGHTS, 1, name, precision="int8")
    expected = np.concatenate([alone.forward(one_sequence(batch, i)) for i in range(len(lengths))])
    for threads in (1, 2, 3, 4):
        plan = make_plan(SMALL, WEIGHTS, threads, name, precision="int8")
        assert np.array_equal(plan.forward(batch), expected)
        assert np.array_equal(plan.forward(one_sequence(batch, 0)), expected[:40])
        assert np.array_equal(plan.forward(one_sequence(batch, 1)), expected[40:170])


def test_weights_rounded_ahead_give_the_same_bits():
    weights = dict(WEIGHTS)
    for name in linear_maps(SMALL):
        weights[f"{name}.weight"], weights[f"{name}.weight_scale"] = quantize_rows(weights[f"{name}.weight"])
    batch = make_batch(SMALL, [9, 80])
    plans = [make_plan(SMALL, w, precision="int8") for w in (WEIGHTS, weights)]
    assert np.array_equal(plans[0].forward(batch), plans[1].forward(batch))


@pytest.mark.parametrize("name", ["numba", "reference"])
def test_backends_without_integers_say_so(name):
    backend = get_backend(name) if name == "reference" else pytest.importorskip("numba") and get_backend(name)
    with pytest.raises(UnsupportedError, match="int8"):
        backend.prepare(SMALL, WEIGHTS, RunConfig(precision="int8"))
