"""DeBERTa v1 (He et al. 2021, arXiv 2006.03654): version 2 with a row for each distance, and fused queries and keys.

The maps of queries, keys and values lie in one tensor, head by head, and keys have no bias.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..model.config import LINEAR_MAPS, ModelConfig
from . import deberta_v2
from .fields import refuse_variants
from .names import JOINED_HEADS

NAMES = replace(
    deberta_v2.NAMES,
    layer={
        **deberta_v2.NAMES.layer,
        "attention.self.in_proj": "attention.qkv",
        "attention.self.q_bias": "attention.query.bias",
        "attention.self.v_bias": "attention.value.bias",
        "attention.self.pos_proj": "attention.relative_key",
        "attention.self.pos_q_proj": "attention.relative_query",
    },
    joined=JOINED_HEADS,
    joined_by_head=("attention.qkv",),
)

_DEFAULTS = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
             "vocab_size": 50265}
_UNREAD = ("position_buckets", "norm_rel_ebd", "share_att_key", "conv_kernel_size", "attention_head_size")
"""Keys of version 2 that this version does not read."""


def read_config(values: dict[str, Any]) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    # Version 2 looks at the other keys.
    refuse_variants({"talking_head": values.get("talking_head")}, {"talking_head": False})
    read = {key: value for key, value in values.items() if key not in _UNREAD}
    config = deberta_v2.read_config(_DEFAULTS | read)
    biases = tuple(name for name in LINEAR_MAPS if name != "key")
    return replace(config, family="deberta", biases=biases)
