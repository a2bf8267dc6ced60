"""Qwen3 (Yang et al. 2025, arXiv 2505.09388) as an encoder, such as Qwen3-Embedding: a token sees no later token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..config import LINEAR_MAPS, AttentionKind, ModelConfig
from ..errors import UnsupportedError, shown
from . import eurobert, fields
from .fields import GATE_ACTIVATIONS, activation, boolean, integer, number, optional_integer

NAMES = replace(
    eurobert.NAMES,
    layer={
        **eurobert.NAMES.layer,
        "self_attn.q_norm": "attention.query_norm",
        "self_attn.k_norm": "attention.key_norm",
    },
    left_out=("lm_head.", "score.", "qa_outputs."),
)

SUPPORTED = {"use_sliding_window": False, "is_causal": True, "use_bidirectional_attention": False}


def read_config(values: dict[str, Any]) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, SUPPORTED)
    types = values.get("layer_types") or []
    if not isinstance(types, list) or any(name != "full_attention" for name in types):
        raise UnsupportedError(f"layer_types {shown(types)} is not supported; only 'full_attention' is")
    values, width = {"num_key_value_heads": 32, **values}, integer(values, "head_dim", 128)
    return ModelConfig(
        family="qwen3",
        hidden_size=integer(values, "hidden_size", 4096),
        num_layers=integer(values, "num_hidden_layers", 32),
        num_heads=integer(values, "num_attention_heads", 32),
        num_kv_heads=optional_integer(values, "num_key_value_heads", 0),
        head_width=width,
        head_norm=True,
        ffn_size=integer(values, "intermediate_size", 22016),
        vocab_size=integer(values, "vocab_size", 151936),
        max_positions=integer(values, "max_position_embeddings", 32768),
        position_table=False,
        embedding_norm=False,
        pad_token_id=optional_integer(values, "pad_token_id", 0),
        norm="rms",
        norm_place="pre",
        norm_eps=number(values, "rms_norm_eps", 1e-6),
        biases=LINEAR_MAPS[:4] if boolean(values, "attention_bias", False) else (),
        activation=activation(values, "hidden_act", "silu", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=(AttentionKind(causal=True, **fields.rotary(values, None, "rope_theta", 10000.0, width)),),
    )
