"""ModernBERT (Warner et al. 2024, arXiv 2412.13663): pre-norm, rotary positions, a gate, and windows in most layers."""

from __future__ import annotations

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ATTENTION_MAPS, FEED_FORWARD_MAPS, ModelConfig
from . import fields, heads
from .fields import FULL, SLIDING, activation, boolean, integer, number, rotary
from .names import JOINED_GATE, JOINED_HEADS, Names
from .parts import Values, plain

_HEAD = (heads.Layer("dense", "head.dense", activation=heads.read_activation("classifier_activation")),
         heads.Layer("norm", "head.norm", norm=True))
"""The first layers of each head."""

NAMES = Names(
    prefix="model.",
    embeddings={
        "embeddings.tok_embeddings.weight": "embeddings.word",
        "embeddings.norm.weight": "embeddings.norm.weight", "embeddings.norm.bias": "embeddings.norm.bias",
        "final_norm.weight": "final_norm.weight", "final_norm.bias": "final_norm.bias",
    },
    layers="layers.",
    layer={
        "attn_norm": "attention.norm",
        "attn.Wqkv": "attention.qkv",
        "attn.Wo": "attention.output",
        "mlp_norm": "ffn.norm",
        "mlp.Wi": "ffn.gate_up", "mlp.Wo": "ffn.down",
    },
    left_out=("head.", "decoder.", "classifier."),
    heads=(     # pooling: the rows that are read, and how many layers come before the mean of these; -1 for no mean
        heads.HeadNames("classify", (*_HEAD, heads.CLASSIFIER), pooling={"cls": ("first", -1), "mean": ("all", 0)}),
        heads.named("tag", *_HEAD, heads.CLASSIFIER),
        heads.named("answer", *_HEAD, heads.CLASSIFIER),
        heads.named("fill_mask", *_HEAD, heads.Layer("decoder", "decoder", tied=True)),
    ),
    joined=JOINED_HEADS | JOINED_GATE,
)


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes, in transformers' old or new dialect, or in both.

    Raises `WeightsError` or `UnsupportedError`.
    """
    # transformers ignores this key, and folders of the family have several values of it.
    fields.refuse_variants({key: value for key, value in values.items() if key != "position_embedding_type"})
    shape = fields.sizes(values, layers=22, ffn=1152, vocab=50368, positions=8192)
    local = integer(values, "local_attention", 128)
    if local < 0:
        raise UnsupportedError(f"local_attention {shown(local)} is not supported; it is a width of 0 or more")
    attention_bias, mlp_bias = boolean(values, "attention_bias", False), boolean(values, "mlp_bias", False)
    width = shape["head_width"]
    return ModelConfig(
        family="modernbert",
        **shape,
        position_table=False,
        pad_token_id=fields.padding_id(values, 50283),
        norm_eps=number(values, "norm_eps", 1e-5),
        norm_place="pre",
        norm_bias=boolean(values, "norm_bias", False),
        first_attention_norm=False,
        biases=(ATTENTION_MAPS if attention_bias else ()) + (FEED_FORWARD_MAPS if mlp_bias else ()),
        activation=activation(values, "hidden_activation"),
        gated=True,
        attention_kinds=(
            AttentionKind(**rotary(values, "global_rope_theta", 160000.0, width, FULL)),
            AttentionKind(local // 2, **rotary(values, "local_rope_theta", 10000.0, width, SLIDING)),
        ),
        layer_kinds=_layer_kinds(values, shape["num_layers"]),
    )


def _layer_kinds(values: Values, num_layers: int) -> tuple[int, ...]:
    """Return the index in `LAYER_TYPES` of each layer; one in `global_attn_every_n_layers` is global, from 0 on."""
    every = integer(values, "global_attn_every_n_layers", 3, least=1)
    # {} stands for a config without layer_types.
    kinds, by_number = (fields.layer_types(settings, num_layers, lambda i: i % every != 0) for settings in (values, {}))
    if "global_attn_every_n_layers" in values and kinds != by_number:
        raise WeightsError(f"layer_types and global_attn_every_n_layers {shown(every)} disagree; remove the wrong one")
    return kinds


FAMILIES = {"modernbert": plain(read_config, NAMES)}
