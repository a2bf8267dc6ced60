"""Read the cells of a cache, and widen their numbers to float32; see cells.pxi.

The keys of a cell lie number by number, [d][CELL], or in bfloat16 as pairs [d/2][CELL][2]; its values lie token by
token, [CELL][E], with E = e padded to VL. In int8, CELL float32 scales follow the keys, and others the values.
"""

from __future__ import annotations

from ...cpu.native.layout import CELL, RANGE
from ..compiler.compiling import helper, inline
from ..compiler.pointers import as_bits, as_floats, as_integers8
from ..compiler.structs import Bytes, CachedAttention, Floats, Int, Size, Unpacked, Vector
from ..compiler.vector import v_load, v_load_bfloat16, v_load_first, v_load_int8, v_load_second, v_store
from ..target import NR, VL
from .attention import padded
from .embed import BFLOAT16, FLOAT32, INT8


@inline
def values_at(storage: Int, cell: Bytes, i: Size) -> Vector:
    """Return VL numbers of the values of a cell, from number i on."""
    if storage == FLOAT32:
        return v_load(as_floats(cell) + i)
    if storage == BFLOAT16:
        return v_load_bfloat16(as_bits(cell) + i, VL)
    return v_load_int8(as_integers8(cell) + i, VL)


@inline
def store_keys(storage: Int, cell: Bytes, d: Size, first: Size, to: Floats) -> None:
    """Write all numbers of VL keys of a cell, from key `first` on, to the columns of a panel [d][NR]."""
    if storage == FLOAT32:
        for k in range(d):
            v_store(to + k * NR, v_load(as_floats(cell) + (k * CELL + first)))
    elif storage == BFLOAT16:
        for k in range(0, d, 2):
            pairs = as_bits(cell) + (k * CELL + 2 * first)
            v_store(to + k * NR, v_load_first(pairs))
            if k + 1 < d:
                v_store(to + (k + 1) * NR, v_load_second(pairs))
    else:
        for k in range(d):
            v_store(to + k * NR, v_load_int8(as_integers8(cell) + (k * CELL + first), VL))


@inline
def copy_scales(cell: Bytes, width: Size, to: Floats) -> None:
    """Copy the scales of the rows of an INT8 cell, which follow CELL * width numbers."""
    for j in range(0, CELL, VL):
        v_store(to + j, v_load(as_floats(cell + CELL * width) + j))


@inline
def unpack_as(storage: Int, call: CachedAttention, u: Unpacked) -> None:
    """Write the keys and values of the range that are seen to panels [d][NR] and [RANGE][NR], and their scales."""
    E = padded(call.e)
    for c in range(u.begin // CELL, (u.end + CELL - 1) // CELL):
        keys = call.cells[u.range * (RANGE // CELL) + c] + call.keys
        for j in range(0, CELL, VL):
            column = c * CELL + j
            store_keys(storage, keys, call.d, j, u.keys + (column // NR * NR * call.d + column % NR))
        if storage == INT8:
            copy_scales(keys, call.d, u.key_scales + c * CELL)
        values = call.cells[u.range * (RANGE // CELL) + c] + call.values
        for column in range(0, E, NR):
            width = min(E - column, NR)
            to = u.values + (column * RANGE + c * CELL * width)
            for i in range(CELL):
                for j in range(0, width, VL):
                    v_store(to + (i * width + j), values_at(storage, values, i * E + column + j))
        if storage == INT8:
            copy_scales(values, E, u.value_scales + c * CELL)


@helper
def unpack_range(call: CachedAttention, u: Unpacked) -> None:
    """Write the keys and values of the range that are seen to panels of floats, for any storage of the cells."""
    if call.storage == FLOAT32:
        unpack_as(FLOAT32, call, u)
    elif call.storage == BFLOAT16:
        unpack_as(BFLOAT16, call, u)
    else:
        unpack_as(INT8, call, u)
