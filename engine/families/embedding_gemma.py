"""EmbeddingGemma (Schechter Vera et al. 2025, arXiv 2509.20354): Gemma 3 whose tokens see those on both sides.

Other embedders, such as harrier, leave Gemma 3 as it is: their tokens see no later token.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..base.errors import WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ATTENTION_MAPS, ModelConfig
from . import eurobert, fields
from .fields import GATE_ACTIVATIONS, activation, boolean, integer, number
from .parts import Part, Values

NAMES = replace(
    eurobert.NAMES,
    layer={
        **eurobert.NAMES.layer,
        "self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm",
        "post_attention_layernorm": "attention.post_norm",
        "pre_feedforward_layernorm": "ffn.norm",
        "post_feedforward_layernorm": "ffn.post_norm",
    },
    left_out=("lm_head.", "score."),
    heads=(),
    norms_less_one=True,        # files hold weight - 1
)

SUPPORTED = {"attn_logit_softcapping": None, "use_bidirectional_attention": False}


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    causal = not boolean(values, "use_bidirectional_attention", False)
    return read_layers(values | {"use_bidirectional_attention": None}, causal=causal)       # None is never refused


def usual(values: Values) -> str:
    """Return as `Family.usual`: a model whose tokens see later ones encodes."""
    return "encode" if values.get("use_bidirectional_attention") else "generate"


def read_layers(values: Values, *, causal: bool, decodes: bool = False) -> ModelConfig:
    """Return the architecture of an encoder, or of a decoder with the logits of the word table.

    causal: whether a token sees no later token. Raises `WeightsError` or `UnsupportedError`.
    """
    of_decoders = {"is_causal": True, "final_logit_softcapping": None} if decodes else {}
    fields.refuse_variants(values, SUPPORTED | of_decoders)
    hidden_size, num_layers = integer(values, "hidden_size", 2304), integer(values, "num_hidden_layers", 26)
    scalar, window = number(values, "query_pre_attn_scalar", 256), integer(values, "sliding_window", 4096)
    if not (scalar > 0 and window >= 0 and 1 <= hidden_size <= 2**24):
        raise WeightsError("query_pre_attn_scalar must be above 0, sliding_window at least 0 and hidden_size from 1 to "
                           f"16,777,216, not {scalar}, {shown(window)} and {shown(hidden_size)}")
    width, every = integer(values, "head_dim", 256), integer(values, "sliding_window_pattern", 6)
    if every < 1:
        raise WeightsError(f"sliding_window_pattern must be at least 1, not {shown(every)}")
    local = values | {"rope_scaling": None}  # it is about the layers that see all keys
    # A window of earlier tokens counts the token itself, and one on both sides has half on each.
    reach = max(0, window - 1) if causal else window // 2
    return ModelConfig(
        family="gemma3_text",
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=integer(values, "num_attention_heads", 8),
        num_kv_heads=integer(values, "num_key_value_heads", 4),
        head_width=width,
        head_norm=True,
        ffn_size=integer(values, "intermediate_size", 9216),
        vocab_size=integer(values, "vocab_size", 262208),
        max_positions=integer(values, "max_position_embeddings", 131072),
        position_table=False,
        embedding_norm=False,
        embedding_scale=math.sqrt(hidden_size),
        attention_scale=scalar**-0.5,
        pad_token_id=fields.padding_id(values, 0),
        norm="rms",
        norm_place="sandwich",
        norm_eps=number(values, "rms_norm_eps", 1e-6),
        biases=ATTENTION_MAPS if boolean(values, "attention_bias", False) else (),
        activation=activation(values, "hidden_activation", "gelu_pytorch_tanh", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=(
            AttentionKind(causal=causal, **fields.rotary(values, "rope_theta", 1000000.0, width, fields.FULL)),
            AttentionKind(reach, causal=causal,
                          **fields.rotary(local, "rope_local_base_freq", 10000.0, width, fields.SLIDING)),
        ),
        logits="tied" if decodes else None,
        layer_kinds=fields.layer_types(values, num_layers, windowed=lambda i: (i + 1) % every != 0),
    )


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    return Part(read_config(values), NAMES)


_SECOND = "EmbeddingGemma 2 adds a gated input to each layer; the first EmbeddingGemma is supported"
REFUSED = {"embedding_gemma2": _SECOND, "embedding_gemma2_text": _SECOND}
