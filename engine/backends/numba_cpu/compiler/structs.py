"""The structs and argument types of the kernel table, as table.pxd declares them, for ctypes and for Numba.

The order of the fields is the layout. table.pxd says what each struct and field means; private structs say it here.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, TypeAlias

from numba import types

from ...cpu.native.layout import PRODUCT_PLACES
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
    stride: Size    # floats from one row to the next
    width: Size     # columns that lie together: all, or those of a head
    block: Size     # floats from one head to the next
    operands: Code  # this and the rest is for compiled kernels alone: where results go as operands of another product
    operands_stride: Size
    first_line: Size    # the part of the depth, in lines of 64 bytes of operands
    last_line: Size
    sums: Floats        # where sums wait for the next part
    bfloat16: Int       # whether the numbers at data are bfloat16
    approximate: Int    # whether the activation may be approximate


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
    second_place: Size      # the offset of the next 16 columns
    initial: Size   # whether the sums are those of the first part of the depth
    final: Size     # and of the last


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
    q: Floats           # [T,d]
    k: Floats           # [S,d]
    v: Floats           # [S,e]
    out: Floats         # [T,e]
    q_stride: Size      # floats from one row to the next
    k_stride: Size
    v_stride: Size
    out_stride: Size
    T: Size             # queries
    S: Size             # keys
    d: Size             # width of a query and a key
    e: Size             # width of a value
    low: Size           # query t sees keys t + low <= s < t + high
    high: Size
    bias: Floats        # element (t, s) at bias[t*bias_t + s*bias_s]; null: none
    bias_t: Size
    bias_s: Size
    mask: Bytes         # strides as those of the bias; 0 hides the key; null: none
    mask_t: Size
    mask_s: Size
    score_mod: Code     # the user's function; null: none
    captured: Code      # the address of its data
    b: Size             # the sequence, for score_mod
    h: Size             # and the head
    query: Size         # index of the query at q
    relative: Relative  # null: none
    scale: Float        # of the scores
    softcap: Float      # c of c tanh(score / c); 0: none


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


@struct
class CachedAttention:
    q: Floats           # query (t, h) at q + t*q_stride + h*q_head
    out: Floats         # its result at out + t*out_stride + h*out_head
    q_stride: Size
    q_head: Size
    out_stride: Size
    out_head: Size
    T: Size             # rows of queries
    heads: Size         # queries of a row, which share one key head
    S: Size             # keys
    d: Size             # width of a query and a key
    e: Size             # width of a value
    low: Size           # row t sees keys t + low <= s < t + high
    high: Size
    cells: Cells        # the address of each cell of 16 tokens
    keys: Size          # bytes from there to the keys of this head
    values: Size        # and to its values
    storage: Int        # of the cells, an enum Storage
    sums: Floats        # where the sums of one range alone go; null: out is written
    range: Size         # the number of this range of 256 keys
    bias: Floats        # element (h, t, s) at bias[h*bias_head + t*bias_t + s*bias_s]; null: none
    bias_head: Size
    bias_t: Size
    bias_s: Size
    scale: Float        # of the scores
    softcap: Float      # c of c tanh(score / c); 0: none


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
    width: Size         # columns of a row that are rotated
    d: Size             # all columns
    interleaved: Int    # whether pairs are columns 2i and 2i + 1


@struct
class EmbeddingTable:
    rows: Code      # [rows][D] numbers or blocks, as `storage` says
    scale: Floats   # [rows], for INT8
    storage: Int    # an enum Storage
    factor: Float   # of every number


@struct
class Embedding:
    word: EmbeddingTable    # null, here and in the next two: it adds nothing
    position: EmbeddingTable
    type: EmbeddingTable
    ids: Ints               # [N], the rows of the three tables; ids null: row i of `word` for token i
    position_ids: Ints
    type_ids: Ints


@struct
class Norm:
    weight: Floats  # [D]
    bias: Floats    # [D]
    D: Size         # entries of a row
    eps: Float      # added to the variance


@struct
class Product:
    name: Code              # the precision, or the kind of product, as text
    instruction: Code       # the instruction that multiplies, as text
    depth_step: Int         # the depth of a panel is padded to a multiple of it
    operand_bytes: Int      # of a number of a row that `multiply` reads
    beside: Int             # bytes behind a row for each depth_step
    strip: Int              # rows that lie together, line by line
    block: Int              # rows that go through a segment together
    hidden_columns: Int     # columns between two products that are passed on at a time; 0: all
    fresh_depth: Int        # the depth after which sums begin anew; 0: never
    shared: Int             # tokens up to which threads share the columns of products
    bundle: Int             # about how many tokens one thread takes at a time
    operands_depth: Int     # the largest depth with which results can be operands; 0: none
    approximates: Int       # whether activations may be approximate
    code_zero: Int          # int8: the byte that stands for the code 0
    bounded: Int            # int8: whether sums of weights must be bounded
    begin: Code             # from here on functions, or null: make the thread ready for tiles
    end: Code               # release them
    pack: Code
    convert: Code           # of rows to operands
    multiply: Code
    attention_scratch: Code
    attention: Code
    attend_rows_scratch: Code
    attend_rows: Code       # attention of rows in bfloat16
    rounds: Code            # products for a measurement of the peak


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
