"""Compute terms of the scores that depend on the distance of a query and a key; see relative.pxi.

The term of query t and key s is q[t] K[r] + k[s] Q[r], r being the row of distance t - s in two tables (`Relative` in
table.pxd). For a query group and a key block, two products compute it for all rows that their distances have; each
score then picks two numbers. K lies in reverse, so that the next key is the next number of a query, too.
"""

from __future__ import annotations

from ...cpu.native.layout import QUERIES
from ..compiler.compiling import helper, inline
from ..compiler.structs import Attention, Floats, Keys, Relative, Scratch, Size, Terms
from ..compiler.vector import transpose, v_add, v_load, v_loadn, v_set1, v_store
from ..target import LINE, MR, NR, NV, VL
from .tile import scores_tile

SHARE = 64
"""The most queries, or keys, of one product."""


@inline
def terms_stride(columns: Size) -> Size:
    """Return the floats from one row of a product to the next, an odd number of cache lines."""
    return (columns + LINE - 1) // LINE * LINE | LINE if columns else 0


@inline
def load_transposed(p: Floats, stride: Size, rows: Size, columns: Size, tile: Floats) -> None:
    """Transpose the rows at p into tile [columns][VL]; missing rows become zeros.

    At most VL rows are read, and columns <= VL floats of each.
    """
    if rows >= VL and columns == VL:
        transpose(p, stride, tile)
    else:
        for i in range(VL):
            v_store(tile + i * VL, v_loadn(p + i * stride, columns if i < rows else 0))
        transpose(tile, VL, tile)


@inline
def row_for(relative: Relative, distance: Size) -> Size:
    """Return the row of a distance t - s; beyond the limit, all distances have the row of the limit."""
    return relative.row[relative.limit + max(-relative.limit, min(relative.limit, distance))]


@helper
def multiply_table(a: Floats, a_stride: Size, M: Size, d: Size, panels: Floats, panel: Size, last: Size, out: Floats,
                    stride: Size, unused: Floats) -> None:
    """Compute columns [panel*NR, last*NR) of the product of M rows; the first of them is column 0 of out."""
    tiles = (M + MR - 1) // MR
    for p in range(panel, last):
        row = 0
        for i in range(tiles):
            next_row = M * (i + 1) // tiles
            scores_tile(next_row - row, NV, d, a + row * a_stride, a_stride, panels + p * NR * d,
                        out + (row * stride + (p - panel) * NR), stride, unused)
            row = next_row


@helper
def multiply_terms(call: Attention, s: Scratch, t: Size, n: Size, block: Keys) -> Terms:
    """Compute the products of queries [t, t + n) and of a key block, for the rows that their distances have."""
    stride, first_key_panel, first_query_panel = 0, 0, 0
    of_queries, of_keys = s.terms, s.terms
    if call.relative:
        relative = call.relative
        stride = terms_stride(relative.columns)
        of_keys = s.terms + QUERIES * stride
        # K lies in reverse, row `end` in column 0: its first panel has the largest distance, that of Q the smallest.
        keys, end = block.last - block.first, relative.rows - 1
        distance = call.query + t - block.first     # of the first query and the first key
        if relative.keys:
            first_key_panel = (end - row_for(relative, distance + n - 1)) // NR
            for i in range(0, n, SHARE):        # fewer queries have fewer distances, and need fewer panels
                m = min(n - i, SHARE)
                panel = (end - row_for(relative, distance + i + m - 1)) // NR       # [panel, last): of these queries
                last = (end - row_for(relative, distance + i - (keys - 1))) // NR + 1
                multiply_table(call.q + (t + i) * call.q_stride, call.q_stride, m, call.d, relative.keys, panel, last,
                               of_queries + (i * stride + (panel - first_key_panel) * NR), stride, s.unused)
        if relative.queries:
            first_query_panel = row_for(relative, distance - (keys - 1)) // NR
            for i in range(0, keys, SHARE):
                m = min(keys - i, SHARE)
                panel = row_for(relative, distance - (i + m - 1)) // NR     # [panel, last): of these keys
                last = row_for(relative, distance + n - 1 - i) // NR + 1
                multiply_table(call.k + (block.first + i) * call.k_stride, call.k_stride, m, call.d, relative.queries,
                               panel, last, of_keys + (i * stride + (panel - first_query_panel) * NR), stride, s.unused)
    return Terms(of_queries, of_keys, stride, t, block.first, first_key_panel * NR, first_query_panel * NR)


@helper
def load_terms(call: Attention, terms: Terms, t: Size, n: Size, key: Size, keys: Size, tile: Floats) -> None:
    """Set lane i of tile[r] to the terms of query t + i and key + r, for n <= VL queries and keys <= VL."""
    relative = call.relative
    distance = call.query + t - key
    stride = terms.stride
    # The numbers of query t with row 0 of K, and of this key with row 0 of Q.
    of_query = terms.queries + ((t - terms.t) * stride + relative.rows - 1 - terms.first_key_row)
    of_key = terms.keys + ((key - terms.key) * stride - terms.first_query_row)
    if distance - (keys - 1) >= -relative.near and distance + n - 1 <= relative.near:
        row = row_for(relative, distance)
        if relative.keys:       # the row of query t + i is row + i, so its numbers begin stride - 1 floats further on
            load_transposed(of_query + -row, stride - 1, n, keys, tile)
        else:
            for r in range(keys):
                v_store(tile + r * VL, v_set1(0.0))
        if relative.queries:
            for r in range(keys):
                x = v_load(tile + r * VL)
                v_store(tile + r * VL, v_add(x, v_loadn(of_key + (r * stride + row - r), n)))
        return
    for r in range(keys):
        v_store(tile + r * VL, v_set1(0.0))
        for i in range(n):
            row = row_for(relative, distance + i - r)
            if relative.keys:
                tile[r * VL + i] = of_query[i * stride - row]
            if relative.queries:
                tile[r * VL + i] = tile[r * VL + i] + of_key[r * stride + row]
