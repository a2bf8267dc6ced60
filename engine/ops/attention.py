"""Attention: one operation for every kind of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.functional import UNBOUNDED, AttentionCall
from ..errors import InputError
from .arguments import Arguments, integer, integers, number

_FARTHEST = 2**31


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    softcap: float = 0.0,
    kv_lengths: Any = None,
    q_offset: Any = None,
    score_mod: Callable[..., float] | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """softmax(scores) v, where scores = q k^T * scale, with whatever the options do to them: float32 [B,H,T,e].

    q [B,H,T,d], k [B,G,S,d], v [B,G,S,e]. G divides H, and query head h reads key head h // (H/G): G = H is multi-head
    attention (Vaswani et al. 2017, section 3.2), G = 1 multi-query (Shazeer, arXiv:1911.02150), between them
    grouped-query attention (Ainslie et al., arXiv:2305.13245). k and v of another sequence make it cross-attention.

    The scores, step by step:
        scale       they are multiplied by it; None for 1/sqrt(d)
        softcap     c > 0 bends them into (-c, c): c tanh(score/c) (Gemma 2, arXiv:2408.00118); 0 for none
        bias        float array that broadcasts to [B,H,T,S], added
        score_mod   function (score, b, h, q_index, kv_index) -> score, of the numbers of the sequence, query head,
                    query and key, each from 0. Where it is compiled it needs Numba; "reference" calls it as it is

    Then the keys that a query sees. Query t stands at place p = t + q_offset among the keys:
        q_offset    int, or integers [B]; None for 0, so that the first query is beside the first key. With a cache
                    of keys it is the number of those that came before the queries
        causal      keys s <= p only
        window      (left, right): keys p - left <= s <= p + right only; None leaves a side open (Beltagy et al.,
                    arXiv:2004.05150)
        mask        bool array that broadcasts to [B,H,T,S]: True where the query may look at the key
        kv_lengths  int, or integers [B], from 0 to S: sequence b has only so many keys, from the first

    A key that is not seen does not exist for that query, whatever its k, v and bias hold, nor does one whose score is
    -inf. A query that is left with no key gets zeros. NaN in what is seen gives NaN.

    Time grows with the pairs inside the causal and windowed band and the lengths, memory with T alone: scores are made
    in blocks and summed as they come (Milakov and Gimelshein, arXiv:1805.02867). The reference holds one head's [T,S].
    Bias and mask are read in place, never spread out: mask[:, None, None] of a padding mask [B,S] costs nothing.

    Raises `InputError`; `UnsupportedError` for a score_mod that cannot be compiled and float64 off the reference;
    `BackendUnavailable`, also for a score_mod without Numba.
    """
    arguments = Arguments()
    q = arguments.array("q", q, "B H T d")
    k = arguments.array("k", k, "B G S d")
    v = arguments.array("v", v, "B G S e")
    B, H, T, G, S, d, e = (arguments.sizes[letter] for letter in "BHTGSde")
    if H % G:
        raise InputError(f"the {G} heads of k and v must divide the {H} heads of q")
    if score_mod is not None and not callable(score_mod):
        raise InputError(f"score_mod must be a function (score, b, h, q_index, kv_index) -> score, not {score_mod!r}")
    low, high = _band(B, causal, window, q_offset)
    call = AttentionCall(
        q, k, v,
        scale=1 / math.sqrt(d) if scale is None else number("scale", scale),
        softcap=number("softcap", softcap, least=0),
        low=low,
        high=high,
        lengths=np.full(B, S, np.int64) if kv_lengths is None else integers("kv_lengths", kv_lengths, B, 0, S),
        bias=None if bias is None else _spread("bias", arguments.floats("bias", bias), (B, H, T, S)),
        mask=None if mask is None else _spread("mask", _check_mask(mask), (B, H, T, S)),
        score_mod=score_mod,
    )  # fmt: skip
    ops = arguments.ops(backend, threads)
    if B * T * S * e == 0:
        return np.zeros((B, H, T, e), q.dtype)
    return ops.attention(call)


def _band(B: int, causal: bool, window: Any, q_offset: Any) -> tuple[np.ndarray, np.ndarray]:
    """low and high, int64 [B] each: query t sees keys t + low <= s < t + high."""
    offset = integers("q_offset", 0 if q_offset is None else q_offset, B, -_FARTHEST, _FARTHEST)
    left, right = _check_window(window)
    low = np.full(B, -UNBOUNDED) if left is None else offset - left
    if causal:
        right = 0
    high = np.full(B, UNBOUNDED) if right is None else offset + right + 1
    return low, high


def _check_window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise InputError(f"window must be None or (left, right), each an int or None, not {window!r}")
    left, right = (
        None if n is None else min(integer(f"window[{i}]", n, least=0), _FARTHEST) for i, n in enumerate(window)
    )
    return left, right


def _check_mask(mask: Any) -> np.ndarray:
    if isinstance(mask, np.ndarray) and mask.dtype == bool:
        return np.asarray(mask)
    what = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
    raise InputError(
        f"mask must be a bool array, True where a query may look at a key, not {what}; convert it with "
        "np.asarray(mask, bool), or pass one that is to be added to the scores as bias"
    )


def _spread(name: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array as a view of that shape."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise InputError(
            f"{name} must broadcast to [B,H,T,S], here {list(shape)}, and {list(array.shape)} does not; "
            f"one for each key [B,S] is passed as {name}[:, None, None]"
        ) from None
