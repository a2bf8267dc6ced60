"""EuroBERT (Boizard et al. 2025, arXiv 2503.05500): the layers of Llama, and attention in both directions."""

from __future__ import annotations

from ..model.attention import AttentionKind
from ..model.config import ATTENTION_MAPS, FEED_FORWARD_MAPS, ModelConfig
from . import fields, heads
from .fields import GATE_ACTIVATIONS, activation, boolean, number, optional_integer, padding_id
from .names import Names
from .parts import Values, plain

NAMES = Names(
    prefix="model.",
    embeddings={"embed_tokens.weight": "embeddings.word", "norm.weight": "final_norm.weight"},
    layers="layers.",
    layer={
        "input_layernorm": "attention.norm",
        "self_attn.q_proj": "attention.query", "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value", "self_attn.o_proj": "attention.output",
        "post_attention_layernorm": "ffn.norm",
        "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up",
        "mlp.down_proj": "ffn.down",
    },
    left_out=("lm_head.", "dense.", "classifier."),
    heads=(
        heads.HeadNames("classify", (heads.Layer("dense", "dense", activation="gelu"), heads.CLASSIFIER),
                        # the rows that it reads, and how many layers come before the mean of these; -1 for no mean
                        pooling={"late": ("all", 2), "bos": ("first", -1), "mean": ("all", 0)}),
        heads.TAGS,
        heads.named("fill_mask", heads.Layer("decoder", "lm_head", tied=True, ties=False)),
    ),
)


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values)
    shape = fields.sizes(values, ffn=3072, vocab=128256, positions=8192, head_dim=True)
    attention_bias, mlp_bias = boolean(values, "attention_bias", False), boolean(values, "mlp_bias", False)
    return ModelConfig(
        family="eurobert",
        **shape,
        num_kv_heads=optional_integer(values, "num_key_value_heads", 0),
        position_table=False,
        embedding_norm=False,
        pad_token_id=padding_id(values, 128001),
        norm="rms",
        norm_place="pre",
        norm_eps=number(values, "rms_norm_eps", 1e-5),
        biases=(ATTENTION_MAPS if attention_bias else ()) + (FEED_FORWARD_MAPS if mlp_bias else ()),
        activation=activation(values, "hidden_act", "silu", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=(AttentionKind(**fields.rotary(values, "rope_theta", 10000.0, shape["head_width"])),),
    )


FAMILIES = {"eurobert": plain(read_config, NAMES, remote_code=("EuroBertModel",))}
