"""Run the operations of a program on whole arrays, with the single operations of any backend.

The reference backend runs models this way, and `engine.ops.encoder_layer` runs one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest

import numpy as np

from ..model.positions import distance_bias, rotary_angles
from ..programs.operations import Attend, DistanceBias, Heads, Linear, LinearPart, Norm, Operation, Rotary
from .ops_interface import UNBOUNDED, AttentionCall, Ops
from .relative import relative_terms

Attention = Callable[[np.ndarray, np.ndarray, np.ndarray, Attend], np.ndarray]
"""A function that computes attention from q [B,H,T,d], k [B,G,S,d] and v [B,G,S,e]: [B,H,T,e]."""


class Execution:
    """Runs operations of every kind except Embed, Pick and Store, because the caller holds their data."""

    def __init__(self, ops: Ops, weights: Mapping[str, np.ndarray], positions: np.ndarray | None = None,
                 attend: Attention | None = None, keys: int | None = None):
        """Hold the state that all operations share.

        weights: by name; an absent bias counts as zeros. positions: integers [B,T] for rotary embeddings.
        attend: computes attention in place of `_attend`, to add options. keys: how many of the first tokens are
        attended to; None for all.
        """
        self.keys = keys
        self.ops, self.weights, self.positions = ops, weights, positions
        self.attend = attend or self._attend

    def run(self, operations: Iterable[Operation], buffers: dict[str, np.ndarray]) -> None:
        """Run operations in order over buffers [B,T,width], which are replaced, never changed in place."""
        for operation in operations:
            match operation:
                case Norm():
                    normed = self.norm(operation, buffers[operation.x])
                    residual = operation.residual
                    buffers[operation.out] = normed if residual is None else buffers[residual] + normed
                case Linear():
                    self.linear(operation, buffers)
                case Heads():
                    self.heads(operation, buffers)
                case Attend():
                    q, k, v = heads_of(operation, buffers)
                    context = self.attend(q, k, v, operation).transpose(0, 2, 1, 3)
                    buffers[operation.out] = context.reshape(*context.shape[:2], -1)
                case _:
                    raise ValueError(f"{type(operation).__name__} is not an operation on arrays")

    def norm(self, operation: Norm, x: np.ndarray) -> np.ndarray:
        """Return the norm of each row of x [B,T,width], without the residual."""
        rows, weight = x.reshape(-1, x.shape[-1]), self.weights[operation.weight]
        if operation.kind == "rms":
            return self.ops.rms_norm(rows, weight, operation.eps).reshape(x.shape)
        return self.ops.layer_norm(rows, weight, self._bias(operation.bias), operation.eps).reshape(x.shape)

    def linear(self, operation: Linear, buffers: dict[str, np.ndarray]) -> None:
        """Write the results of all parts; heads become arrays [B,T,heads,width of a head]."""
        x = buffers[operation.x]
        if operation.scale != 1.0:
            x = x * x.dtype.type(operation.scale)
        if operation.gate:
            gate, up = (self._product(part, x) for part in operation.parts)
            assert operation.activation is not None
            buffers[operation.parts[0].out] = self.ops.gate(operation.activation, gate, up)
            return
        residual = None if operation.residual is None else buffers[operation.residual]
        for part in operation.parts:
            y = self._product(part, x, operation.activation, residual)
            buffers[part.out] = y if part.heads is None else y.reshape(*y.shape[:2], part.heads, -1)

    def _product(self, part: LinearPart, x: np.ndarray, activation: str | None = None,
                 residual: np.ndarray | None = None) -> np.ndarray:
        """Return activation(x W^T + b) + residual of one part, for x [B,T,K]: [B,T,N]."""
        weight = self.weights[part.weight]
        rows = None if residual is None else residual.reshape(-1, len(weight))
        y = self.ops.linear(x.reshape(-1, x.shape[-1]), weight, self._bias(part.bias), activation, rows)
        return y.reshape(*x.shape[:-1], len(weight))

    def _bias(self, name: str | None) -> np.ndarray | None:
        """Return a bias by its name; None where the operation names none, or the weights lack it."""
        return None if name is None else self.weights.get(name)

    def heads(self, operation: Heads, buffers: dict[str, np.ndarray]) -> None:
        """Norm the heads of each buffer, one by one or all of a row together, and rotate each head."""
        for name, weight in zip_longest(operation.buffers, operation.norms):
            if weight is not None:      # it has the length of what is normed: one head, or all heads of a row
                rows = buffers[name].reshape(-1, len(self.weights[weight]))
                normed = self.ops.rms_norm(rows, self.weights[weight], operation.eps)
                buffers[name] = normed.reshape(buffers[name].shape)
            if operation.rotary is not None:
                buffers[name] = self._rotate(buffers[name], operation.rotary)

    def _rotate(self, heads: np.ndarray, rotary: Rotary) -> np.ndarray:
        """Return heads [B,T,H,d] rotated by the positions of their tokens."""
        assert self.positions is not None
        cos, sin = rotary_angles(self.positions, rotary.theta, rotary.width, heads.dtype, rotary.scale,
                                 rotary.frequencies, rotary.factor)
        return self.ops.rotate(heads.transpose(0, 2, 1, 3), cos, sin, rotary.interleaved).transpose(0, 2, 1, 3)

    def _attend(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, operation: Attend) -> np.ndarray:
        """Return attention [B,H,T,e] without options, which is used where the caller gives no `attend`."""
        return self.ops.attention(self.attention_call(q, k, v, operation))

    def attention_call(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, operation: Attend,
                       past: int = 0) -> AttentionCall:
        """Return the arguments of plain attention over heads [B,H,T,d], as the operation describes them.

        past: how many keys belong to tokens before the first query's own.
        """
        B = len(q)
        low, high = (side + past for side in band(operation))
        bias = None if operation.bias is None else self._bias_of(operation.bias, q, past)
        if operation.relative is not None:
            terms = relative_terms(operation.relative, self.weights, q, k) * q.dtype.type(operation.scale)
            bias = terms if bias is None else terms + bias
        return AttentionCall(q, k, v, operation.scale, operation.softcap, np.full(B, low), np.full(B, high),
                             np.full(B, k.shape[2] if self.keys is None else self.keys), bias)

    def _bias_of(self, bias: DistanceBias, q: np.ndarray, past: int) -> np.ndarray:
        """Return the bias of all scores up to the last query's key, a view [B,H,T,S] of a line for each head."""
        B, H, T, _ = q.shape
        S = past + T
        table = None if bias.table is None else self.weights[bias.table.name]
        line = distance_bias(S, H, table, bias.max_distance, bias.one_sided).astype(q.dtype)
        # A line has the bias of token t for key s in column S - 1 + t - s, so row t is columns S - 1 + t down to t.
        rows = np.lib.stride_tricks.sliding_window_view(line, S, axis=1)[:, past:, ::-1]
        return np.broadcast_to(rows, (B, H, T, S))


def heads_of(operation: Attend, buffers: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the queries [B,H,T,d], keys [B,G,S,d] and values [B,G,S,e] of an operation; S is T, or a source's."""
    return [buffers[name].transpose(0, 2, 1, 3) for name in (operation.q, operation.k, operation.v)]


def band(operation: Attend) -> tuple[int, int]:
    """Return the band (low, high) of a window: query t sees the keys t + low <= s < t + high."""
    left, right = operation.window
    return -UNBOUNDED if left is None else -left, UNBOUNDED if right is None else right + 1
