"""The whole first Transformer (Vaswani et al. 2017, arXiv 1706.03762), as Ben Trevett's pytorch-seq2seq holds it.

Encoder and decoder are post-norm with ReLU. Embeddings are multiplied by sqrt(D), positions are learned, and the map to
the vocabulary has weights and a bias of its own. Many later projects copied this code. There is no folder of such a
model, so a program makes a `SequenceModel` from the arrays of the state dict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..config import AttentionKind, ModelConfig
from ..errors import WeightsError, listed
from .fields import head_width
from .halves import Half
from .names import Names

_ATTENTION = {"fc_q": "query", "fc_k": "key", "fc_v": "value", "fc_o": "output"}
_LAYER = {
    **{f"self_attention.{name}": f"attention.{own}" for name, own in _ATTENTION.items()},
    "self_attn_layer_norm": "attention.norm",
    "positionwise_feedforward.fc_1": "ffn.up",
    "positionwise_feedforward.fc_2": "ffn.down",
    "ff_layer_norm": "ffn.norm",
}
_CROSS = {
    **{f"encoder_attention.{name}": f"cross.{own}" for name, own in _ATTENTION.items()},
    "enc_attn_layer_norm": "cross.norm",
}
_TABLES = {"tok_embedding.weight": "embeddings.word", "pos_embedding.weight": "embeddings.position"}
_LOGITS = {"fc_out.weight": "logits.weight", "fc_out.bias": "logits.bias"}

ENCODER = Names("encoder.", _TABLES, "layers.", _LAYER, ("decoder.",))
DECODER = Names("decoder.", _TABLES | _LOGITS, "layers.", _LAYER | _CROSS, ("encoder.",))


def read_state_dict(
    state: Mapping[str, np.ndarray], *, num_heads: int
) -> tuple[tuple[ModelConfig, dict[str, np.ndarray]], tuple[ModelConfig, dict[str, np.ndarray]]]:
    """Return the config and the weights of the encoder, then those of the decoder.

    state: arrays by their names in the state dict, such as encoder.layers.0.self_attention.fc_q.weight [D,D].
    num_heads: as the model was made; both halves have it. Raises `WeightsError`. `Generator` and `save_sequence_model`
    check names, shapes and numbers.
    """
    encoder = _config(state, "encoder", num_heads)
    decoder = _config(state, "decoder", num_heads, memory_size=encoder.hidden_size, logits="own", logits_bias=True,
                      attention_kinds=(AttentionKind(causal=True),))
    read, written = (Half(config, names).take({own: array for name, array in state.items()
                                               if (own := names.rename(name)) is not None})
                     for config, names in ((encoder, ENCODER), (decoder, DECODER)))
    return read, written


def _config(state: Mapping[str, np.ndarray], half: str, num_heads: int, **options: object) -> ModelConfig:
    names = [f"{half}.{name}" for name in ("tok_embedding.weight", "pos_embedding.weight",
                                           "layers.0.positionwise_feedforward.fc_1.weight")]
    if missing := [name for name in names if name not in state or np.ndim(state[name]) != 2]:
        raise WeightsError(f"a state dict of pytorch-seq2seq has the matrices {listed(missing)}; the names here are "
                           f"{listed(sorted(state)) or 'none'}")
    (V, D), (P, _), (F, _) = (state[name].shape for name in names)
    return ModelConfig(**{
        "family": "transformer",
        "hidden_size": D,
        "num_layers": len({name.split(".")[2] for name in state if name.startswith(f"{half}.layers.")}),
        "num_heads": num_heads,
        "head_width": head_width(D, num_heads),
        "ffn_size": F,
        "vocab_size": V,
        "max_positions": P,
        "embedding_norm": False,
        "embedding_scale": math.sqrt(D),
        "norm_eps": 1e-5,
        "activation": "relu",
        **options,
    })
