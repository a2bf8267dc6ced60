"""Define the types in kernels' annotations: numbers, pointers, structs of table.pxd, and tuples of related values."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from numba import types

from ...cpu.native.layout import FUNCTIONS, STRUCTS, Member, structures
from .pointers import Field, Pointer, Struct, cast_to

# For the type checker, pointers and vectors are Any.
Floats: TypeAlias = Any
Bytes: TypeAlias = Any
Ints: TypeAlias = Any
Integers8: TypeAlias = Any
Shorts: TypeAlias = Any
Bits: TypeAlias = Any
Words: TypeAlias = Any
Cells: TypeAlias = Any
Code: TypeAlias = Any
Vector: TypeAlias = Any
Size: TypeAlias = int
Int: TypeAlias = int
Float: TypeAlias = float

# Pointers to the structs of table.pxd, which says what they and their fields mean.
Linear: TypeAlias = Any
Output: TypeAlias = Any
Relative: TypeAlias = Any
Attention: TypeAlias = Any
CachedAttention: TypeAlias = Any
RowChoice: TypeAlias = Any
Rotary: TypeAlias = Any
EmbeddingTable: TypeAlias = Any
Embedding: TypeAlias = Any
Norm: TypeAlias = Any

NUMBA_TYPES: dict[str, types.Type] = {
    "Floats": Pointer(types.float32), "Bytes": Pointer(types.uint8), "Ints": Pointer(types.int32),
    "Integers8": Pointer(types.int8), "Shorts": Pointer(types.int16), "Bits": Pointer(types.uint16),
    "Words": Pointer(types.uint32),
    "Cells": Pointer(Pointer(types.uint8)),
    "Code": Pointer(types.uint8), "Size": types.intp, "Int": types.int32, "Float": types.float32,
    "None": types.void,
}
"""The Numba type of each name in an annotation; those of structs follow."""

_FIELDS = {"float*": "Floats", "unsigned char*": "Bytes", "int*": "Ints", "unsigned int*": "Words", "size_t*": "Cells",
           "void*": "Code", "char*": "Code", "Py_ssize_t": "Size", "int": "Int", "bint": "Int",
           "float": "Float"}  # fmt: skip
"""The name in annotations of each type of table.pxd, but for pointers to structs and for functions."""


def _type_of(member: Member) -> types.Type:
    """Return the Numba type of a field; a function is its address, of type `Code`."""
    if member.arguments is not None or member.type in FUNCTIONS:
        return NUMBA_TYPES["Code"]
    pointed = member.type.removesuffix("*")
    return NUMBA_TYPES[pointed if pointed in STRUCTS else _FIELDS[member.type]]


for _name, _layout in structures().items():
    if _name != "KernelTable":      # no kernel reads the table
        NUMBA_TYPES[_name] = Pointer(Struct(_name, {
            member.name: Field(_type_of(member), getattr(_layout, member.name).offset) for member in STRUCTS[_name]}))


as_row_choice = cast_to(NUMBA_TYPES["RowChoice"].to)


class Block(NamedTuple):
    """A block of W = nv*VL queries inside attention, of which n are real."""

    t: Size             # the first query
    n: Size
    nv: Size
    queries: Floats     # [d][W]
    context: Floats     # [W][e], e padded to VL
    maximum: Floats     # [W]
    sum: Floats         # [W]


class Keys(NamedTuple):
    """A block of keys, or the part of it that a block of queries sees."""

    first: Size     # keys [first, last)
    last: Size
    v: Floats       # value vectors, beginning with the one of key `first`
    tail: Floats    # copy of columns e // NR * NR and later, padded to VL; unused if e is a multiple of VL


class Terms(NamedTuple):
    """Terms of relative positions for a query group and a key block: the products with rows of a table."""

    queries: Floats         # q K^T [QUERIES][stride], the row of the largest distance first
    keys: Floats            # k Q^T [KEYS][stride], the row of the smallest distance first
    stride: Size
    t: Size                 # first query
    key: Size               # first key
    first_key_row: Size     # row of K in the first column of `queries`, counted from the last row
    first_query_row: Size   # row of Q in the first column of `keys`


class Scratch(NamedTuple):
    """The scratch of attention, except for its query blocks."""

    p: Floats           # [KEYS][W]
    tail: Floats        # [KEYS][NR]
    correction: Floats  # [W]
    unused: Floats      # [W], scratch space for a maximum that is not used
    bias: Floats        # [VL][VL]
    visible: Floats     # [VL][VL], a mask
    distant: Floats     # [VL][VL], terms of relative positions
    terms: Floats       # the arrays of Terms
    lanes: Bytes        # [VL]
    finite: Bytes       # 1 if all values of the key block are finite, 0 if not, 2 if not checked yet


class Unpacked(NamedTuple):
    """A range of keys, unpacked, and the sums of a group of queries; see cached_many.pxi."""

    range: Size             # its number
    begin: Size             # keys [begin, end) of the range were unpacked
    end: Size
    first: Size             # the first query
    n: Size                 # how many there are
    keys: Floats            # [RANGE / NR][d][NR]
    values: Floats          # [E / NR][RANGE][NR]
    key_scales: Floats      # [RANGE]
    value_scales: Floats    # [RANGE]
    p: Floats               # [CHUNK_QUERIES][RANGE]
    product: Floats         # [CHUNK_QUERIES][E]
    maximum: Floats         # [CHUNK_QUERIES]
    sum: Floats             # [CHUNK_QUERIES]
    unused: Floats          # [NR]
    lanes: Floats           # [VL]
    queries: Floats         # [QUERIES][d]
    sums: Floats            # [QUERIES][E + 2]: the context, the maximum and the sum of each query
    finite: Bytes           # 1 if all values of the range are finite, 0 if not, 2 if not checked yet


class Before(NamedTuple):
    """Which of a part's logits were changed, in the order of the changes, and what they were before; see choose.pxi."""

    places: Ints        # [2 * PART]
    values: Floats
    own: Floats         # [PART], scratch space for the logits without the changes
