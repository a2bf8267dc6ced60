"""ELECTRA (Clark et al. 2020, arXiv 2003.10555): BERT whose embeddings may be narrower than its layers."""

from __future__ import annotations

from dataclasses import replace

from ..model.config import ModelConfig
from . import bert, heads
from .fields import integer
from .parts import Values, plain

NAMES = replace(
    bert.NAMES,
    prefix="electra.",
    embeddings={
        **bert.NAMES.embeddings,
        "embeddings_project.weight": "embeddings.projection.weight",
        "embeddings_project.bias": "embeddings.projection.bias",
    },
    left_out=("classifier.", "discriminator_predictions.", "generator_predictions.", "generator_lm_head.",
              "qa_outputs.", "sequence_summary.", "embeddings.position_ids", "embeddings.token_type_ids"),
    heads=(
        heads.two_layers("gelu"),
        heads.TAGS,
        heads.REPLACED,
        heads.ANSWERS,
        heads.words("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", act="gelu"),
    ),
)

DEFAULTS = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
"""transformers' values of the keys that a config.json leaves out, where they are not BERT's."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    config = bert.read_config(DEFAULTS | values)
    width = integer(values, "embedding_size", 128)
    narrower = width != config.hidden_size      # then files hold a map from the embeddings to the layers
    return replace(config, family="electra", embedding_width=width if narrower else 0)


FAMILIES = {"electra": plain(read_config, NAMES, classes="Electra")}
