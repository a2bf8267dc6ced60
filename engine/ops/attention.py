"""Define `engine.ops.attention`, the one operation for attention of every kind: check its options, and run it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.ops_interface import UNBOUNDED, AttentionCall
from ..base.arguments import flag, renamed_arguments
from ..base.errors import InputError, shown
from ..model.bits import FASTEST
from .arguments import Arguments, broadcast, integer, integers, number

_FARTHEST = 2**31
"""Limit on offsets, and on the sides of a window: no array has keys so far away, and sums of both fit int64."""


@renamed_arguments
def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, scale: float | None = None, causal: bool = False,
              window: tuple[int | None, int | None] | None = None, mask: np.ndarray | None = None,
              bias: np.ndarray | None = None, softcap: float = 0.0, kv_lengths: Any = None, q_offset: Any = None,
              score_mod: Callable[..., float] | None = None, backend: str | None = None, threads: int | None = None,
              bits: str = FASTEST) -> np.ndarray:
    """Return softmax(scores) v, where scores = q k^T * scale, changed by the options below: float32 [B,H,T,e].

    q [B,H,T,d], k [B,G,S,d], v [B,G,S,e]. G divides H, and query head h reads key head h // (H/G). G = H is multi-head
    attention (Vaswani et al. 2017, section 3.2), G = 1 is multi-query attention (Shazeer, arXiv:1911.02150), and other
    values are grouped-query attention (Ainslie et al., arXiv:2305.13245). If k and v come from another sequence than q,
    it is cross-attention.

    These options change the scores, in this order:
        scale       factor of the scores; None for 1/sqrt(d)
        softcap     c > 0 maps each score into (-c, c): c tanh(score/c) (Gemma 2, arXiv:2408.00118); 0 for no cap
        bias        float array that broadcasts to [B,H,T,S] and is added to the scores
        score_mod   function (score, b, h, q_index, kv_index) -> score; the indices of the sequence, the query head, the
                    query and the key count from 0. "reference" calls the function; other backends compile it with Numba

    These options select the keys that a query sees. Query t has the position p = t + q_offset among the keys:
        q_offset    int, or integers [B]; None for 0, which puts the first query at the position of the first key. With
                    a key cache it is the number of cached keys before the queries
        causal      the query sees only keys s <= p
        window      (left, right): the query sees only keys p - left <= s <= p + right; None sets no limit on that side
                    (Beltagy et al., arXiv:2004.05150)
        mask        bool array that broadcasts to [B,H,T,S]: True where the query sees the key
        kv_lengths  int, or integers [B], from 0 to S: sequence b has only its first kv_lengths[b] keys

    A key that a query does not see has no effect on its result, whatever its k, v and bias hold; on tensor cores, NaN
    and infinity in v may have one (docs/ops.md). The same is true of a key whose score is -inf. A query that sees no
    key gets zeros. NaN in what a query sees makes its result NaN.

    Time grows with the number of (query, key) pairs within the causal limit, the window and the lengths; memory grows
    with T alone, because scores are computed in blocks and summed at once (Milakov and Gimelshein, arXiv:1805.02867).
    The reference backend holds the [T,S] scores of one head. Bias and mask are read in place and never expanded, so
    that mask[:, None, None] of a padding mask [B,S] uses no memory.

    Raises `InputError`. Raises `UnsupportedError` for a score_mod that cannot be compiled, and for float64 on a backend
    other than the reference. Raises `BackendUnavailable` for a backend that cannot run here, and for a score_mod
    without Numba.
    """
    arguments = Arguments(backend)
    q = arguments.array("q", q, "B H T d")
    k = arguments.array("k", k, "B G S d")
    v = arguments.array("v", v, "B G S e")
    B, H, T, G, S, d, e = (arguments.sizes[letter] for letter in "BHTGSde")
    if H % G:
        raise InputError(f"the {G} heads of k and v must divide the {H} heads of q")
    if score_mod is not None and not callable(score_mod):
        raise InputError(f"score_mod must be a function (score, b, h, q_index, kv_index) -> score, not "
                         f"{shown(score_mod)}")
    low, high = _band(B, causal, window, q_offset)
    call = AttentionCall(
        q, k, v, scale=1 / math.sqrt(d) if scale is None else number("scale", scale),
        softcap=number("softcap", softcap, least=0), low=low, high=high,
        lengths=np.full(B, S, np.int64) if kv_lengths is None else integers("kv_lengths", kv_lengths, B, 0, S),
        bias=None if bias is None else _broadcast("bias", arguments.floats("bias", bias), (B, H, T, S)),
        mask=None if mask is None else _broadcast("mask", arguments.mask("mask", mask), (B, H, T, S)),
        score_mod=score_mod)
    ops = arguments.ops(threads, bits)
    return ops.attention(call) if B * T * S * e else np.zeros((B, H, T, e), q.dtype)


def _band(B: int, causal: bool, window: Any, q_offset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high, int64 [B] each: query t sees keys t + low <= s < t + high. Raises `InputError`."""
    offset = integers("q_offset", 0 if q_offset is None else q_offset, B, -_FARTHEST, _FARTHEST)
    left, right = _check_window(window)
    low = np.full(B, -UNBOUNDED) if left is None else offset - left
    if flag("causal", causal):
        right = 0       # a causal query sees no key behind its own position, whatever the window allows
    high = np.full(B, UNBOUNDED) if right is None else offset + right + 1
    return low, high


def _check_window(window: Any) -> tuple[int | None, int | None]:
    """Return the caller's (left, right), None for a side without a limit; raises `InputError`."""
    if window is None:
        return None, None
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise InputError(f"window must be None or (left, right), each an int or None, not {shown(window)}")
    left, right = (None if n is None else min(integer(f"window[{i}]", n, least=0), _FARTHEST)
                   for i, n in enumerate(window))
    return left, right


def _broadcast(name: str, array: Any, shape: tuple[int, ...]) -> Any:
    """Return a view of the array, broadcast to the shape."""
    try:
        return broadcast(array, shape)
    except ValueError:
        raise InputError(f"{name} must broadcast to [B,H,T,S], here {list(shape)}, and {list(array.shape)} does not; "
                         f"an array [B,S] with one value for each key is passed as {name}[:, None, None]") from None
