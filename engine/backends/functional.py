"""What a backend offers to `engine.ops`: single operations on arrays that have been checked already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

UNBOUNDED = 2**40
"""A side of `AttentionCall`'s band that hides nothing."""


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of `engine.ops.attention`, checked and brought to one form. Arrays may have any strides.

    Query t of sequence b sees the keys max(0, t + low[b]) <= s < min(lengths[b], t + high[b]) that the mask leaves.
    """

    q: np.ndarray
    """[B,H,T,d] float32; float64 for the reference only, as k, v and bias then are."""
    k: np.ndarray
    """[B,G,S,d], where G divides H: query head h reads key head h // (H/G)."""
    v: np.ndarray
    """[B,G,S,e]"""
    scale: float
    softcap: float
    """c of c tanh(s/c); 0 for none."""
    low: np.ndarray
    """int64 [B]; -UNBOUNDED where nothing is hidden on the left."""
    high: np.ndarray
    """int64 [B]; UNBOUNDED where nothing is hidden on the right."""
    lengths: np.ndarray
    """int64 [B], each from 0 to S."""
    bias: np.ndarray | None = None
    """Broadcast to [B,H,T,S] (a view: strides may be 0)."""
    mask: np.ndarray | None = None
    """bool, likewise; False hides the key from the query."""
    score_mod: Callable[..., float] | None = None
    """(score, b, h, q_index, kv_index) -> score."""


class Ops(Protocol):
    """One backend's operations. Results are new arrays of the inputs' dtype; activations are named as in config.py."""

    def attention(self, call: AttentionCall) -> np.ndarray:
        """softmax(scores) v: [B,H,T,e]; a query that sees no key gets zeros."""

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        """activation(x [M,K] weight [N,K]^T + bias [N]) + residual [M,N]: [M,N]."""

    def layer_norm(self, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
        """LayerNorm over the last axis of x [M,D]."""

    def rms_norm(self, x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
        """RMSNorm over the last axis of x [M,D]."""

    def softmax(self, x: np.ndarray) -> np.ndarray:
        """Softmax over the last axis of x [M,N]; -inf is excluded, a row of nothing else gives zeros."""

    def activate(self, activation: str, x: np.ndarray) -> np.ndarray:
        """activation(x), any shape."""

    def gate(self, activation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """activation(x) * y, x and y of the same shape."""

    def rotate(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
        """Rotary embedding of x [B,H,T,d]: the first r columns are turned by cos, sin [B,T,r/2] (strides may be 0)."""
