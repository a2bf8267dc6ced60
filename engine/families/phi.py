"""Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al. 2023, arXiv 2306.11644): attention and feed-forward from one norm."""

from __future__ import annotations

from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from .fields import (
    GATE_ACTIVATIONS,
    activation,
    head_width,
    integer,
    number,
    optional_integer,
    partial_rotary,
    refuse_variants,
)
from .names import Names
from .parts import Part, Parts, Values, with_one_norm

NAMES = Names(
    prefix="model.",
    embeddings={
        "embed_tokens.weight": "embeddings.word",
        "final_layernorm.weight": "final_norm.weight",
        "final_layernorm.bias": "final_norm.bias",
        "lm_head.weight": "logits.weight",
        "lm_head.bias": "logits.bias",
    },
    layers="layers.",
    layer={
        "input_layernorm": "attention.norm",
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "self_attn.dense": "attention.output",
        "mlp.fc1": "ffn.up",
        "mlp.fc2": "ffn.down",
    },
    left_out=("score.", "classifier."),
)


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"qk_layernorm": False, "tie_word_embeddings": False})
    width, heads = integer(values, "hidden_size", 2048), integer(values, "num_attention_heads", 32)
    own = head_width(width, heads)
    config = ModelConfig(
        family="phi",
        hidden_size=width,
        num_layers=integer(values, "num_hidden_layers", 24),
        num_heads=heads,
        num_kv_heads=optional_integer(values, "num_key_value_heads", 0),
        head_width=own,
        ffn_size=integer(values, "intermediate_size", 8192),
        vocab_size=integer(values, "vocab_size", 51200),
        max_positions=integer(values, "max_position_embeddings", 2048),
        position_table=False,
        embedding_norm=False,
        norm_place="parallel",
        norm_eps=number(values, "layer_norm_eps", 1e-5),
        activation=activation(values, "hidden_act", "gelu_new", GATE_ACTIVATIONS),
        attention_kinds=(AttentionKind(causal=True, **partial_rotary(values, "rope_theta", 10000.0, own, 0.5)),),
        logits="own",
        logits_bias=True,
    )
    return Parts(None, Part(config, NAMES, with_one_norm))
