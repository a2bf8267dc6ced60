"""GTE's second architecture (Zhang et al. 2024, arXiv 2407.19669): BERT with rotary positions and a GeGLU gate.

Its config.json has the model_type "new" where the model's own code reads it, and "gte" where transformers 5 does. The
first GTE is an ordinary BERT.
"""

from __future__ import annotations

from typing import Any

from ..config import AttentionKind, ModelConfig
from ..errors import UnsupportedError, WeightsError
from ..positions import static_ntk
from . import fields
from .fields import GATE_ACTIVATIONS, Names, activation, head_width, integer, number, padding_id

NAMES = Names(
    prefix=("gte.", "new."),
    embeddings={
        "embeddings.word_embeddings.weight": "embeddings.word",
        "embeddings.token_type_embeddings.weight": "embeddings.token_type",
        "embeddings.LayerNorm.weight": "embeddings.norm.weight",
        "embeddings.LayerNorm.bias": "embeddings.norm.bias",
    },
    layers=("encoder.layer.", "layers."),
    layer={
        "attention.qkv_proj": "attention.qkv",
        "attention.o_proj": "attention.output",
        "attn_ln": "attention.norm",
        "mlp.up_gate_proj": "ffn.up_gate",
        "mlp.down_proj": "ffn.down",
        "mlp_ln": "ffn.norm",
        # transformers 5
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "self_attn.o_proj": "attention.output",
        "post_attention_layernorm": "attention.norm",
        "mlp.up_proj": "ffn.up",
        "mlp.gate_proj": "ffn.gate",
        "post_mlp_layernorm": "ffn.norm",
    },
    left_out=("pooler.", "classifier.", "lm_head.", "embeddings.position_ids", "embeddings.token_type_ids"),
    joined={
        "attention.qkv": ("attention.query", "attention.key", "attention.value"),
        "ffn.up_gate": ("ffn.up", "ffn.gate"),
    },
)

SUPPORTED = {"position_embedding_type": "rope", "logn_attention_scale": False, "layer_norm_type": "layer_norm"}


def read_config(values: dict[str, Any]) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, SUPPORTED)
    hidden_size, num_heads = integer(values, "hidden_size", 768), integer(values, "num_attention_heads", 12)
    width = head_width(hidden_size, num_heads)
    return ModelConfig(
        family="gte",
        hidden_size=hidden_size,
        num_layers=integer(values, "num_hidden_layers", 12),
        num_heads=num_heads,
        head_width=width,
        ffn_size=integer(values, "intermediate_size", 3072),
        vocab_size=integer(values, "vocab_size", 250048),
        max_positions=integer(values, "max_position_embeddings", 8192),
        position_table=False,
        token_types=integer(values, "type_vocab_size", 1),
        pad_token_id=padding_id(values, 1),
        norm_eps=number(values, "layer_norm_eps", 1e-12),
        biases=("query", "key", "value", "output", "down"),
        activation=activation(values, "hidden_act", "gelu", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=(_attention(values, width),),
    )


def _attention(values: dict[str, Any], width: int) -> AttentionKind:
    """Return the rotary embedding, which the old dialect scales by "ntk" and the new one by "linear"."""
    scaling, rope = values.get("rope_scaling"), values.get("rope_parameters")
    plain, ntk, scale = dict(values), 1.0, 1.0
    if isinstance(scaling, dict) and scaling.get("type", scaling.get("rope_type")) == "ntk" and "factor" in scaling:
        if scaling.keys() - {"type", "rope_type", "factor"}:
            raise UnsupportedError(f"rope_scaling {str(scaling)[:80]} is not supported; only the keys type and factor "
                                   "are")
        plain["rope_scaling"], ntk = None, number(scaling, "factor", 1.0)
    if isinstance(rope, dict) and rope.get("rope_type") == "linear" and "factor" in rope:
        plain["rope_parameters"] = {key: rope[key] for key in rope.keys() - {"rope_type", "factor"}}
        scale = number(rope, "factor", 1.0)
    if not (ntk > 0.0 and scale > 0.0) or (ntk != 1.0 and scale != 1.0):
        raise WeightsError(f"rope_scaling {scaling} and rope_parameters {rope} must have factors above 0, and not both")
    theta, stretch = static_ntk(fields.rotary_theta(plain, None, "rope_theta", 160000.0), ntk, width)
    return AttentionKind(None, theta, scale * stretch)
