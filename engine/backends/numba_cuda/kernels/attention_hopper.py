"""Compute flash attention on packed tokens with wgmma and TMA (sm_90a): softmax(scale q k^T) v.

After FlashAttention-3 (Shah et al., 2024, arXiv:2407.08608). A block stays on its multiprocessor and computes one item
after the other: up to 128 queries of a head. A producer warpgroup requests from TMA the queries of an item, and 128
keys and 128 values at a time, as far ahead as the ring has slots, past the end of an item into the next. So the loads
of an item overlap the arithmetic and the stores of the items before it.

One or two consumer warpgroups, each with 64 queries of the item, multiply. A consumer starts the product of the next
scores before the product of the present weights and values, and computes the softmax of those scores while the tensor
cores work on that product. Scores, weights, sums, maxima and totals stay in registers (`ptx/softmax.py`). The order of
a query's sums depends on its sequence alone.

TMA also copies rows that follow the keys of the sequence. Their keys are hidden, and their values are overwritten with
zeros, because NaN among them would spoil the result.

    d      shared    registers (ptxas 13.0) with 64 queries, with 128
    64     192 KB    192, 168 (232 for consumers)
    128    192 KB    224, 168 (232 for consumers)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.copy import address, shared_base
from ..ptx.emulated import store_rows
from ..ptx.hopper import (
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
from ..ptx.inline import PtxWriter, Registers, Statement, f32, i32, i64, straight, u16, u32
from ..ptx.scores import cap_and_bias
from ..ptx.softmax import LOG2_E, pack, weigh
from ..ptx.warp import ADD, MAXIMUM, MULTIPLY, PACK, RECIPROCAL, SELECT, SHUFFLE_BITS, SHUFFLE_XOR
from ..toolchain import cuda, device_function, types
from .attention import band, separate_item

WIDTHS = (64, 128)
"""The supported head widths: rows of whole 128-byte lines."""
KEYS = 128
"""Number of keys and values per step, and of rows per box."""
PANEL = KEYS * 128
"""Bytes of a box: KEYS rows by 64 columns of a head."""
STAGES = {64: 4, 128: 2}
"""Number of slots for keys, for values and for queries, by head width."""
KEY, VALUE, QUERY = 0, 1, 2
"""The rings of slots, in the order of their memory and of their barriers."""
_TINY = 2.0**-100   # takes the place of a total of 0, so that a query that sees no key gets zeros; others exceed 0.9
CHUNK = 8
"""Number of tiles whose heads are computed together: neighbours in memory, and queries that share keys."""

# Variables of the device functions. An item is a tile of one head. `number` counts the uses of a ring's slots, or the
# items of the grid; `turn` the steps (KEYS keys each) and `made` the items that this block had before the present item.
# `bars` is the address of the mbarriers, 8 bytes each: the "full" ones of all slots of the three rings, then the
# "empty" ones. `begin` is the first token of a sequence, `top` the item's first query in it. The products of the next
# scores run while the softmax of the present ones does, one step apart. One thread of a warpgroup, the elected one,
# releases slots for all.


def attention_kernel(d: int, rows: int = 128, *, capped: bool = False, biased: bool = False, apart: bool = False
                     ) -> Kernel:
    """Make the kernel for heads of width d, with `rows` (64 or 128) queries per item.

    capped, biased: what changes the scores (`ptx/scores.py`). apart: whether queries, keys and values lie apart, each
    head by itself.

    The grid has at most as many blocks as there are items, of which a multiprocessor runs one at a time. There are
    len(tiles) H items, or B H ceil(T / rows) of arrays that lie apart.

    - qkv_map: tensor map of qkv, bfloat16 [N, (H+2G)d], boxes of KEYS rows: queries, keys, values
    - out: u16 [N, H d], bfloat16
    - cu_seqlens, tiles: i32 [B+1], and the result of `attention.tiles` for it and `rows`; nothing is written for a tile
        of an empty sequence
    - key_heads: i32, G; query head h reads key head h // (H/G)

    or, of arrays that lie apart:

    - q_map, k_map, v_map: tensor maps of [B H T, d], [B G S, d] and [B G S, d]; out: u16 [B H T, d]
    - sizes: i32 [4], H, G, T and S
    - limits: i32 [B, 1], the number of keys of each sequence
    - key_heads: i32, 1

    and then of both:

    - scale: f32 > 0
    - left, right, rate, cap, line, slopes: as in `attention.attention_kernel`
    """
    if d not in WIDTHS or rows not in (64, 128):
        raise ValueError(f"a head width of {WIDTHS} and 64 or 128 rows expected, got d={d}, rows={rows}")
    consumers, attend = rows // 64, _attend(d, rows, capped, biased, apart)

    def packed(qkv_map: Any, out: Any, cu_seqlens: Any, tiles: Any, key_heads: Any, scale: Any, left: Any, right: Any,
               rate: Any, cap: Any, line: Any, slopes: Any) -> None:
        items = types.int32(tiles.shape[0] * (out.shape[1] // d))
        attend(qkv_map, qkv_map, qkv_map, out, cu_seqlens, tiles, key_heads, items, scale, left, right, rate, cap, line,
               slopes)

    def separate(q_map: Any, k_map: Any, v_map: Any, out: Any, sizes: Any, limits: Any, key_heads: Any, scale: Any,
                 left: Any, right: Any, rate: Any, cap: Any, line: Any, slopes: Any) -> None:
        items = types.int32(limits.shape[0] * sizes[0] * ((sizes[2] + rows - 1) // rows))
        attend(q_map, k_map, v_map, out, sizes, limits, key_heads, items, scale, left, right, rate, cap, line, slopes)

    return Kernel(f"attention wgmma{' apart' * apart} d={d} rows={rows}{' capped' * capped}{' biased' * biased}",
                  separate if apart else packed, threads=128 * (1 + consumers),
                  signature=(*[types.uint8[::1]] * (3 if apart else 1), u16[:, ::1], i32[::1], i32[:, ::1], i32, f32,
                             i32, i32, f32, f32, f32[:, ::1], f32[::1]),
                  shared=_slots(d) * (d // 64 * PANEL + 16), arch=(9, 0, "a"),
                  registers=168 if consumers > 1 else 255,
                  instructions={"HGMMA": 2 * (d // 16 + KEYS // 16)})       # in the loop, and outside for one step


def _slots(d: int) -> int:
    """Return the number of slots of all rings."""
    return 3 * STAGES[d]


def _attend(d: int, rows: int, capped: bool, biased: bool, apart: bool) -> Any:
    """Make a device function that gives the warpgroups of a block their parts: a producer, and consumers."""
    slots, consumers = _slots(d), rows // 64
    make_barriers = ring_barriers(slots=slots, consumers=consumers, others=0)
    produce, consume_items = _producer(d, rows, apart), _item_loop(d, rows, capped, biased, apart)
    # Registers of a thread: 40 + 2 * 232 for three warpgroups are the 3 * 168 that the launch gives them.
    shrink, grow = set_registers(40, grow=False), set_registers(232, grow=True)

    @device_function
    def attend(q_map: Any, k_map: Any, v_map: Any, out: Any, cu_seqlens: Any, tiles: Any, key_heads: Any, items: Any,
               scale: Any, left: Any, right: Any, rate: Any, cap: Any, line: Any, slopes: Any) -> None:
        thread = types.uint32(cuda.threadIdx.x)
        heads, number = types.int32(out.shape[1] // d), types.int32(cuda.blockIdx.x)
        bars = types.uint32(shared_base() + slots * (d // 64 * PANEL))
        make_barriers(thread, bars)
        if thread < 128:
            if consumers > 1:       # one consumer has registers enough
                shrink()
            if thread == 0:
                fence_tensor_map(address(q_map))
                if apart:
                    fence_tensor_map(address(k_map))
                    fence_tensor_map(address(v_map))
                produce(q_map, k_map, v_map, cu_seqlens, tiles, number, items, heads, key_heads, left, right, bars)
        else:
            if consumers > 1:
                grow()
            consume_items(out, cu_seqlens, tiles, number, items, heads, scale, left, right, rate, cap, line, slopes,
                          bars, thread)

    return attend


def _item_loop(d: int, rows: int, capped: bool, biased: bool, apart: bool) -> Any:
    """Make a device function for a consumer that computes and stores its queries of a block's items."""
    item, span, store = _item(apart, rows), _span(rows), _store(d)
    consume = _consumer(d, capped, biased)
    sums_shape = (1, d // 8, 4)     # of a lane: two rows of its warp's 16, two columns of each 8 (ptx/softmax.py)

    @device_function
    def consume_items(out: Any, cu_seqlens: Any, tiles: Any, number: Any, items: Any, heads: Any, scale: Any, left: Any,
                      right: Any, rate: Any, cap: Any, line: Any, slopes: Any, bars: Any, thread: Any) -> None:
        lane, own_row = types.uint32(thread % 32), types.uint32((thread // 128 - 1) * 64)
        own_query = types.int32(own_row + thread % 128 // 32 * 16 + lane // 4)
        sums = cuda.local.array(sums_shape, types.float32)
        totals = cuda.local.array((1, 2), types.float32)
        turn, made = types.uint32(0), types.uint32(0)
        begin, _, top, length, keys, head = item(number, items, cu_seqlens, tiles, heads)
        while number < items:
            number = types.int32(number + cuda.gridDim.x)
            then_begin, _, then_top, then_length, then_keys, then_head = item(number, items, cu_seqlens, tiles, heads)
            if length > 0:
                first, steps = span(top, keys, left, right)
                consume(sums, totals, own_row, first, steps, keys, types.int32(top + own_query), left, right, rate, cap,
                        line, slopes, head, scale * types.float32(LOG2_E), turn, made, bars, thread, lane)
                query, pitch = types.int32(top + own_query), types.int64(heads * d * 2)
                target = address(out) + (types.int64(begin + query) * heads + head) * (2 * d) + lane % 4 * 16
                store(sums, totals, target, target + 8 * pitch, length - query, lane % 2, lane % 4 // 2)
                turn = types.uint32(turn + steps)
                made = types.uint32(made + 1)
            begin, top, length, keys, head = then_begin, then_top, then_length, then_keys, then_head

    return consume_items


def _item(apart: bool, rows: int) -> Any:
    """Make a device function (number, items, cu_seqlens, tiles, heads) -> (begin, key_begin, top, length, keys, head).

    They are an item's: begin, key_begin: the rows of the first query and the first key of the sequence; length, keys:
    their numbers; top: the item's first query in the sequence. Blocks that run at the same time have items of few tiles
    and of neighbouring heads. The number of an item beyond the last is that of the last, because the producer and the
    consumers look up an item before they work on the one before it: what they read takes long. Of arrays that lie
    apart, cu_seqlens and tiles are the sizes and the limits, and a head of a sequence is a sequence of one head.
    """
    separate = separate_item(rows)

    @device_function
    def item(number: Any, items: Any, cu_seqlens: Any, tiles: Any, heads: Any) -> Any:
        number = types.int32(min(number, items - 1))
        # Items are numbered by chunks of CHUNK tiles, in a chunk by heads, and for a head by the tiles of the chunk.
        first = types.int32(number // (CHUNK * heads) * CHUNK)
        size = types.int32(min(CHUNK, tiles.shape[0] - first))
        within = types.int32(number - first * heads)
        entry = types.int32(first + within % size)
        sequence = tiles[entry, 0]
        begin = cu_seqlens[sequence]
        length = types.int32(cu_seqlens[sequence + 1] - begin)
        return begin, begin, tiles[entry, 1], length, tiles[entry, 2], types.int32(within // size)

    @device_function
    def item_apart(number: Any, items: Any, sizes: Any, limits: Any, heads: Any) -> Any:
        begin, key_begin, top, keys = separate(types.int32(min(number, items - 1)), sizes, limits)
        return begin, key_begin, top, sizes[2], keys, types.int32(0)

    return item_apart if apart else item


def _span(rows: int) -> Any:
    """Make a device function (top, keys, left, right) -> the first step and the number of steps of an item.

    Steps begin at multiples of KEYS; those outside of the band of all queries of the item are left out. There is at
    least one, of which no query may see a key.
    """

    @device_function
    def span(top: Any, keys: Any, left: Any, right: Any) -> Any:
        first = types.int32(min(max(0, top - left), max(0, keys - 1)) // KEYS)
        behind = types.int32((min(keys, top + rows + right) + KEYS - 1) // KEYS)
        return first, types.int32(max(1, behind - first))

    return span


def _ring(d: int) -> tuple[Any, Any, Any]:
    """Make the device functions of the rings; their first arguments are a ring and the number of a slot's use.

    place(ring, number): the slot's address in shared memory; wait_full(ring, number, bars): wait for the data of this
    use; release(ring, number, bars): signal that a consumer has read them
    """
    stages, size = STAGES[d], d // 64 * PANEL

    @device_function
    def place(ring: Any, number: Any) -> Any:
        return types.uint32(shared_base() + (ring * stages + number % stages) * size)

    @device_function
    def wait_full(ring: Any, number: Any, bars: Any) -> None:
        barrier_wait(types.uint32(bars + 8 * (ring * stages + number % stages)), number // stages % 2)

    @device_function
    def release(ring: Any, number: Any, bars: Any) -> None:
        barrier_arrive(types.uint32(bars + 8 * ((3 + ring) * stages + number % stages)))

    return place, wait_full, release


def _producer(d: int, rows: int, apart: bool) -> Any:
    """Make a device function for one thread that requests the queries, keys and values of a block's items.

    The items are number, number + gridDim.x ... below `items`; each is looked up before the one before it is requested
    (then_*). turn, made: the steps and the items so far, which select the slots. Of arrays that lie apart, all columns
    begin at 0; else the three maps are one.
    """
    stages, panels = STAGES[d], d // 64
    item, span, (place, _, _) = _item(apart, rows), _span(rows), _ring(d)

    @device_function
    def request(tensor_map: Any, ring: Any, number: Any, column: Any, row: Any, bars: Any) -> None:
        """Wait until slot `number` of a ring is empty, and start to copy its boxes from (row, column) of a matrix."""
        to, full = place(ring, number), types.uint32(bars + 8 * (ring * stages + number % stages))
        empty = types.uint32(full + 8 * 3 * stages)
        barrier_wait(empty, (number // stages + 1) % 2)     # passes at once in the first round of slots
        barrier_expect(full, panels * PANEL)
        for panel in range(panels):
            copy_box(types.uint32(to + panel * PANEL), address(tensor_map), column + 64 * panel, row, full)

    @device_function
    def produce(q_map: Any, k_map: Any, v_map: Any, cu_seqlens: Any, tiles: Any, number: Any, items: Any, heads: Any,
                key_heads: Any, left: Any, right: Any, bars: Any) -> None:
        turn, made = types.uint32(0), types.uint32(0)
        begin, key_begin, top, length, keys, head = item(number, items, cu_seqlens, tiles, heads)
        while number < items:
            number = types.int32(number + cuda.gridDim.x)
            then_begin, then_key, then_top, then_length, then_keys, then_head = item(number, items, cu_seqlens, tiles,
                                                                                     heads)
            if length > 0:
                first, steps = span(top, keys, left, right)
                key_column = types.int32(0 if apart else (heads + head // (heads // key_heads)) * d)
                value_column = types.int32(0 if apart else key_column + key_heads * d)
                request(q_map, QUERY, made, types.int32(head * d), types.int32(begin + top), bars)
                for step in range(first, first + steps):
                    row = types.int32(key_begin + step * KEYS)
                    request(k_map, KEY, turn, key_column, row, bars)
                    request(v_map, VALUE, turn, value_column, row, bars)
                    turn = types.uint32(turn + 1)
                made = types.uint32(made + 1)
            begin, key_begin, top, length = then_begin, then_key, then_top, then_length
            keys, head = then_keys, then_head

    return produce


def _consumer(d: int, capped: bool, biased: bool) -> Any:
    """Make a device function for a warpgroup that computes each lane's sums and totals of an item.

    The sums are not divided by the totals yet, and the totals are not summed over lanes yet. first, steps: the item's
    span of steps; limit: number of keys; query: the lane's first query; turn, made: the numbers of steps and of items
    before this item
    """
    (place, wait_full, release), (start_scores, start_sums) = _ring(d), _products(d)
    wait_for_scores, wait_for_older = wgmma_wait(KEYS // 2, pending=0), wgmma_wait(KEYS // 2, pending=1)
    wait_for_sums, clear_rest = wgmma_wait(d // 2, pending=0), _clear_rest(d)
    m_tiles = 1         # a warp has 16 of the 64 queries
    mask_scores, weigh_scores, pack_weights = band(m_tiles, KEYS), weigh(m_tiles, KEYS), pack(m_tiles, KEYS, d)
    change = cap_and_bias(m_tiles, KEYS, capped, biased)
    scores_shape, weights_shape = (1, KEYS // 8, 4), (1, KEYS // 16, 4)

    @device_function
    def soften(scores: Any, maxima: Any, totals: Any, shrinks: Any, begins: Any, counts: Any, key: Any, query: Any,
               limit: Any, left: Any, right: Any, rate: Any, cap: Any, line: Any, slopes: Any, head: Any, factor: Any,
               lane: Any) -> None:
        if capped or biased:
            radius = types.int32(line.shape[1] // 2)
            # Without biases there are no slopes, and the last argument is not used.
            change(scores, types.int32(query - key - lane % 4 * 2), rate, cap,
                   address(line) + (head * line.shape[1] + radius) * 4, radius, slopes[head] if biased else rate)
        warp_query = types.int32(query - lane // 4)
        if key + KEYS > min(limit, warp_query + right + 1) or key < warp_query + 15 - left:
            mask_scores(scores, begins, counts, types.int32(key + lane % 4 * 2), query, limit, left, right)
        weigh_scores(scores, maxima, totals, shrinks, factor)

    @device_function
    def consume(sums: Any, totals: Any, own_row: Any, first: Any, steps: Any, limit: Any, query: Any, left: Any,
                right: Any, rate: Any, cap: Any, line: Any, slopes: Any, head: Any, factor: Any, turn: Any, made: Any,
                bars: Any, thread: Any, lane: Any) -> None:
        scores = cuda.local.array(scores_shape, types.float32)
        weights = cuda.local.array(weights_shape, types.uint32)
        maxima, shrinks = cuda.local.array((1, 2), types.float32), cuda.local.array((1, 2), types.float32)
        begins, counts = cuda.local.array((1, 2), types.uint32), cuda.local.array((1, 2), types.uint32)
        for j in range(d // 8):
            for e in range(4):
                sums[0, j, e] = types.float32(0)
        for h in range(2):
            maxima[0, h], totals[0, h] = types.float32(-np.inf), types.float32(0)
        elected, key = thread % 128 == 0, types.int32(first * KEYS)     # elected: one of the warpgroup
        wait_full(QUERY, made, bars)
        queries = types.int64((place(QUERY, made) + own_row * 128) // 16) | BY_ROWS
        start_scores(scores, queries, turn, bars)
        wait_for_scores(scores)
        if elected:
            release(KEY, turn, bars)
        soften(scores, maxima, totals, shrinks, begins, counts, key, query, limit, left, right, rate, cap, line, slopes,
               head, factor, lane)
        pack_weights(scores, weights, sums, shrinks)
        wait_full(VALUE, turn, bars)
        for step in range(1, steps):
            before, number = types.uint32(turn + step - 1), types.uint32(turn + step)
            start_scores(scores, queries, number, bars)
            start_sums(sums, weights, before)
            wait_for_older(scores)
            if elected:
                release(KEY, number, bars)
            key = types.int32(key + KEYS)
            soften(scores, maxima, totals, shrinks, begins, counts, key, query, limit, left, right, rate, cap, line,
                   slopes, head, factor, lane)
            wait_full(VALUE, number, bars)      # its loop also keeps ptxas from moving the next wait before `soften`
            wait_for_sums(sums)
            if elected:
                release(VALUE, before, bars)
            pack_weights(scores, weights, sums, shrinks)
        if elected:
            release(QUERY, made, bars)
        last = types.uint32(turn + steps - 1)
        clear_rest(last, types.int32(limit - key), thread)
        start_sums(sums, weights, last)
        wait_for_sums(sums)
        if elected:
            release(VALUE, last, bars)

    return consume


def _products(d: int) -> tuple[Any, Any]:
    """Make the device functions that start the products of scores and of sums.

        start_scores(scores, queries, number, bars)     waits for the keys
        start_sums(sums, weights, number)               does not wait for the values

    queries: wgmma's descriptor of the queries in shared memory, which counts in units of 16 bytes. number: that of the
    block of keys, of which the ring holds the last few. bars: the address of the barriers.
    """
    panels = d // 64
    place, wait_full, _ = _ring(d)
    scores_of, more_scores = wgmma(n=KEYS, steps=4, fresh=True), wgmma(n=KEYS, steps=4)     # 4 x 16 columns of a panel
    add_values = wgmma(n=d, steps=KEYS // 16, transposed=True, left_in_registers=True)
    values_kind = by_columns(PANEL)

    @device_function
    def start_scores(scores: Any, queries: Any, number: Any, bars: Any) -> None:
        wait_full(KEY, number, bars)
        keys = types.int64(place(KEY, number) // 16) | BY_ROWS
        scores_of(scores, queries, keys)
        for panel in range(1, panels):
            more_scores(scores, queries + panel * (PANEL // 16), keys + panel * (PANEL // 16), 1)    # 1: add

    @device_function
    def start_sums(sums: Any, weights: Any, number: Any) -> None:
        add_values(sums, weights, types.int64(place(VALUE, number) // 16) | values_kind, 1)       # 1: add

    return start_scores, start_sums


def _clear_rest(d: int) -> Any:
    """Make a device function (number, room, thread) that zeroes the values from row `room` on; a thread has one row."""
    place, _, _ = _ring(d)

    @device_function
    def clear_rest(number: Any, room: Any, thread: Any) -> None:
        if room < KEYS:
            if types.int32(thread % 128) >= room:
                row = types.uint32(place(VALUE, number) + thread % 128 * 128)
                for piece in range(d // 8):
                    clear_shared(types.uint32(row + piece // 8 * PANEL + piece % 8 * 16))
            fence_async()
            warpgroup_meet(thread // 128)

    return clear_rest


def _write(target: np.ndarray, left: np.ndarray, *values: np.ndarray, offset: int, row: int) -> None:
    """Do in Python what `_write_quad` does for the lanes of a warp: each argument has 32 values."""
    store_rows(target + offset, np.stack(values, axis=1), left > row)


def _write_quad(offset: int, row: int) -> Statement:
    """Make a store (target, left, values) of 16 bytes at an offset from target, which writes if left > row."""
    return Statement(f"{{ .reg .pred p; setp.gt.s32 p, $1, {row}; @p st.global.v4.b32 [$0+{offset}], "
                     "{$2,$3,$4,$5}; }", (), (i64, i32, *[u32] * 4), partial(_write, offset=offset, row=row),
                     memory=True)


def _store(d: int) -> Any:
    """Return a function that divides a lane's sums by their totals over four lanes and stores them as bfloat16.

        store(sums, totals, target, next_target, left, odd, high)

    The four lanes of a row exchange their columns, so that each stores 16 neighbouring bytes. target, next_target: the
    addresses of the lane's piece of 16 bytes in its first row and 8 rows below; left: number of rows from the first one
    to the end; odd, high: the bits of the lane's number among the four
    """

    def exchange(writer: PtxWriter, values: list[Any], bit: Any, distance: int) -> None:
        """Give values to the lane at a distance of 1 or 2 for its values: a step of the transposition of 4 by 4."""
        for i in (0, 2) if distance == 1 else (0, 1):
            low, high = values[i], values[i + distance]         # of which a lane with the bit gives `low` away
            (sent,) = writer(SELECT, bit, low, high)
            (got,) = writer(SHUFFLE_BITS, sent, writer.constant(i32, distance))
            values[i] = writer(SELECT, bit, got, low)[0]
            values[i + distance] = writer(SELECT, bit, high, got)[0]

    def body(writer: PtxWriter, sums: list[Any], totals: list[Any], target: Any, next_target: Any, left: Any, odd: Any,
             high: Any) -> None:
        for h in range(2):
            total = totals[h]
            for distance in (1, 2):
                (total,) = writer(ADD, total, *writer(SHUFFLE_XOR, total, writer.constant(i32, distance)))
            (share,) = writer(RECIPROCAL, *writer(MAXIMUM, total, writer.constant(f32, _TINY)))
            for j in range(0, d // 8, 4):       # 32 columns, of which the lane has a pair of each 8
                values = []
                for i in range(4 * j + 2 * h, 4 * j + 16, 4):       # row h in each of four tiles of 8 columns
                    pair = [writer(MULTIPLY, sums[i + e], share)[0] for e in range(2)]
                    values.append(writer(PACK, *pair)[0])
                exchange(writer, values, odd, 1)
                exchange(writer, values, high, 2)
                writer(_write_quad(16 * j, 8 * h), next_target if h else target, left, *values)

    return straight(body, Registers(d // 2), Registers(2), i64, i64, i32, u32, u32)


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every head width and tile, packed and apart."""
    yield from (attention_kernel(d, rows, **options) for d in WIDTHS for rows in (64, 128)
                for options in ({}, {"capped": True}, {"biased": True}, {"apart": True},
                                {"apart": True, "capped": True}))
