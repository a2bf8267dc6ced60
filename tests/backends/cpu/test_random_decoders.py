"""Decoders of every combination of options: native results against the reference, and the same bits in any split.

    ENGINE_RANDOM_DECODERS=2000 python -m pytest tests/backends/cpu/test_random_decoders.py
"""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.backends.reference import ReferenceBackend
from engine.model.attention import AttentionKind
from engine.model.config import ACTIVATIONS, LINEAR_MAPS, NORM_PLACES, ModelConfig
from engine.model.run_config import RunConfig

from ...tools.decoders import make_weights, open_requests, row
from ...tools.plans import EVERY_PRODUCT

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
decoder_module = pytest.importorskip("engine.backends.cpu.decoder")

DECODERS = int(os.environ.get("ENGINE_RANDOM_DECODERS", "40"))


@st.composite
def configs(draw):
    """A small decoder with sizes that fit no vector, and any combination of options."""
    heads = draw(st.sampled_from([1, 2, 3, 4, 6]))
    layers = draw(st.integers(1, 3))
    rotates = draw(st.booleans())
    theta = st.sampled_from([None, 10000.0, 500.0]) if rotates else st.none()
    kinds = draw(st.lists(st.builds(AttentionKind, window=st.sampled_from([None, 0, 1, 7, 64]), rotary_theta=theta,
                                    rotary_interleaved=st.booleans(), causal=st.just(True)), min_size=1, max_size=2))
    bias = draw(st.sampled_from([None, "alibi", "buckets"]))
    table = {} if bias != "buckets" else {"bias_buckets": draw(st.sampled_from([4, 6, 32])), "bias_max_distance": 20,
                                          "bias_in_layers": draw(st.booleans()),
                                          "bias_one_sided": draw(st.booleans())}
    memory = draw(st.sampled_from([0, 1, 24, 35]))
    width, half = draw(st.integers(1, 70)), draw(st.integers(1, 20))
    logits, head_norm = draw(st.sampled_from(["tied", "own"])), draw(st.booleans())
    turned = draw(st.sampled_from([None, half])) if rotates and half % 2 == 0 else None
    kinds = [kind if kind.rotary_theta is None else replace(kind, rotary_width=turned) for kind in kinds]
    return ModelConfig(
        family="random", hidden_size=width, num_layers=layers, num_heads=heads,
        num_kv_heads=draw(st.sampled_from([g for g in (1, 2, 3, 4, 6) if heads % g == 0])),
        head_width=half * (1 + rotates), ffn_size=draw(st.integers(1, 100)), vocab_size=40, max_positions=330,
        position_offset=draw(st.sampled_from([0, 2])), position_table=draw(st.booleans()),
        token_types=draw(st.integers(0, 1)), embedding_norm=draw(st.booleans()),
        norm_eps=draw(st.sampled_from([1e-12, 1e-5])), activation=draw(st.sampled_from(ACTIVATIONS)),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_place=draw(st.sampled_from(NORM_PLACES[: 2 if memory else None])),
        norm_bias=draw(st.booleans()), first_attention_norm=draw(st.booleans()), gated=draw(st.booleans()),
        biases=tuple(draw(st.lists(st.sampled_from(LINEAR_MAPS), unique=True))), attention_kinds=tuple(kinds),
        head_norm=head_norm, joint_norm=not head_norm and draw(st.booleans()), attention_bias=bias, **table,
        attention_softcap=draw(st.sampled_from([0.0, 2.0])), logits_softcap=draw(st.sampled_from([0.0, 0.0, 3.0])),
        attention_scale=draw(st.sampled_from([None, 1.0, 0.3])),
        embedding_width=0 if logits == "tied" else draw(st.sampled_from([0, 16, 33])),
        final_norm=draw(st.sampled_from([None, True, False])), embedding_scale=draw(st.sampled_from([1.0, 5.5])),
        weight_sets=draw(st.sampled_from([(), (0, 0, 1)[:layers], (0, 1, 0)[:layers]])),
        layer_kinds=tuple(draw(st.lists(st.integers(0, len(kinds) - 1), min_size=layers, max_size=layers))),
        memory_size=memory, logits=logits, logits_bias=draw(st.booleans()),
        logits_scale=draw(st.sampled_from([1.0, 0.2])))


LENGTHS = st.lists(st.sampled_from([1, 2, 15, 17, 63, 66, 129, 300]), min_size=1, max_size=3)


def compiled(config, weights, threads, precision, name):
    return decoder_module.CpuDecoder(isa.load(name), config, weights, RunConfig(threads, precision, 2048))


def prompts(lengths, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 40, length) for length in lengths]


def whole(decoder, config, texts, seed):
    requests = open_requests(decoder, config, [5 + i * 30 for i in range(len(texts))], seed)
    return decoder.step([row(request, None, text, every=True) for request, text in zip(requests, texts, strict=True)])


@settings(max_examples=DECODERS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99), name=st.sampled_from(isa.available()))
def test_float32_against_float64(config, lengths, seed, name):
    weights, texts = make_weights(config, seed), prompts(lengths, seed)
    exact = whole(ReferenceBackend(np.float64).prepare_decoder(config, weights, RunConfig()), config, texts, seed)
    naive = whole(ReferenceBackend(np.float32).prepare_decoder(config, weights, RunConfig()), config, texts, seed)
    out = whole(compiled(config, weights, 2, "float32", name), config, texts, seed)
    allowed = 30 * np.abs(naive.logits - exact.logits).max() + 1e-4 * np.abs(exact.logits).max()
    assert np.abs(out.logits - exact.logits).max() <= allowed


@settings(max_examples=DECODERS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=configs(), lengths=LENGTHS, seed=st.integers(0, 99),
       which=st.sampled_from(EVERY_PRODUCT))
def test_bits_depend_neither_on_the_split_nor_on_the_batch(config, lengths, seed, which):
    name, precision = which
    weights, texts = make_weights(config, seed), prompts(lengths, seed)
    expected = whole(compiled(config, weights, 1, precision, name), config, texts, seed).logits
    ends = np.cumsum(lengths)
    rng = np.random.default_rng(seed)
    for threads in (1, 3):
        decoder = compiled(config, weights, threads, precision, name)
        requests = open_requests(decoder, config, [5 + i * 30 for i in range(len(texts))], seed)
        parents, read = [None] * len(texts), [0] * len(texts)
        while any(done < len(text) for done, text in zip(read, texts, strict=True)):
            picked = [i for i, text in enumerate(texts) if read[i] < len(text) and rng.random() < 0.8]
            if not picked:
                continue
            counts = {i: min(len(texts[i]) - read[i], int(rng.choice([1, 3, 40, 200]))) for i in picked}
            scores = decoder.step([row(requests[i], parents[i], texts[i][read[i] : read[i] + counts[i]])
                                   for i in picked])
            for i, number, logits in zip(picked, scores.hypotheses.tolist(), scores.logits, strict=True):
                parents[i], read[i] = number, read[i] + counts[i]
                assert np.array_equal(logits, expected[ends[i] - lengths[i] + read[i] - 1], equal_nan=True)


def test_layers_that_share_weights_keep_their_own_keys():
    config = ModelConfig("test", 20, 2, 2, 10, 30, vocab_size=40, max_positions=50, logits="tied", memory_size=9,
                         weight_sets=(0, 0), attention_kinds=(AttentionKind(causal=True),))
    weights = make_weights(config)
    texts = prompts([12], 0)
    exact = whole(ReferenceBackend(np.float64).prepare_decoder(config, weights, RunConfig()), config, texts, 0)
    apart = replace(config, weight_sets=())
    double = weights | {name.replace("layers.0.", "layers.1."): array for name, array in weights.items()}
    same = whole(ReferenceBackend(np.float64).prepare_decoder(apart, double, RunConfig()), config, texts, 0)
    assert np.array_equal(exact.logits, same.logits)
