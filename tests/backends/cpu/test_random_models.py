"""Models of every combination of options: native results against the reference, and the same bits in any batch."""

import os
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.backends.batch import Batch
from engine.backends.reference import ReferenceBackend
from engine.model.attention import AttentionKind, RelativePositions
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.programs.observe import Observed

from ...tools.batches import make_batch
from ...tools.decoders import make_weights
from ...tools.plans import EVERY_PRODUCT, rounds_queries
from ...tools.random_models import LENGTHS, configs
from ...tools.rounded import rounded_plan

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
plan_module = pytest.importorskip("engine.backends.cpu.plan")

MODELS = int(os.environ.get("ENGINE_RANDOM_MODELS", "40"))
"""How many models the comparison with float64 draws."""


def sequence(batch, i):
    rows = slice(*batch.cu_seqlens[i : i + 2].tolist())
    ids, embeds = (None if array is None else array[rows] for array in (batch.input_ids, batch.inputs_embeds))
    return Batch(np.array([0, rows.stop - rows.start], np.int32), ids, embeds, batch.position_ids[rows],
                 batch.token_type_ids[rows])


def plan_of(config, weights, threads, precision, name):
    return plan_module.CpuPlan(isa.load(name), config, weights, RunConfig(threads, precision, 2048))


@settings(max_examples=MODELS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99), name=st.sampled_from(isa.available()))
def test_float32_against_float64(config, lengths, seed, name):
    weights, batch = make_weights(config, seed), make_batch(config, lengths, seed)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    naive = ReferenceBackend(np.float32).prepare(config, weights, RunConfig()).forward(batch)
    out = plan_of(config, weights, 2, "float32", name).forward(batch)
    # A norm of few or nearly equal numbers magnifies any rounding, in the reference's float32 by luck less than here.
    allowed = 30 * np.abs(naive - exact).max() + 1e-4 * np.abs(exact).max()
    assert np.abs(out - exact).max() <= allowed


@settings(max_examples=24, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99), name=st.sampled_from(isa.available()))
def test_hidden_states_and_attention_weights_against_float64(config, lengths, seed, name):
    weights, batch = make_weights(config, seed), make_batch(config, lengths, seed)
    heads = tuple(np.ndindex(config.num_layers, config.num_heads))
    observed = Observed(tuple(range(config.num_layers)), heads, heads)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).observe_unrounded(batch, observed)
    naive = ReferenceBackend(np.float32).prepare(config, weights, RunConfig()).observe(batch, observed)
    plan = plan_of(config, weights, 2, "float32", name)
    out = plan.observe(batch, observed)
    assert np.array_equal(out[0], plan.forward(batch), equal_nan=True)
    for found, right, plain in zip(out, exact, naive, strict=True):
        assert np.abs(found - right).max() <= 30 * np.abs(plain - right).max() + 1e-4 * max(1, np.abs(right).max())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99),
       which=st.sampled_from(EVERY_PRODUCT))
def test_bits_depend_on_the_sequence_alone(config, lengths, seed, which):
    name, precision = which
    weights, batch = make_weights(config, seed), make_batch(config, lengths, seed)
    alone = plan_of(config, weights, 1, precision, name)
    expected = np.concatenate([alone.forward(sequence(batch, i)) for i in range(len(lengths))])
    for threads in (1, 2, 3, 4):
        plan = plan_of(config, weights, threads, precision, name)
        assert np.array_equal(plan.forward(batch), expected, equal_nan=True), f"{threads} threads"
        first = plan.forward(sequence(batch, 0))
        assert np.array_equal(first, expected[: len(first)], equal_nan=True), f"{threads} threads, alone"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99),
       which=st.sampled_from(EVERY_PRODUCT), data=st.data())
def test_tokens_that_read_and_are_not_read(config, lengths, seed, which, data):
    """The tokens that are read have the bits that they have without the others, which are those of float64."""
    name, precision = which
    keys = [data.draw(st.sampled_from(sorted({1, max(1, T // 3), max(1, T - 1), T}))) for T in lengths]
    weights, batch = make_weights(config, seed), make_batch(config, lengths, seed)
    batch = replace(batch, keys=np.array(keys, np.int32))
    read = np.concatenate([np.arange(T) < n for T, n in zip(lengths, keys, strict=True)])
    words, embeds = (None if x is None else x[read] for x in (batch.input_ids, batch.inputs_embeds))
    without = Batch(np.cumsum([0, *keys]).astype(np.int32), words, embeds, batch.position_ids[read],
                    batch.token_type_ids[read])
    out = plan_of(config, weights, 2, precision, name).forward(batch)
    for threads in (1, 3):
        plan = plan_of(config, weights, threads, precision, name)
        assert np.array_equal(plan.forward(batch), out, equal_nan=True)
        assert np.array_equal(plan.forward(without), out[read], equal_nan=True)
    if precision == "float32":
        exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
        naive = ReferenceBackend(np.float32).prepare(config, weights, RunConfig()).forward(batch)
        assert np.abs(out - exact).max() <= 30 * np.abs(naive - exact).max() + 1e-4 * np.abs(exact).max()


@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(most_layers=1), lengths=LENGTHS, seed=st.integers(0, 99),
       which=st.sampled_from([pair for pair in EVERY_PRODUCT if pair[1] != "float32"]))
def test_precisions_are_as_defined(config, lengths, seed, which):
    name, precision = which
    # A norm of two numbers is nearly the sign of their difference, which jumps where float32 rounds one of them.
    assume(not config.head_norm or config.head_width > 2)
    # Some hundreds of tokens with three sets of weights, so that a number which float32 rounds to its other neighbour
    # counts little. One set is not enough: where all tokens have nearly the same context, one number is that of all. In
    # narrow models three sets may be too few, so up to twelve count.
    product = isa.load(name).product(precision)
    rounding = error = size = 0.0
    for own in range(12 * seed, 12 * seed + 12):
        weights, batch = make_weights(config, own), make_batch(config, [*lengths, 300], own)
        exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
        defined = rounded_plan(config, weights, precision, rows=product.converts,
                               attention=not product.attends_in_float32,
                               bounded=product.needs_bound,
                               queries=rounds_queries(config, product)).forward_unrounded(batch)
        out = plan_of(config, weights, 2, precision, name).forward(batch)
        rounding += np.square(defined - exact).mean()
        error += np.square(out - defined).mean()
        size += np.square(exact).mean()
        if own % 12 >= 2 and error <= 0.2 * rounding + 1e-9 * size:
            return
    assert error <= 0.2 * rounding + 1e-9 * size


def test_every_option_is_drawn():
    """Each field of a config, of its kinds of attention and of its relative positions has several values."""
    drawn: dict[type, list[object]] = {ModelConfig: [], AttentionKind: [], RelativePositions: []}

    @settings(max_examples=80, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))
    @given(config=configs())
    def draw(config):
        drawn[ModelConfig].append(config)
        drawn[AttentionKind] += config.attention_kinds
        drawn[RelativePositions] += [config.relative] if config.relative else []

    draw()
    constant = {(kind.__name__, field.name) for kind, values in drawn.items() for field in fields(kind)
                if len({getattr(value, field.name) for value in values}) < 2}
    of_decoders = {"logits", "logits_bias", "logits_scale", "logits_softcap", "memory_size",
                   "bias_one_sided"}    # test_random_decoders.py
    elsewhere = {"logits_size", "dropped_id", "dense_tokens"}   # which no program has; tests/heads, tests/families
    assert constant == {("ModelConfig", name) for name in {"family", "pad_token_id"} | of_decoders | elsewhere}
