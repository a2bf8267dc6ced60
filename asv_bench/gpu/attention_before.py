"""Compute flash attention on packed tokens with wgmma and TMA (sm_90a): softmax(scale q k^T) v.

After FlashAttention-3 (Shah et al., 2024, arXiv:2407.08608), without its overlap within a warpgroup. A producer
warpgroup requests from TMA a tile of queries, and then 128 keys and 128 values at a time, two steps ahead. One or two
consumer warpgroups, each with 64 queries of the tile, multiply. While one of them computes its softmax, the tensor
cores work for the other. Scores, weights, sums, maxima and totals stay in registers (`ptx/softmax.py`).

TMA also copies rows that follow the sequence. Their keys are hidden, and their values are overwritten with zeros,
because NaN among them would spoil the result.

    d      shared    registers (ptxas 13.0) with 64 queries, with 128
    64     80 KB     164, 168 (232 for consumers)
    128    160 KB    166, 168 (232 for consumers)

Expected limit: tensor cores and exponentials in turns. These kernels have not run on a GPU yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.numba_cuda.kernel import Kernel
from engine.backends.numba_cuda.ptx.copy import address, shared_base, store_global
from engine.backends.numba_cuda.ptx.hopper import (
    BY_ROWS,
    barrier_arrive,
    barrier_expect,
    barrier_wait,
    by_columns,
    clear_shared,
    copy_box,
    fence_async,
    fence_tensor_map,
    ring_barriers,
    set_registers,
    warpgroup_meet,
    wgmma,
    wgmma_wait,
)
from engine.backends.numba_cuda.ptx.inline import f32, i32, u16
from engine.backends.numba_cuda.ptx.softmax import LOG2_E, hide, soften
from engine.backends.numba_cuda.ptx.warp import pack_bf16, reciprocal, shuffle_xor
from engine.backends.numba_cuda.toolchain import cuda, device_function, types

WIDTHS = (64, 128)
"""The supported head widths: rows of whole 128-byte lines."""
KEYS = 128
"""Number of keys and values per step, and of rows per box."""
STAGES = 2
PANEL = KEYS * 128
"""Bytes of a box: KEYS rows by 64 columns of a head."""
QUERIES = 32 * STAGES
"""Offset of the queries' barrier, which follows the barriers of the ring of keys and values."""


def attention_kernel(d: int, rows: int = 128) -> Kernel:
    """Make the kernel for heads of width d, with `rows` (64 or 128) queries per block; grid (len(tiles), H).

    - qkv_map: tensor map of qkv, bfloat16 [N, (H+2G)d], boxes of KEYS rows: queries, keys, values
    - out: u16 [N, H d], bfloat16
    - cu_seqlens, tiles: i32 [B+1], and the result of `attention.tiles` for it and `rows`; nothing is written for a tile
        of an empty sequence
    - key_heads: i32, G; query head h reads key head h // (H/G)
    - scale: f32 > 0
    """
    if d not in WIDTHS or rows not in (64, 128):
        raise ValueError(f"a head width of {WIDTHS} and 64 or 128 rows expected, got d={d}, rows={rows}")
    panels, consumers = d // 64, rows // 64
    make_barriers = ring_barriers(2 * STAGES, consumers, others=1)
    produce, consume = _producer(panels), _consumer(d)
    shrink, grow = set_registers(40, grow=False), set_registers(232, grow=True)
    sums_shape, store = (1, d // 8, 4), _store(d)

    def body(qkv_map: Any, out: Any, cu_seqlens: Any, tiles: Any, key_heads: Any, scale: Any) -> None:
        thread, lane = types.uint32(cuda.threadIdx.x), types.uint32(cuda.threadIdx.x % 32)
        heads, head = types.int32(out.shape[1] // d), types.int32(cuda.blockIdx.y)
        begin, top = cu_seqlens[tiles[cuda.blockIdx.x, 0]], tiles[cuda.blockIdx.x, 1]
        length = types.int32(cu_seqlens[tiles[cuda.blockIdx.x, 0] + 1] - begin)
        steps = types.uint32((length + KEYS - 1) // KEYS)
        bars = types.uint32(shared_base() + (1 + 2 * STAGES) * panels * PANEL)
        make_barriers(thread, bars)
        if thread < 128:
            if consumers > 1:
                shrink()
            if thread == 0:
                fence_tensor_map(address(qkv_map))
                key_column = types.int32((heads + head // (heads // key_heads)) * d)
                to_values = types.int32(key_heads * d)
                produce(qkv_map, begin, types.int32(begin + top), head * d, key_column, to_values, steps, bars)
        else:
            if consumers > 1:
                grow()
            own_row = types.uint32((thread // 128 - 1) * 64)
            sums = cuda.local.array(sums_shape, types.float32)
            totals = cuda.local.array((1, 2), types.float32)
            consume(sums, totals, own_row, length, scale * types.float32(LOG2_E), steps, bars, thread, lane)
            query = types.int32(top + types.int32(own_row + thread % 128 // 32 * 16 + lane // 4))
            target = address(out) + ((types.int64(begin + query) * heads + head) * d + types.int64(lane % 4 * 2)) * 2
            store(target, heads * d * 2, sums, totals, length - query)

    return Kernel(f"attention wgmma d={d} rows={rows}", body,
                  (types.uint8[::1], u16[:, ::1], i32[::1], i32[:, ::1], i32, f32), 128 * (1 + consumers),
                  shared=(1 + 2 * STAGES) * panels * PANEL + 8 * (1 + 4 * STAGES), arch=(9, 0, "a"), registers=168,
                  instructions={"HGMMA": 4 * panels + KEYS // 16})


def _producer(panels: int) -> Any:
    """Make a device function for one thread that requests the queries, and then keys and values step by step."""
    slot = panels * PANEL

    @device_function
    def produce(qkv_map: Any, row: Any, query_row: Any, query_column: Any, key_column: Any, to_values: Any, steps: Any,
                bars: Any) -> None:
        shared, queries = shared_base(), types.uint32(bars + QUERIES)
        barrier_expect(queries, slot)
        for panel in range(panels):
            to = types.uint32(shared + panel * PANEL)
            copy_box(to, address(qkv_map), query_column + 64 * panel, query_row, queries)
        for step in range(steps):
            stage = types.uint32(step % STAGES)
            for values in range(2):
                full = types.uint32(bars + 8 * (values * STAGES + stage))
                barrier_wait(full + 16 * STAGES, (step // STAGES + 1) % 2)
                barrier_expect(full, slot)
                to = types.uint32(shared + (1 + values * STAGES + stage) * slot)
                column, first = key_column + values * to_values, row + step * KEYS
                for panel in range(panels):
                    copy_box(types.uint32(to + panel * PANEL), address(qkv_map), column + 64 * panel, first, full)

    return produce


def _consumer(d: int) -> Any:
    """Make a device function for a warpgroup that computes each lane's sums and totals.

    The sums are not divided by the totals yet, and the totals are not summed over lanes yet.
    """
    panels = d // 64
    slot = panels * PANEL
    scores_of, more_scores = wgmma(KEYS, 4, fresh=True), wgmma(KEYS, 4)
    add_values = wgmma(d, KEYS // 16, transposed=True, left_in_registers=True)
    wait_for_scores, wait_for_sums = wgmma_wait(KEYS // 2, 0), wgmma_wait(d // 2, 0)
    hide_keys, weights_of = hide(1, KEYS), soften(1, KEYS, d)
    scores_shape, weights_shape, values_kind = (1, KEYS // 8, 4), (1, KEYS // 16, 4), by_columns(PANEL)

    @device_function
    def consume(sums: Any, totals: Any, own_row: Any, length: Any, factor: Any, steps: Any, bars: Any, thread: Any,
                lane: Any) -> None:
        scores = cuda.local.array(scores_shape, types.float32)
        weights = cuda.local.array(weights_shape, types.uint32)
        maxima = cuda.local.array((1, 2), types.float32)
        begins, counts = cuda.local.array((1, 2), types.uint32), cuda.local.array((1, 2), types.uint32)
        for j in range(d // 8):
            for e in range(4):
                sums[0, j, e] = types.float32(0)
        for h in range(2):
            maxima[0, h], totals[0, h] = types.float32(-np.inf), types.float32(0)
        shared, elected = shared_base(), thread % 128 == 0
        barrier_wait(bars + QUERIES, 0)
        for step in range(steps):
            stage, parity = types.uint32(step % STAGES), step // STAGES % 2
            keys_full, keys_at = types.uint32(bars + 8 * stage), types.uint32(shared + (1 + stage) * slot)
            barrier_wait(keys_full, parity)
            left, right = types.int64((shared + own_row * 128) // 16) | BY_ROWS, types.int64(keys_at // 16) | BY_ROWS
            scores_of(scores, left, right)
            for panel in range(1, panels):
                more_scores(scores, left + panel * (PANEL // 16), right + panel * (PANEL // 16), 1)
            wait_for_scores(scores)
            if elected:
                barrier_arrive(keys_full + 16 * STAGES)
            room = types.int32(length - types.int32(step * KEYS))
            if room < KEYS:
                for h in range(2):
                    begins[0, h], counts[0, h] = types.uint32(lane % 4 * 2), types.uint32(room)
                hide_keys(scores, begins, counts)
            weights_of(scores, weights, sums, maxima, totals, factor)
            values_full = types.uint32(keys_full + 8 * STAGES)
            values_at = types.uint32(keys_at + STAGES * slot)
            barrier_wait(values_full, parity)
            if room < KEYS:
                if types.int32(thread % 128) >= room:
                    for piece in range(8 * panels):
                        clear_shared(types.uint32(values_at + piece // 8 * PANEL + thread % 128 * 128 + piece % 8 * 16))
                fence_async()
                warpgroup_meet(thread // 128)
            add_values(sums, weights, types.int64(values_at // 16) | values_kind, 1)
            wait_for_sums(sums)
            if elected:
                barrier_arrive(values_full + 16 * STAGES)

    return consume


def _store(d: int) -> Any:
    """Make a device function that divides a lane's lines by their totals over four lanes and stores them as bfloat16.

    left: number of rows from the lane's first one to the end
    """

    @device_function
    def store(target: Any, pitch: Any, sums: Any, totals: Any, left: Any) -> None:
        for h in range(2):
            total = totals[0, h]
            total += shuffle_xor(total, 1)
            total += shuffle_xor(total, 2)
            share = reciprocal(total)
            if 8 * h < left:
                for j in range(d // 8):
                    store_global(target + 8 * h * pitch + 16 * j,
                                 pack_bf16(sums[0, j, 2 * h] * share, sums[0, j, 2 * h + 1] * share))

    return store


def catalogue() -> list[Kernel]:
    """List every variant, for the compile test."""
    return [attention_kernel(d, rows) for d in WIDTHS for rows in (64, 128)]
