"""The structs and argument types of the kernel table, as table.pxd declares them, for ctypes and for Numba.

The order of the fields is the layout. table.pxd says what each struct and field means; private structs say it here.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, TypeAlias

from numba import types

from ...cpu.native.native import PRODUCT_PLACES
from ..target import PAIR_STEPS
from .pointers import Field, Pointer, Struct

# Names for annotations of kernels and of the fields below. For the type checker, pointers and vectors are Any.
Floats: TypeAlias = Any
Bytes: TypeAlias = Any
Ints: TypeAlias = Any
Integers8: TypeAlias = Any
Shorts: TypeAlias = Any
Bits: TypeAlias = Any
Sizes: TypeAlias = Any
Cells: TypeAlias = Any
Operands: TypeAlias = Any
Code: TypeAlias = Any
Vector: TypeAlias = Any
Size: TypeAlias = int
Int: TypeAlias = int
Float: TypeAlias = float
Double: TypeAlias = float

NUMBA_TYPES: dict[str, types.Type] = {
    "Floats": Pointer(types.float32), "Bytes": Pointer(types.uint8), "Ints": Pointer(types.int32),
    "Integers8": Pointer(types.int8), "Shorts": Pointer(types.int16), "Bits": Pointer(types.uint16),
    "Sizes": Pointer(types.intp),
    "Cells": Pointer(Pointer(types.uint8)),
    "Operands": Pointer(types.uint16 if PAIR_STEPS == 1 else types.float32),
    "Code": Pointer(types.uint8), "Size": types.intp, "Int": types.int32, "Float": types.float32,
    "Double": types.float64, "None": types.void,
}
"""The Numba type of each name in an annotation; `struct` adds the pointers to structs."""

_CTYPES: dict[str, Any] = {"Size": ctypes.c_ssize_t, "Int": ctypes.c_int, "Float": ctypes.c_float}
"""The ctypes type of each name in an annotation; a name that is not here is a pointer."""

LAYOUTS: dict[str, type[ctypes.Structure]] = {}
"""The structs of table.pxd by name, for ctypes."""


def _lay_out(cls: type) -> type[ctypes.Structure]:
    """Lay out a class's annotations as a C struct; in annotations its name then means a pointer to the struct."""
    name = cls.__name__
    fields = [(field, _CTYPES.get(kind, ctypes.c_void_p)) for field, kind in cls.__annotations__.items()]
    layout = type(name, (ctypes.Structure,), {"_fields_": fields})
    placed = {field: Field(NUMBA_TYPES[kind], getattr(layout, field).offset)
              for field, kind in cls.__annotations__.items()}
    NUMBA_TYPES[name] = Pointer(Struct(name, placed, ctypes.sizeof(layout)))
    return layout


def struct(cls: type) -> type:
    """Lay out a struct of table.pxd."""
    LAYOUTS[cls.__name__] = _lay_out(cls)
    return cls


def private(cls: type) -> type:
    """Lay out a struct that compiled code does not have."""
    _lay_out(cls)
    return cls


@struct
class Linear:
    panels: Floats          # the weights, as the product packs them
    bias: Floats            # [N]
    scale: Floats           # [N], of int8 and INT4 weights; null otherwise
    sums: Floats            # [N], the sum of the integers of each column
    offset_scale: Floats    # [N], of INT4; null otherwise
    N: Size                 # columns, padded to VL
    K: Size                 # depth
    activation: Int
    storage: Int            # of the weights, an enum Storage


@struct
class Output:
    data: Floats    # (row, column) at data + column // width * block + row * stride + column % width
    stride: Size
    width: Size
    block: Size
    operands: Code  # this and the rest is for compiled kernels alone
    operands_stride: Size
    first_line: Size
    last_line: Size
    sums: Floats
    bfloat16: Int
    approximate: Int


@private
class TileBlock:
    """A block of sums of AMX's tiles, and the inputs of its epilogue; see tiles.pxi."""

    y: Linear
    ranges: Floats  # (low, step) of the first row's codes
    residual: Floats
    out: Output
    sums: Floats    # [SIDE][SIDE]; of int8, the bits of int32
    column: Size    # the first one
    rows: Size
    columns: Size   # tiles of columns, 1 or 2
    place: Size     # the offset in the result of the first 16 columns of the first row
    second: Size    # the offset of the next 16 columns
    initial: Size   # whether the sums are those of the first part of the depth, and of the last
    final: Size


@struct
class Relative:
    keys: Floats        # K^T in panels, the last row first; null: no term
    queries: Floats     # Q^T in panels; null: no term
    row: Ints           # the row of distance x at row[limit + x]
    limit: Size
    near: Size          # distances up to this one have one row after the other
    rows: Size
    columns: Size       # of panels for DISTANCES successive distances


@struct
class Attention:
    q: Floats
    k: Floats
    v: Floats
    out: Floats
    q_stride: Size
    k_stride: Size
    v_stride: Size
    out_stride: Size
    T: Size
    S: Size
    d: Size
    e: Size
    low: Size
    high: Size
    bias: Floats        # element (t, s) at bias[t*bias_t + s*bias_s]; null: none
    bias_t: Size
    bias_s: Size
    mask: Bytes         # in the same way, 0 to hide the key; null: none
    mask_t: Size
    mask_s: Size
    score_mod: Code     # the user's function, and the address of its data; null: none
    captured: Code
    b: Size             # the sequence and the head, for score_mod
    h: Size
    query: Size         # index of the query at q
    relative: Relative  # null: none
    scale: Float
    softcap: Float


class Block(NamedTuple):
    """A block of W = nv*VL queries inside attention, of which n are real."""

    t: Size
    n: Size
    nv: Size
    queries: Floats     # [d][W]
    context: Floats     # [W][e], e padded to VL
    maximum: Floats     # [W]
    sum: Floats         # [W]


class Keys(NamedTuple):
    """A block of keys, or the part of it that a block of queries sees."""

    first: Size
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


@struct
class CachedAttention:
    q: Floats
    out: Floats
    q_stride: Size
    q_head: Size
    out_stride: Size
    out_head: Size
    T: Size
    heads: Size
    S: Size
    d: Size
    e: Size
    low: Size
    high: Size
    cells: Cells
    keys: Size
    values: Size
    storage: Int
    sums: Floats
    range: Size
    bias: Floats
    bias_head: Size
    bias_t: Size
    bias_s: Size
    scale: Float
    softcap: Float


class Unpacked(NamedTuple):
    """A range of keys, unpacked, and the sums of a group of queries; see cached_many.pxi."""

    range: Size
    begin: Size             # the keys that were unpacked, in the range
    end: Size
    first: Size             # the first query, and how many there are
    n: Size
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


@struct
class Best:
    values: Floats  # [M][k], the largest first
    ids: Ints       # [M][k], -1 for an empty place
    k: Int


@struct
class Rotary:
    cos: Floats         # row m at cos + m*stride, width/2 entries
    sin: Floats
    stride: Size
    width: Size         # columns of a row that are turned
    d: Size             # all columns
    interleaved: Int    # whether pairs are columns 2i and 2i + 1


@struct
class EmbeddingTable:
    rows: Code
    scale: Floats   # [rows], for INT8
    storage: Int    # an enum Storage
    factor: Float   # of every number


@struct
class Embedding:
    word: EmbeddingTable
    position: EmbeddingTable
    type: EmbeddingTable
    ids: Ints
    position_ids: Ints
    type_ids: Ints


@struct
class Norm:
    weight: Floats  # [D]
    bias: Floats    # [D]
    D: Size
    eps: Float


@struct
class Product:
    name: Code
    instruction: Code
    depth_step: Int
    operand_bytes: Int
    beside: Int
    strip: Int
    block: Int
    hidden_columns: Int
    fresh_depth: Int
    shared: Int
    bundle: Int
    operands_depth: Int
    approximates: Int
    code_zero: Int
    bounded: Int
    begin: Code
    end: Code
    pack: Code
    convert: Code
    multiply: Code
    attention_scratch: Code
    attention: Code
    attend_rows_scratch: Code
    attend_rows: Code
    rounds: Code


class KernelTable(ctypes.Structure):
    """The kernel table, for ctypes only, because no kernel reads it."""

    _fields_ = (
        ("isa", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("VL", "NR", "MR", "fused")),
        ("products", LAYOUTS["Product"] * len(PRODUCT_PLACES)),
        *((name, ctypes.c_void_p) for name in (
            "layer_norm", "rms_norm", "softmax", "rotate", "weigh", "cached_attention_scratch", "cached_attention",
            "fold_ranges", "choose", "log_sum_exp", "column_maxima", "embed", "activate", "gate", "read")),
    )  # fmt: skip


LAYOUTS["KernelTable"] = KernelTable
