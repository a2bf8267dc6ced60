"""Small decoders and steps that several test modules use."""

from functools import cache

import numpy as np

from engine.backends.steps import Row
from engine.backends.wants import ALL, Want
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig
from engine.weights.parameters import expected_shapes

CAUSAL = (AttentionKind(causal=True),)
COMMON = {"vocab_size": 50, "attention_kinds": CAUSAL}

DECODERS = {
    "2017": ModelConfig("test", 44, 2, 4, 11, 100, max_positions=90, logits="own", logits_bias=True, memory_size=38,
                        embedding_norm=False, embedding_scale=44**0.5, activation="relu", norm_eps=1e-5, **COMMON),
    "pre-norm": ModelConfig("test", 42, 3, 3, 14, 30, max_positions=90, position_offset=2, logits="tied",
                            memory_size=42, norm_place="pre", embedding_norm=False,
                            biases=("query", "value", "output", "up", "down"), **COMMON),
    "T5": ModelConfig("test", 24, 2, 3, 9, 40, position_table=False, logits="tied", logits_scale=24**-0.5,
                      memory_size=24, norm="rms", norm_place="pre", embedding_norm=False, biases=(), gated=True,
                      attention_scale=1.0, attention_bias="buckets", bias_buckets=8, bias_max_distance=20,
                      bias_one_sided=True, **COMMON),
    "Llama": ModelConfig("test", 40, 2, 6, 10, 70, vocab_size=50, max_positions=90, position_table=False, logits="tied",
                         norm="rms", norm_place="pre", embedding_norm=False, biases=(), gated=True, activation="silu",
                         num_kv_heads=2, attention_kinds=(AttentionKind(rotary_theta=500.0, causal=True),)),
    "windows, head norms": ModelConfig("test", 33, 3, 2, 16, 20, vocab_size=50, max_positions=90, position_table=False,
                                       logits="own", norm="rms", norm_place="pre", embedding_norm=False, head_norm=True,
                                       layer_kinds=(0, 1, 0),
                                       attention_kinds=(AttentionKind(7, 500.0, causal=True),
                                                        AttentionKind(rotary_theta=100.0, causal=True))),
    "deep": ModelConfig("test", 530, 1, 2, 18, 1050, max_positions=90, logits="own", logits_bias=True, memory_size=1030,
                        embedding_norm=False, **COMMON),
    "sandwich, ALiBi": ModelConfig("test", 20, 2, 3, 17, 33, vocab_size=50, logits="tied", norm_place="sandwich",
                                   attention_bias="alibi", weight_sets=(0, 0), attention_kinds=CAUSAL),
    "reordered, joint norms, caps": ModelConfig(
        "test", 30, 2, 4, 12, 26, vocab_size=50, max_positions=90, position_table=False, logits="own", norm="rms",
        norm_place="reordered", embedding_norm=False, joint_norm=True, num_kv_heads=2, attention_softcap=2.0,
        logits_softcap=3.0, attention_kinds=(AttentionKind(rotary_theta=500.0, rotary_width=8, causal=True),)),
}
"""Decoders of awkward sizes, which together use every option that matters to a decoder. "deep" has products whose depth
the kernels cut."""


def make_weights(config, seed=0, words=None):
    """Return random weights for every parameter of a model; the weights of norms lie around 1.

    words: for some words, the number in every place of their embeddings.
    """
    weights = dict(_weights(config, seed))
    if words:
        weights["embeddings.word"] = weights["embeddings.word"].copy()
        for word, value in words.items():
            weights["embeddings.word"][word] = value
    return weights


@cache
def _weights(config, seed):
    rng = np.random.default_rng(seed)
    found = {name: rng.standard_normal(shape, np.float32) * np.float32(0.3) + np.float32(name.endswith("norm.weight"))
             for name, shape in expected_shapes(config).items()}
    for array in found.values():
        array.flags.writeable = False
    return found


def sources(config, lengths, seed=0):
    """Return random vectors of an encoder for sources of these lengths, and where each begins."""
    rng = np.random.default_rng(seed)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return rng.standard_normal((cu_seqlens[-1], config.memory_size), np.float32), cu_seqlens


def open_requests(decoder, config, lengths, seed=0):
    """Open a request for each length of a source, which a decoder without cross-attention ignores."""
    requests = [decoder.open() for _ in lengths]
    if config.memory_size:
        decoder.cache_sources(requests, *sources(config, lengths, seed))
    return requests


def row(request, parent, tokens, every=False, best=None):
    """Return a row of a step; tokens may be a list. every: whether scores are wanted after each of them."""
    tokens = np.asarray(tokens, np.int64)
    return Row(request, parent, tokens, len(tokens) if every else 1, best_of(best))


def best_of(k):
    """Return the wants of a row for the k best logits; for all of them, if k is None."""
    return ALL if k is None else (Want(best=k),)
