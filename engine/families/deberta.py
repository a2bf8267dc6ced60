"""DeBERTa v1, v2 and v3 (He et al. 2021, arXiv 2006.03654 and 2111.09543): BERT's layers with disentangled attention.

The first version has a row for each distance. Its maps of queries, keys and values lie in one tensor, head by head, and
keys have no bias.

A sequence has at most `max_position_embeddings` tokens, which is also sentence-transformers' limit. The attention
itself has no limit: for longer sequences, raise that key and state its old number as `max_relative_positions`.
"""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import RelativePositions
from ..model.config import LINEAR_MAPS, ModelConfig
from . import bert, heads
from .fields import activation, boolean, integer, number, optional_integer, padding_id, refuse_variants, sizes
from .names import JOINED_HEADS
from .parts import Values, plain

NAMES = bert.NAMES.with_layer(
    {
        "attention.self.query_proj": "attention.query", "attention.self.key_proj": "attention.key",
        "attention.self.value_proj": "attention.value",
        "attention.self.pos_query_proj": "attention.relative_query",
        "attention.self.pos_key_proj": "attention.relative_key",
    },
    without=("attention.self.",),
    prefix="deberta.",
    embeddings={
        **bert.NAMES.embeddings,
        "encoder.rel_embeddings.weight": "embeddings.relative",
        "encoder.LayerNorm.weight": "embeddings.relative_norm.weight",
        "encoder.LayerNorm.bias": "embeddings.relative_norm.bias",
    },
    left_out=("pooler.", "classifier.", "cls.", "qa_outputs.", "lm_predictions.", "mask_predictions.",
              "embeddings.position_ids"),
    heads=(
        heads.pooled(act=heads.read_activation("pooler_hidden_act")),
        heads.TAGS,
        heads.ANSWERS,
        heads.BERT[-1],
        heads.words("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm",
                    "lm_predictions.lm_head.decoder", "lm_predictions.lm_head.bias"),
    ),
    unread=("embeddings.position",),
)

FIRST = NAMES.with_layer(
    {
        "attention.self.in_proj": "attention.qkv",
        "attention.self.q_bias": "attention.query.bias", "attention.self.v_bias": "attention.value.bias",
        "attention.self.pos_proj": "attention.relative_key", "attention.self.pos_q_proj": "attention.relative_query",
    },
    joined=JOINED_HEADS,
    joined_by_head=("attention.qkv",),
)
"""The names of the first version."""
_DEFAULTS = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
             "vocab_size": 50265}
_UNREAD = ("position_buckets", "norm_rel_ebd", "share_att_key", "conv_kernel_size", "attention_head_size")
"""Keys of version 2 that the first version does not read."""

TERMS = ("c2p", "p2c")
"""The terms that scores may have: content to position, and position to content."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    # transformers ignores position_embedding_type for this family, so no value of it is refused.
    refuse_variants({key: value for key, value in values.items() if key != "position_embedding_type"})
    shape = sizes(values, hidden=1536, layers=24, heads=24, ffn=6144, vocab=128100, positions=512)
    for key, only in (("embedding_size", shape["hidden_size"]), ("attention_head_size", shape["head_width"]),
                      ("conv_kernel_size", 0)):
        if optional_integer(values, key, only) != only:
            raise UnsupportedError(f"{key} {shown(values[key])} is not supported; only {only} is")
    return ModelConfig(
        family="deberta-v2",
        **shape,
        position_table=boolean(values, "position_biased_input", True),
        token_types=integer(values, "type_vocab_size", 0),
        pad_token_id=padding_id(values, 0),
        norm_eps=number(values, "layer_norm_eps", 1e-7),
        activation=activation(values, "hidden_act"),
        relative=_relative(values, shape["max_positions"]),
    )


def read_first(values: Values) -> ModelConfig:
    """Return the architecture of the first version; raises `WeightsError` or `UnsupportedError`."""
    # Only the key of the first version is checked here; `read_config` checks the others.
    refuse_variants({"talking_head": values.get("talking_head")}, {"talking_head": False})
    read = {key: value for key, value in values.items() if key not in _UNREAD}
    biases = tuple(name for name in LINEAR_MAPS if name != "key")
    return replace(read_config(_DEFAULTS | read), family="deberta", biases=biases)


def _relative(values: Values, max_positions: int) -> RelativePositions | None:
    """Return the table of relative positions; None for a model that has neither the table nor a term that reads it."""
    types = values.get("pos_att_type")
    named = types.lower().split("|") if isinstance(types, str) else [] if types is None else types
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise WeightsError(f"pos_att_type must be a list of names or a text such as 'p2c|c2p', not {shown(types)}")
    terms = [name.strip() for name in named]
    if boolean(values, "relative_attention", False) != bool(terms) or not set(terms) <= set(TERMS):
        raise UnsupportedError(f"pos_att_type {shown(types)} with relative_attention "
                               f"{shown(values.get('relative_attention', False))} is not supported; supported are "
                               "c2p, p2c or both with true, and nothing with false")
    if not terms:
        return None
    limit, buckets = (optional_integer(values, key, -1) for key in ("max_relative_positions", "position_buckets"))
    return RelativePositions(
        limit=limit if limit >= 1 else max_positions,
        buckets=max(buckets, 0),
        terms=tuple(term for term in TERMS if term in terms),
        norm=_has_distance_norm(values),
        own_maps=not boolean(values, "share_att_key", False),
    )


def _has_distance_norm(values: Values) -> bool:
    """Return whether the table of relative positions has a LayerNorm."""
    stated = values.get("norm_rel_ebd", "none")
    names = {name.strip() for name in stated.lower().split("|")} if isinstance(stated, str) else {""}
    if not names <= {"none", "layer_norm"}:
        raise UnsupportedError(f"norm_rel_ebd {shown(stated)} is not supported; supported are none and layer_norm")
    return "layer_norm" in names


FAMILIES = {"deberta": plain(read_first, FIRST), "deberta-v2": plain(read_config, NAMES)}
