"""The structs and argument types of the kernel table, as table.pxd declares them, for ctypes and for Numba."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, TypeAlias

from numba import types

from .pointers import Pointer, Struct
from .target import HALVES

# Names for annotations of kernels and of the fields below. For the type checker, pointers and vectors are Any.
Floats: TypeAlias = Any
Bytes: TypeAlias = Any
Ints: TypeAlias = Any
Integers8: TypeAlias = Any
Bits: TypeAlias = Any
Operands: TypeAlias = Any
Code: TypeAlias = Any
Vector: TypeAlias = Any
Size: TypeAlias = int
Int: TypeAlias = int
Float: TypeAlias = float
Double: TypeAlias = float

NUMBA_TYPES: dict[str, types.Type] = {
    "Floats": Pointer(types.float32), "Bytes": Pointer(types.uint8), "Ints": Pointer(types.int32),
    "Integers8": Pointer(types.int8), "Bits": Pointer(types.uint16),
    "Operands": Pointer(types.uint16 if HALVES == 1 else types.float32),
    "Code": Pointer(types.uint8), "Size": types.intp, "Int": types.int32, "Float": types.float32,
    "Double": types.float64, "None": types.void,
}
"""The Numba type of each name in an annotation; `struct` adds the pointers to structs."""

_CTYPES: dict[str, Any] = {"Size": ctypes.c_ssize_t, "Int": ctypes.c_int, "Float": ctypes.c_float}
"""The ctypes type of each name in an annotation; a name that is not here is a pointer."""

LAYOUTS: dict[str, type[ctypes.Structure]] = {}
"""The structs by name, for ctypes."""


def struct(cls: type) -> type:
    """Lay out a class's annotations as a C struct; in annotations its name then means a pointer to the struct."""
    name = cls.__name__
    fields = [(field, _CTYPES.get(kind, ctypes.c_void_p)) for field, kind in cls.__annotations__.items()]
    layout = LAYOUTS[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    offsets = {field: (NUMBA_TYPES[kind], getattr(layout, field).offset) for field, kind in cls.__annotations__.items()}
    NUMBA_TYPES[name] = Pointer(Struct(name, offsets))
    return cls


@struct
class Linear:
    panels: Floats
    bias: Floats
    scale: Floats
    sums: Floats
    N: Size
    K: Size
    activation: Int


@struct
class Output:
    data: Floats
    stride: Size
    width: Size
    block: Size


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
    bias: Floats
    bias_t: Size
    bias_s: Size
    mask: Bytes
    mask_t: Size
    mask_s: Size
    score_mod: Code
    captured: Code
    b: Size
    h: Size
    query: Size
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
    v: Floats           # value vectors, beginning with the one of key `first`
    tail: Floats        # copy of columns e // NR * NR and later, padded to VL; unused if e is a multiple of VL


class Scratch(NamedTuple):
    """The scratch of attention, except for its query blocks."""

    p: Floats           # [KEYS][W]
    tail: Floats        # [KEYS][NR]
    correction: Floats  # [W]
    unused: Floats      # [W], scratch space for a maximum that is not used
    bias: Floats        # [VL][VL]
    visible: Floats     # [VL][VL], a mask
    lanes: Bytes        # [VL]
    finite: Bytes       # 1 if all values of the key block are finite, 0 if not, 2 if not checked yet


@struct
class Rotary:
    cos: Floats
    sin: Floats
    stride: Size
    width: Size
    d: Size
    interleaved: Int


@struct
class EmbeddingTable:
    rows: Code
    scale: Floats
    storage: Int


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
    weight: Floats
    bias: Floats
    D: Size
    eps: Float


@struct
class Product:
    name: Code
    depth_step: Int
    operand_bytes: Int
    pack: Code
    convert: Code
    multiply: Code
    attention_scratch: Code
    attention: Code
    rounds: Code


class KernelTable(ctypes.Structure):
    """The kernel table, for ctypes only, because no kernel reads it."""

    _fields_ = (
        ("isa", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("VL", "NR", "MR")),
        ("products", LAYOUTS["Product"] * 3),
        *((name, ctypes.c_void_p) for name in (
            "layer_norm", "rms_norm", "softmax", "rotate", "embed", "activate", "gate", "read")),
    )  # fmt: skip


LAYOUTS["KernelTable"] = KernelTable
