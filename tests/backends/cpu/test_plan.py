"""The CPU backend's forward pass is accurate, and its bits depend neither on the batch nor on the threads."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.batch import Batch
from engine.backends.reference import ReferenceBackend
from engine.base.errors import BackendUnavailable, InputError, UnsupportedError
from engine.model.attention import AttentionKind
from engine.model.run_config import RunConfig

from ...tools.plans import SHAPES, SMALL, WEIGHTS, cython_cpu, isa, make_batch, make_plan, make_weights, one_sequence

panels = pytest.importorskip("engine.backends.cpu.packer")
digests = pytest.importorskip("tests.tools.digests")

OF_OTHER_BITS = [*{digests.record_of(name, isa.load(name).product("float32")): name
                   for name in reversed(isa.available())}.values()]
"""The fastest set of each record of float32: test_digests.py shows that all sets of a record have its bits."""


@cache
def references(shape, lengths):
    """Return the result in float64, and the error that kernels may have. They are the same for all kernels."""
    config = SHAPES[shape]
    weights, batch = make_weights(config), make_batch(config, lengths)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    naive = ReferenceBackend(np.float32).prepare(config, weights, RunConfig()).forward(batch)
    return exact, 4 * np.abs(naive - exact).max() + 4 * np.finfo(np.float32).eps * np.abs(exact).max()


@pytest.mark.parametrize("name", OF_OTHER_BITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(name, shape):
    config = SHAPES[shape]
    weights = make_weights(config)
    plans = [make_plan(config, weights, threads, name) for threads in (1, 3)]
    for lengths in ((1,), (2, 17, 130), (70,) * 4, (3, 0, 5, 64, 1, 1, 130)):
        exact, allowed = references(shape, lengths)
        for plan in plans:
            out = plan.forward(make_batch(config, lengths))
            assert out.shape == exact.shape
            assert np.abs(out - exact).max() <= allowed


@pytest.fixture(scope="module")
def plans():
    """Return a plan for each number of threads; with more threads than CPUs a plan is slow, but must be right."""
    return {threads: make_plan(SMALL, WEIGHTS, threads, max_tokens=600) for threads in (1, 2, 3, 4)}


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 140), min_size=1, max_size=12), seed=st.integers(0, 9))
def test_bits_depend_on_the_sequence_alone(plans, lengths, seed):
    batch = make_batch(SMALL, lengths, seed)
    alone = np.concatenate([plans[1].forward(one_sequence(batch, i)) for i in range(len(lengths))])
    for threads, plan in plans.items():
        assert np.array_equal(plan.forward(batch), alone), f"{threads} threads"


@pytest.mark.parametrize("name", isa.available())
def test_bits_do_not_depend_on_the_schedule(name):
    """A sequence gives the same bits by columns, by rows and in a bundle."""
    batch = make_batch(SMALL, [40, 130])
    expected = make_plan(SMALL, WEIGHTS, 1, name).forward(batch)
    for threads in (2, 3, 4):
        plan = make_plan(SMALL, WEIGHTS, threads, name)
        assert np.array_equal(plan.forward(batch), expected)
        assert np.array_equal(plan.forward(one_sequence(batch, 0)), expected[:40])
        assert np.array_equal(plan.forward(one_sequence(batch, 1)), expected[40:])


def test_embeddings_of_the_caller():
    config = SHAPES["no tables but the words"]
    weights, batch = make_weights(config), make_batch(config, [4, 9])
    given = Batch(batch.cu_seqlens, None, weights["embeddings.word"][batch.input_ids], batch.position_ids,
                  batch.token_type_ids)
    plan = make_plan(config, weights)
    assert np.array_equal(plan.forward(given), plan.forward(batch))


def test_rotary_positions_in_any_order():
    """Runs of successive positions are rotated together, and a gap or a step back ends a run."""
    config = replace(SMALL, position_table=False, head_width=12, attention_kinds=(AttentionKind(rotary_theta=10.0),))
    weights, batch = make_weights(config), make_batch(config, [9, 70])
    positions = np.random.default_rng(0).integers(0, config.max_positions, 79, np.int32)
    positions[:9] = [0, 1, 2, 5, 6, 6, 7, 3, 4]
    batch = replace(batch, position_ids=positions)
    exact, naive = (ReferenceBackend(dtype).prepare(config, weights, RunConfig()).forward_unrounded(batch)
                    for dtype in (np.float64, np.float32))
    allowed = 4 * np.abs(naive - exact).max() + 4 * np.finfo(np.float32).eps * np.abs(exact).max()
    for threads in (1, 3):
        assert np.abs(make_plan(config, weights, threads).forward(batch) - exact).max() <= allowed


def test_nan_stays_in_its_sequence():
    config = SHAPES["no tables but the words"]
    weights, batch = make_weights(config), make_batch(config, [4, 9, 60, 60])
    plan = make_plan(config, weights, 2)
    clean = plan.forward(batch)
    embeds = weights["embeddings.word"][batch.input_ids]
    embeds[6] = np.nan
    out = plan.forward(Batch(batch.cu_seqlens, None, embeds, batch.position_ids, batch.token_type_ids))
    assert np.isnan(out[4:13]).all()
    assert np.array_equal(out[:4], clean[:4])
    assert np.array_equal(out[13:], clean[13:])
    assert np.array_equal(plan.forward(batch), clean), "NaN stays in the workspace"


def test_empty_batches(plans):
    for lengths in ([], [0], [0, 0]):
        assert plans[2].forward(make_batch(SMALL, lengths)).shape == (0, 44)


def test_longer_than_the_workspace_is_refused():
    plan = make_plan(SMALL, WEIGHTS, max_tokens=100)
    assert plan.forward(make_batch(SMALL, [100, 100, 100])).shape == (300, 44)
    with pytest.raises(InputError, match="101 tokens exceeds max_batch_tokens=100"):
        plan.forward(make_batch(SMALL, [101]))


def test_other_precisions_are_refused():
    with pytest.raises(UnsupportedError, match="float8"):
        cython_cpu.BACKEND.prepare(SMALL, WEIGHTS, RunConfig(precision="float8"))


@pytest.mark.parametrize("name", isa.INSTRUCTION_SETS)
def test_engine_isa_forces_or_refuses(monkeypatch, name):
    monkeypatch.setenv("ENGINE_ISA", name)
    if isa.why_not(name) is None:
        assert isa.chosen().isa == name
        assert cython_cpu.BACKEND.unavailable() is None
    else:
        with pytest.raises(BackendUnavailable, match=f"ENGINE_ISA: .*{name}"):
            isa.chosen()
        assert name in cython_cpu.BACKEND.unavailable()


def test_unknown_engine_isa_is_refused(monkeypatch):
    monkeypatch.setenv("ENGINE_ISA", "mmx")
    with pytest.raises(BackendUnavailable, match=f"'mmx'; choose {', '.join(isa.INSTRUCTION_SETS)}$"):
        isa.chosen()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_layers_that_share_weights_share_packed_weights(precision, monkeypatch):
    taken = []
    monkeypatch.setattr(panels, "allocate", lambda n: taken.append(n) or np.zeros(n, np.float32))
    packed = {}
    for layers, sets in ((1, ()), (6, (0,) * 6), (6, (0, 0, 0, 1, 1, 1)), (2, ())):
        config = replace(SMALL, num_layers=layers, weight_sets=sets)
        taken.clear()
        make_plan(config, make_weights(config), precision=precision)
        packed[layers, len(set(sets))] = sum(taken)
    assert packed[6, 1] == packed[1, 0] > 0
    assert packed[6, 2] == packed[2, 0] == 2 * packed[1, 0]
