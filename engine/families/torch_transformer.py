"""The first Transformer's encoder (Vaswani et al. 2017, arXiv 1706.03762), as `torch.nn.TransformerEncoder` holds it.

There is no folder of such a model, so a program makes a `Model` from the arrays of the state dict. An own stack of
other layers is a `ModelConfig` with arrays under the names of docs/npz.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from ..config import LINEAR_MAPS, ModelConfig
from ..errors import WeightsError, listed
from ..positions import sinusoids
from .fields import activation, head_width
from .names import JOINED_HEADS, Names

NAMES = Names(
    prefix="encoder.",
    embeddings={"norm.weight": "final_norm.weight", "norm.bias": "final_norm.bias"},
    layers="layers.",
    layer={
        "self_attn.in_proj": "attention.qkv",
        "self_attn.out_proj": "attention.output",
        "norm1": "attention.norm",
        "linear1": "ffn.up",
        "linear2": "ffn.down",
        "norm2": "ffn.norm",
    },
    left_out=(),
    joined=JOINED_HEADS,
)


def read_state_dict(
    state: Mapping[str, np.ndarray],
    *,
    num_heads: int,
    words: np.ndarray | None = None,
    max_positions: int = 0,
    positions: np.ndarray | None = None,
    scale_words: bool = True,
    norm_first: bool = False,
    norm_eps: float = 1e-5,
    act: str = "relu",
) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Return the config and the weights of a `torch.nn.TransformerEncoder`: `Model(*read_state_dict(...))`.

    state: arrays by torch's names, such as layers.0.self_attn.in_proj_weight [3D,D]; norm.weight [D] is the norm after
    the last layer, which a model may lack. num_heads, norm_first, norm_eps, act: as torch's layer was made, with the
    activation's name in transformers. words: the word table [V,D], whose rows are multiplied by sqrt(D) if
    `scale_words`; None for a model that runs on `inputs_embeds`. positions: the position table [P,D]; None for the
    paper's sinusoids at `max_positions` positions, and for no positions with 0.

    Raises `WeightsError` or `UnsupportedError`. `Engine` and `save_model` check names, shapes and numbers.
    """
    arrays = {re.sub(r"in_proj_(weight|bias)$", r"in_proj.\1", name): np.asarray(array, np.float32)
              for name, array in state.items()}  # fmt: skip
    weights = {NAMES.rename(name) or name: array for name, array in arrays.items()}
    layers = len({name.split(".")[1] for name in weights if name.startswith("layers.")})
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
    return config, NAMES.split(weights, config)
