"""Models of every combination of options: native results against the reference, and the same bits in any batch."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.backends.reference import ReferenceBackend
from engine.backends.reference.rounded import rounded_plan
from engine.batch import Batch
from engine.config import ACTIVATIONS, LINEAR_MAPS, AttentionKind, ModelConfig, RunConfig
from engine.parameters import expected_shapes

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
plan_module = pytest.importorskip("engine.backends.cython_cpu.plan")

POSITIONS = 330


@st.composite
def configs(draw, most_layers=3):
    """A small ModelConfig with sizes that fit no vector, and any combination of options."""
    heads = draw(st.sampled_from([1, 2, 3, 4, 6]))
    kv_heads = draw(st.sampled_from([g for g in (1, 2, 3, 4, 6) if heads % g == 0]))
    layers = draw(st.integers(1, most_layers))
    rotates = draw(st.booleans())
    theta = st.sampled_from([None, 10000.0, 500.0]) if rotates else st.none()
    kinds = draw(st.lists(st.builds(AttentionKind, window=st.sampled_from([None, 0, 1, 7, 64]), rotary_theta=theta,
                                    rotary_scale=st.sampled_from([1.0, 3.5]), rotary_interleaved=st.booleans(),
                                    causal=st.booleans()),
                          min_size=1, max_size=3))
    return ModelConfig(
        family="random", hidden_size=draw(st.integers(1, 70)), num_layers=layers, num_heads=heads,
        num_kv_heads=kv_heads, head_width=draw(st.integers(1, 20)) * (1 + rotates),
        ffn_size=draw(st.integers(1, 100)), vocab_size=40,
        max_positions=POSITIONS if rotates else draw(st.sampled_from([0, POSITIONS])),
        position_table=draw(st.booleans()), token_types=draw(st.integers(0, 2)), embedding_norm=draw(st.booleans()),
        norm_eps=draw(st.sampled_from([1e-12, 1e-5])), activation=draw(st.sampled_from(ACTIVATIONS)),
        norm=draw(st.sampled_from(["layer", "rms"])), norm_place=draw(st.sampled_from(["post", "pre"])),
        norm_bias=draw(st.booleans()), first_attention_norm=draw(st.booleans()), gated=draw(st.booleans()),
        biases=tuple(draw(st.lists(st.sampled_from(LINEAR_MAPS), unique=True))), attention_kinds=tuple(kinds),
        head_norm=draw(st.booleans()),
        layer_kinds=tuple(draw(st.lists(st.integers(0, len(kinds) - 1), min_size=layers, max_size=layers))))


LENGTHS = st.lists(st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 66, 129, 200, 300]), min_size=1, max_size=4)


def make_weights(config, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) * np.float32(0.3) + np.float32(name.endswith("norm.weight"))
            for name, shape in expected_shapes(config).items()}


def make_batch(config, lengths, seed):
    rng, N = np.random.default_rng(seed), sum(lengths)
    return Batch(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), rng.integers(0, 40, N, np.int32), None,
                 np.concatenate([np.arange(T) for T in lengths]).astype(np.int32),
                 rng.integers(0, max(1, config.token_types), N, np.int32))


def sequence(batch, i):
    rows = slice(*batch.cu_seqlens[i : i + 2].tolist())
    return Batch(np.array([0, rows.stop - rows.start], np.int32), batch.input_ids[rows], None, batch.position_ids[rows],
                 batch.token_type_ids[rows])


def plan_of(config, weights, threads, precision, name):
    return plan_module.CythonPlan(isa.load(name), config, weights, RunConfig(threads, precision, 2048))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99), name=st.sampled_from(isa.available()))
def test_float32_against_float64(config, lengths, seed, name):
    weights, batch = make_weights(config, seed), make_batch(config, lengths, seed)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    naive = ReferenceBackend(np.float32).prepare(config, weights, RunConfig()).forward(batch)
    out = plan_of(config, weights, 2, "float32", name).forward(batch)
    # A norm of few or nearly equal numbers magnifies any rounding, in the reference's float32 by luck less than here.
    allowed = 30 * np.abs(naive - exact).max() + 1e-4 * np.abs(exact).max()
    assert np.abs(out - exact).max() <= allowed


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99), name=st.sampled_from(isa.available()),
       precision=st.sampled_from(["float32", "bfloat16", "int8"]))
def test_bits_depend_on_the_sequence_alone(config, lengths, seed, name, precision):
    weights, batch = make_weights(config, seed), make_batch(config, lengths, seed)
    alone = plan_of(config, weights, 1, precision, name)
    expected = np.concatenate([alone.forward(sequence(batch, i)) for i in range(len(lengths))])
    for threads in (1, 2, 3, 4):
        plan = plan_of(config, weights, threads, precision, name)
        assert np.array_equal(plan.forward(batch), expected, equal_nan=True), f"{threads} threads"
        first = plan.forward(sequence(batch, 0))
        assert np.array_equal(first, expected[: len(first)], equal_nan=True), f"{threads} threads, alone"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(most_layers=1), lengths=LENGTHS, seed=st.integers(0, 99), name=st.sampled_from(isa.available()),
       precision=st.sampled_from(["bfloat16", "int8"]))
def test_precisions_are_as_defined(config, lengths, seed, name, precision):
    # Some hundreds of tokens, so that a number which float32 rounds to its other neighbour counts little.
    weights, batch = make_weights(config, seed), make_batch(config, [*lengths, 300], seed)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    product = isa.load(name).product(precision)
    defined = rounded_plan(config, weights, precision, rows=product.converts,
                           attention=not product.attends_in_float32).forward_unrounded(batch)
    out = plan_of(config, weights, 2, precision, name).forward(batch)
    rounding, error = np.square(defined - exact).mean(), np.square(out - defined).mean()
    assert error <= 0.2 * rounding + 1e-9 * np.square(exact).mean()
