"""ALBERT (Lan et al. 2019, arXiv 1909.11942): BERT with narrow embeddings, and layers that share their weights."""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import WeightsError, shown
from ..model.config import ModelConfig
from . import bert, heads
from .fields import integer, refuse_variants
from .names import Names
from .parts import Values, plain

NAMES = Names(
    prefix="albert.",
    embeddings={
        **bert.NAMES.embeddings,
        "encoder.embedding_hidden_mapping_in.weight": "embeddings.projection.weight",
        "encoder.embedding_hidden_mapping_in.bias": "embeddings.projection.bias",
    },
    layers="encoder.albert_layer_groups.",
    layer={
        "albert_layers.0.attention.query": "attention.query", "albert_layers.0.attention.key": "attention.key",
        "albert_layers.0.attention.value": "attention.value", "albert_layers.0.attention.dense": "attention.output",
        "albert_layers.0.attention.LayerNorm": "attention.norm",
        "albert_layers.0.ffn": "ffn.up", "albert_layers.0.ffn_output": "ffn.down",
        "albert_layers.0.full_layer_layer_norm": "ffn.norm",
    },
    left_out=("pooler.", "classifier.", "predictions.", "sop_classifier.", "qa_outputs.",
              "embeddings.position_ids", "embeddings.token_type_ids"),
    heads=(
        heads.pooled("pooler"),
        heads.TAGS,
        heads.ANSWERS,
        heads.words("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"),
    ),
)

DEFAULTS = {"vocab_size": 30000, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384,
            "hidden_act": "gelu_new"}
"""transformers' values of the keys that a config.json leaves out, where they are not BERT's."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"inner_group_num": 1})
    config = bert.read_config(DEFAULTS | values)
    groups = integer(values, "num_hidden_groups", 1)
    if not 1 <= groups <= config.num_layers:
        raise WeightsError(f"num_hidden_groups must be from 1 to the {config.num_layers} layers, not {shown(groups)}")
    layers_of_group = config.num_layers / groups        # need not be whole, as in transformers
    return replace(
        config,
        family="albert",
        embedding_width=integer(values, "embedding_size", 128),
        weight_sets=tuple(int(layer / layers_of_group) for layer in range(config.num_layers)),     # one for each group
    )


FAMILIES = {"albert": plain(read_config, NAMES, classes="Albert")}
