"""Weights of linear maps in 4 bits, in groups of 16 whose scales and offsets are integers.

    w[j,k] ~ scale[j] * m[j,g] * q[j,k] + offset_scale[j] * o[j,g]

q is 0 to 15, and for each row j and each group g = k // 16 the multiplier m is 1 to 15 and the offset o is -127 to 127.
That is 4.75 bits a weight. The sums of m q a and of o (the sum of a over a group), for integers a, are integers, so
that kernels may add them in any order and have the same bits (`backends/cython_cpu/kernels/integers.pxi`).

A row is stored in blocks of 32 weights, 19 bytes: 16 bytes of two q each, the first in the lower four bits; one byte of
the multipliers of its two groups, the first in the lower four bits; and the two offsets. The weights that belong to one
head of the inputs end with a whole block, because kernels pad heads to whole blocks. Two float32 beside each row are
its scale and its offset scale.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..base.errors import InputError
from ..model.precision import FORMATS

GROUP = 16
BLOCK, BYTES = FORMATS["int4"].block, FORMATS["int4"].entries
TOP_Q, TOP_M, TOP_OFFSET = np.float32(15), np.float32(15), np.float32(127)
WIDTHS = tuple(map(np.float32, (0.80, 0.88, 0.96, 1.04)))
"""What part of the range of a group's weights its 16 steps cover, to choose from: those at the ends may be cut."""
ROUNDS = 2
"""How often multipliers, offsets and codes are chosen for a scale, and then the scale for them."""
_SLAB = 2**16
"""Weights that are worked on together, so that temporary arrays stay in cache."""


def quantize_int4(w: np.ndarray, heads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Quantize the weight [N, K] of a linear map: return uint8 [N, bytes of a row] and float32 scales [N, 2].

    heads: the number of heads that the K inputs come from, see `engine.weights.parameters.input_heads`. Multipliers,
    offsets and q are those with the least squared error, larger weights counting more, that a search over `WIDTHS`
    finds. Raises `InputError` for anything but a finite float32 matrix.
    """
    if w.ndim != 2 or w.dtype != np.float32 or w.size == 0:
        raise InputError(f"only a float32 matrix [N, K] can be quantized, not {w.dtype} of shape {list(w.shape)}")
    N, K = w.shape
    stored = np.empty(FORMATS["int4"].shape(w.shape, heads), np.uint8)
    scales = np.empty((N, 2), np.float32)
    for rows in _slabs(N, K):
        groups = _to_groups(w[rows], heads)
        if not np.isfinite(groups).all():
            raise InputError("only finite numbers can be quantized, and the matrix holds NaN or infinity")
        q, m, o, scales[rows] = _search(groups)
        stored[rows] = _to_blocks(q, m, o)
    return stored, scales


def widen_int4(stored: np.ndarray, scales: np.ndarray, K: int, heads: int = 1) -> np.ndarray:
    """Return the matrix [N, K] that `quantize_int4` has stored, in the dtype of the scales [N, 2]."""
    q, m, o = _from_blocks(stored)
    wide = scales[:, :1, None] * (m[..., None] * q) + (scales[:, 1:, None] * o[..., None])
    wide = wide.reshape(len(stored), heads, -1)[:, :, : K // heads]
    return np.ascontiguousarray(wide.reshape(len(stored), K))


def impossible_int4(stored: np.ndarray) -> str | None:
    """Describe the forbidden bytes of stored blocks; None if there are none."""
    blocks = stored.reshape(len(stored), -1, BYTES)
    if (blocks[..., 17:] == 128).any():
        return "an offset of -128, expected -127 to 127"
    multipliers = blocks[..., 16]
    return "a multiplier of 0, expected 1 to 15" if ((multipliers & 15 == 0) | (multipliers < 16)).any() else None


def _slabs(N: int, K: int) -> Iterator[slice]:
    step = max(1, _SLAB // K)
    return (slice(i, min(N, i + step)) for i in range(0, N, step))


def _to_groups(w: np.ndarray, heads: int) -> np.ndarray:
    """Return weights [n, G, 16]; the last block of a head is filled with copies of the head's last weight."""
    n, width = len(w), w.shape[1] // heads
    by_head = w.reshape(n, heads, width)
    if width % BLOCK:
        by_head = np.concatenate([by_head, by_head[:, :, -1:].repeat(-width % BLOCK, axis=2)], axis=2)
    return by_head.reshape(n, -1, GROUP)


def _search(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return q [n, G, 16], m and o [n, G], all whole float32, and the scales [n, 2] for weights [n, G, 16].

    The search is for rows whose largest weight is 1, so that no square overflows. Rows below 1e-30 become zeros.
    """
    largest = np.abs(x).max(axis=(1, 2))
    x = x * np.where(largest > 1e-30, 1 / np.maximum(largest, np.float32(1e-30)), 0)[:, None, None]
    q, m, o, scales = _search_normalized(x)
    return q, m, o, scales * np.where(largest > 1e-30, largest, 1)[:, None]


def _search_normalized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    lowest, highest = x.min(axis=2), x.max(axis=2)
    span, middle = highest - lowest, (highest + lowest) / 2
    weight = x * x
    weight += weight.mean(axis=2, keepdims=True)
    total = weight.sum(axis=2)
    np.maximum(total, np.float32(1e-30), out=total)
    scale = _not_zero(span.max(axis=1) / (TOP_Q * TOP_M))
    offset_scale = _not_zero(np.abs(np.stack([lowest, highest])).max(axis=(0, 2)) / TOP_OFFSET)
    best: tuple[np.ndarray, ...] = ()
    for _ in range(ROUNDS):
        error = np.full(span.shape, np.inf, np.float32)
        best = np.zeros_like(x), np.ones_like(span), np.zeros_like(span)
        for width in WIDTHS:
            m = np.clip(np.rint(span * (width / TOP_Q) / scale[:, None]), 1, TOP_M)
            step = scale[:, None] * m
            o = _offsets(middle - TOP_Q / 2 * step, offset_scale)
            q = _codes(x, step, o * offset_scale[:, None])
            o = _offsets((weight * (x - step[..., None] * q)).sum(axis=2) / total, offset_scale)
            q = _codes(x, step, o * offset_scale[:, None])
            rest = step[..., None] * q
            rest += (o * offset_scale[:, None])[..., None] - x
            own = (weight * rest * rest).sum(axis=2)
            better = own < error
            error = np.where(better, own, error)
            for kept, new in zip(best, (q, m, o), strict=True):
                kept[better] = new[better]
        scale = _best_scale(x, weight, *best, scale, offset_scale)
    q, m, o = best
    return q, m, o, np.stack([scale, offset_scale], axis=1)


def _best_scale(x: np.ndarray, weight: np.ndarray, q: np.ndarray, m: np.ndarray, o: np.ndarray, scale: np.ndarray,
                offset_scale: np.ndarray) -> np.ndarray:
    """Return the scale [n] of least squares for these codes, or the present one where all codes are 0."""
    code = m[..., None] * q
    weighted = weight * code
    size = (weighted * code).sum(axis=(1, 2))
    found = (weighted * (x - (o * offset_scale[:, None])[..., None])).sum(axis=(1, 2)) / np.where(size > 0, size, 1)
    return np.where((size > 0) & (found > 1e-30), found, scale)


def _codes(x: np.ndarray, step: np.ndarray, offset: np.ndarray) -> np.ndarray:
    q = x - offset[..., None]
    q *= (1 / step)[..., None]
    np.rint(q, out=q)
    return np.clip(q, 0, TOP_Q, out=q)


def _offsets(wanted: np.ndarray, offset_scale: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(wanted / offset_scale[:, None]), -TOP_OFFSET, TOP_OFFSET)


def _not_zero(scale: np.ndarray) -> np.ndarray:
    return np.where(scale > 1e-30, scale, 1).astype(np.float32)


def _to_blocks(q: np.ndarray, m: np.ndarray, o: np.ndarray) -> np.ndarray:
    n = len(q)
    codes, factors = q.astype(np.uint8).reshape(n, -1, BLOCK), m.astype(np.uint8).reshape(n, -1, 2)
    blocks = np.empty((n, codes.shape[1], BYTES), np.uint8)
    blocks[..., :16] = codes[..., ::2] | codes[..., 1::2] << 4
    blocks[..., 16] = factors[..., 0] | factors[..., 1] << 4
    blocks[..., 17:] = o.astype(np.int8).view(np.uint8).reshape(n, -1, 2)
    return blocks.reshape(n, -1)


def _from_blocks(stored: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q [n, G, 16], m and o [n, G] as float32."""
    n = len(stored)
    blocks = stored.reshape(n, -1, BYTES)
    q = np.stack([blocks[..., :16] & 15, blocks[..., :16] >> 4], axis=3)
    m = np.stack([blocks[..., 16] & 15, blocks[..., 16] >> 4], axis=2)
    o = np.ascontiguousarray(blocks[..., 17:]).view(np.int8)
    return (q.reshape(n, -1, GROUP).astype(np.float32), m.reshape(n, -1).astype(np.float32),
            o.reshape(n, -1).astype(np.float32))
