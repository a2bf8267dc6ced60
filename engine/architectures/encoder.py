"""Transformer encoders: the order of the operations in a layer, post-norm and pre-norm.

Buffers: x the residual stream, y a residual sum, h a normed x or y, q k v the heads, c their context, u the hidden rows
of the feed-forward network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..config import ModelConfig
from ..program import Attend, Embed, Heads, Linear, Norm, Operation, Part, Rotary, Store, Table


def encoder(config: ModelConfig) -> Iterator[Operation]:
    """Yield all operations of a model, from the embeddings to its token vectors."""
    yield from embeddings(config)
    for layer in range(config.num_layers):
        yield from layer_of(config, layer)
    if config.norm_place == "pre":
        yield norm(config, "final_norm", "x", "x")
    yield Store("x")


def embeddings(config: ModelConfig) -> Iterator[Operation]:
    """Yield the operations of x = the sum of the tables' rows, and of its norm if the model has one."""

    def table(name: str, rows: int) -> Table | None:
        return Table(f"embeddings.{name}", rows) if rows else None

    yield Embed("x", config.hidden_size, table("word", config.vocab_size),
                table("position", config.max_positions if config.position_table else 0),
                table("token_type", config.token_types))
    if config.embedding_norm:
        yield norm(config, "embeddings.norm", "x", "x")


def layer_of(config: ModelConfig, layer: int) -> Iterator[Operation]:
    """Yield the operations of one layer, from x to x."""
    return (pre_norm_layer if config.norm_place == "pre" else post_norm_layer)(config, layer)


def post_norm_layer(config: ModelConfig, layer: int) -> Iterator[Operation]:
    """Yield x = norm(x + attention(x)), then x = norm(x + ffn(x)). Vaswani et al. (arXiv 1706.03762), section 3.1."""
    yield from attention(config, layer, "x", residual="x", out="y")
    yield norm(config, "attention.norm", "y", "x", layer)
    yield from feed_forward(config, layer, "x", residual="x", out="y")
    yield norm(config, "ffn.norm", "y", "x", layer)


def pre_norm_layer(config: ModelConfig, layer: int) -> Iterator[Operation]:
    """Yield y = x + attention(norm(x)), then x = y + ffn(norm(y)). Xiong et al. (arXiv 2002.04745), section 3.1."""
    normed = layer > 0 or config.first_attention_norm
    if normed:
        yield norm(config, "attention.norm", "x", "h", layer)
    yield from attention(config, layer, "h" if normed else "x", residual="x", out="y")
    yield norm(config, "ffn.norm", "y", "h", layer)
    yield from feed_forward(config, layer, "h", residual="y", out="x")


def attention(config: ModelConfig, layer: int, x: str, residual: str, out: str) -> Iterator[Operation]:
    """Yield out = residual + W_o attention(W_q x, W_k x, W_v x). Vaswani et al., section 3.2.2."""
    H, G, d, kind = config.num_heads, config.kv_heads, config.head_width, config.attention_kind(layer)
    projections = (("query", "q", H), ("key", "k", G), ("value", "v", G))
    yield Linear(x, tuple(part(config, layer, f"attention.{name}", buffer, heads * d, heads)
                          for name, buffer, heads in projections), layer=layer)
    rotary = None
    if kind.rotary_theta is not None:
        rotary = Rotary(kind.rotary_theta, d, config.max_positions, kind.rotary_interleaved, kind.rotary_scale)
    if config.head_norm:
        norms = tuple(f"layers.{layer}.attention.{name}_norm.weight" for name in ("query", "key"))
        yield Heads(("q", "k"), rotary, layer, norms, config.norm_eps)
    elif rotary is not None:
        yield Heads(("q", "k"), rotary, layer)
    window = (kind.window, 0 if kind.causal else kind.window)
    yield Attend("q", "k", "v", "c", 1 / math.sqrt(d), window, layer=layer)
    yield Linear("c", (part(config, layer, "attention.output", out, config.hidden_size),), residual=residual,
                 layer=layer)


def feed_forward(config: ModelConfig, layer: int, x: str, residual: str, out: str) -> Iterator[Operation]:
    """Yield out = residual + W_down act(W_up x), or residual + W_down (act(W_gate x) * (W_up x)).

    Vaswani et al., section 3.3; with a gate, Shazeer (arXiv 2002.05202), section 2.
    """
    names = ("ffn.gate", "ffn.up") if config.gated else ("ffn.up",)
    yield Linear(x, tuple(part(config, layer, name, "u", config.ffn_size) for name in names),
                 activation=config.activation, gate=config.gated, layer=layer)
    yield Linear("u", (part(config, layer, "ffn.down", out, config.hidden_size),), residual=residual, layer=layer)


def part(config: ModelConfig, layer: int, name: str, out: str, width: int, heads: int | None = None) -> Part:
    """Return the linear map of this name in a layer."""
    full = f"layers.{layer}.{name}"
    biased = name.rpartition(".")[2] in config.biases
    return Part(f"{full}.weight", f"{full}.bias" if biased else None, out, width, heads)


def norm(config: ModelConfig, name: str, x: str, out: str, layer: int | None = None) -> Norm:
    """Return the norm of this name, in a layer or outside of them."""
    full = name if layer is None else f"layers.{layer}.{name}"
    biased = config.norm == "layer" and config.norm_bias
    return Norm(x, out, f"{full}.weight", f"{full}.bias" if biased else None, config.norm_eps, config.norm, layer)
