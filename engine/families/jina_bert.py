"""JinaBERT, the encoder of jina-embeddings-v2 (Günther et al. 2023, arXiv 2310.19923): BERT with ALiBi and a gate.

Its config.json has BERT's model_type, and "alibi" as position_embedding_type.
"""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import UnsupportedError, shown
from ..model.config import ModelConfig
from . import bert, heads
from .fields import choice
from .names import JOINED_GATE
from .parts import Values, plain

NAMES = bert.NAMES.with_layer(
    {"mlp.gated_layers": "ffn.gate_up", "mlp.wo": "ffn.down", "mlp.layernorm": "ffn.norm"},
    without=("intermediate.", "output."),
    joined=JOINED_GATE,
    # BERT's last head, for words, has the encoder's activation, which is the gate's here; this one has hidden_act.
    heads=(*heads.BERT[:-1], heads.words("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                                         "cls.predictions.decoder", "cls.predictions.bias",
                                         act=heads.read_activation("hidden_act"))),
)

GATES = {"geglu": "gelu", "reglu": "relu"}
"""The activation of the gate, by feed_forward_type."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    code = str(values.get("auto_map"))
    if "qk-post-norm" in code:
        raise UnsupportedError(f"auto_map {shown(code)} names a variant with norms of whole queries and keys, which is "
                               "not supported; the models of the series run, except jina-embeddings-v2-base-code")
    gate = choice(values, "feed_forward_type", "original", GATES)
    config = bert.read_config({key: value for key, value in values.items() if key != "position_embedding_type"})
    return replace(
        config,
        family="jina_bert",
        position_table=False,
        biases=("query", "key", "value", "output", "down"),
        activation=gate,
        gated=True,
        attention_bias="alibi",
    )


BY_POSITIONS = {("bert", "alibi"): plain(read_config, NAMES, remote_code=("JinaBertModel",))}
