"""Llama (Touvron et al. 2023) and language models with its layers: SmolLM2, Mistral, Qwen2, Qwen3 and Gemma.

Pre-norm with RMSNorm, rotary positions, grouped key heads and a gated feed-forward network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import UnsupportedError, shown
from ..model.attention import AttentionKind
from ..model.config import LINEAR_MAPS, ModelConfig
from . import eurobert, fields
from .fields import GATE_ACTIVATIONS, activation, boolean, head_width, integer, number, optional_integer
from .parts import Part, Parts, Values

TIED = replace(
    eurobert.NAMES,
    layer={
        **eurobert.NAMES.layer,
        "self_attn.q_norm": "attention.query_norm",
        "self_attn.k_norm": "attention.key_norm",
    },
    left_out=("score.", "qa_outputs."),
    heads=(),
    copies={"embeddings.word": ("lm_head.weight",)},
)
OWN_LOGITS = replace(TIED, embeddings={**eurobert.NAMES.embeddings, "lm_head.weight": "logits.weight"}, copies={})


@dataclass(frozen=True)
class _Variant:
    """The differences between the models."""

    defaults: dict[str, Any]
    """transformers' defaults, where they are not Llama's."""
    read_biases: tuple[str, ...] = ()
    """The keys of the config that say whether maps have biases; other models have none, whatever the config says."""
    query_bias: bool = False
    """Whether queries, keys and values have biases whatever the config says."""
    head_norm: bool = False
    """Whether each head of queries and keys has a norm."""
    windowed: bool = False
    """Whether a token sees only the last `sliding_window` tokens, itself among them."""
    theta: float = 10000.0
    """The theta of the rotary embedding where the config states none."""


_VARIANTS = {
    "llama": _Variant({}, read_biases=("attention_bias", "mlp_bias")),
    "mistral": _Variant({"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
                         "sliding_window": 4096}, windowed=True),
    "qwen2": _Variant({"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32,
                       "max_position_embeddings": 32768}, query_bias=True),
    "qwen3": _Variant({"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32,
                       "max_position_embeddings": 32768, "head_dim": 128}, read_biases=("attention_bias",),
                      head_norm=True),
    "smollm3": _Variant({}, read_biases=("attention_bias", "mlp_bias"), theta=2000000.0),
    "gemma": _Variant({"head_dim": 256}, read_biases=("attention_bias",)),
}  # fmt: skip
_SUPPORTED = {"use_sliding_window": False, "is_causal": True, "use_bidirectional_attention": False}


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    family = str(values.get("model_type"))
    config = read_config(values, family)
    return Parts(None, Part(config, TIED if config.logits == "tied" else OWN_LOGITS))


def read_config(values: dict[str, Any], family: str, *, decodes: bool = True) -> ModelConfig:
    """Return the architecture of a model of one of the families here; decodes: with the product that gives logits."""
    kind = _VARIANTS[family]
    fields.refuse_variants(values, _SUPPORTED)
    values = kind.defaults | values
    types = values.get("layer_types") or []
    if not isinstance(types, list) or any(name != "full_attention" for name in types):
        raise UnsupportedError(f"layer_types {shown(types)} is not supported; only 'full_attention' is")
    width, heads = integer(values, "hidden_size", 4096), integer(values, "num_attention_heads", 32)
    if "head_dim" in kind.defaults:     # null is no number of columns for these models, as in transformers
        own = integer(values, "head_dim", 0)
    else:
        own = optional_integer(values, "head_dim", 0) or head_width(width, heads)
    biased = {key: boolean(values, key, False) for key in kind.read_biases}
    biases = LINEAR_MAPS[:4] if biased.get("attention_bias") else LINEAR_MAPS[:3] if kind.query_bias else ()
    window = optional_integer(values, "sliding_window", 0) if kind.windowed else 0
    attention = AttentionKind(window - 1 if window else None, causal=True,
                              **fields.rotary(values, None, "rope_theta", kind.theta, own))
    tied = decodes and boolean(values, "tie_word_embeddings", False)
    return ModelConfig(
        family=family,
        hidden_size=width,
        num_layers=integer(values, "num_hidden_layers", 32),
        num_heads=heads,
        num_kv_heads=optional_integer(values, "num_key_value_heads", 0),
        head_width=own,
        head_norm=kind.head_norm,
        ffn_size=integer(values, "intermediate_size", 11008),
        vocab_size=integer(values, "vocab_size", 32000),
        max_positions=fields.longest_of(values, 2048),
        position_table=False,
        embedding_norm=False,
        pad_token_id=optional_integer(values, "pad_token_id", 0),
        norm="rms",
        norm_place="pre",
        norm_eps=number(values, "rms_norm_eps", 1e-6),
        biases=(*biases, *(LINEAR_MAPS[4:] if biased.get("mlp_bias") else ())),
        activation=activation(values, "hidden_act", "silu", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=(attention,),
        logits=None if not decodes else "tied" if tied else "own",
    )
