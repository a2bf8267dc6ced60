"""MPT (MosaicML 2023): pre-norm layers with ALiBi, without any bias."""

from __future__ import annotations

from ..base.errors import WeightsError, shown
from .fields import integer, merge_dialects, number, refuse_variants, sizes
from .gguf import Architecture, Shapes, Stated
from .names import JOINED_HEADS, Names
from .parts import Family, Part, Parts, Values, decoder_config

NAMES = Names(
    prefix="transformer.",
    embeddings={"wte.weight": "embeddings.word", "norm_f.weight": "final_norm.weight"},
    layers="blocks.",
    layer={
        "norm_1": "attention.norm",
        "attn.Wqkv": "attention.qkv",
        "attn.out_proj": "attention.output",
        "norm_2": "ffn.norm",
        "ffn.up_proj": "ffn.up", "ffn.down_proj": "ffn.down",
    },
    left_out=("score.", "classifier.", "qa_outputs."),
    joined=JOINED_HEADS,
    copies={"embeddings.word": ("lm_head.weight",)},
)
_DIALECT = {"d_model": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"}
_SUPPORTED = {"no_bias": True, "logit_scale": None, "tie_word_embeddings": True}
_ATTENTION = {"attn_type": "multihead_attention", "clip_qkv": None, "softmax_scale": None, "prefix_lm": False,
              "qk_ln": False, "attn_uses_sequence_id": False, "alibi": True, "alibi_bias_max": 8}
"""The only supported values of keys of a config.json, and of keys of its object attn_config."""


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    attention = {} if values.get("attn_config") is None else values["attn_config"]
    if not isinstance(attention, dict):
        raise WeightsError(f"attn_config must be an object, not {shown(attention)}")
    refuse_variants(values, _SUPPORTED)
    refuse_variants(attention, _ATTENTION)
    values = merge_dialects(values, _DIALECT)
    shape = sizes(values, hidden=2048, layers=24, heads=16, vocab=50368)
    config = decoder_config(
        family="mpt",
        **shape,
        ffn_size=shape["hidden_size"] * integer(values, "expansion_ratio", 4),
        max_positions=integer(values, "max_seq_len", 2048),
        norm_bias=False,
        norm_eps=number(values, "layer_norm_epsilon", 1e-5),
        biases=(),
        attention_bias="alibi",
    )
    return Parts(Part(config, NAMES))


def _of_gguf(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Add to `values` the keys attn_config and expansion_ratio, in which a config.json states settings of the file."""
    values["attn_config"] = {"alibi_bias_max": stated.get("attention.max_alibi_bias", 8), "alibi": True,
                             "clip_qkv": stated.get("attention.clamp_kqv") or None}
    width, inner = values["hidden_size"], values.pop("intermediate_size")
    if not (type(width) is type(inner) is int and width > 0 and inner % width == 0):
        raise WeightsError(f"feed_forward_length {shown(inner)} must be a multiple of embedding_length {shown(width)}")
    values["expansion_ratio"] = inner // width


FAMILIES = {"mpt": Family(read_generator=read_generator)}
ARCHITECTURES = {"mpt": Architecture("mpt", eps="layer_norm_epsilon", change=_of_gguf, rotates=False)}
