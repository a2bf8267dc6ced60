"""Attention over a cache, as a decoder runs it, against `engine.ops.attention` with q_offset in float64.

The decoders have one layer whose other parts copy: the row of a token in the word table holds its queries, keys and
values, each linear map picks columns, and the logits are the context of the heads. The suite draws a few dozen
configurations. More of them:

    ENGINE_RANDOM_ATTENTIONS=1000 python -m pytest tests/backends/cpu/test_attention_over_a_cache.py
"""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import ops
from engine.backends.reference.decoder import round_to_cache
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig
from engine.model.positions import distance_bias
from engine.model.run_config import RunConfig
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16
from engine.weights.parameters import expected_shapes

from ...tools.decoders import row

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
decoder_module = pytest.importorskip("engine.backends.cpu.decoder")

COUNT = int(os.environ.get("ENGINE_RANDOM_ATTENTIONS", "40"))
"""How many configurations each test draws."""
DRAWN = settings(max_examples=COUNT, deadline=None, suppress_health_check=list(HealthCheck))
LONGEST = 520
WIDTHS = st.sampled_from([1, 2, 3, 7, 8, 15, 16, 17, 24, 33, 40, 64])
HEADS = st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (4, 4), (6, 2), (6, 3), (7, 1), (8, 1)])
"""Heads of queries, and of keys."""
KINDS = [("float32", "float32"), ("float32", "bfloat16"), ("float32", "int8"), ("bfloat16", None)]
"""Precisions, and those of the cache."""
COUNTS = st.sampled_from([1, 1, 1, 2, 5, 17, 63, 64, 65, 130, 257])
"""Tokens of a row: single ones, and numbers around the blocks of the cache and of the kernels."""


@st.composite
def configs(draw):
    """A decoder of one layer that has nothing but attention, whose heads are as wide as all the rest."""
    (heads, groups), half = draw(HEADS), draw(WIDTHS)
    rotates = draw(st.booleans())
    d = half if not rotates else half + half % 2
    kind = AttentionKind(draw(st.sampled_from([None, None, 0, 1, 7, 63, 64, 200])),
                         draw(st.sampled_from([10000.0, 500.0])) if rotates else None,
                         rotary_interleaved=draw(st.booleans()), causal=True)
    bias = draw(st.sampled_from([None, None, "alibi", "buckets"]))
    table = {"bias_buckets": draw(st.sampled_from([4, 32])), "bias_max_distance": draw(st.sampled_from([20, 300])),
             "bias_one_sided": draw(st.booleans())} if bias == "buckets" else {}
    return ModelConfig(
        "test", hidden_size=(2 * heads + 2 * groups) * d, num_layers=1, num_heads=heads, num_kv_heads=groups,
        head_width=d, ffn_size=1, vocab_size=max(heads * d, 97), max_positions=LONGEST if rotates else 0,
        position_table=False, embedding_norm=False, norm="rms", norm_place="pre", first_attention_norm=False,
        final_norm=False, biases=(), attention_kinds=(kind,), attention_bias=bias, **table,
        attention_scale=draw(st.sampled_from([None, 1.0, 0.3])), logits="own")


def copying(config, seed):
    """Return weights with which the logits are the context; only the words, and a table of biases, are random."""
    rng, (D, d) = np.random.default_rng(seed), (config.hidden_size, config.head_width)
    H, G = config.num_heads * d, config.kv_heads * d
    weights = {name: np.zeros(shape, np.float32) for name, shape in expected_shapes(config).items()}
    words = weights["embeddings.word"]
    # bfloat16 holds these numbers, so that products in bfloat16 copy them, too, and so does a cache in bfloat16.
    words[:, : H + 2 * G] = from_bfloat16(to_bfloat16(rng.standard_normal((len(words), H + 2 * G), np.float32)))
    for name, first, rows in (("query", 0, H), ("key", H, G), ("value", H + G, G)):
        weights[f"layers.0.attention.{name}.weight"][:, first : first + rows] = np.eye(rows)
    weights["layers.0.attention.output.weight"][D - H :] = np.eye(H)
    weights["logits.weight"][:H, D - H :] = np.eye(H)
    for name, array in weights.items():
        if name.endswith("norm.weight"):
            array[:] = 1
        if name.startswith("distance_bias"):
            array[:] = rng.standard_normal(array.shape)
    return weights


def expected(config, weights, tokens, past, cache):
    """Return what `ops.attention` gives in float64 for the tokens behind the first `past` ones: [new, H * d].

    cache: the precision to which keys and values are rounded.
    """
    d, kind, words = config.head_width, config.attention_kinds[0], weights["embeddings.word"][tokens]
    heads = words.reshape(1, len(tokens), -1, d).transpose(0, 2, 1, 3)
    q, k, v = np.split(heads[:, : config.num_heads + 2 * config.kv_heads],
                       [config.num_heads, config.num_heads + config.kv_heads], axis=1)
    if kind.rotary_theta is not None:
        q, k = (ops.rotary(x, base=kind.rotary_theta, interleaved=kind.rotary_interleaved) for x in (q, k))
    k, v = round_to_cache(k, cache), round_to_cache(v, cache)
    (q, k, v), bias, S = (x.astype(np.float64) for x in (q, k, v)), None, len(tokens)
    if config.attention_bias == "alibi":
        line = distance_bias(S, config.num_heads, None, 0).astype(np.float32)
        bias = np.stack([line[:, t + S - 1 - np.arange(S)] for t in range(past, S)], axis=1)[None]
    elif config.attention_bias == "buckets":
        bias = ops.relative_position_bias(weights["distance_bias.weight"], S - past, S, query_offset=past,
                                          bidirectional=not config.bias_one_sided,
                                          max_distance=config.bias_max_distance)
    bias = None if bias is None else bias.astype(np.float64)
    out = ops.attention(q[:, :, past:], k, v, q_offset=past, causal=True, bias=bias, backend="reference",
                        scale=config.attention_scale, window=None if kind.window is None else (kind.window, 0))
    return out[0].transpose(1, 0, 2).reshape(S - past, -1)


@DRAWN
@given(config=configs(), counts=st.lists(st.lists(COUNTS, min_size=1, max_size=3), min_size=1, max_size=4),
       seed=st.integers(0, 999), threads=st.integers(1, 3), kinds=st.sampled_from(KINDS))
def test_a_decoder_attends_as_the_operation(config, counts, seed, threads, kinds):
    """counts: for each step, the new tokens of its rows. A row continues any earlier one, or begins a request.

    kinds: the precision, and that of the cache. A new request that computes a whole path at once has the same bits.
    """
    precision, cache = kinds
    weights, rng, width = copying(config, seed), np.random.default_rng(seed), config.num_heads * config.head_width
    run = RunConfig(threads, precision, LONGEST, cache=cache)
    decoder = decoder_module.CpuDecoder(isa.chosen(), config, weights, run)
    paths = [(request, None, np.zeros(0, np.int64)) for request in (decoder.open(), decoder.open())]
    for step in counts:
        picked = [paths[i] for i in rng.integers(0, len(paths), len(step))]
        added = [rng.integers(0, config.vocab_size, min(count, LONGEST - len(tokens)))
                 for count, (_, _, tokens) in zip(step, picked, strict=True)]
        rows = [(*path, new) for path, new in zip(picked, added, strict=True) if len(new)]
        if not rows:
            continue
        scores = decoder.step([row(request, parent, new, every=True) for request, parent, _, new in rows])
        found = np.split(scores.logits[:, :width], np.cumsum([len(new) for *_, new in rows])[:-1])
        for (request, _, tokens, new), number, logits in zip(rows, scores.hypotheses.tolist(), found, strict=True):
            whole = np.concatenate([tokens, new])
            right = expected(config, weights, whole, len(tokens), run.cache_precision)
            # Some products round the context to bfloat16.
            error = 2**-8 if isa.chosen().product(precision).converts else 1e-5
            # A rotated key may lie at the middle between two codes or bfloat16 numbers.
            rotates = config.attention_kinds[0].rotary_theta is not None
            error = max(error, 2**-6 if run.cache_precision != "float32" and rotates else 0)
            assert np.abs(logits - right).max() <= error * np.abs(weights["embeddings.word"]).max()
            at_once = decoder.step([row(decoder.open(), None, whole, every=True)]).logits[len(tokens) :, :width]
            assert np.array_equal(logits, at_once)
            paths.append((request, number, whole))
