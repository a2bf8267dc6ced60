"""NeoBERT (Le Breton et al. 2025, arXiv 2502.19587): pre-norm with RMSNorm, rotated neighbours, a SwiGLU gate."""

from __future__ import annotations

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from . import fields
from .fields import integer, number, optional_integer, sizes
from .names import JOINED_GATE, JOINED_HEADS, Names
from .parts import Values, plain

NAMES = Names(
    prefix="model.",
    embeddings={"encoder.weight": "embeddings.word", "layer_norm.weight": "final_norm.weight"},
    layers="transformer_encoder.",
    layer={
        "attention_norm": "attention.norm",
        "qkv": "attention.qkv",
        "wo": "attention.output",
        "ffn_norm": "ffn.norm",
        "ffn.w12": "ffn.gate_up", "ffn.w3": "ffn.down",
    },
    left_out=("decoder.", "dense.", "classifier."),
    joined=JOINED_HEADS | JOINED_GATE,
    joined_by_head=("attention.qkv",),
)

SUPPORTED = {"rope": True, "rms_norm": True, "ngpt": False}
"""Options of the code that trained the model; no published model has another value."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, SUPPORTED)
    if str(values.get("hidden_act", "swiglu")).lower() != "swiglu":
        raise UnsupportedError(f"hidden_act {shown(values['hidden_act'])} is not supported; only 'swiglu' is")
    shape = sizes(values, layers=28, vocab=30522)
    width, intermediate_size = shape["head_width"], integer(values, "intermediate_size", 3072)
    if optional_integer(values, "dim_head", width) != width:
        raise WeightsError(f"dim_head {shown(values['dim_head'])} and hidden_size / num_attention_heads = {width} "
                           "disagree")
    return ModelConfig(
        family="neobert",
        **shape,
        ffn_size=(2 * intermediate_size // 3 + 7) // 8 * 8,     # the model's code takes 2/3, up to a multiple of 8
        max_positions=integer(values, "max_length", 1024),
        position_table=False,
        embedding_norm=False,
        pad_token_id=optional_integer(values, "pad_token_id", 0),
        norm="rms",
        norm_place="pre",
        norm_eps=number(values, "norm_eps", 1e-6),
        biases=(),
        activation="silu",
        gated=True,
        attention_kinds=(AttentionKind(rotary_theta=10000.0, rotary_interleaved=True),),
    )


FAMILIES = {"neobert": plain(read_config, NAMES, remote_code=("NeoBERT",))}
