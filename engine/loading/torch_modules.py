"""Make a model from the state dict of the first Transformer (Vaswani et al. 2017, arXiv 1706.03762), in two forms.

`torch.nn.TransformerEncoder` is its encoder. Ben Trevett's pytorch-seq2seq, whose code many later projects copied, has
encoder and decoder. There are no folders of such models, so programs of users pass the arrays. For a stack of other
layers, they make a `ModelConfig` and arrays by the names of docs/npz.md instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..base.errors import WeightsError, listed
from ..families.fields import activation, head_width
from ..families.names import JOINED_HEADS, Names
from ..families.parts import Part
from ..model.attention import AttentionKind
from ..model.config import LINEAR_MAPS, ModelConfig
from ..model.positions import sinusoids
from ..weights.model import Model, Transformer

_TORCH = Names(
    prefix="encoder.",
    embeddings={"norm.weight": "final_norm.weight", "norm.bias": "final_norm.bias"},
    layers="layers.",
    layer={
        "self_attn.in_proj": "attention.qkv",
        "self_attn.out_proj": "attention.output",
        "norm1": "attention.norm",
        "linear1": "ffn.up", "linear2": "ffn.down",
        "norm2": "ffn.norm",
    },
    left_out=(),
    joined=JOINED_HEADS,
)
"""The names of torch.nn.TransformerEncoder."""


def read_torch_transformer(state: Mapping[str, np.ndarray], *, num_heads: int, words: np.ndarray | None = None,
                           max_positions: int = 0, positions: np.ndarray | None = None, scale_words: bool = True,
                           norm_first: bool = False, norm_eps: float = 1e-5, act: str = "relu") -> Model:
    """Return the model of a `torch.nn.TransformerEncoder`.

    state: arrays by torch's names, such as layers.0.self_attn.in_proj_weight [3D,D]; norm.weight [D] is the norm after
    the last layer, which a model may lack. num_heads, norm_first, norm_eps, act: as torch's layer was made, with the
    activation's name in transformers. words: the word table [V,D], whose rows are multiplied by sqrt(D) if
    `scale_words`; None for a model that runs on `inputs_embeds`. positions: the position table [P,D]; None for the
    paper's sinusoids at `max_positions` positions, and for no positions with 0.

    Raises `WeightsError` or `UnsupportedError`. `Engine` and `save` check names, shapes and numbers.
    """
    arrays = {re.sub(r"in_proj_(weight|bias)$", r"in_proj.\1", name): np.asarray(array, np.float32)
              for name, array in state.items()}
    weights = {_TORCH.rename(name) or name: array for name, array in arrays.items()}
    layers = len({name.split(".")[1] for name in weights if name.startswith("layers.")})        # layers.NUMBER.NAME
    up = weights.get("layers.0.ffn.up.weight")
    if up is None or up.ndim != 2:
        raise WeightsError("a torch.nn.TransformerEncoder has layers.0.linear1.weight [F,D]; the names here are "
                           f"{listed(sorted(state)) or 'none'}")
    F, D = up.shape
    if words is not None:
        weights["embeddings.word"] = np.asarray(words, np.float32)
    if positions is None and max_positions:
        positions = sinusoids(max_positions, D)
    if positions is not None:
        weights["embeddings.position"] = np.asarray(positions, np.float32)
    biased = "layers.0.linear1.bias" in arrays or "encoder.layers.0.linear1.bias" in arrays
    config = ModelConfig(
        family="transformer",
        hidden_size=D,
        num_layers=layers,
        num_heads=num_heads,
        head_width=head_width(D, num_heads),
        ffn_size=F,
        vocab_size=0 if words is None else len(weights["embeddings.word"]),
        max_positions=0 if positions is None else len(positions),
        embedding_norm=False,
        embedding_scale=math.sqrt(D) if scale_words and words is not None else 1.0,
        norm_eps=norm_eps,
        norm_place="pre" if norm_first else "post",
        norm_bias=biased,
        final_norm="final_norm.weight" in weights,
        biases=LINEAR_MAPS if biased else (),
        activation=activation({"activation": act}, "activation"),
    )
    return Model(encoder=Transformer(config, _TORCH.split(weights, config)))


_SEQ2SEQ_ATTENTION = {"fc_q": "query", "fc_k": "key", "fc_v": "value", "fc_o": "output"}
_SEQ2SEQ_LAYER = {
    **{f"self_attention.{name}": f"attention.{ours}" for name, ours in _SEQ2SEQ_ATTENTION.items()},
    "self_attn_layer_norm": "attention.norm",
    "positionwise_feedforward.fc_1": "ffn.up", "positionwise_feedforward.fc_2": "ffn.down",
    "ff_layer_norm": "ffn.norm",
}
_SEQ2SEQ_CROSS = {
    **{f"encoder_attention.{name}": f"cross.{ours}" for name, ours in _SEQ2SEQ_ATTENTION.items()},
    "enc_attn_layer_norm": "cross.norm",
}
_TABLES = {"tok_embedding.weight": "embeddings.word", "pos_embedding.weight": "embeddings.position"}
_LOGITS = {"fc_out.weight": "logits.weight", "fc_out.bias": "logits.bias"}
"""The names of a layer, of its cross-attention, and of the tables and the logits in pytorch-seq2seq."""

_SEQ2SEQ_ENCODER = Names("encoder.", embeddings=_TABLES, layers="layers.", layer=_SEQ2SEQ_LAYER, left_out=("decoder.",))
_SEQ2SEQ_DECODER = Names("decoder.", embeddings=_TABLES | _LOGITS, layers="layers.",
                         layer=_SEQ2SEQ_LAYER | _SEQ2SEQ_CROSS, left_out=("encoder.",))


def read_pytorch_seq2seq(state: Mapping[str, np.ndarray], *, num_heads: int) -> Model:
    """Return the model of pytorch-seq2seq, without tokenizers and with the default settings of a generation.

    Layers are post-norm with ReLU. Embeddings are multiplied by sqrt(D), positions are learned, and the map to the
    vocabulary has weights and a bias of its own. state: arrays by their names in the state dict, such as
    encoder.layers.0.self_attention.fc_q.weight [D,D]. num_heads: as the model was made; encoder and decoder have it.
    Raises `WeightsError`. `Generator` and `save` check names, shapes and numbers.
    """
    encoder = _seq2seq_config(state, "encoder", num_heads)
    decoder = replace(_seq2seq_config(state, "decoder", num_heads), memory_size=encoder.hidden_size, logits="own",
                      logits_bias=True, attention_kinds=(AttentionKind(causal=True),))

    def part_of(part: Part) -> Transformer:
        """Return the encoder or the decoder from the arrays for which its names have a canonical one."""
        return Transformer(*part.take({ours: array for name, array in state.items()
                                       if (ours := part.names.rename(name)) is not None}))

    return Model(encoder=part_of(Part(encoder, _SEQ2SEQ_ENCODER)), decoder=part_of(Part(decoder, _SEQ2SEQ_DECODER)))


def _seq2seq_config(state: Mapping[str, np.ndarray], part: str, num_heads: int) -> ModelConfig:
    """Return the architecture of a part, "encoder" or "decoder", from the shapes of its arrays."""
    names = [f"{part}.{name}" for name in ("tok_embedding.weight", "pos_embedding.weight",
                                           "layers.0.positionwise_feedforward.fc_1.weight")]
    if missing := [name for name in names if name not in state or np.ndim(state[name]) != 2]:
        raise WeightsError(f"a state dict of pytorch-seq2seq has the matrices {listed(missing)}; the names here are "
                           f"{listed(sorted(state)) or 'none'}")
    (V, D), (P, _), (F, _) = (state[name].shape for name in names)
    return ModelConfig(
        family="transformer",
        hidden_size=D,
        num_layers=len({name.split(".")[2] for name in state if name.startswith(f"{part}.layers.")}),
        num_heads=num_heads,
        head_width=head_width(D, num_heads),
        ffn_size=F,
        vocab_size=V,
        max_positions=P,
        embedding_norm=False,
        embedding_scale=math.sqrt(D),
        norm_eps=1e-5,
        activation="relu",
    )
