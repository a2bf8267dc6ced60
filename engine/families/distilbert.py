"""Read DistilBERT (Sanh et al. 2019): BERT without token types, with other tensor names and config keys."""

from __future__ import annotations

from ..model.config import ModelConfig
from . import heads
from .fields import activation, head_width, integer, padding_id, refuse_variants
from .names import Names
from .parts import Values, plain

NAMES = Names(
    prefix="distilbert.",
    embeddings={
        "embeddings.word_embeddings.weight": "embeddings.word",
        "embeddings.position_embeddings.weight": "embeddings.position",
        "embeddings.LayerNorm.weight": "embeddings.norm.weight", "embeddings.LayerNorm.bias": "embeddings.norm.bias",
    },
    layers="transformer.layer.",
    layer={
        "attention.q_lin": "attention.query", "attention.k_lin": "attention.key",
        "attention.v_lin": "attention.value", "attention.out_lin": "attention.output",
        "sa_layer_norm": "attention.norm",
        "ffn.lin1": "ffn.up", "ffn.lin2": "ffn.down",
        "output_layer_norm": "ffn.norm",
    },
    left_out=("pre_classifier.", "classifier.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.",
              "qa_outputs.", "embeddings.position_ids"),
    heads=(
        heads.named("classify", heads.Layer("dense", "pre_classifier", activation="relu"), heads.CLASSIFIER),
        heads.TAGS,
        heads.ANSWERS,
        heads.words("vocab_transform", "vocab_layer_norm", "vocab_projector"),
    ),
)


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`.

    The position table is read from the weights, so it makes no difference whether it is sinusoidal or learnt.
    """
    refuse_variants(values)
    hidden_size = integer(values, "dim", 768)
    num_heads = integer(values, "n_heads", 12)
    return ModelConfig(
        family="distilbert",
        hidden_size=hidden_size,
        num_layers=integer(values, "n_layers", 6),
        num_heads=num_heads,
        head_width=head_width(hidden_size, num_heads),
        ffn_size=integer(values, "hidden_dim", 3072),
        vocab_size=integer(values, "vocab_size", 30522),
        max_positions=integer(values, "max_position_embeddings", 512),
        pad_token_id=padding_id(values, 0),
        norm_eps=1e-12,
        activation=activation(values, "activation"),
    )


FAMILIES = {"distilbert": plain(read_config, NAMES, classes="DistilBert")}
