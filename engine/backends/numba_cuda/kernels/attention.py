"""Compute flash attention on packed tokens with mma.sync (sm_80 and later): softmax(scale q k^T) v.

After FlashAttention-2 (Dao, 2023, arXiv:2307.08691): a block of four warps handles 64 or 128 queries of one head, 16 or
32 per warp, and iterates over the keys 64 at a time, or 32 for heads of 256 columns. Scores, weights, running maxima
and totals stay in registers. Shared memory holds the queries, and two buffers each for keys and values: (rows + 256) *
2d bytes, which is 48 KB at d = 64 for 128 rows, and 96 KB at d = 128. The next keys are copied while scores are
computed, and the next values while the present ones are multiplied. With 32 queries per warp, each fragment of keys and
values is used twice. With 16, for short sequences and small grids, reading fragments takes as long as multiplying them.
Both give the same bits: a query's sums depend on its sequence alone.

| registers on sm_80 | d = 32 | d = 64 | d = 96 | d = 128 | d = 256 |
|---|---|---|---|---|---|
| 64 rows | 114 | 154 | 172 | 192 | 248 |
| 128 rows | 176 | 232 | 255 | 255 | no |

Limit: instruction issue and exponentials, 370 instructions of a warp for 64 products at d = 64 and 16 queries. On an
H200, whose wgmma they do not use, they are about as fast as FlashAttention-2 (`docs/gpu.md`). No GPU that lacks wgmma
has run them yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.copy import address, copy_async, copy_commit, copy_wait, shared_base, store_global
from ..ptx.inline import f32, i32, u16
from ..ptx.mma import swizzle, warp_product
from ..ptx.scores import add_terms, cap_and_bias
from ..ptx.softmax import LOG2_E, hide, soften
from ..ptx.warp import pack_bf16, reciprocal, shuffle_xor
from ..toolchain import cuda, device_function, types

THREADS = 128
WIDTHS = (32, 64, 96, 128, 256)
"""The supported head widths."""
WIDEST_OF_128_ROWS = 128
"""The widest heads whose sums fit the registers with 128 queries per block."""


UNBOUNDED = 2**29
"""Stands for a side of a window that hides no key."""


def tiles(cu_seqlens: np.ndarray, rows: int, keys: np.ndarray | None = None) -> np.ndarray:
    """Return the work list of a batch: int32 [n, 3].

    An entry is a sequence, the first of up to `rows` of its queries, and the sequence's number of keys. cu_seqlens:
    [B+1], the start of each sequence, and the end of the last. keys: [B]; by default all tokens are keys.
    """
    lengths = np.diff(cu_seqlens)
    keys = lengths if keys is None else keys
    counts = -(-lengths // rows)        # entries of each sequence; within: the number of each entry in its sequence
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    sequences = np.repeat(np.arange(len(lengths)), counts)
    return np.stack([sequences, within * rows, keys[sequences]], axis=1).astype(np.int32)

# The arguments of the kernel:
# - qkv: u16 [N, (H+2G)d], bfloat16: queries, keys, values; query head h reads key head h // (H/G)
# - out: u16 [N, H d], bfloat16
# - cu_seqlens, tiles: i32 [B+1], and the result of `tiles` for it
# or, of a kernel for arrays that lie apart:
# - q, k, v: u16 [B H T, d], [B G S, d] and [B G S, d]; out: u16 [B H T, d]
# - H, G, T, S: i32
# - limits: i32 [B, 1], the number of keys of each sequence
# and then of both:
# - scale: f32 > 0
# - left, right: i32, how many keys a query sees before and after its own; at most UNBOUNDED
# - rate, cap: f32, CAP_RATE / cap and the cap, c over the scale of c tanh(score / c)
# - line: f32 [H, 2R+1], the biases over the scale for the distances t - s of a query and a key from -R to R, beyond
#     which the first and the last one count
# - slopes: f32 [H], over the scale, what is added for each token of distance
# - terms: u16 [N, 2 H L], bfloat16: for each head of queries, then of keys, the terms of L rows of relative positions
# - numbers: i32 [2R+1], the row of each distance from -R to R; H must be G
#
# Arguments of what does not change the scores are dummies.
#
# Query t sees the keys s of its sequence with t - left <= s <= t + right that are below the number of keys. A query
# that sees no key gets zeros. Steps begin at multiples of `keys`, and steps outside of the band of all queries of the
# block are left out.


def attention_kernel(d: int, rows: int = 128, *, capped: bool = False, biased: bool = False, relative: bool = False,
                     apart: bool = False) -> Kernel:
    """Make the kernel for heads of width d, with `rows` (64 or 128) queries per block; grid (len(tiles), H).

    capped, biased, relative: what changes the scores (`ptx/scores.py`). apart: whether queries, keys and values lie
    apart, each head by itself; the grid is then B H ceil(T / rows), and the scores are capped at most. The arguments
    are described above.
    """
    if d not in WIDTHS or rows not in (64, 128) or (rows == 128 and d > WIDEST_OF_128_ROWS):
        raise ValueError(f"a head width of {WIDTHS} and 64 or 128 rows expected, got d={d}, rows={rows}")
    pitch, keys = 2 * d, _step_keys(d)
    attend, item = _attend(d, rows, capped, biased, relative), separate_item(rows)

    def packed(qkv: Any, out: Any, cu_seqlens: Any, tiles: Any, scale: Any, left: Any, right: Any, rate: Any, cap: Any,
               line: Any, slopes: Any, terms: Any, numbers: Any) -> None:
        heads, head = types.int32(out.shape[1] // d), types.int32(cuda.blockIdx.y)
        key_heads = types.int32((qkv.shape[1] // d - heads) // 2)
        begin, top = cu_seqlens[tiles[cuda.blockIdx.x, 0]], tiles[cuda.blockIdx.x, 1]   # first token, first query
        length = types.int32(cu_seqlens[tiles[cuda.blockIdx.x, 0] + 1] - begin)     # number of queries
        stride = qkv.shape[1] * 2       # bytes of a token
        source = address(qkv) + types.int64(begin) * stride
        attend(source + head * pitch, source + (heads + head // (heads // key_heads)) * pitch, key_heads * pitch,
               stride, address(out) + (types.int64(begin) * heads + head) * pitch, heads * pitch, begin, top, length,
               tiles[cuda.blockIdx.x, 2], head, heads, scale, left, right, rate, cap, line, slopes, terms, numbers)

    def separate(q: Any, k: Any, v: Any, out: Any, H: Any, G: Any, T: Any, S: Any, limits: Any, scale: Any, left: Any,
                 right: Any, rate: Any, cap: Any, line: Any, slopes: Any, terms: Any, numbers: Any) -> None:
        begin, key_begin, top, limit = item(types.int32(cuda.blockIdx.x), (H, G, T, S), limits)
        away = types.int64(begin) * pitch
        attend(address(q) + away, address(k) + types.int64(key_begin) * pitch, address(v) - address(k), pitch,
               address(out) + away, pitch, begin, top, T, limit, 0, 1, scale, left, right, rate, cap, line, slopes,
               terms, numbers)

    matrix = u16[:, ::1]
    first = (*[matrix] * 4, *[i32] * 4) if apart else (matrix, matrix, i32[::1])
    return Kernel(f"attention{' apart' * apart} d={d} rows={rows}{' capped' * capped}{' biased' * biased}"
                  f"{' relative' * relative}", separate if apart else packed, threads=THREADS,
                  signature=(*first, i32[:, ::1], f32, i32, i32, f32, f32, f32[:, ::1], f32[::1], matrix, i32[::1]),
                  shared=(rows + 4 * keys) * pitch,         # queries, and two buffers each for keys and values
                  blocks_per_sm=3 if rows == 64 and d <= 64 and not relative else 2,
                  instructions={"HMMA": rows // 64 * keys * d // 64})


GROUP = 8
"""Number of heads that lie apart whose tiles are computed together: their keys and values stay in the L2 cache."""


def separate_item(rows: int) -> Any:
    """Make a device function (number, sizes, limits) -> (begin, key_begin, top, keys) of arrays that lie apart.

    sizes: H, G, T and S. The result is that of a tile of one head of a sequence: the rows of the head's first query and
    first key, the tile's first query, and the number of keys. Tiles are numbered by groups of heads, and in a group
    from the last tile of each head to the first: where queries see no later keys, the last tiles take longest.
    """

    @device_function
    def item(number: Any, sizes: Any, limits: Any) -> Any:
        H, G, T, S = sizes[0], sizes[1], sizes[2], sizes[3]
        tiles = types.int32((T + rows - 1) // rows)
        first = types.int32(number // (GROUP * tiles) * GROUP)      # head of the group, counted over all sequences
        size = types.int32(min(GROUP, limits.shape[0] * H - first))
        within = types.int32(number - first * tiles)
        head = types.int32(first + within % size)
        sequence = types.int32(head // H)
        key_head = types.int32(sequence * G + head % H // (H // G))
        return (types.int32(head * T), types.int32(key_head * S), types.int32((tiles - 1 - within // size) * rows),
                limits[sequence, 0])

    return item


def _step_keys(d: int) -> int:
    """Return the number of keys of a step: 64, or 32 so that the buffers of d = 256 fit 96 KB."""
    return 64 if d <= 128 else 32


def _attend(d: int, rows: int, capped: bool, biased: bool, relative: bool) -> Any:
    """Make a device function that computes a tile of `rows` queries of one head, from the address of each array.

    q_source, k_source: the first query and the first key of the sequence, of this head; v_away: from a key to its
    value; stride, out_pitch: bytes of a token in these arrays and in the result, in which `target` is the place of the
    first query; begin: number of the sequence's first token, which finds its terms; length, limit: numbers of queries
    and of keys
    """
    # Tiles of 16 queries of a warp; bytes of a row; keys of a step.
    m_tiles, pitch, keys = rows // 64, 2 * d, _step_keys(d)
    scores_shape, weights_shape = (m_tiles, keys // 8, 4), (m_tiles, keys // 16, 4)
    sums_shape, lines_shape = (m_tiles, d // 8, 4), (m_tiles, 2)
    (lanes, step, fetch), places = _fetch(d), _places(rows, keys, pitch)
    all_but_the_latest_landed = copy_wait[1]        # waits until 1 group of copies at most is unfinished
    scores_of = warp_product(rows=16 * m_tiles, columns=keys, depth=d, pitch=pitch, a_pitch=pitch, start=True)
    mask_scores = band(m_tiles, keys)
    changed, change = capped or biased or relative, _change(m_tiles, keys, capped, biased, relative)
    weights_of = soften(m_tiles, keys, d)
    add_values = warp_product(rows=16 * m_tiles, columns=d, depth=keys, pitch=pitch, transposed=True)
    clear, store = _clear(m_tiles, d), _store(m_tiles, d)

    @device_function
    def attend(q_source: Any, k_source: Any, v_away: Any, stride: Any, target: Any, out_pitch: Any, begin: Any,
               top: Any, length: Any, limit: Any, head: Any, heads: Any, scale: Any, left: Any, right: Any, rate: Any,
               cap: Any, line: Any, slopes: Any, terms: Any, numbers: Any) -> None:
        thread, lane = types.uint32(cuda.threadIdx.x), types.uint32(cuda.threadIdx.x % 32)
        key = types.int32(max(0, top - left) // keys * keys)        # the first key of the present step
        stop = types.int32(min(limit, top + rows + right))          # no query of this block sees it

        # This thread copies 16 bytes of a row, and of every row that is a multiple of `step` rows further on.
        row, piece = types.int32(thread // lanes), types.uint32(thread % lanes)
        shared = shared_base()
        q_copy = types.uint32(shared + row * pitch + (piece ^ swizzle(row, pitch)) * 16)
        k_copy = types.uint32(q_copy + rows * pitch)
        v_copy = types.uint32(k_copy + 2 * keys * pitch)
        own = types.int64(row) * stride + types.int64(piece * 16)
        k_source += own + types.int64(key) * stride
        room, jump = types.int32(limit - key - row), step * stride      # room: rows from this thread's to the end
        fetch(q_copy, q_source + own + types.int64(top) * stride, jump, rows, types.int32(length - top - row))
        fetch(k_copy, k_source, jump, keys, room)
        copy_commit()
        fetch(v_copy, k_source + v_away, jump, keys, room)
        copy_commit()
        all_but_the_latest_landed()
        cuda.syncthreads()

        scores = cuda.local.array(scores_shape, types.float32)
        weights = cuda.local.array(weights_shape, types.uint32)
        sums = cuda.local.array(sums_shape, types.float32)
        maxima, totals = cuda.local.array(lines_shape, types.float32), cuda.local.array(lines_shape, types.float32)
        begins, counts = cuda.local.array(lines_shape, types.uint32), cuda.local.array(lines_shape, types.uint32)
        clear(sums, maxima, totals)
        q_row, k_row, v_row, low_chunk, key_chunk = places(shared, thread, lane)
        warp_query = types.int32(top + thread // 32 * (rows // 4))      # the warp's first
        query = types.int32(warp_query + lane // 4)
        # All of the warp's queries see the keys from `from_here` to `to_here` - 1.
        from_here = types.int32(warp_query + rows // 4 - 1 - left)
        to_here = types.int32(min(limit, warp_query + right + 1))
        factor = scale * types.float32(LOG2_E)
        buffer = types.uint32(0)        # offset of the buffer of this step's keys, and of its values: 0 or keys * pitch
        while key < stop:
            next_key, next_buffer = types.int32(key + keys), types.uint32(keys * pitch - buffer)
            room = types.int32(room - keys)
            k_source += keys * stride
            if next_key < stop:
                fetch(types.uint32(k_copy + next_buffer), k_source, jump, keys, room)
            copy_commit()
            scores_of(scores, q_row, low_chunk, types.uint32(k_row + buffer), key_chunk)
            lane_key = types.int32(key + lane % 4 * 2)
            if changed:
                change(scores, begin, query, lane_key, head, heads, length, limit, rate, cap, line, slopes, terms,
                       numbers)
            if next_key > to_here or key < from_here:
                mask_scores(scores, begins, counts, lane_key, query, limit, left, right)
            weights_of(scores, weights, sums, maxima, totals, factor)
            all_but_the_latest_landed()
            cuda.syncthreads()
            if next_key < stop:
                fetch(types.uint32(v_copy + next_buffer), k_source + v_away, jump, keys, room)
            copy_commit()
            add_values(sums, weights, low_chunk, types.uint32(v_row + buffer), low_chunk)
            all_but_the_latest_landed()
            cuda.syncthreads()
            key, buffer = next_key, next_buffer

        store(target + types.int64(query) * out_pitch + types.int64(lane % 4 * 4), out_pitch, sums, totals,
              length - query)

    return attend


def _change(m_tiles: int, keys: int, capped: bool, biased: bool, relative: bool) -> Any:
    """Make a device function that changes the scores of a step; query, key: the lane's first ones in their sequence."""
    cap_scores, with_terms = cap_and_bias(m_tiles, keys, capped, biased), add_terms(m_tiles, keys)

    @device_function
    def change(scores: Any, begin: Any, query: Any, key: Any, head: Any, heads: Any, length: Any, limit: Any, rate: Any,
               cap: Any, line: Any, slopes: Any, terms: Any, numbers: Any) -> None:
        if relative:
            width = terms.shape[1]      # 2 H L
            at_query = types.int64(begin + query) * width + head * (width // (2 * heads))
            at_key = types.int64(begin + key) * width + (heads + head) * (width // (2 * heads))
            radius = types.int32(numbers.shape[0] // 2)
            with_terms(scores, address(numbers) + radius * 4, types.int32(query - key), radius,
                       address(terms) + at_query * 2, address(terms) + at_key * 2, width * 2,
                       types.int32(length - query), types.int32(limit - key))
        if capped or biased:
            radius = types.int32(line.shape[1] // 2)
            # Without biases there are no slopes, and the last argument is not used.
            cap_scores(scores, types.int32(query - key), rate, cap,
                       address(line) + (head * line.shape[1] + radius) * 4, radius, slopes[head] if biased else rate)

    return change


def _fetch(d: int) -> tuple[int, int, Any]:
    """Return how a block copies rows: lanes per row, 16 bytes each; rows per step; the device function that copies."""
    lanes = 8 if d % 64 == 0 else 4
    step = THREADS // lanes
    pitch = 2 * d

    @device_function
    def fetch(to: Any, source: Any, jump: Any, count: Any, room: Any) -> None:
        """Start to copy this thread's part of `count` rows; its rows from `room` on become zeros."""
        for i in range(count // step):
            size = types.uint32(16 if i * step < room else 0)
            for part in range(d // 8 // lanes):
                copy_async(types.uint32(to + i * step * pitch + part * lanes * 16), source + part * lanes * 16, size)
            source += jump

    return lanes, step, fetch


def _places(rows: int, keys: int, pitch: int) -> Any:
    """Make a device function (shared, thread, lane) -> addresses that `warp_product` needs.

    They are the lane's rows of queries, keys and values, and its chunks. Shared memory holds `rows` rows of queries,
    two buffers of `keys` rows of keys, and two of values.
    """

    @device_function
    def places(shared: Any, thread: Any, lane: Any) -> Any:
        twist = swizzle(lane % 8, pitch)        # the same for the three rows, which are lane % 8 modulo 8
        q_row = types.uint32(shared + (thread // 32 * (rows // 4) + lane % 16) * pitch)
        k_row = types.uint32(shared + (rows + lane // 16 * 8 + lane % 8) * pitch)
        v_row = types.uint32(shared + (rows + 2 * keys + lane % 16) * pitch)
        low_chunk, key_chunk = types.uint32((lane // 16 ^ twist) * 16), types.uint32((lane // 8 % 2 ^ twist) * 16)
        return q_row, k_row, v_row, low_chunk, key_chunk

    return places


def _clear(m_tiles: int, d: int) -> Any:
    """Make a device function (sums, maxima, totals) that initialises them; h: the lane's two lines of tile m."""

    @device_function
    def clear(sums: Any, maxima: Any, totals: Any) -> None:
        for m in range(m_tiles):
            for h in range(2):
                maxima[m, h] = types.float32(-np.inf)
                totals[m, h] = types.float32(0)
            for j in range(d // 8):
                for i in range(4):
                    sums[m, j, i] = types.float32(0)

    return clear


def band(m_tiles: int, keys: int) -> Any:
    """Make a device function that hides the scores of keys outside the band.

    key, query: the lane's first key and first query; limit: number of keys
    """
    hide_keys = hide(m_tiles, keys)

    @device_function
    def mask_scores(scores: Any, begins: Any, counts: Any, key: Any, query: Any, limit: Any, left: Any, right: Any
                    ) -> None:
        for m in range(m_tiles):
            for h in range(2):
                line = types.int32(query + 16 * m + 8 * h)
                first = types.int32(max(0, line - left))
                begins[m, h] = types.uint32(key - first)
                counts[m, h] = types.uint32(max(0, min(limit, line + right + 1) - first))
        hide_keys(scores, begins, counts)

    return mask_scores


def _store(m_tiles: int, d: int) -> Any:
    """Make a device function (to, pitch, sums, totals, room) that divides by the totals and writes lines below `room`.

    to: address of the lane's first line; line h of tile m lies 16 m + 8 h rows below it
    """

    @device_function
    def store(to: Any, pitch: Any, sums: Any, totals: Any, room: Any) -> None:
        for m in range(m_tiles):
            for h in range(2):
                total = totals[m, h]
                total += shuffle_xor(total, 1)      # of the four lanes that share a line
                total += shuffle_xor(total, 2)
                scale = reciprocal(total) if total != types.float32(0) else types.float32(0)    # 0: no key was seen
                if 16 * m + 8 * h < room:
                    for j in range(d // 8):
                        store_global(to + (16 * m + 8 * h) * pitch + j * 16,
                                     pack_bf16(sums[m, j, 2 * h] * scale, sums[m, j, 2 * h + 1] * scale))

    return store


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every head width and tile, packed and apart, and with 64 rows those of changed scores."""
    yield from (attention_kernel(d, rows) for d in WIDTHS for rows in (64, 128)
                if rows == 64 or d <= WIDEST_OF_128_ROWS)
    changes = "capped", "biased", "relative"
    yield from (attention_kernel(d, 64, **{change: True}) for d in WIDTHS for change in changes)
    yield from (attention_kernel(d, rows, apart=True) for d in WIDTHS for rows in (64, 128)
                if rows == 64 or d <= WIDEST_OF_128_ROWS)
    yield from (attention_kernel(d, 64, apart=True, capped=True) for d in WIDTHS)
