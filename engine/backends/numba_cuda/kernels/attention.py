"""Compute flash attention on packed tokens with mma.sync (sm_80 and later): softmax(scale q k^T + bias) v.

After FlashAttention-2 (Dao, 2023, arXiv:2307.08691): a block of four warps handles 64 or 128 queries of one head, 16 or
32 per warp, and iterates over the keys 64 at a time (32 with a bias at d > 64). Scores, weights, running maxima and
totals stay in registers. Shared memory holds the queries, and two buffers each for keys and values: (rows + 256) * 2d
bytes, which is 48 KB at d = 64 for 128 rows, and 96 KB at d = 128. The next keys are copied while scores are computed,
and the next values while the present ones are multiplied. With 32 queries per warp, each fragment of keys and values is
used twice. With 16, for short sequences and small grids, reading fragments takes as long as multiplying them. Both give
the same bits: a query's sums depend on its sequence alone.

| registers on sm_80: plain, band, band and bias | d = 32 | d = 64 | d = 96 | d = 128 |
|---|---|---|---|---|
| 64 rows | 109, 114, 126 | 140, 150, 168 | 159, 168, 156 | 176, 189, 180 |
| 128 rows | 160, 177, 196 | 216, 230, 250 | 248, 254, 254 | 255, 255, 255 |

Limit: instruction issue and exponentials, 370 instructions of a warp for 64 products at d = 64 and 16 queries. On an
H200, whose wgmma they do not use, they are about as fast as FlashAttention-2 (`docs/gpu.md`). No GPU that lacks wgmma
has run them yet.

The bias is a table by head and distance, with distances clamped to its ends, as encoders use it (T5's buckets, ALiBi,
MPNet). It stays in the L1 cache and is the same for every sequence of a packed batch; a bias [H, T, S] would be read
from memory, and has more bytes than keys and values. Hidden keys get the weight 0 exactly, but NaN or infinity in a
hidden key's value makes the results of that sequence's queries NaN, because 0 * NaN is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.copy import address, copy_async, copy_commit, copy_wait, shared_base, store_global
from ..ptx.inline import f32, i32, u16
from ..ptx.mma import swizzle, warp_product
from ..ptx.softmax import LOG2_E, hide, look_up, soften
from ..ptx.warp import pack_bf16, reciprocal, shuffle_xor
from ..toolchain import cuda, device_function, types

THREADS = 128
WIDTHS = (32, 64, 96, 128)
"""The supported head widths."""
FAR = 2**30
"""A limit of the band so large that it hides no key."""


def tiles(cu_seqlens: np.ndarray, rows: int) -> np.ndarray:
    """Return the work list of a batch: int32 [n, 2].

    An entry is a sequence and the first of up to `rows` of its queries. cu_seqlens: [B+1], the start of each sequence,
    and the end of the last.
    """
    lengths = np.diff(cu_seqlens)
    counts = -(-lengths // rows)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([np.repeat(np.arange(len(lengths)), counts), within * rows], axis=1).astype(np.int32)


def attention_kernel(d: int, rows: int = 128, *, band: bool = False, bias: bool = False) -> Kernel:
    """Make the kernel for heads of width d, with `rows` (64 or 128) queries per block; grid (len(tiles), H).

    Every variant has all of these arguments:
    - qkv: u16 [N, (H+2G)d], bfloat16: queries, keys, values; query head h reads key head h // (H/G)
    - out: u16 [N, H d], bfloat16; a query that sees no key gets zeros
    - cu_seqlens, tiles: i32 [B+1], and the result of `tiles` for it
    - scale: f32 > 0
    - left, right: i32; with `band`, query i sees the keys i - left <= j <= i + right; causal is (FAR, 0)
    - table: f32 [H, 2R-1]; with `bias`, table[h, clamp(j - i, 1-R, R-1) + R-1] is added to the scaled scores
    """
    if d not in WIDTHS or rows not in (64, 128):
        raise ValueError(f"a head width of {WIDTHS} and 64 or 128 rows expected, got d={d}, rows={rows}")
    m_tiles, pitch = rows // 64, 2 * d
    keys = 32 if bias and d > 64 else 64  # per step; more keys would need more registers than a thread has
    scores_shape, weights_shape = (m_tiles, keys // 8, 4), (m_tiles, keys // 16, 4)
    sums_shape, lines_shape = (m_tiles, d // 8, 4), (m_tiles, 2)
    lanes, step, fetch = _fetch(d)
    span, places = _span(rows, keys, band), _places(rows, keys, pitch)
    all_but_the_latest_landed = copy_wait[1]
    scores_of = warp_product(16 * m_tiles, keys, d, pitch=pitch, a_pitch=pitch, start=not bias)
    biases, mask_scores = _biases(m_tiles, keys), _mask_scores(m_tiles, keys, band)
    weights_of = soften(m_tiles, keys, d)
    add_values = warp_product(16 * m_tiles, d, keys, pitch=pitch, transposed=True)
    clear, store = _clear(m_tiles, d), _store(m_tiles, d)

    def body(qkv: Any, out: Any, cu_seqlens: Any, tiles: Any, scale: Any, left: Any, right: Any, table: Any) -> None:
        thread, lane = types.uint32(cuda.threadIdx.x), types.uint32(cuda.threadIdx.x % 32)
        heads, head = types.int32(out.shape[1] // d), types.int32(cuda.blockIdx.y)
        key_heads = types.int32((qkv.shape[1] // d - heads) // 2)
        begin, top = cu_seqlens[tiles[cuda.blockIdx.x, 0]], tiles[cuda.blockIdx.x, 1]
        length = types.int32(cu_seqlens[tiles[cuda.blockIdx.x, 0] + 1] - begin)
        key, end = span(top, length, left, right)

        # This thread copies 16 bytes of a row, and of every row that is a multiple of `step` rows further on.
        row, piece = types.int32(thread // lanes), types.uint32(thread % lanes)
        shared = shared_base()
        q_copy = types.uint32(shared + row * pitch + (piece ^ swizzle(row, pitch)) * 16)
        k_copy = types.uint32(q_copy + rows * pitch)
        v_copy = types.uint32(k_copy + 2 * keys * pitch)
        stride = qkv.shape[1] * 2
        q_source = address(qkv) + (types.int64(begin) + row) * stride + types.int64(piece * 16)
        k_source = q_source + key * stride + (heads + head // (heads // key_heads)) * pitch
        room, jump = types.int32(length - key - row), step * stride
        fetch(q_copy, q_source + top * stride + head * pitch, jump, rows, types.int32(length - top - row))
        fetch(k_copy, k_source, jump, keys, room)
        copy_commit()
        fetch(v_copy, k_source + key_heads * pitch, jump, keys, room)
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
        query = types.int32(top + thread // 32 * (rows // 4) + lane // 4)
        factor = scale * types.float32(LOG2_E)
        current = types.uint32(0)
        while key < end:
            following, other = types.int32(key + keys), types.uint32(keys * pitch - current)
            room = types.int32(room - keys)
            k_source += keys * stride
            if following < end:
                fetch(types.uint32(k_copy + other), k_source, jump, keys, room)
            copy_commit()
            first_key = types.int32(key + lane % 4 * 2)
            if bias:
                biases(scores, begins, first_key - query, table, head, scale)
            scores_of(scores, q_row, low_chunk, types.uint32(k_row + current), key_chunk)
            edge = following > length
            if band:
                edge = edge or following > top + right + 1 or key < top + rows - 1 - left
            if edge:
                mask_scores(scores, begins, counts, first_key, query, length, left, right)
            weights_of(scores, weights, sums, maxima, totals, factor)
            all_but_the_latest_landed()
            cuda.syncthreads()
            if following < end:
                fetch(types.uint32(v_copy + other), k_source + key_heads * pitch, jump, keys, room)
            copy_commit()
            add_values(sums, weights, low_chunk, types.uint32(v_row + current), low_chunk)
            all_but_the_latest_landed()
            cuda.syncthreads()
            key, current = following, other

        target = address(out) + (types.int64(begin + query) * heads + head) * pitch + types.int64(lane % 4 * 4)
        store(target, heads * pitch, sums, totals, length - query)

    matrix = u16[:, ::1]
    return Kernel(f"attention d={d} rows={rows}{' band' * band}{' bias' * bias}", body,
                  (matrix, matrix, i32[::1], i32[:, ::1], f32, i32, i32, f32[:, ::1]), THREADS,
                  shared=(rows + 4 * keys) * pitch, blocks_per_sm=3 if rows == 64 and d <= 64 else 2,
                  instructions={"HMMA": m_tiles * keys * d // 64})


def _span(rows: int, keys: int, band: bool) -> Any:
    """Make a device function (top, length, left, right) -> (first, end) of the keys that a tile sees.

    `first` is a multiple of `keys`.
    """

    @device_function
    def span(top: Any, length: Any, left: Any, right: Any) -> Any:
        first, end = types.int32(0), length
        if band:
            first = types.int32(max(0, top - left) // keys * keys)
            end = types.int32(min(length, min(top + rows, length) + right))
        return first, end

    return span


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
            for group in range(d // 8 // lanes):
                copy_async(types.uint32(to + i * step * pitch + group * lanes * 16), source + group * lanes * 16, size)
            source += jump

    return lanes, step, fetch


def _places(rows: int, keys: int, pitch: int) -> Any:
    """Make a device function (shared, thread, lane) -> addresses that `warp_product` needs.

    They are the lane's rows of queries, keys and values, and its chunks.
    """

    @device_function
    def places(shared: Any, thread: Any, lane: Any) -> Any:
        twist = swizzle(lane % 8, pitch)
        q_row = types.uint32(shared + (thread // 32 * (rows // 4) + lane % 16) * pitch)
        k_row = types.uint32(shared + (rows + lane // 16 * 8 + lane % 8) * pitch)
        v_row = types.uint32(shared + (rows + 2 * keys + lane % 16) * pitch)
        low_chunk, key_chunk = types.uint32((lane // 16 ^ twist) * 16), types.uint32((lane // 8 % 2 ^ twist) * 16)
        return q_row, k_row, v_row, low_chunk, key_chunk

    return places


def _clear(m_tiles: int, d: int) -> Any:
    """Make a device function (sums, maxima, totals) that initialises them."""

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


def _biases(m_tiles: int, keys: int) -> Any:
    """Make a device function (scores, begins, distance, table, head, scale) that sets scores to the unscaled bias.

    distance: the lane's first key minus its first query
    """
    look_up_table = look_up(m_tiles, keys)

    @device_function
    def biases(scores: Any, begins: Any, distance: Any, table: Any, head: Any, scale: Any) -> None:
        width = table.shape[1]
        for m in range(m_tiles):
            for h in range(2):
                begins[m, h] = types.uint32(distance - 16 * m - 8 * h + width // 2)
        look_up_table(scores, begins, address(table) + head * width * 4, types.uint32(width - 1), reciprocal(scale))

    return biases


def _mask_scores(m_tiles: int, keys: int, band: bool) -> Any:
    """Make a device function that hides scores.

    Its arguments are (scores, begins, counts, key, query, length, left, right). key, query: the lane's first key and
    first query
    """
    hide_keys = hide(m_tiles, keys)

    @device_function
    def mask_scores(scores: Any, begins: Any, counts: Any, key: Any, query: Any, length: Any,
                    left: Any, right: Any) -> None:
        for m in range(m_tiles):
            for h in range(2):
                low, high = types.int32(0), length
                if band:
                    low = types.int32(max(0, query + 16 * m + 8 * h - left))
                    high = types.int32(max(low, min(length, query + 16 * m + 8 * h + right + 1)))
                begins[m, h] = types.uint32(key - low)
                counts[m, h] = types.uint32(high - low)
        hide_keys(scores, begins, counts)

    return mask_scores


def _store(m_tiles: int, d: int) -> Any:
    """Make a device function (to, pitch, sums, totals, room) that divides by the totals and writes lines below `room`.

    to: address of the lane's first line
    """

    @device_function
    def store(to: Any, pitch: Any, sums: Any, totals: Any, room: Any) -> None:
        for m in range(m_tiles):
            for h in range(2):
                total = totals[m, h]
                total += shuffle_xor(total, 1)
                total += shuffle_xor(total, 2)
                share = reciprocal(total) if total != types.float32(0) else types.float32(0)
                if 16 * m + 8 * h < room:
                    for j in range(d // 8):
                        store_global(to + (16 * m + 8 * h) * pitch + j * 16,
                                     pack_bf16(sums[m, j, 2 * h] * share, sums[m, j, 2 * h + 1] * share))

    return store


def catalogue() -> list[Kernel]:
    """List every variant, for the compile test."""
    return [attention_kernel(d, rows, band=band, bias=bias) for d in WIDTHS for rows in (64, 128)
            for band, bias in ((False, False), (True, False), (True, True))]
