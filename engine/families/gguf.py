"""Describe how a GGUF file of llama.cpp holds the models of a family: `Architecture`, and the names of its tensors.

The settings of a file, which docs/gguf.md of ggml lists, become the keys of a config.json, so that the families check
them. A family states its architectures in a table `ARCHITECTURES`, by which loading/gguf.py reads files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.errors import UnsupportedError, shown
from .fields import LAYER_TYPES
from .names import JOINED_HEADS, Names

Stated = Mapping[str, Any]
"""The settings of a file that begin with the name of the architecture, without that name."""
Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each tensor of a file, by its name there."""

DIVISORS = "rotary_divisors"
"""The name of the tensor that divides the frequencies of the rotary embedding, as Llama 3.1 scales them; also the
beginning of the names of LongRoPE's two tables."""

NAMES = Names(
    prefix="",
    embeddings={
        "token_embd.weight": "embeddings.word", "position_embd.weight": "embeddings.position",
        "token_types.weight": "embeddings.token_type",
        "token_embd_norm.weight": "embeddings.norm.weight", "token_embd_norm.bias": "embeddings.norm.bias",
        "output_norm.weight": "final_norm.weight", "output_norm.bias": "final_norm.bias",
        "output.weight": "logits.weight", "output.bias": "logits.bias",
        "rope_freqs.weight": DIVISORS,
        "rope_factors_short.weight": f"{DIVISORS} short",
        "rope_factors_long.weight": f"{DIVISORS} long",
    },
    layers="blk.",
    layer={
        "attn_norm": "attention.norm",
        "attn_q": "attention.query", "attn_k": "attention.key",
        "attn_v": "attention.value",
        "attn_qkv": "attention.qkv",
        "attn_output": "attention.output",
        "attn_q_norm": "attention.query_norm", "attn_k_norm": "attention.key_norm",
        "ffn_norm": "ffn.norm",
        "ffn_gate": "ffn.gate", "ffn_up": "ffn.up",
        "ffn_down": "ffn.down",
        "post_attention_norm": "attention.post_norm",
        "post_ffw_norm": "ffn.post_norm",
    },
    left_out=(),
    joined=JOINED_HEADS,
)
POST_NORM = replace(NAMES, layer={
    **NAMES.layer, "attn_output_norm": "attention.norm", "layer_output_norm": "ffn.norm"})


@dataclass(frozen=True)
class Architecture:
    """A supported value of general.architecture: its family, and how its files differ from the usual ones."""

    model_type: str
    """The family, by its value of model_type in a config.json."""
    eps: str | None = "rms_norm_eps"
    """The key of the epsilon of the norms, which are RMSNorms with this default and LayerNorms with another key; None
    for a family in which the epsilon is fixed."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Further settings that a file may have, and the key of a config.json that each becomes."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a config.json that no file states, and their values."""
    change: Callable[[dict[str, Any], Stated, Shapes], None] | None = None
    """Changes in place the keys of the config.json, where a setting needs more than another name."""
    reads: tuple[str, ...] = ()
    """Settings that only `change` reads, and that are refused in a file of another family."""
    names: Names = NAMES
    neighbours: bool = False
    """Whether rows of queries and keys that rotate together are neighbours in a file, and not half a head apart."""
    partial: str | None = None
    """The key of the share of a head that rotates; None for a family that rotates whole heads."""
    finishes: bool = True
    """Whether the family's own `Part.finish` applies to the tensors of a file."""
    encodes: bool = False
    """Whether the model gives vectors of tokens."""
    rotates: bool = True
    """Whether queries and keys have a rotary embedding, whose positions a file may scale."""


def read_token_types(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    """Add to `values` the number of token types, which only the shape of their table states."""
    values["type_vocab_size"] = shapes.get("token_types.weight", (0,))[0]


def read_windows(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    """Add to `values` which layers see a window, where the file states it."""
    pattern = stated.get("attention.sliding_window_pattern")
    if pattern is None:
        return
    if not isinstance(pattern, np.ndarray) or pattern.dtype != bool:
        raise UnsupportedError(f"attention.sliding_window_pattern = {shown(pattern)} is not supported; only true or "
                               "false for each layer is")
    values["layer_types"] = [LAYER_TYPES[int(has_window)] for has_window in pattern]
