"""Compute attention as `engine.ops.attention` describes it, in the precision of the arguments."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from ...base.arguments import is_number
from ...base.errors import InputError, shown
from ..ops_interface import A_SCORE, AttentionCall
from .formulas import softmax


def attention(call: AttentionCall) -> np.ndarray:
    """Return [B,H,T,e]: for each query, the values of the keys that it sees, weighted by the softmax of their scores.

    Keys that a query does not see are left out: NaN in a hidden value, times a weight of 0, would be NaN in the result.
    """
    B, H, T, _ = call.q.shape
    G = call.k.shape[1]
    out = np.zeros((B, H, T, call.v.shape[3]), call.q.dtype)
    for b in range(B):
        for h in range(H):
            values = call.v[b, h // (H // G)]
            scores = _scores(call, b, h)
            weights = softmax(scores)       # 0 for a key that the query does not see
            if np.isfinite(values).all():       # then hidden keys add 0, and one product of matrices is enough
                out[b, h] = weights @ values
                continue
            seen = ~np.isneginf(scores)
            for t in range(T):
                out[b, h, t] = weights[t, seen[t]] @ values[seen[t]]
    return out


def attention_weights(call: AttentionCall, b: int, h: int) -> np.ndarray:
    """Return [T,S]: the softmax of the scores of one head, with zeros for keys that a query does not see."""
    return softmax(_scores(call, b, h))


def _scores(call: AttentionCall, b: int, h: int) -> np.ndarray:
    """Return the scores [T,S] of one head, with -inf where the query does not see the key."""
    scores = call.q[b, h] @ call.k[b, h // (call.q.shape[1] // call.k.shape[1])].T * call.scale
    if call.softcap:
        scores = call.softcap * np.tanh(scores / call.softcap)
    if call.bias is not None:
        scores = scores + call.bias[b, h]
    visible = visible_keys(call, b, h)
    if call.score_mod is not None:
        _check_signature(call.score_mod)
        for t, s in np.argwhere(visible).tolist():
            scores[t, s] = _check_score(call.score_mod(scores[t, s].item(), b, h, t, s), b, h, t, s)
    return np.where(visible, scores, np.array(-np.inf, scores.dtype))


def _check_signature(score_mod: Callable[..., float]) -> None:
    """Raise `InputError` for a function that cannot be called with a score and four indices."""
    try:
        signature(score_mod).bind(0.0, 0, 0, 0, 0)
    except TypeError as error:
        raise InputError("score_mod: expected a function of (score, b, h, q_index, kv_index), any further parameters "
                         f"with defaults or given by functools.partial; got {shown(score_mod)}: {error}") from None
    except ValueError:      # a function of C, which has no signature
        pass


def _check_score(score: Any, b: int, h: int, t: int, s: int) -> Any:
    """Return what a score function returned; raises `InputError` unless it is a real number."""
    if not is_number(score, np.integer, np.floating):
        place = f"b={b}, h={h}, q_index={t}, kv_index={s}"
        raise InputError(f"score_mod must return a number, not {shown(score)} as at {place}; {A_SCORE}")
    return score


def visible_keys(call: AttentionCall, b: int, h: int) -> np.ndarray:
    """Return bool [T,S]: True for keys within the sequence and inside the band that the mask does not hide."""
    t = np.arange(call.q.shape[2])[:, None]
    s = np.arange(call.k.shape[2])
    visible = (s < call.lengths[b]) & (t + call.low[b] <= s) & (s < t + call.high[b])
    return visible if call.mask is None else visible & call.mask[b, h]
