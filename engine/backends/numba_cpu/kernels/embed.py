"""Add the embeddings of tokens, from tables in float32, bfloat16, int8 or Q8_0; see embed.pxi."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ....model.precision import COMPUTED
from ..compiler.compiling import helper, inline
from ..compiler.emit import splat
from ..compiler.pointers import as_bits, as_floats, as_integers8
from ..compiler.structs import Embedding, EmbeddingTable, Floats, Int, Size, Vector
from ..compiler.vector import emits, v_add, v_load_bfloat16, v_load_int8, v_loadn, v_mul, v_set1, v_storen, vector
from ..target import VL
from .blocks import Q8_0_BYTES, blocks_of
from .integer_pairs import BLOCK_DEPTH, SCALE_BYTES, load_float16

FLOAT32, BFLOAT16, INT8, Q8_0, INT4, Q4_0, Q4_1 = range(len(COMPUTED))
"""The values of enum Storage in table.pxd, which has the order of COMPUTED."""


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


@emits(vector)
def v_float16(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    """Broadcast the float16 at p, behind which there are 2*VL bytes that can be read, to every lane."""
    return splat(b, b.extract_element(load_float16(b, p), ir.Constant(ir.IntType(32), 0)))


@inline
def add_row_of_blocks(table: EmbeddingTable, row: Size, first: bool, D: Size, out: Floats) -> None:
    """Add or write a row as `add_row_as` does, from blocks Q8_0, whose numbers are scale * code."""
    blocks = as_integers8(table.rows) + row * blocks_of(D) * Q8_0_BYTES
    for i in range(0, D, VL):
        block, n = blocks + i // BLOCK_DEPTH * Q8_0_BYTES, min(D - i, VL)
        x = v_mul(v_float16(block), v_load_int8(block + (SCALE_BYTES + i % BLOCK_DEPTH), n))
        x = v_mul(v_set1(table.factor), x)
        v_storen(out + i, x if first else v_add(v_loadn(out + i, n), x), n)


@helper
def add_row(table: EmbeddingTable, row: Size, first: bool, D: Size, out: Floats) -> None:
    """Call add_row_as for the table's storage."""
    if table.storage == INT8:
        add_row_as(INT8, table, row, first, D, out)
    elif table.storage == BFLOAT16:
        add_row_as(BFLOAT16, table, row, first, D, out)
    elif table.storage == Q8_0:
        add_row_of_blocks(table, row, first, D, out)
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
