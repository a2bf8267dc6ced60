"""Read BERT (Devlin et al. 2018) and models with its architecture: MiniLM, BGE, E5, the first GTE."""

from __future__ import annotations

from ..model.config import ModelConfig
from . import heads
from .fields import activation, integer, number, padding_id, refuse_variants, sizes
from .gguf import POST_NORM, Architecture, read_token_types
from .names import EMBEDDINGS, Names
from .parts import Values, plain

NAMES = Names(
    prefix="bert.",
    embeddings=EMBEDDINGS | {"embeddings.position_embeddings.weight": "embeddings.position"},
    layers="encoder.layer.",
    layer={
        "attention.self.query": "attention.query", "attention.self.key": "attention.key",
        "attention.self.value": "attention.value", "attention.output.dense": "attention.output",
        "attention.output.LayerNorm": "attention.norm",
        "intermediate.dense": "ffn.up", "output.dense": "ffn.down",
        "output.LayerNorm": "ffn.norm",
    },
    left_out=("pooler.", "classifier.", "cls.", "qa_outputs.",
              "embeddings.position_ids", "embeddings.token_type_ids"),
    heads=heads.BERT,
)


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values)
    return ModelConfig(
        family="bert",
        **sizes(values, ffn=3072, vocab=30522, positions=512),
        token_types=integer(values, "type_vocab_size", 2),
        pad_token_id=padding_id(values, 0),
        norm_eps=number(values, "layer_norm_eps", 1e-12),
        activation=activation(values, "hidden_act"),
    )


FAMILIES = {"bert": plain(read_config, NAMES, classes="Bert")}
ARCHITECTURES = {"bert": Architecture("bert", eps="layer_norm_eps", change=read_token_types, names=POST_NORM,
                                      encodes=True, rotates=False)}
