"""jina-embeddings-v3 (Sturua et al. 2024, arXiv 2409.10173) without adapters: XLM-RoBERTa with rotary positions."""

from __future__ import annotations

from typing import Any

from ..config import AttentionKind, ModelConfig
from . import fields
from .fields import Names, activation, head_width, integer, number, padding_id

NAMES = Names(
    prefix="roberta.",
    embeddings={
        "embeddings.word_embeddings.weight": "embeddings.word",
        "embeddings.token_type_embeddings.weight": "embeddings.token_type",
        "emb_ln.weight": "embeddings.norm.weight",
        "emb_ln.bias": "embeddings.norm.bias",
        "embeddings.LayerNorm.weight": "embeddings.norm.weight",
        "embeddings.LayerNorm.bias": "embeddings.norm.bias",
    },
    layers=("encoder.layers.", "layers."),
    layer={
        "mixer.Wqkv": "attention.qkv",
        "mixer.out_proj": "attention.output",
        "norm1": "attention.norm",
        "mlp.fc1": "ffn.up",
        "mlp.fc2": "ffn.down",
        "norm2": "ffn.norm",
        # transformers 5
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "self_attn.o_proj": "attention.output",
        "post_attention_layernorm": "attention.norm",
        "post_mlp_layernorm": "ffn.norm",
    },
    left_out=("pooler.", "classifier.", "lm_head.", "qa_outputs.", "embeddings.position_ids",
              "embeddings.token_type_ids"),
    joined={"attention.qkv": ("attention.query", "attention.key", "attention.value")},
)


def read_config(values: dict[str, Any]) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, {"lora_adaptations": None, "position_embedding_type": "rotary"})
    hidden_size, num_heads = integer(values, "hidden_size", 1024), integer(values, "num_attention_heads", 16)
    return ModelConfig(
        family="jina_embeddings_v3",
        hidden_size=hidden_size,
        num_layers=integer(values, "num_hidden_layers", 24),
        num_heads=num_heads,
        head_width=head_width(hidden_size, num_heads),
        ffn_size=integer(values, "intermediate_size", 4096),
        vocab_size=integer(values, "vocab_size", 250002),
        max_positions=integer(values, "max_position_embeddings", 8194),
        position_table=False,
        token_types=integer(values, "type_vocab_size", 1),
        pad_token_id=padding_id(values, 1),
        norm_eps=number(values, "layer_norm_eps", 1e-5),
        activation=activation(values, "hidden_act"),
        attention_kinds=(AttentionKind(None, fields.rotary_theta(values, None, "rope_theta", 20000.0)),),
    )
