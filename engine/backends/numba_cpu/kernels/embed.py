"""Add the embeddings of tokens, from tables in float32, bfloat16 or int8; see embed.pxi."""

from __future__ import annotations

import numpy as np

from ..compiler.compiling import helper, inline
from ..compiler.pointers import as_bits, as_floats, as_integers8
from ..compiler.structs import Embedding, EmbeddingTable, Floats, Int, Size, Vector
from ..compiler.vector import v_add, v_load_bfloat16, v_load_int8, v_loadn, v_mul, v_set1, v_storen
from ..target import VL

FLOAT32, BFLOAT16, INT8 = range(3)
"""The values of enum Storage in table.pxd."""


@inline
def entries(storage: Int, table: EmbeddingTable, row: Size, i: Size, n: Size) -> Vector:
    """Load n numbers of this row, from the table's i-th number on, as float32."""
    if storage == INT8:
        return v_mul(v_set1(table.scale[row]), v_load_int8(as_integers8(table.rows) + i, n))
    if storage == BFLOAT16:
        return v_load_bfloat16(as_bits(table.rows) + i, n)
    return v_loadn(as_floats(table.rows) + i, n)


@inline
def add_row_as(storage: Int, table: EmbeddingTable, row: Size, first: bool, D: Size, out: Floats) -> None:
    """Add a table's row to out, or overwrite out with it if `first` is True."""
    for i in range(0, D, VL):
        n = min(D - i, VL)
        x = v_mul(v_set1(table.factor), entries(storage, table, row, row * D + i, n))
        v_storen(out + i, x if first else v_add(v_loadn(out + i, n), x), n)


@helper
def add_row(table: EmbeddingTable, row: Size, first: bool, D: Size, out: Floats) -> None:
    """Call add_row_as for the table's storage."""
    if table.storage == INT8:
        add_row_as(INT8, table, row, first, D, out)
    elif table.storage == BFLOAT16:
        add_row_as(BFLOAT16, table, row, first, D, out)
    else:
        add_row_as(FLOAT32, table, row, first, D, out)


def embed(call: Embedding, first: Size, M: Size, D: Size, out: Floats, out_stride: Size) -> None:
    """Compute rows [first, first + M) of the sum of the embeddings, before the norm."""
    for row in range(first, first + M):
        add_row(call.word, np.intp(call.ids[row]) if call.ids else row, True, D, out)
        if call.position:
            add_row(call.position, np.intp(call.position_ids[row]), False, D, out)
        if call.type:
            add_row(call.type, np.intp(call.type_ids[row]), False, D, out)
        out += out_stride
