"""Define the timed encoders in PyTorch, as simple as they can be fast, on the engine's weights.

A forward function takes the weights in their dtype, the config, ids, positions and token types [B,T], and what
`prepared` makes for a case before it is timed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from engine.model.config import ModelConfig
from engine.model.positions import relative_rows


class Layers:
    """Norms and linear maps by the engine's names."""

    def __init__(self, weights: Mapping[str, Any], config: ModelConfig):
        self.weights, self.config = weights, config

    def norm(self, x: Any, name: str) -> Any:
        """Return LayerNorm."""
        bias = self.weights.get(f"{name}.bias")
        return layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], bias, self.config.norm_eps)

    def affine(self, x: Any, name: str) -> Any:
        """Return a linear map."""
        return linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def heads(self, x: Any, prefix: str) -> list[Any]:
        """Return queries, keys and values [B,H,T,d]."""
        return [self.affine(x, f"{prefix}attention.{name}").unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2)
                for name in ("query", "key", "value")]

    def post_norm(self, x: Any, context: Any, prefix: str) -> Any:
        """Return the rest of a layer of BERT after its attention [B,H,T,d]."""
        out = self.affine(context.transpose(1, 2).flatten(2), f"{prefix}attention.output")
        x = self.norm(x + out, f"{prefix}attention.norm")
        up = gelu(self.affine(x, f"{prefix}ffn.up"))
        return self.norm(x + self.affine(up, f"{prefix}ffn.down"), f"{prefix}ffn.norm")


def bert(weights: Mapping[str, Any], config: ModelConfig, ids: Any, positions: Any, types: Any, _: None) -> Any:
    """Run a post-norm encoder: [B,T,D]."""
    layers, tables = Layers(weights, config), {"word": ids, "position": positions, "token_type": types}
    x = layers.norm(sum(weights[f"embeddings.{name}"][rows] for name, rows in tables.items()), "embeddings.norm")
    for i in range(config.num_layers):
        x = layers.post_norm(x, scaled_dot_product_attention(*layers.heads(x, f"layers.{i}.")), f"layers.{i}.")
    return x


def modernbert(weights: Mapping[str, Any], config: ModelConfig, ids: Any, positions: Any, types: Any,
               made: tuple[list[Any], list[Callable]]) -> Any:
    """Run ModernBERT; made: for each kind of layer, the cosines and sines of positions, and the attention."""
    layers, (angles, attentions) = Layers(weights, config), made
    x = layers.norm(weights["embeddings.word"][ids], "embeddings.norm")
    for i, kind in enumerate(config.layer_kinds):
        prefix = f"layers.{i}."
        normed = layers.norm(x, f"{prefix}attention.norm") if i else x
        q, k, v = layers.heads(normed, prefix)
        cos, sin = (table[positions][:, None] for table in angles[kind])
        context = attentions[kind](rotated(q, cos, sin), rotated(k, cos, sin), v)
        x = x + layers.affine(context.transpose(1, 2).flatten(2), f"{prefix}attention.output")
        normed = layers.norm(x, f"{prefix}ffn.norm")
        up = gelu(layers.affine(normed, f"{prefix}ffn.gate")) * layers.affine(normed, f"{prefix}ffn.up")
        x = x + layers.affine(up, f"{prefix}ffn.down")
    return layers.norm(x, "final_norm")


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotate pairs of columns i and i + d/2."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def deberta(weights: Mapping[str, Any], config: ModelConfig, ids: Any, positions: Any, types: Any, rows: Any) -> Any:
    """Run DeBERTa v3; rows: the row of the table of relative positions of each query and key, [T,T]."""
    layers = Layers(weights, config)
    x = layers.norm(weights["embeddings.word"][ids], "embeddings.norm")
    table = layers.norm(weights["embeddings.relative"], "embeddings.relative_norm")
    rows = rows.expand(len(ids), config.num_heads, -1, -1)
    for i in range(config.num_layers):
        prefix = f"layers.{i}."
        (q, k, v), (of_keys, of_queries) = layers.heads(x, prefix), [
            layers.affine(table, f"{prefix}attention.{name}").unflatten(-1, (config.num_heads, -1)).permute(1, 2, 0)
            for name in ("key", "query")]
        scores = q @ k.transpose(-1, -2) + torch.gather(q @ of_keys, -1, rows)
        scores = scores + torch.gather(k @ of_queries, -1, rows.transpose(-1, -2)).transpose(-1, -2)
        context = torch.softmax(scores * (3 * config.head_width) ** -0.5, -1) @ v
        x = layers.post_norm(x, context, prefix)
    return x


FORWARD = {"bert": bert, "modernbert": modernbert, "deberta-v2": deberta}
"""The forward function of each family."""


def prepared(config: ModelConfig, lengths: list[int], packed: bool, flexible: bool, dtype: Any, device: str) -> Any:
    """Return what a forward function takes besides, for a batch.

    packed: whether all sequences lie in one row. flexible: whether attention that a mask limits is FlexAttention, which
    is fast when it is compiled, and not SDPA with a mask.
    """
    T = max(lengths)
    if config.family == "deberta-v2":
        assert config.relative is not None
        distance = np.subtract.outer(np.arange(T), np.arange(T))
        rows = relative_rows(distance, config.relative.limit, config.relative.buckets)
        return torch.from_numpy(rows.astype(np.int64)).to(device)
    if config.family != "modernbert":
        return None
    angles = []
    for kind in config.attention_kinds:
        assert kind.rotary_theta is not None
        turns = np.outer(np.arange(T), kind.rotary_theta ** -(np.arange(0, config.head_width, 2) / config.head_width))
        angles.append([torch.from_numpy(f(turns)).to(device, dtype) for f in (np.cos, np.sin)])
    return angles, [attention(kind.window, lengths, packed, flexible, device) for kind in config.attention_kinds]


def attention(window: int | None, lengths: list[int], packed: bool, flexible: bool, device: str) -> Callable:
    """Return the function (q, k, v) of one kind of layers."""
    if window is None and not packed:
        return scaled_dot_product_attention
    side = max(lengths) if window is None else window
    size = sum(lengths) if packed else max(lengths)
    numbers = np.repeat(np.arange(len(lengths)), lengths) if packed else np.zeros(size, np.int64)
    sequence = torch.from_numpy(numbers).to(device)

    def seen(b: Any, h: Any, t: Any, s: Any) -> Any:
        return ((t - s).abs() <= side) & (sequence[t] == sequence[s])

    if flexible:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        blocks = create_block_mask(seen, None, None, size, size, device=device)
        return lambda q, k, v: flex_attention(q, k, v, block_mask=blocks)
    place = torch.arange(size, device=device)
    mask = seen(0, 0, place[:, None], place)
    return lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask)
