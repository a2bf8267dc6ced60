"""GTE's second architecture (Zhang et al. 2024, arXiv 2407.19669): BERT with rotary positions and a GeGLU gate.

Its config.json has the model_type "new" where the model's own code reads it, and "gte" where transformers 5 does. The
first GTE is an ordinary BERT.
"""

from __future__ import annotations

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from ..model.positions import static_ntk
from . import fields, heads
from .fields import GATE_ACTIVATIONS, activation, integer, number, padding_id
from .names import EMBEDDINGS, JOINED_HEADS, POST_NORM_LAYER, Names
from .parts import Values, plain

NAMES = Names(
    prefix=("gte.", "new."),
    embeddings=EMBEDDINGS,
    layers=("encoder.layer.", "layers."),
    layer={
        "attention.qkv_proj": "attention.qkv",
        "attention.o_proj": "attention.output",
        "attn_ln": "attention.norm",
        "mlp.up_gate_proj": "ffn.up_gate",
        "mlp_ln": "ffn.norm",
    } | POST_NORM_LAYER,
    left_out=("pooler.", "classifier.", "lm_head.", "embeddings.position_ids", "embeddings.token_type_ids"),
    heads=(heads.pooled(), heads.TAGS, heads.LM_HEAD, heads.words("lm_head.dense", "lm_head.norm", "lm_head.decoder")),
    joined=JOINED_HEADS | {"ffn.up_gate": ("ffn.up", "ffn.gate")},
)

SUPPORTED = {"position_embedding_type": "rope", "logn_attention_scale": False, "layer_norm_type": "layer_norm"}


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, SUPPORTED)
    shape = fields.sizes(values, ffn=3072, vocab=250048, positions=8192)
    return ModelConfig(
        family="gte",
        **shape,
        position_table=False,
        token_types=integer(values, "type_vocab_size", 1),
        pad_token_id=padding_id(values, 1),
        norm_eps=number(values, "layer_norm_eps", 1e-12),
        biases=("query", "key", "value", "output", "down"),
        activation=activation(values, "hidden_act", "gelu", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=(_attention(values, shape["head_width"]),),
    )


def _attention(values: Values, width: int) -> AttentionKind:
    """Return the kind of attention of all layers; width: the columns of a head.

    The model's own code (model_type "new") scales rotary positions by "ntk" alone; transformers has more scalings.
    """
    scaling, rope = values.get("rope_scaling"), values.get("rope_parameters")
    if not (isinstance(scaling, dict) and scaling.get("type", scaling.get("rope_type")) == "ntk"):
        if values.get("model_type") == "new" and scaling is not None:
            raise UnsupportedError(f"rope_scaling {shown(scaling)} is not supported; only type 'ntk' with a factor is")
        return AttentionKind(**fields.rotary(values, "rope_theta", 160000.0, width))
    if scaling.keys() - {"type", "rope_type", "factor"} or "factor" not in scaling:
        raise UnsupportedError(f"rope_scaling {shown(scaling)} is not supported; only the keys type and factor are, "
                               "and both are needed")
    if isinstance(rope, dict) and rope.get("rope_type", "default") != "default":
        raise WeightsError(f"rope_scaling {shown(scaling)} and rope_parameters {shown(rope)} both have a factor; "
                           "remove the wrong one")
    factor = number(scaling, "factor", 1.0)
    if not factor > 0.0:
        raise WeightsError(f"the factor of rope_scaling must be above 0, not {factor}")
    plain = values | {"rope_scaling": None}
    theta, stretch = static_ntk(fields.rotary_theta(plain, "rope_theta", 160000.0), factor, width)
    return AttentionKind(rotary_theta=theta, rotary_scale=stretch)


FAMILIES = {
    "gte": plain(read_config, NAMES, remote_code=("GteModel",)),
    "new": plain(read_config, NAMES, remote_code=("NewModel",)),
}
