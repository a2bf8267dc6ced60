"""Weights of linear maps in 4 bits, in groups of 16 whose scales and offsets are integers.

    w[j,k] ~ scale[j] * m[j,g] * q[j,k] + offset_scale[j] * o[j,g]

q is 0 to 15, and for each row j and each group g = k // 16 the multiplier m is 1 to 15 and the offset o is -127 to 127.
That is 4.75 bits a weight. For integers a, the sums of m q a over a block, and of o times the sums of a over groups,
are integers, so that kernels may add them in any order and have the same bits
(`backends/cython_cpu/kernels/nibbles.pxi`).

A row is stored in blocks of 32 weights, 19 bytes: 16 bytes of two q each, the first in the lower four bits; one byte of
the multipliers of its two groups, the first in the lower four bits; and the two offsets. The weights that belong to one
head of the inputs end with a whole block, because kernels pad heads to whole blocks. Two float32 beside each row are
its scale and its offset scale.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..base.cpus import choose_threads
from ..base.errors import InputError, UnsupportedError
from ..base.install import explain_missing_kernels
from ..model.precision import FORMATS

GROUP = 16
"""The weights of a row that share a multiplier and an offset."""
BLOCK, BYTES = FORMATS["int4"].block, FORMATS["int4"].entries      # 32 weights, in 19 bytes
WIDTHS = np.array([0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 1.00, 1.05, 1.10], np.float32)
"""Candidates for the share of the range of a group's weights that its 16 steps cover; the search tries all. Below 1,
weights at the ends of the range are cut. A finer list would give the same multipliers again."""
ROUNDS = 2
"""How often multipliers, offsets and codes are chosen for a scale, and then the scale for them."""
_SLAB = 2**18
"""How many weights a thread quantizes at a time."""


def quantize_int4(w: np.ndarray, heads: int = 1, importance: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Quantize the weight [N, K] of a linear map: return uint8 [N, bytes of a row] and float32 scales [N, 2].

    heads: the number of heads that the K inputs come from, see `engine.weights.parameters.input_heads`. importance [K]:
    how much an error of each column counts, such as the mean square of the input; None for the same for all.
    Multipliers, offsets and q are those with the least squared error, larger weights counting more, that a search over
    `WIDTHS` finds; threads divide the rows. Raises `InputError` for anything but a finite float32 matrix, and for an
    importance that is not finite, positive float32 of length K; `UnsupportedError` where the search is not compiled.
    """
    if w.ndim != 2 or w.dtype != np.float32 or w.size == 0:
        raise InputError(f"only a float32 matrix [N, K] can be quantized, not {w.dtype} of shape {list(w.shape)}")
    N, K = w.shape
    if importance is not None and (importance.shape != (K,) or importance.dtype != np.float32
                                   or not (np.isfinite(importance) & (importance > 0)).all()):
        raise InputError(f"importance must be {K} positive float32 numbers, one for each column")
    search = _compiled_search()
    w, importance = np.ascontiguousarray(w), None if importance is None else np.ascontiguousarray(importance)
    stored, scales = np.empty(FORMATS["int4"].shape(w.shape, heads), np.uint8), np.empty((N, 2), np.float32)
    slabs = range(0, N, max(1, -(-_SLAB // K)))     # the first row of each slab

    def fill(first: int) -> int:
        """Quantize the slab that begins with a row; return the number of a row that is not finite, or -1."""
        rows = slice(first, min(N, first + slabs.step))
        return search(w[rows], heads, importance, WIDTHS, ROUNDS, stored[rows], scales[rows])

    threads = choose_threads(None) if len(slabs) > 1 else 1
    with ThreadPoolExecutor(threads) as pool:
        in_slabs = pool.map if threads > 1 else map     # with one thread, this thread does the work
        if any(wrong >= 0 for wrong in in_slabs(fill, slabs)):
            raise InputError("only finite numbers can be quantized, and the matrix holds NaN or infinity")
    return stored, scales


def _compiled_search() -> Callable[..., int]:
    """Return the compiled function `int4_search.search_rows`; raises `UnsupportedError` if it is not compiled."""
    try:
        from .native.int4_search import search_rows
    except ImportError as error:
        raise UnsupportedError(f"weights become int4 by a compiled search; {explain_missing_kernels(error)}") from error
    return search_rows


def widen_int4(stored: np.ndarray, scales: np.ndarray, K: int, heads: int = 1) -> np.ndarray:
    """Return the matrix [N, K] that `quantize_int4` has stored, in the dtype of the scales [N, 2].

    stored: uint8 [N, bytes of a row]. heads: how many heads the K inputs come from.
    """
    q, m, o = _from_blocks(stored)
    wide = scales[:, :1, None] * (m[..., None] * q) + (scales[:, 1:, None] * o[..., None])
    wide = wide.reshape(len(stored), heads, -1)[:, :, : K // heads]
    return np.ascontiguousarray(wide.reshape(len(stored), K))


def impossible_int4(stored: np.ndarray) -> str | None:
    """Return a description of forbidden bytes in stored blocks, uint8 [N, bytes of a row]; None if there are none."""
    blocks = stored.reshape(len(stored), -1, BYTES)
    if (blocks[..., 17:] == 128).any():     # as int8, that is -128
        return "an offset of -128, expected -127 to 127"
    multipliers = blocks[..., 16]
    low, high = multipliers & 15, multipliers >> 4
    return "a multiplier of 0, expected 1 to 15" if ((low == 0) | (high == 0)).any() else None


def _from_blocks(stored: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes q [n, G, 16], multipliers m [n, G] and offsets o [n, G] of stored rows, as float32."""
    n = len(stored)
    blocks = stored.reshape(n, -1, BYTES)
    q = np.stack([blocks[..., :16] & 15, blocks[..., :16] >> 4], axis=3)
    m = np.stack([blocks[..., 16] & 15, blocks[..., 16] >> 4], axis=2)
    o = np.ascontiguousarray(blocks[..., 17:]).view(np.int8)
    return (q.reshape(n, -1, GROUP).astype(np.float32), m.reshape(n, -1).astype(np.float32),
            o.reshape(n, -1).astype(np.float32))
