"""ESM-2 and ESM-1b (Lin et al. 2023, doi 10.1126/science.ade2574): encoders of the amino acids of a protein.

Layers are pre-norm. ESM-2 has rotary positions; ESM-1b has a table of positions, and a norm after the embeddings. The
embedding of a masked token is zero, and the others are scaled (`ModelConfig.dropped_id`).
"""

from __future__ import annotations

from ..base.errors import UnsupportedError, shown
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from . import heads
from .fields import boolean, integer, number, padding_id, refuse_variants, rotary_theta, sizes
from .names import Names
from .parts import Values, plain

NAMES = Names(
    prefix="esm.",
    embeddings={
        "embeddings.word_embeddings.weight": "embeddings.word",
        "embeddings.position_embeddings.weight": "embeddings.position",
        "embeddings.layer_norm.weight": "embeddings.norm.weight", "embeddings.layer_norm.bias": "embeddings.norm.bias",
        "encoder.emb_layer_norm_after.weight": "final_norm.weight",
        "encoder.emb_layer_norm_after.bias": "final_norm.bias",
    },
    layers="encoder.layer.",
    layer={
        "attention.LayerNorm": "attention.norm",
        "attention.self.query": "attention.query", "attention.self.key": "attention.key",
        "attention.self.value": "attention.value", "attention.output.dense": "attention.output",
        "LayerNorm": "ffn.norm",
        "intermediate.dense": "ffn.up", "output.dense": "ffn.down",
    },
    left_out=("pooler.", "classifier.", "lm_head.", "contact_head.", "embeddings.position_ids"),
    heads=(heads.two_layers("tanh"), heads.TAGS, heads.LM_HEAD),
    unread=("embeddings.position",),    # files of ESM-2 have a table that their model does not read
)

_MASKED_IN_TRAINING = 0.15 * 0.8        # 15% of the tokens were to be predicted, and 80% of these were masked


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    positions = values.get("position_embedding_type", "absolute")
    if positions not in ("absolute", "rotary"):
        raise UnsupportedError(f"position_embedding_type {shown(positions)} is not supported; supported are absolute "
                               "and rotary")
    refuse_variants(values, {"position_embedding_type": positions, "is_folding_model": False})
    stated = {key: value for key, value in values.items() if value is not None}
    has_table, drops_tokens = positions == "absolute", boolean(stated, "token_dropout", False)
    theta = None if has_table else rotary_theta(values, "rope_theta", 10000.0)
    # Positions of a table count from the padding id, so null is an error there.
    padding = integer(values, "pad_token_id", -1) if has_table else padding_id(values, 1)
    return ModelConfig(
        family="esm",
        **sizes(values, ffn=3072, vocab=0, positions=1026),
        position_table=has_table,
        position_offset=padding + 1 if has_table else 0,
        pad_token_id=padding,
        embedding_norm=boolean(stated, "emb_layer_norm_before", False),
        norm_place="pre",
        norm_eps=number(values, "layer_norm_eps", 1e-12),
        embedding_scale=1 - _MASKED_IN_TRAINING if drops_tokens else 1.0,
        dropped_id=integer(values, "mask_token_id", -1) if drops_tokens else None,
        attention_kinds=(AttentionKind(rotary_theta=theta),),
    )


FAMILIES = {"esm": plain(read_config, NAMES)}
