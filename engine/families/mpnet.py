"""MPNet (Song et al. 2020, arXiv 2004.09297): BERT without token types, and with a bias by distance in every layer."""

from __future__ import annotations

from dataclasses import replace

from ..model.config import ModelConfig
from . import bert, heads
from .fields import refuse_variants
from .parts import Values, plain

NAMES = bert.NAMES.with_layer(
    {
        "attention.attn.q": "attention.query", "attention.attn.k": "attention.key",
        "attention.attn.v": "attention.value", "attention.attn.o": "attention.output",
        "attention.LayerNorm": "attention.norm",
    },
    prefix="mpnet.",
    embeddings={**bert.NAMES.embeddings, "encoder.relative_attention_bias.weight": "distance_bias.weight"},
    left_out=("pooler.", "classifier.", "lm_head.", "qa_outputs.", "embeddings.position_ids"),
    heads=heads.ROBERTA,
)

SUPPORTED = {"relative_attention_num_buckets": 32}
"""transformers reads the size of the table from this key, but always computes the row for 32 buckets."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, SUPPORTED)
    config = bert.read_config({"vocab_size": 30527, **values, "type_vocab_size": 0})
    return replace(
        config,
        family="mpnet",
        pad_token_id=1,  # whatever the config says, because transformers counts positions from this id
        position_offset=2,
        attention_bias="buckets",
        bias_buckets=32,
        bias_max_distance=128,
    )


FAMILIES = {"mpnet": plain(read_config, NAMES)}
