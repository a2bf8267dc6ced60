"""Attention as `engine.ops.attention` describes it, query by query, in the precision of its arguments."""

from __future__ import annotations

import numpy as np

from ..functional import AttentionCall
from .ops import softmax


def attention(call: AttentionCall) -> np.ndarray:
    """[B,H,T,e]: for each query, softmax over the keys that it sees, and these keys' values in that proportion.

    Keys that it does not see are left out, not given a weight of 0, which would make NaN of their NaN.
    """
    B, H, T, _ = call.q.shape
    G = call.k.shape[1]
    out = np.zeros((B, H, T, call.v.shape[3]), call.q.dtype)
    for b in range(B):
        for h in range(H):
            values = call.v[b, h // (H // G)]
            for t, row in enumerate(_scores(call, b, h)):
                seen = ~np.isneginf(row)
                out[b, h, t] = softmax(row[seen]) @ values[seen]
    return out


def _scores(call: AttentionCall, b: int, h: int) -> np.ndarray:
    """The scores [T,S] of one head, -inf where the query does not see the key."""
    scores = call.q[b, h] @ call.k[b, h // (call.q.shape[1] // call.k.shape[1])].T * call.scale
    if call.softcap:
        scores = call.softcap * np.tanh(scores / call.softcap)
    if call.bias is not None:
        scores = scores + call.bias[b, h]
    visible = _visible(call, b, h)
    if call.score_mod is not None:
        for t, s in np.argwhere(visible).tolist():
            scores[t, s] = call.score_mod(scores[t, s].item(), b, h, t, s)
    return np.where(visible, scores, np.array(-np.inf, scores.dtype))


def _visible(call: AttentionCall, b: int, h: int) -> np.ndarray:
    """bool [T,S]: the keys within the sequence, inside the band, and left by the mask."""
    t = np.arange(call.q.shape[2])[:, None]
    s = np.arange(call.k.shape[2])
    visible = (s < call.lengths[b]) & (t + call.low[b] <= s) & (s < t + call.high[b])
    return visible if call.mask is None else visible & call.mask[b, h]
