"""Encode positions for attention: rotations of queries and keys (rotary), or biases of the scores (ALiBi, T5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.numba_cuda.shared_array import lies_on_gpu
from ..base.arguments import flag
from ..base.errors import InputError, shown
from ..model import positions as formulas
from ..model.bits import FASTEST
from .arguments import Arguments, broadcast, integer, number, read_array

_MOST_HEADS, _FARTHEST = 2**16, 2**31
"""Limits on H, and on distances and offsets, so that wrong numbers neither fill the memory nor overflow int64."""
_MOST_TOKENS = 2**20
"""Limit on T and S of `relative_position_bias`, which takes 40 bytes for each of their sum."""


def rotary(x: np.ndarray, *, positions: Any = None, base: float = 10000.0, width: int | None = None,
           cos: np.ndarray | None = None, sin: np.ndarray | None = None, interleaved: bool = False,
           backend: str | None = None, threads: int | None = None, bits: str = FASTEST) -> np.ndarray:
    """Apply the rotary position embedding to queries or keys x [B,H,T,d]: the same shape.

    Of the first r columns of each row, pair i (x, y) becomes (x cos - y sin, x sin + y cos), by the angle position *
    base^(-2i/r). The other columns stay unchanged. Su et al., arXiv:2104.09864, eq. 34.
        positions    numbers [T] or [B,T]; None for 0 to T-1. They need not be whole
        width        r, even; None for d
        cos, sin     [T,r/2] or [B,T,r/2]: the cosine and the sine of each pair's angle, instead of positions, base and
                     width. If a table repeats its columns for both members of a pair, pass one half of it
        interleaved  True: pair i is columns 2i and 2i+1 (GPT-J, RoFormer); False: columns i and i+r/2 (LLaMA, GPT-NeoX)
    Raises `InputError`.
    """
    arguments = Arguments(backend)
    x = arguments.array("x", x, "B H T d")
    B, T, d = (arguments.sizes[letter] for letter in "BTd")
    if (cos is None) != (sin is None):
        raise InputError(f"cos and sin go together; {'sin' if cos is None else 'cos'} came alone")
    if cos is not None and (positions is not None or width is not None):
        raise InputError("pass either cos and sin, or positions, base and width, not both")
    if cos is None:
        dtype = np.dtype(np.float64 if x.dtype == "float64" else np.float32)
        tables = _angles(dtype, (B, T), d, positions, number("base", base, least=1), width)
        cos, sin = map(arguments.on_same_device, tables)
    else:
        cos, sin = arguments.floats("cos", cos), arguments.floats("sin", sin)
    pairs = cos.shape[-1] if cos.ndim else 0
    if not 1 <= pairs <= d // 2:
        raise InputError(f"cos and sin must have from 1 to d/2 = {d // 2} columns, one for each pair, not {pairs}")
    cos, sin = _for_batch("cos", cos, (B, T, pairs)), _for_batch("sin", sin, (B, T, pairs))
    ops = arguments.ops(threads, bits)
    return ops.rotate(x, cos, sin, flag("interleaved", interleaved)) if x.size else np.empty_like(x)


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Return ALiBi's slope of each head: float32 [H]. Press et al., arXiv:2108.12409, section 3.

    The scores of head h get -slopes[h] * |query's position - key's position| added, as a bias or by a score_mod:

        def alibi(score, b, h, q_index, kv_index, slopes):
            return score - slopes[h] * abs(q_index - kv_index)

        attention(q, k, v, score_mod=functools.partial(alibi, slopes=alibi_slopes(H)))

    If H is a power of two, the slopes are 2^(-8/H), 2^(-16/H) ... 2^-8. Otherwise they are the slopes of the next lower
    power of two, followed by every second slope of the next higher one, as in the authors' code and in BLOOM. MPT has
    other slopes when H is not a power of two: it takes the slopes of the next higher power of two in another order.
    Raises `InputError` for H below 1.
    """
    H = integer("num_heads", num_heads, least=1, most=_MOST_HEADS)
    return formulas.alibi_slopes(H).astype(np.float32)


def relative_position_bias(table: np.ndarray, T: int, S: int | None = None, *, bidirectional: bool = True,
                           max_distance: int = 128, query_offset: int = 0) -> np.ndarray:
    """Return T5's learned bias by distance, for `attention(bias=...)`: [1,H,T,S].

    table [buckets,H]: row i holds the biases of bucket i. The distance, which is the key's position minus the query's,
    selects the bucket. If bidirectional is True, half of the table is for keys at or before the query and half for keys
    after it; if it is False, keys after the query are in bucket 0. In each direction, half of the buckets hold one
    distance each; the others are spaced logarithmically up to max_distance, and the last one holds all longer
    distances. T, S: numbers of queries and keys; S None for T. query_offset: the first query's place among keys.

    The result is a read-only view of H * (T + S - 1) numbers, however long the sequences are: copy it to write to it.
    Raffel et al., arXiv:1910.10683, section 2.1. Raises `InputError`.
    """
    if lies_on_gpu(table):
        raise InputError("table must be a NumPy array, and it lies on a GPU; pass table.cpu().numpy(), because the "
                         "biases are computed on the host, and copy them to the GPU")
    table = Arguments().array("table", table, "buckets H")
    T = integer("T", T, least=0, most=_MOST_TOKENS)
    S = T if S is None else integer("S", S, least=0, most=_MOST_TOKENS)
    bidirectional = flag("bidirectional", bidirectional)
    buckets = len(table) // 2 if bidirectional else len(table)
    if buckets < 2 or (bidirectional and len(table) % 2):
        raise InputError(f"table must have {'an even number of 4 or more' if bidirectional else '2 or more'} rows, "
                         f"not {len(table)}")
    max_distance = integer("max_distance", max_distance, least=buckets // 2 + 1, most=_FARTHEST)
    # Entry j of `line` is the bias at distance j - (T-1) - offset. Row t of the result is the window of `line` that
    # starts at T-1-t.
    first = 1 - T - integer("query_offset", query_offset, least=-_FARTHEST, most=_FARTHEST)
    distances = np.arange(first, first + max(T + S - 1, 0))
    line = table[formulas.buckets_of(distances, len(table), max_distance, bidirectional)].T
    if T * S == 0:
        return np.zeros((1, table.shape[1], T, S), table.dtype)
    return np.lib.stride_tricks.sliding_window_view(line, S, axis=1)[None, :, ::-1]


def _angles(dtype: np.dtype, shape: tuple[int, int], d: int, positions: Any, base: float, width: int | None
            ) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin for `rotary`, computed in float64: [T,r/2] or [B,T,r/2] in `dtype`. shape: (B, T)."""
    r = d if width is None else integer("width", width, least=2)
    if r % 2 or r > d:
        default = "; it is d by default" if width is None else ""
        raise InputError(f"width must be even and at most d={d}, not {shown(r)}{default}")
    places = np.arange(shape[1]) if positions is None else read_array("positions", positions, "numbers [T] or [B,T]")
    if places.size and places.dtype.kind not in "iuf":
        raise InputError(f"positions must be numbers [T] or [B,T], not {places.dtype}")
    if not np.isfinite(places).all():
        raise InputError("positions must be finite numbers, and they hold NaN or infinity")
    _for_batch("positions", places, shape)
    return formulas.rotary_angles(places, base, r, dtype)


def _for_batch(name: str, array: Any, shape: tuple[int, ...]) -> Any:
    """Return a view of the array with this shape, [B,T] or [B,T,r/2]; its axis B may be absent, or 1."""
    sequence_shape = shape[1:]
    if array.shape not in (shape, sequence_shape, (1, *sequence_shape)):
        raise InputError(f"{name} must have the shape {list(sequence_shape)} or {list(shape)}, not {list(array.shape)}")
    return broadcast(array, shape)
