"""Compute the softmax of flash attention, on scores in the registers of mma.sync: mask, streaming softmax.

A warp holds m_tiles tiles of 16 queries by `keys` keys. A lane has two lines of each tile, queries g and g + 8, and of
each line keys 2t and 2t + 1 of every eight (g, t: `mma.py`). All functions are unrolled over local arrays:

    scores float32 [m_tiles, keys/8, 4]; weights, fragments, uint32 [m_tiles, keys/16, 4];
    sums float32 [m_tiles, d/8, 4]; maxima, totals float32 and begins, counts uint32, for each line: [m_tiles, 2]
"""

from __future__ import annotations

from typing import Any

from .inline import PtxWriter, Registers, f32, i32, straight, u32
from .warp import ADD, EXP2, FMA, KEEP_BELOW, MAXIMUM, MINIMUM, MULTIPLY, PACK, SHUFFLE_XOR, SUBTRACT

LOG2_E = 1.4426950408889634
_HUGE = 3e38  # replaces infinity, because infinity times 0 and infinity minus infinity are NaN


def soften(m_tiles: int, keys: int, d: int) -> Any:
    """Return a function (scores, weights, sums, maxima, totals, factor) that converts scores to weights in bfloat16.

    A weight is exp2(factor (score - maximum)). Online softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867): the
    running maxima include the new scores, sums and totals are scaled to the new maxima, and the lane's own weights are
    added to the totals. A line that has seen only -inf keeps the maximum -inf and the total 0. factor > 0: the scale of
    the scores times log2(e).
    """

    def body(writer: PtxWriter, scores: list[Any], weights: list[Any], sums: list[Any], maxima: list[Any],
             totals: list[Any], factor: Any) -> None:
        (minus,) = writer(MULTIPLY, factor, writer.constant(f32, -1.0))
        for line in range(2 * m_tiles):
            shrink = _weigh(writer, line, keys, scores, maxima, totals, factor, minus)
            _pack(writer, line, keys, scores, weights)
            _scale(writer, line, d, sums, shrink)

    lines = Registers(2 * m_tiles)
    return straight(body, Registers(m_tiles * keys // 2), Registers(m_tiles * keys // 4, u32),
                    Registers(m_tiles * d // 2), lines, lines, f32)


def weigh(m_tiles: int, keys: int) -> Any:
    """Return a function (scores, maxima, totals, shrinks, factor): the part of `soften` that needs no sums.

    It replaces the scores by their weights in float32, and sets shrinks, float32 like maxima, to the factors of the
    sums. `pack` does the rest.
    """

    def body(writer: PtxWriter, scores: list[Any], maxima: list[Any], totals: list[Any], shrinks: list[Any],
             factor: Any) -> None:
        (minus,) = writer(MULTIPLY, factor, writer.constant(f32, -1.0))
        for line in range(2 * m_tiles):
            shrinks[line] = _weigh(writer, line, keys, scores, maxima, totals, factor, minus)

    lines = Registers(2 * m_tiles)
    return straight(body, Registers(m_tiles * keys // 2), lines, lines, lines, f32)


def pack(m_tiles: int, keys: int, d: int) -> Any:
    """Return a function (scores, weights, sums, shrinks) that follows `weigh`: it packs weights and scales the sums."""

    def body(writer: PtxWriter, scores: list[Any], weights: list[Any], sums: list[Any], shrinks: list[Any]) -> None:
        for line in range(2 * m_tiles):
            _pack(writer, line, keys, scores, weights)
            _scale(writer, line, d, sums, shrinks[line])

    return straight(body, Registers(m_tiles * keys // 2), Registers(m_tiles * keys // 4, u32),
                    Registers(m_tiles * d // 2), Registers(2 * m_tiles))


def _weigh(writer: PtxWriter, line: int, keys: int, scores: list[Any], maxima: list[Any], totals: list[Any],
           factor: Any, minus: Any) -> Any:
    """Convert the scores of a line to weights, add them to its total, and return `shrink`, the factor of its sums.

    The four lanes of the line find its maximum, `top`, together. mine: the lane's registers of the line. minus:
    -factor; shift: -factor * top, at most _HUGE.
    """
    mine = line_registers(*divmod(line, 2), keys)
    top = maxima[line]
    for i in mine:
        (top,) = writer(MAXIMUM, top, scores[i])
    for distance in (1, 2):
        (top,) = writer(MAXIMUM, top, *writer(SHUFFLE_XOR, top, writer.constant(i32, distance)))
    (shift,) = writer(MINIMUM, writer.constant(f32, _HUGE), *writer(MULTIPLY, top, minus))
    # Exactly 1 if the maximum stays, so that a step in which a line sees no key changes no bit of it.
    (lower,) = writer(SUBTRACT, maxima[line], *writer(MAXIMUM, top, writer.constant(f32, -_HUGE)))
    (shrink,) = writer(EXP2, *writer(MULTIPLY, lower, factor))
    (total,) = writer(MULTIPLY, totals[line], shrink)
    for i in mine:
        (scores[i],) = writer(EXP2, *writer(FMA, scores[i], factor, shift))
        (total,) = writer(ADD, total, scores[i])
    maxima[line], totals[line] = top, total
    return shrink


def _pack(writer: PtxWriter, line: int, keys: int, scores: list[Any], weights: list[Any]) -> None:
    """Round the weights of a line to bfloat16, in pairs, where a product reads them."""
    m, h = divmod(line, 2)
    mine = line_registers(m, h, keys)
    for pair in range(keys // 8):
        (weight,) = writer(PACK, scores[mine[2 * pair]], scores[mine[2 * pair + 1]])
        # A fragment has 16 keys, two pairs of each line, in the order of A's registers in mma.py.
        weights[(m * keys // 16 + pair // 2) * 4 + pair % 2 * 2 + h] = weight


def _scale(writer: PtxWriter, line: int, d: int, sums: list[Any], shrink: Any) -> None:
    """Multiply the lane's sums of a line, d columns of the four lanes, by `shrink`."""
    for i in line_registers(*divmod(line, 2), d):
        (sums[i],) = writer(MULTIPLY, sums[i], shrink)


def hide(m_tiles: int, keys: int) -> Any:
    """Return a function (scores, begins, counts) that sets the scores of hidden keys to -inf.

    A key is seen if its index minus the index of the first seen key is below the count. begins: the index of the lane's
    first key minus that of the first seen key, modulo 2**32.
    """

    def body(writer: PtxWriter, scores: list[Any], begins: list[Any], counts: list[Any]) -> None:
        for line in range(2 * m_tiles):
            # Of KEYS, the first keys // 4.
            for i, key in zip(line_registers(*divmod(line, 2), keys), KEYS, strict=False):
                (scores[i],) = writer(KEEP_BELOW, scores[i], writer.add(begins[line], key), counts[line])

    lines = Registers(2 * m_tiles, u32)
    return straight(body, Registers(m_tiles * keys // 2), lines, lines)


KEYS = [8 * j + e for j in range(32) for e in range(2)]
"""Offsets of a lane's keys from its first key, in a line."""


def line_registers(m: int, h: int, columns: int) -> list[int]:
    """Return the registers of line h of tile m, of a local array [m_tiles, columns/8, 4], in order of columns."""
    return [(m * columns // 8 + j) * 4 + 2 * h + e for j in range(columns // 8) for e in range(2)]
