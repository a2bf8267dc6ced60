"""Fill the kernel table with functions that Numba compiles at first use, for the CPU that they run on."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from ..cpu.native.layout import PRODUCT_PLACES
from ..cpu.native.native import Kernels, product_name
from .compiler.cache import KernelCache
from .compiler.compiling import compile_kernel
from .compiler.structs import LAYOUTS
from .kernels import (
    attention,
    bfloat16,
    cached_attention,
    choose,
    elementwise,
    embed,
    int8,
    integers,
    linear,
    maxima,
    norm,
    parts,
    roofline,
    rotary,
    softmax,
    tiles,
    weigh,
)
from .rows import ROWS
from .target import FUSED, MR, NR, PAIR_STEPS, TILES, VL

KERNELS: dict[str, Callable[..., Any]] = {
    "layer_norm": norm.layer_norm,
    "rms_norm": norm.rms_norm,
    "softmax": softmax.softmax,
    "rotate": rotary.rotate,
    "weigh": weigh.weigh,
    "column_maxima": maxima.column_maxima,
    "embed": embed.embed,
    "activate": elementwise.activate,
    "gate": elementwise.gate,
    "read": roofline.read,
}
"""The functions that all precisions share, by their field in the table."""

DECODING: dict[str, Callable[..., Any]] = {
    "cached_attention_scratch": cached_attention.cached_attention_scratch,
    "cached_attention": cached_attention.cached_attention,
    "fold_ranges": cached_attention.fold_ranges,
    "choose": choose.choose,
    "log_sum_exp": choose.log_sum_exp,
}
"""The functions of decoders alone. They are filled when a decoder first asks, because compiling them takes 9 s."""


def _product(pack: Callable[..., Any], multiply: Callable[..., Any], rounds: Callable[..., Any],
             convert: Callable[..., Any] | None = None) -> dict[str, Callable[..., Any]]:
    """Return the functions of a product by their field in the table. Attention is in float32 for every precision."""
    return {"pack": pack, "multiply": multiply, "rounds": rounds, "attention": attention.attention,
            "attention_scratch": attention.attention_scratch, **({} if convert is None else {"convert": convert})}


_FMA = _product(linear.pack, linear.linear, roofline.fma_rounds)
_INT16 = _product(integers.pack_integers, integers.linear_integers, integers.integer_rounds, integers.to_integers)
_PAIRS: tuple[Callable[..., Any], ...] = (bfloat16.linear_widened, bfloat16.pair_rounds)
if PAIR_STEPS == 1:     # operands are bfloat16, and must be converted
    _PAIRS = (bfloat16.linear_bfloat16, bfloat16.pair_rounds, bfloat16.to_operands)
PRODUCTS: dict[str, dict[str, Callable[..., Any]]] = {
    "float32": _FMA,
    "bfloat16": _product(bfloat16.pack_bfloat16, *_PAIRS),
    "int8": _product(int8.pack_int8, int8.linear_int8, int8.dot_rounds, int8.quantize),
    "int16": _INT16,
    "codes": _product(integers.pack_integers, integers.linear_integers, int8.dot_rounds, integers.to_codes),
    "fma": _FMA,
    "int16_vectors": _INT16,
    "bfloat16_weights": _product(bfloat16.pack_bfloat16, bfloat16.linear_widened, roofline.fma_rounds),
}
"""The functions of each product, by its name in `ROWS`. A row is filled when a plan first asks for the product, because
compiling takes seconds; those of float32 are always filled. bfloat16x3 has functions only on tiles."""

if TILES:
    for _name, _functions in {
        "float32": (parts.pack_parts, parts.tiles_float32, parts.tile_rounds_float32, parts.to_parts),
        "bfloat16x3": (parts.pack_parts, parts.tiles_two_parts, parts.tile_rounds_two_parts, parts.to_two_parts),
        "bfloat16": (tiles.pack_tiles_bfloat16, tiles.tiles_bfloat16, tiles.tile_rounds_bfloat16, tiles.to_tiles),
        "int8": (tiles.pack_tiles_int8, tiles.tiles_int8, tiles.tile_rounds_int8, tiles.quantize_to_tiles),
        "int16": (tiles.pack_tiles_int8, tiles.tiles_int16, tiles.tile_rounds_int16, tiles.integers_to_tiles),
    }.items():
        PRODUCTS[_name] = _product(*_functions) | {"begin": tiles.begin_tiles, "end": tiles.end_tiles}

_ISA = b"numba"
_CAPSULE = b"engine.KernelTable"


class _Table:
    """The memory of the table, the machine code that it points to, and the `Kernels` object that Python uses."""

    def __init__(self) -> None:
        self.memory = LAYOUTS["KernelTable"](VL=VL, NR=NR, MR=MR, fused=FUSED)
        self.memory.isa = _text(_ISA)
        for name, place in PRODUCT_PLACES.items():
            for field, value in ROWS[name].items():
                setattr(self.memory.products[place], field, _text(value) if isinstance(value, bytes) else value)
        self.compiled: dict[str, Any] = {}
        self.filled: set[str] = set()
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.kernels = Kernels(capsule(ctypes.addressof(self.memory), _CAPSULE, None))

    def fill(self, precision: str, decoding: bool, portable: bool) -> None:
        """Compile the functions of a precision, and also of float32, because single operations use them."""
        needed = ["float32", "fma", product_name(precision, decoding, portable), *(["decoding"] if decoding else [])]
        wanted = [name for name in needed if name not in self.filled]
        if not wanted:      # the usual case, because every single operation calls this
            return
        shared = KERNELS | (DECODING if decoding else {})
        targets = [(self.memory, field, function) for field, function in shared.items()]
        for name in wanted:
            if name in PRODUCTS:
                row = self.memory.products[PRODUCT_PLACES[name]]
                targets += [(row, field, function) for field, function in PRODUCTS[name].items()]
        missing = {function.__name__: function for _, _, function in targets if function.__name__ not in self.compiled}
        for name, function in _progress(missing):
            self.compiled[name] = compile_kernel(function, KernelCache(name))
        for struct, field, function in targets:
            setattr(struct, field, self.compiled[function.__name__].address)
        self.filled.update(wanted)


def _text(value: bytes) -> ctypes.c_void_p:
    return ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)


_table = cache(_Table)
_lock = threading.RLock()
# A fork waits until no other thread compiles, because the child would find Numba's own lock taken.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def load(precision: str = "float32", *, decoding: bool = False, portable: bool = False) -> Kernels:
    """Return the table; the first call for a precision compiles its kernels or loads them from the cache (cache.py).

    decoding: whether the kernels of decoders are wanted, too. portable: whether it shall compute portable bits.
    """
    with _lock:
        table = _table()
        table.fill(precision, decoding, portable)
        return table.kernels


def _progress(kernels: dict[str, Any]) -> Any:
    """Return the items of `kernels` behind a progress bar, which appears if they take more than a second."""
    from tqdm import tqdm

    return tqdm(kernels.items(), "compiling kernels", delay=1, leave=False, unit="kernel")
