"""The single operations that a backend provides for `engine.ops`, on arrays that have been checked already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

UNBOUNDED = 2**40
"""Stands for a side of `AttentionCall`'s band that hides no key."""

A_SCORE = ("a score function returns the new score, not whether the key is seen; hide a key by the score -inf, as "
           "in `s if i >= j else -math.inf`")
"""Advice in the error for a score function that returns a bool, which as a number would be the score 1 or 0."""


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of `engine.ops.attention`, checked and brought to one form. Arrays may have any strides.

    Query t of sequence b sees the keys max(0, t + low[b]) <= s < min(lengths[b], t + high[b]) that no mask hides.
    """

    q: np.ndarray
    """[B,H,T,d] float32. Only the reference accepts float64, and then k, v and bias are float64 too."""
    k: np.ndarray
    """[B,G,S,d], where G divides H: query head h reads key head h // (H/G)."""
    v: np.ndarray
    """[B,G,S,e], shared by query heads as k is."""
    scale: float
    softcap: float
    """c in c tanh(s/c), which bounds the scores; 0 for no bound."""
    low: np.ndarray
    """int64 [B]; -UNBOUNDED if no key is hidden on the left."""
    high: np.ndarray
    """int64 [B]; UNBOUNDED if no key is hidden on the right."""
    lengths: np.ndarray
    """int64 [B], each from 0 to S."""
    bias: np.ndarray | None = None
    """Broadcast to [B,H,T,S] (a view: strides may be 0)."""
    mask: np.ndarray | None = None
    """bool, broadcast as the bias is; False hides the key from the query."""
    score_mod: Callable[..., float] | None = None
    """(score, b, h, q_index, kv_index) -> score."""


class Ops(Protocol):
    """The operations of one backend. Results are new arrays of the inputs' dtype.

    activation: one of `engine.model.config.ACTIVATIONS`.
    """

    def keep(self, arrays: Iterable[np.ndarray]) -> None:
        """Say that these arrays, which are arguments of many calls, never change, so that copies on a GPU may stay."""

    def attention(self, call: AttentionCall) -> np.ndarray:
        """Return softmax(scores) v, [B,H,T,e]; a query that sees no key gets zeros."""

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        """Return activation(x [M,K] weight [N,K]^T + bias [N]) + residual [M,N]."""

    def columns(self, weight: np.ndarray, bias: np.ndarray | None) -> Any:
        """Return a map, weight [N,K] and bias [N], in the form that `column_maxima` reads, any number of times."""

    def column_maxima(self, parts: Sequence[np.ndarray], columns: Any) -> np.ndarray:
        """Return the largest number of each column of part weight^T + bias, for each of B parts [T_i,K]: [B,N].

        It is -inf for a part without rows, and NaN for a column that has a NaN. No array [rows,N] is made.
        """

    def layer_norm(self, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
        """Return LayerNorm over the last axis of x [M,D]."""

    def rms_norm(self, x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
        """Return RMSNorm over the last axis of x [M,D]."""

    def softmax(self, x: np.ndarray) -> np.ndarray:
        """Return the softmax over the last axis of x [M,N]; -inf becomes 0, also in a row of nothing but -inf."""

    def activate(self, activation: str, x: np.ndarray) -> np.ndarray:
        """Return activation(x) for x of any shape."""

    def gate(self, activation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return activation(x) * y, where x and y have the same shape."""

    def rotate(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
        """Return x [B,H,T,d] with its first r columns rotated by cos, sin [B,T,r/2], whose strides may be 0."""
