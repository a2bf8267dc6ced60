"""Models of every combination of options: native results against the reference, and the same bits in any batch."""

import os
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.backends.batch import Batch
from engine.backends.reference import ReferenceBackend
from engine.backends.reference.rounded import rounded_plan
from engine.model.attention import AttentionKind, RelativePositions
from engine.model.config import ACTIVATIONS, LINEAR_MAPS, NORM_PLACES, ModelConfig
from engine.model.run_config import RunConfig
from engine.programs.observe import Observed
from engine.weights.parameters import expected_shapes

from ...tools.plans import EVERY_PRODUCT, rounds_queries

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
plan_module = pytest.importorskip("engine.backends.cpu.plan")

POSITIONS = 330
WORDS = 40
MODELS = int(os.environ.get("ENGINE_RANDOM_MODELS", "60"))
"""How many models the comparison with float64 draws."""


RELATIVE = st.builds(RelativePositions, limit=st.sampled_from([9, 60, POSITIONS]), buckets=st.sampled_from([0, 6, 14]),
                     terms=st.sampled_from([("c2p",), ("p2c",), ("c2p", "p2c")]), norm=st.booleans(),
                     own_maps=st.booleans())


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
                                    causal=st.booleans(), rotary_factor=st.sampled_from([1.0, 1.3])),
                          min_size=1, max_size=3))
    bias = draw(st.sampled_from([None, "alibi", "buckets"]))
    table = {} if bias != "buckets" else {"bias_buckets": draw(st.sampled_from([4, 6, 32])),
                                          "bias_max_distance": draw(st.sampled_from([9, 20, 128])),
                                          "bias_in_layers": draw(st.booleans())}
    half = draw(st.integers(1, 20))
    turned = draw(st.sampled_from([None, half])) if rotates and half > 1 and half % 2 == 0 else None
    kinds = [kind if kind.rotary_theta is None else replace(kind, rotary_width=turned) for kind in kinds]
    if rotates and draw(st.booleans()):
        angles = tuple(float(angle) for angle in np.geomspace(1.0, 0.003, half if turned is None else half // 2))
        kinds = [kind if kind.rotary_theta is None else replace(kind, rotary_frequencies=angles) for kind in kinds]
    relative, head_norm = draw(st.one_of(st.none(), RELATIVE)), draw(st.booleans())
    return ModelConfig(
        family="random", hidden_size=draw(st.integers(1, 70)), num_layers=layers, num_heads=heads,
        num_kv_heads=kv_heads, head_width=half * (1 + rotates),
        ffn_size=draw(st.integers(1, 100)), vocab_size=draw(st.sampled_from([WORDS, WORDS, 0])),
        position_offset=draw(st.sampled_from([0, 2])),
        max_positions=POSITIONS if rotates else draw(st.sampled_from([0, POSITIONS])),
        position_table=draw(st.booleans()), token_types=draw(st.integers(0, 2)), embedding_norm=draw(st.booleans()),
        norm_eps=draw(st.sampled_from([1e-12, 1e-5])), activation=draw(st.sampled_from(ACTIVATIONS)),
        norm=draw(st.sampled_from(["layer", "rms"])), norm_place=draw(st.sampled_from(NORM_PLACES)),
        norm_bias=draw(st.booleans()), first_attention_norm=draw(st.booleans()), gated=draw(st.booleans()),
        biases=tuple(draw(st.lists(st.sampled_from(LINEAR_MAPS), unique=True))), attention_kinds=tuple(kinds),
        head_norm=head_norm, joint_norm=not head_norm and draw(st.booleans()), attention_bias=bias, **table,
        attention_scale=draw(st.sampled_from([None, 1.0, 0.3])), relative=relative,
        attention_softcap=draw(st.sampled_from([0.0, 2.0])) if relative is None else 0.0,
        embedding_width=draw(st.sampled_from([0, 1, 16, 33])),
        final_norm=draw(st.sampled_from([None, True, False])),
        embedding_scale=draw(st.sampled_from([1.0, 5.5])),
        weight_sets=draw(st.sampled_from([(), (0, 0, 1)[:layers], (0, 1, 0)[:layers]])),
        layer_kinds=tuple(draw(st.lists(st.integers(0, len(kinds) - 1), min_size=layers, max_size=layers))))


LENGTHS = st.lists(st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 66, 129, 200, 300]), min_size=1, max_size=4)


def make_weights(config, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) * np.float32(0.3) + np.float32(name.endswith("norm.weight"))
            for name, shape in expected_shapes(config).items()}


def make_batch(config, lengths, seed):
    rng, N = np.random.default_rng(seed), sum(lengths)
    words = rng.integers(0, WORDS, N, np.int32) if config.vocab_size else None
    embeds = None if config.vocab_size else rng.standard_normal((N, config.table_width), np.float32)
    return Batch(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), words, embeds,
                 np.concatenate([np.arange(T) + config.position_offset for T in lengths]).astype(np.int32),
                 rng.integers(0, max(1, config.token_types), N, np.int32))


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


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(most_layers=1), lengths=LENGTHS, seed=st.integers(0, 99),
       which=st.sampled_from([pair for pair in EVERY_PRODUCT if pair[1] != "float32"]))
def test_precisions_are_as_defined(config, lengths, seed, which):
    name, precision = which
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
                               queries=rounds_queries(config, weights, product)).forward_unrounded(batch)
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

    @settings(max_examples=400, deadline=None, database=None, derandomize=True,
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
    assert constant == {("ModelConfig", name) for name in {"family", "pad_token_id"} | of_decoders}
