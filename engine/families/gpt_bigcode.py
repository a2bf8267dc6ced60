"""StarCoder and SantaCoder (Li et al. 2023, arXiv 2305.06161): GPT-2's layers with one key head for all queries."""

from __future__ import annotations

from dataclasses import replace

from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from . import gpt2
from .fields import activation, boolean, head_width, integer, merge_dialects, number, optional_integer, refuse_variants
from .parts import Part, Parts, Values


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"tie_word_embeddings": True})
    values = merge_dialects(values, gpt2.DIALECT)
    width, heads = integer(values, "hidden_size", 768), integer(values, "num_attention_heads", 12)
    one = boolean(values, "multi_query", True)
    config = ModelConfig(
        family="gpt_bigcode",
        hidden_size=width,
        num_layers=integer(values, "num_hidden_layers", 12),
        num_heads=heads,
        num_kv_heads=1 if one else 0,
        head_width=head_width(width, heads),
        ffn_size=optional_integer(values, "intermediate_size", 4 * width),
        vocab_size=integer(values, "vocab_size", 50257),
        max_positions=integer(values, "max_position_embeddings", 1024),
        embedding_norm=False,
        norm_place="pre",
        norm_eps=number(values, "layer_norm_epsilon", 1e-5),
        activation=activation(values, "activation_function", "gelu_pytorch_tanh"),
        attention_scale=None if boolean(values, "scale_attn_weights", True) else 1.0,
        attention_kinds=(AttentionKind(causal=True),),
        logits="tied",
    )
    return Parts(None, Part(config, gpt2.NAMES if one else replace(gpt2.NAMES, joined_by_head=("attention.qkv",))))
