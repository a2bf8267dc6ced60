"""Transformer encoders: the order of the operations in a layer, by where its norms stand.

Buffers: e embeddings of a width of their own, x the residual stream, y a residual sum, h a normed x or y, q k v the
heads, c their context, u the hidden rows of the feed-forward network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..model.config import ModelConfig
from .operations import (
    Affine,
    Attend,
    DistanceBias,
    Embed,
    Heads,
    Linear,
    LinearPart,
    Norm,
    Operation,
    Relative,
    Rotary,
    Store,
    Table,
)

Cross = Callable[[ModelConfig, int, str, str, str], Iterator[Operation]]
"""Yields a layer's operations of attention over a source, from the config, the layer's number, and the names of the
buffers of its input, of the residual and of its result."""


def encoder(config: ModelConfig, cross: Cross | None = None) -> Iterator[Operation]:
    """Yield all operations of a model, from embeddings to token vectors. cross: yields attention over a source."""
    yield from embeddings(config)
    for layer in range(config.num_layers):
        yield from layer_of(config, layer, cross)
    if config.ends_in_norm:
        yield norm(config, "final_norm", "x", out="x")
    yield Store("x")


def embeddings(config: ModelConfig) -> Iterator[Operation]:
    """Yield the operations of x = the sum of the tables' rows, then of its norm and its map to D, if there are any."""
    out = "e" if config.embedding_width else "x"

    def table(name: str, rows: int) -> Table | None:
        """Return a table of the embeddings; None for one without rows, which the model lacks."""
        return Table(f"embeddings.{name}", rows) if rows else None

    yield Embed(out, config.table_width, word=table("word", config.vocab_size),
                position=table("position", config.max_positions if config.position_table else 0),
                token_type=table("token_type", config.token_types), scale=config.embedding_scale)
    if config.embedding_norm:
        yield norm(config, "embeddings.norm", out, out=out)
    if config.embedding_width:
        name = "embeddings.projection"
        yield Linear("e", (LinearPart(f"{name}.weight", f"{name}.bias", "x", config.hidden_size),))


def layer_of(config: ModelConfig, layer: int, cross: Cross | None = None) -> Iterator[Operation]:
    """Yield the operations of one layer, which reads the buffer x and writes its result there.

    cross: yields attention over a source, which only layers with their norms at "post" and "pre" can have.
    """
    if cross is not None:
        return {"post": post_norm_layer, "pre": pre_norm_layer}[config.norm_place](config, layer, cross)
    layers = {"post": post_norm_layer, "pre": pre_norm_layer, "sandwich": sandwich_layer,
              "reordered": reordered_norm_layer, "parallel": parallel_layer}
    return layers[config.norm_place](config, layer)


def post_norm_layer(config: ModelConfig, layer: int, cross: Cross | None = None) -> Iterator[Operation]:
    """Yield x = norm(x + attention(x)), then x = norm(x + ffn(x)). Vaswani et al. (arXiv 1706.03762), section 3.1.

    cross: yields attention over a source; x = norm(x + cross(x)) then stands between the two.
    """
    yield from attention(config, layer, "x", residual="x", out="y")
    yield norm(config, "attention.norm", "y", out="x", layer=layer)
    if cross is not None:
        yield from cross(config, layer, "x", "x", "y")      # the input x, the residual x, the result y
        yield norm(config, "cross.norm", "y", out="x", layer=layer)
    yield from feed_forward(config, layer, "x", residual="x", out="y")
    yield norm(config, "ffn.norm", "y", out="x", layer=layer)


def pre_norm_layer(config: ModelConfig, layer: int, cross: Cross | None = None) -> Iterator[Operation]:
    """Yield y = x + attention(norm(x)), then x = y + ffn(norm(y)). Xiong et al. (arXiv 2002.04745), section 3.1.

    cross: yields attention over a source; z = y + cross(norm(y)) then stands between the two.
    """
    before_ffn = "y"        # the buffer that the feed-forward network reads and adds to
    normed = layer > 0 or config.first_attention_norm
    if normed:
        yield norm(config, "attention.norm", "x", out="h", layer=layer)
    yield from attention(config, layer, "h" if normed else "x", residual="x", out="y")
    if cross is not None:
        yield norm(config, "cross.norm", "y", out="h", layer=layer)
        yield from cross(config, layer, "h", "y", "z")      # the input h, the residual y, the result z
        before_ffn = "z"
    yield norm(config, "ffn.norm", before_ffn, out="h", layer=layer)
    yield from feed_forward(config, layer, "h", residual=before_ffn, out="x")


def sandwich_layer(config: ModelConfig, layer: int) -> Iterator[Operation]:
    """Yield y = x + norm(attention(norm(x))), then x = y + norm(ffn(norm(y))).

    Ding et al., "CogView" (arXiv 2105.13290), section 2.4.
    """
    normed = layer > 0 or config.first_attention_norm
    if normed:
        yield norm(config, "attention.norm", "x", out="h", layer=layer)
    yield from attention(config, layer, "h" if normed else "x", residual=None, out="y")
    yield replace(norm(config, "attention.post_norm", "y", out="y", layer=layer), residual="x")
    yield norm(config, "ffn.norm", "y", out="h", layer=layer)
    yield from feed_forward(config, layer, "h", residual=None, out="x")
    yield replace(norm(config, "ffn.post_norm", "x", out="x", layer=layer), residual="y")


def reordered_norm_layer(config: ModelConfig, layer: int) -> Iterator[Operation]:
    """Yield y = x + norm(attention(x)), then x = y + norm(ffn(y)). OLMo Team (arXiv 2501.00656), section 3.2."""
    yield from attention(config, layer, "x", residual=None, out="y")
    yield replace(norm(config, "attention.post_norm", "y", out="y", layer=layer), residual="x")
    yield from feed_forward(config, layer, "y", residual=None, out="x")
    yield replace(norm(config, "ffn.post_norm", "x", out="x", layer=layer), residual="y")


def parallel_layer(config: ModelConfig, layer: int) -> Iterator[Operation]:
    """Yield x = x + attention(norm(x)) + ffn(norm(x)), with two norms. Black et al. (arXiv 2204.06745), section 2.1."""
    yield norm(config, "attention.norm", "x", out="h", layer=layer)
    yield from attention(config, layer, "h", residual="x", out="y")
    yield norm(config, "ffn.norm", "x", out="h", layer=layer)
    yield from feed_forward(config, layer, "h", residual="y", out="x")


def attention(config: ModelConfig, layer: int, x: str, residual: str | None, out: str) -> Iterator[Operation]:
    """Yield out = residual + W_o attention(W_q x, W_k x, W_v x). Vaswani et al., section 3.2.2.

    x, residual, out: names of buffers; a residual of None adds nothing.
    """
    # H heads of queries and G of keys and values, each of d columns
    H, G, d, kind = config.num_heads, config.kv_heads, config.head_width, config.attention_kind(layer)
    projections = (("query", "q", H), ("key", "k", G), ("value", "v", G))
    yield Linear(x, tuple(linear_part(config, layer, f"attention.{name}", buffer, heads * d, heads)
                          for name, buffer, heads in projections), layer=layer)
    rotary = None
    if kind.rotary_theta is not None:
        rotary = Rotary(kind.rotary_theta, width=kind.rotary_width or d, positions=config.max_positions,
                        interleaved=kind.rotary_interleaved, scale=kind.rotary_scale,
                        frequencies=kind.rotary_frequencies, factor=kind.rotary_factor)
    if config.head_norm or config.joint_norm:
        norms = tuple(f"{prefix(config, layer)}.attention.{name}_norm.weight" for name in ("query", "key"))
        yield Heads(("q", "k"), rotary, layer, norms=norms, eps=config.norm_eps, joint=config.joint_norm)
    elif rotary is not None:
        yield Heads(("q", "k"), rotary, layer)
    keys = "cache" if config.decodes else "pass"
    window = (kind.window, 0 if kind.causal else kind.window)       # keys before and after the query's own
    # A score is the sum of 1 + terms products (content, and positions of keys or queries), each of variance d.
    terms = len(config.relative.terms) if config.relative else 0
    scale = 1 / math.sqrt(d * (1 + terms)) if config.attention_scale is None else config.attention_scale
    yield Attend("q", "k", "v", out="c", scale=scale, window=window, layer=layer, bias=distance_bias(config, layer),
                 relative=relative(config, layer), keys=keys, softcap=config.attention_softcap)
    yield Linear("c", (linear_part(config, layer, "attention.output", out, config.hidden_size),), residual=residual,
                 layer=layer)


def distance_bias(config: ModelConfig, layer: int) -> DistanceBias | None:
    """Return the bias by distance that the attention of a layer adds to its scores; None for no bias."""
    if config.attention_bias != "buckets":
        return DistanceBias() if config.attention_bias == "alibi" else None
    name = f"{prefix(config, layer)}.attention.distance_bias" if config.bias_in_layers else "distance_bias"
    table = Table(f"{name}.weight", config.bias_buckets)
    return DistanceBias(table, max_distance=config.bias_max_distance, one_sided=config.bias_one_sided)


def relative(config: ModelConfig, layer: int) -> Relative | None:
    """Return the table of relative positions with a layer's maps of it. He et al. (arXiv 2006.03654), section 3.1."""
    options = config.relative
    if options is None:
        return None

    def of_table(name: str, term: str) -> Affine | None:
        """Return the map of the table for a term, "c2p" or "p2c"; None if scores lack the term.

        It is the layer's own map of relative positions, or the one `name` of its queries or keys.
        """
        full = f"{prefix(config, layer)}.attention.{'relative_' if options.own_maps else ''}{name}"
        biased = name in config.biases
        return Affine(f"{full}.weight", f"{full}.bias" if biased else None) if term in options.terms else None

    norm = Affine("embeddings.relative_norm.weight", "embeddings.relative_norm.bias") if options.norm else None
    return Relative(Table("embeddings.relative", options.rows), config.hidden_size, key=of_table("key", "c2p"),
                    query=of_table("query", "p2c"), norm=norm, eps=config.norm_eps, limit=options.limit,
                    buckets=options.buckets)


def feed_forward(config: ModelConfig, layer: int, x: str, residual: str | None, out: str) -> Iterator[Operation]:
    """Yield out = residual + W_down act(W_up x), or residual + W_down (act(W_gate x) * (W_up x)).

    x, residual, out: names of buffers. Vaswani et al., section 3.3; with a gate, Shazeer (arXiv 2002.05202), section 2.
    """
    names = ("ffn.gate", "ffn.up") if config.gated else ("ffn.up",)
    yield Linear(x, tuple(linear_part(config, layer, name, "u", config.ffn_size) for name in names),
                 activation=config.activation, gate=config.gated, layer=layer)
    yield Linear("u", (linear_part(config, layer, "ffn.down", out, config.hidden_size),), residual=residual,
                 layer=layer)


def prefix(config: ModelConfig, layer: int) -> str:
    """Return the prefix of the names of a layer's parameters, which are another layer's if the layers share weights."""
    return f"layers.{config.weight_set(layer)}"


def linear_part(config: ModelConfig, layer: int, name: str, out: str, width: int, heads: int | None = None
                ) -> LinearPart:
    """Return the linear map `name`, such as "attention.query", of a layer.

    out, width: the name and the columns of the buffer of its result. heads: how many heads the columns form; None for a
    result without heads.
    """
    full = f"{prefix(config, layer)}.{name}"
    biased = name.rpartition(".")[2] in config.biases
    return LinearPart(f"{full}.weight", f"{full}.bias" if biased else None, out, width, heads)


def norm(config: ModelConfig, name: str, x: str, out: str, layer: int | None = None) -> Norm:
    """Return the norm `name` of a layer, or with layer=None of the model, from buffer x to buffer out."""
    full = name if layer is None else f"{prefix(config, layer)}.{name}"
    biased = config.norm == "layer" and config.norm_bias
    return Norm(x, out, f"{full}.weight", f"{full}.bias" if biased else None, config.norm_eps,
                kind=config.norm, layer=layer)
