"""BigBird (Zaheer et al. 2020, arXiv 2007.14062): BERT for long texts, whose attention is sparse from some length on.

transformers computes attention to all tokens up to (5 + 2 r) b tokens, with blocks of b tokens and r random blocks for
each; with 64 and 3, these are 704 tokens. Longer sequences are refused (`ModelConfig.dense_tokens`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.config import FEED_FORWARD_MAPS, LINEAR_MAPS, ModelConfig
from . import bert, heads
from .fields import boolean, integer, refuse_variants
from .names import Names
from .parts import Values, plain

_ACTIVATION = heads.read_activation("hidden_act", "gelu_new")

NAMES: Names = replace(
    bert.NAMES,
    left_out=("pooler.", "classifier.", "cls.", "qa_classifier.", "embeddings.position_ids",
              "embeddings.token_type_ids"),
    heads=(
        heads.named("classify", heads.Layer("dense", "classifier.dense", activation=_ACTIVATION),
                    heads.Layer("classifier", "classifier.out_proj")),
        heads.TAGS,
        heads.BERT[-1],     # the head of masked words
    ),
)

_DEFAULTS = {"vocab_size": 50358, "max_position_embeddings": 4096, "hidden_act": "gelu_new"}


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    stated = values.get("attention_type", "block_sparse")
    if stated not in ("block_sparse", "original_full"):
        raise UnsupportedError(f"attention_type {shown(stated)} is not supported; supported are block_sparse and "
                               "original_full")
    refuse_variants(values)
    config = bert.read_config(_DEFAULTS | values)
    block, blocks = integer(values, "block_size", 64), integer(values, "num_random_blocks", 3)
    if not (1 <= block <= 2**20 and 0 <= blocks <= 2**20):
        raise WeightsError(f"block_size must be at least 1 and num_random_blocks at least 0, not {block} and {blocks}")
    dense = (5 + 2 * blocks) * block        # up to here, transformers uses full attention in any case
    sparse = stated == "block_sparse" and dense < config.max_positions
    return replace(
        config,
        family="big_bird",
        biases=LINEAR_MAPS if boolean(values, "use_bias", True) else ("output", *FEED_FORWARD_MAPS),
        embedding_scale=math.sqrt(config.hidden_size) if boolean(values, "rescale_embeddings", False) else 1.0,
        dense_tokens=dense if sparse else 0,
    )


FAMILIES = {"big_bird": plain(read_config, NAMES, own_keys=("attention_type", "block_size", "num_random_blocks"))}
