"""Change attention scores in the registers of mma.sync before the softmax: a cap, biases by distance, relative terms.

Scores are q k^T without their scale, so that what is added has been divided by the scale, and a cap too. The distance
of a query t and a key s is t - s. A lane's registers are those of `softmax.py`: line (m, h) belongs to the query that
lies 16 m + 8 h behind the lane's first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from .emulated import current
from .inline import PtxWriter, Registers, Statement, f32, i32, i64, straight
from .softmax import KEYS, LOG2_E, line_registers
from .warp import MULTIPLY, bf16_of_bits

CAP_RATE = 2 * LOG2_E
"""tanh(x) = 1 - 2 / (1 + 2^(CAP_RATE x))."""


def _registers(m_tiles: int, keys: int) -> Iterator[tuple[int, int, int]]:
    """Yield (register, query, key) for all scores of a lane: the query and the key count from the lane's first ones."""
    for m in range(m_tiles):
        for h in range(2):
            for register, key in zip(line_registers(m, h, keys), KEYS, strict=False):
                yield register, 16 * m + 8 * h, key


def _gather(addresses: np.ndarray, dtype: Any, there: np.ndarray | None = None) -> np.ndarray:
    """Return the numbers [32] at the addresses of the lanes, for the emulator; 0 for a lane that is not `there`."""
    there = np.ones(len(addresses), bool) if there is None else there
    numbers: np.ndarray = np.zeros(len(addresses), dtype)
    if there.any():
        size, first = np.dtype(dtype).itemsize, int(addresses[there].min())
        span = current().block.global_bytes(first, int(addresses[there].max()) - first + size, size).view(dtype)
        numbers[there] = span[(addresses[there] - first) // size]
    return numbers


def _biased(score: np.ndarray, center: np.ndarray, apart: np.ndarray, radius: np.ndarray, slope: np.ndarray,
            more: int) -> np.ndarray:
    """Run `_add_bias(more)` in the emulator, on arrays [32]; center: the address of the bias of distance 0."""
    distance = (apart + np.int32(more)).astype(np.int64)
    near = np.minimum(np.maximum(distance, -radius.astype(np.int64)), radius)
    return score + _gather(center + 4 * near, np.float32) + slope * np.abs(distance).astype(np.float32)


def _add_bias(more: int) -> Statement:
    """Make score + line[distance, cut to +-radius] + slope |distance|, for the distance apart + more.

    Its inputs are (score, address of the line's number for the distance 0, apart, radius, slope).
    """
    return Statement(
        f"{{ .reg .s32 d, n; .reg .s64 a; .reg .f32 x; add.s32 d, $3, {more}; neg.s32 n, $4; max.s32 n, n, d; "
        "min.s32 n, n, $4; mad.wide.s32 a, n, 4, $2; ld.global.nc.f32 x, [a]; abs.s32 d, d; add.rn.f32 $0, $1, x; "
        "cvt.rn.f32.s32 x, d; mul.rn.f32 x, x, $5; add.rn.f32 $0, $0, x; }",
        (f32,), (f32, i64, i32, i32, f32), partial(_biased, more=more))


CAP = Statement("{ .reg .f32 y; mul.rn.f32 y, $1, $2; ex2.approx.ftz.f32 y, y; add.rn.f32 y, y, 0f3F800000; "
                "rcp.approx.ftz.f32 y, y; fma.rn.f32 $0, y, $4, $3; }", (f32,), (f32, f32, f32, f32),
                lambda x, rate, cap, minus: np.float32(1) / (1 + np.exp2(x * rate)) * minus + cap)
"""(score, CAP_RATE / cap, cap, -2 cap) -> cap tanh(score / cap); 0f3F800000 is 1."""


def cap_and_bias(m_tiles: int, keys: int, capped: bool, biased: bool) -> Any:
    """Return a function for kernels that caps scores, then adds biases.

        change(scores, apart, rate, cap, center, radius, slope)

    - scores: float32 [m_tiles, keys/8, 4]
    - apart: i32, the distance of the lane's first query and first key
    - rate, cap: f32, CAP_RATE / cap and the cap over the scale; not used unless `capped`
    - center, radius, slope: i64, i32, f32, of the head: the address of the bias of distance 0 in a line that has those
        of distances up to the radius, beyond which the biases are those of the ends, and what is added for each token
        of distance; not used unless `biased`
    """

    def body(writer: PtxWriter, scores: list[Any], apart: Any, rate: Any, cap: Any, center: Any, radius: Any,
             slope: Any) -> None:
        (minus,) = writer(MULTIPLY, cap, writer.constant(f32, -2.0))
        for i, query, key in _registers(m_tiles, keys):
            if capped:
                (scores[i],) = writer(CAP, scores[i], rate, cap, minus)
            if biased:
                (scores[i],) = writer(_add_bias(query - key), scores[i], center, apart, radius, slope)

    return straight(body, Registers(m_tiles * keys // 2), i32, f32, f32, i64, i32, f32)


def _with_terms(score: np.ndarray, rows: np.ndarray, apart: np.ndarray, radius: np.ndarray, of_query: np.ndarray,
                of_key: np.ndarray, pitch: np.ndarray, queries: np.ndarray, keys: np.ndarray, query: int,
                key: int) -> np.ndarray:
    """Run `_add_terms(query, key)` in the emulator, on arrays [32]."""
    there = (queries > query) & (keys > key)
    distance = (apart + np.int32(query - key)).astype(np.int64)
    near = np.minimum(np.maximum(distance, -radius.astype(np.int64)), radius)
    row = 2 * _gather(rows + 4 * near, np.int32).astype(np.int64)
    for base, number in ((of_query, query), (of_key, key)):
        score = score + bf16_of_bits(_gather(base + number * pitch + row, np.uint16, there))
    return score


def _add_terms(query: int, key: int) -> Statement:
    """Make score + term of the query + term of the key, in bfloat16, by the row of their distance.

    Its inputs are (score, address of the row's number for the distance 0, apart, radius, addresses of the terms of the
    lane's first query and first key, bytes from a token to the next, numbers of queries and of keys from these on).
    """
    return Statement(
        "{ .reg .pred p; .reg .s32 d, r; .reg .s64 a, b; .reg .b16 x, y, z; .reg .f32 u, v; mov.b16 z, 0; "
        f"mov.b16 x, 0; mov.b16 y, 0; setp.gt.s32 p, $8, {query}; setp.gt.and.s32 p, $9, {key}, p; "
        f"add.s32 d, $3, {query - key}; neg.s32 r, $4; max.s32 d, d, r; min.s32 d, d, $4; mad.wide.s32 a, d, 4, $2; "
        f"ld.global.nc.s32 r, [a]; mad.lo.s64 a, $7, {query}, $5; mad.wide.s32 a, r, 2, a; "
        f"mad.lo.s64 b, $7, {key}, $6; mad.wide.s32 b, r, 2, b; @p ld.global.b16 x, [a]; @p ld.global.b16 y, [b]; "
        "mov.b32 u, {z, x}; mov.b32 v, {z, y}; add.rn.f32 $0, $1, u; add.rn.f32 $0, $0, v; }",
        (f32,), (f32, i64, i32, i32, i64, i64, i64, i32, i32), partial(_with_terms, query=query, key=key), memory=True)


def add_terms(m_tiles: int, keys: int) -> Any:
    """Return a function for kernels that adds the terms of relative positions to scores.

        add(scores, rows, apart, radius, of_query, of_key, pitch, queries, keys)

    The arguments but the first are those of `_add_terms`.
    """

    def body(writer: PtxWriter, scores: list[Any], *values: Any) -> None:
        for i, query, key in _registers(m_tiles, keys):
            (scores[i],) = writer(_add_terms(query, key), scores[i], *values)

    return straight(body, Registers(m_tiles * keys // 2), i64, i32, i32, i64, i64, i64, i32, i32)
