"""Add the embeddings of tokens, from tables in float32, bfloat16, int8 or Q8_0; see embed.pxi."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ...cpu.native.layout import STORAGE
from ..compiler.compiling import helper, inline
from ..compiler.emit import F32, I32, splat
from ..compiler.pointers import as_bits, as_floats, as_integers8
from ..compiler.structs import Embedding, EmbeddingTable, Floats, Int, Size, Vector
from ..compiler.vector import emits, v_add, v_load_bfloat16, v_load_int8, v_loadn, v_mul, v_set1, v_storen, vector
from ..target import VL

FLOAT32, BFLOAT16, INT8, Q8_0 = (STORAGE[name] for name in ("float32", "bfloat16", "int8", "q8_0"))
"""The values of enum Storage that tables have."""

BLOCK, SCALE_BYTES = 32, 2
"""The numbers of a block Q8_0 that share a scale, and the bytes of the float16 that it is."""


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
    """Broadcast the finite float16 at p to every lane.

    A subnormal number is its integer times 2^-24; any other has 112 less in its exponent than a float.
    """
    x = b.zext(b.load(p, typ=ir.IntType(16), align=1), I32)
    size = b.and_(x, I32(0x7FFF))
    normal = b.bitcast(b.add(b.shl(size, I32(13)), I32(112 << 23)), F32)
    small = b.fmul(b.sitofp(size, F32), F32(2.0**-24))
    number = b.bitcast(b.select(b.icmp_signed("<", size, I32(0x0400)), small, normal), I32)
    return splat(b, b.bitcast(b.or_(number, b.shl(b.and_(x, I32(0x8000)), I32(16))), F32))


@inline
def add_row_of_blocks(table: EmbeddingTable, row: Size, first: bool, D: Size, out: Floats) -> None:
    """Add a row times the table's factor to out [D], or write it if it is the first; blocks of Q8_0: scale * code."""
    block_bytes = SCALE_BYTES + BLOCK
    blocks = as_integers8(table.rows) + row * ((D + BLOCK - 1) // BLOCK) * block_bytes
    for i in range(0, D, VL):
        block, n = blocks + i // BLOCK * block_bytes, min(D - i, VL)
        x = v_mul(v_float16(block), v_load_int8(block + (SCALE_BYTES + i % BLOCK), n))
        x = v_mul(v_set1(table.factor), x)
        v_storen(out + i, x if first else v_add(v_loadn(out + i, n), x), n)


@helper
def add_row(table: EmbeddingTable, row: Size, first: bool, D: Size, out: Floats) -> None:
    """Add a table's row, in any storage, to out [D], or overwrite out with it if `first` is True."""
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
