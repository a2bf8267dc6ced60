"""Test the whole encoder on Numba's kernels: its results, and that its bits depend on neither batch nor threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends import numba_cpu
from engine.backends.cpu.plan import CpuPlan
from engine.backends.numba_cpu import compiled
from engine.backends.reference import ReferenceBackend
from engine.base.errors import UnsupportedError
from engine.model.precision import COMPUTED
from engine.model.run_config import RunConfig

from ...tools.encoders import engine_of
from ...tools.plans import SHAPES, SMALL, WEIGHTS, isa, make_batch, make_plan, make_weights, one_sequence
from ...tools.tiny_models import random_model
from .peers import BFLOAT16_PEER, PEER, attending_in_float32

TILES = compiled.chosen() == "amx"


def prepare(config, weights, threads=1, precision="float32"):
    return numba_cpu.BACKEND.prepare(config, weights, RunConfig(threads, precision, max_tokens=2048))


@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64_and_the_compiled_kernels(shape):
    config = SHAPES[shape]
    weights, batch = make_weights(config), make_batch(config, [3, 0, 5, 64, 1, 1, 130])
    out = prepare(config, weights, 2).forward(batch)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    naive = ReferenceBackend(np.float32).prepare(config, weights, RunConfig()).forward(batch)
    allowed = 4 * np.abs(naive - exact).max() + 4 * np.finfo(np.float32).eps * np.abs(exact).max()
    assert np.abs(out - exact).max() <= allowed
    if isa.why_not(peer := "amx" if TILES else PEER) is None:
        assert np.array_equal(out, make_plan(config, weights, 2, peer).forward(batch))


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_other_precisions_against_the_compiled_kernels(precision, shape):
    peer = "amx" if TILES else {"bfloat16": BFLOAT16_PEER, "int8": PEER}[precision]
    if reason := isa.why_not(peer):
        pytest.skip(reason)
    config = SHAPES[shape]
    weights, batch = make_weights(config), make_batch(config, [3, 64, 1, 130])
    plan = CpuPlan(attending_in_float32(peer), config, weights, RunConfig(2, precision, max_tokens=2048))
    assert np.array_equal(prepare(config, weights, 2, precision).forward(batch), plan.forward(batch))


@pytest.fixture(scope="module", params=["float32", "bfloat16", "int8"])
def plans(request):
    return {threads: prepare(SMALL, WEIGHTS, threads, request.param) for threads in (1, 2, 4)}


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(0, 140), min_size=1, max_size=12), seed=st.integers(0, 9))
def test_bits_depend_on_the_sequence_alone(plans, lengths, seed):
    batch = make_batch(SMALL, lengths, seed)
    alone = np.concatenate([plans[1].forward(one_sequence(batch, i)) for i in range(len(lengths))])
    for threads, plan in plans.items():
        assert np.array_equal(plan.forward(batch), alone), f"{threads} threads"


def test_by_its_name():
    engine = engine_of(random_model(), backend="numba", threads=2)
    assert engine.backend == "numba"
    expected = engine_of(random_model(), backend="reference").forward(np.array([[4, 5, 6]]))
    np.testing.assert_allclose(engine.forward(np.array([[4, 5, 6]])), expected, atol=1e-5)


def test_other_precisions_are_refused():
    names = f"{', '.join(COMPUTED)}{', bfloat16x3' * TILES} here"
    with pytest.raises(UnsupportedError, match=f"{names}; precision 'float16' is not there"):
        prepare(SMALL, WEIGHTS, precision="float16")
