"""Fill the kernel table with functions that Numba compiles at first use, for the CPU that they run on.

The products that Numba lacks, and those for which compiled kernels have tiles or pairs, are these kernels' own.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from ...base.errors import UnsupportedError
from ...model.precision import WAYS
from ..cpu.native.layout import PRODUCT_PLACES, capsule_of, structures
from ..cpu.native.native import Kernels, product_name
from . import compiled
from .compiler.cache import KernelCache
from .compiler.compiling import compile_kernel
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
    rotary,
    softmax,
    weigh,
)
from .rows import ABSENT, OF_COMPILED, ON_TILES, ROWS
from .target import FUSED, MR, NR, PAIRS, VL

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
}
"""The functions that all precisions share, by their field in the table. `read`, and `rounds` of the products, which
measure the machine for `engine.backends.peak`, are not there: it asks compiled kernels."""

DECODING: dict[str, Callable[..., Any]] = {
    "cached_attention_scratch": cached_attention.cached_attention_scratch,
    "cached_attention": cached_attention.cached_attention,
    "fold_ranges": cached_attention.fold_ranges,
    "choose": choose.choose,
    "log_sum_exp": choose.log_sum_exp,
    "powers": choose.scaled_powers,
    "keep_above": choose.keep_above,
    "sum_above": choose.sum_above,
}
"""The functions of decoders alone. They are filled when a decoder first asks, because compiling them takes 9 s."""

ATTENTION: dict[str, Callable[..., Any]] = {
    "attention": attention.attention, "attention_scratch": attention.attention_scratch}
"""The attention of every product, also of those of compiled kernels: it is in float32."""


_FMA: dict[str, Callable[..., Any]] = {"pack": linear.pack, "multiply": linear.linear, **ATTENTION}
_WIDENED: dict[str, Callable[..., Any]] = {
    "pack": bfloat16.pack_bfloat16, "multiply": bfloat16.linear_widened, **ATTENTION}
PRODUCTS: dict[str, dict[str, Callable[..., Any]]] = {
    "float32": _FMA,
    "bfloat16": _WIDENED,
    "int8": {"pack": int8.pack_int8, "multiply": int8.linear_int8, "convert": int8.quantize, **ATTENTION},
    "int16": {"pack": integers.pack_integers, "multiply": integers.linear_integers, "convert": integers.to_integers,
              **ATTENTION},
    "fma": _FMA,
    "bfloat16_weights": _WIDENED,
}
"""The functions of each product, by its name in `ROWS`. A row is filled when a plan first asks for the product, because
compiling takes seconds; those of float32 are always filled."""


class KernelTable:
    """The memory of the table, the machine code that it points to, and the `Kernels` object that Python uses.

    A new table has no machine code of Numba: `fill` adds functions as plans ask for them. The caller of `fill` holds
    `_lock`.
    """

    def __init__(self, beside: str | None):
        """beside: the instruction set whose compiled kernels fill what Numba leaves; None if nothing does."""
        self.memory = structures()["KernelTable"](VL=VL, NR=NR, MR=MR, fused=FUSED)
        self.memory.isa = _text(b"numba")
        self.from_compiled: set[str] = set()
        """The names of the products whose rows come from compiled kernels."""
        compiled_rows = compiled.rows_of(beside) if beside else None
        for name, place in PRODUCT_PLACES.items():
            row = compiled_rows[place] if compiled_rows else None
            if row and _is_better(name, row):
                self.memory.products[place] = row
                self.from_compiled.add(name)
                fields = ON_TILES if row.strip > 1 else OF_COMPILED
            else:
                fields = ROWS.get(name, ABSENT)
            for field, value in fields.items():
                setattr(self.memory.products[place], field, _text(value) if isinstance(value, bytes) else value)
        self.functions: dict[str, Any] = {}
        """The compiled functions by their names, which the table points to."""
        self.filled: set[str] = set()
        """The names of the products, and "decoding", whose functions are in the table."""
        self.kernels = Kernels(capsule_of(self.memory))

    def instructions(self) -> dict[str, str]:
        """Return the instruction of each product that is there, by its name."""
        return {name: ctypes.string_at(self.memory.products[place].instruction).decode()
                for name, place in PRODUCT_PLACES.items() if name in ROWS or name in self.from_compiled}

    def fill(self, precision: str, decoding: bool, portable: bool) -> None:
        """Compile the functions of a precision that are not in the table yet, and also those of float32, because single
        operations use them. decoding, portable: as for `load`.

        Raises `UnsupportedError` where the precision is one of compiled kernels, and there are none.
        """
        product = product_name(precision, decoding, portable)
        needed = ["float32", "fma", product, *(["decoding"] if decoding else [])]
        wanted = [name for name in needed if name not in self.filled]
        if not wanted:      # the usual case, because every single operation calls this
            return
        has_kernels = product in ROWS or product in self.from_compiled
        if not has_kernels and precision not in WAYS:     # the packer refuses a way
            raise UnsupportedError(f"precision {precision!r} of the backend numba runs on kernels that are compiled "
                                   f'ahead of time: {compiled.explain()}, or use backend="cython"')
        shared = KERNELS | (DECODING if decoding else {})
        targets = [(self.memory, field, function) for field, function in shared.items()]
        for name in wanted:
            if name in PRODUCT_PLACES:
                row = self.memory.products[PRODUCT_PLACES[name]]
                functions = ATTENTION if name in self.from_compiled else PRODUCTS.get(name, {})
                targets += [(row, field, function) for field, function in functions.items()]
        missing = {function.__name__: function for _, _, function in targets if function.__name__ not in self.functions}
        from tqdm import tqdm  # here: `engine info` needs none

        # The bar appears if they take more than a second.
        for name, function in tqdm(missing.items(), "compiling kernels", delay=1, leave=False, unit="kernel"):
            self.functions[name] = compile_kernel(function, KernelCache(name))
        for struct, field, function in targets:
            setattr(struct, field, self.functions[function.__name__].address)
        self.filled.update(wanted)


def _is_better(name: str, row: Any) -> bool:
    """Return whether a row of compiled kernels has a product, and replaces Numba's product of this name.

    It does where Numba has none, and where its tiles (strip > 1) or its pairs of bfloat16 are faster.
    """
    has_pairs = PAIRS and name == "bfloat16" and row.operand_bytes == 2
    return bool(row.multiply) and (name not in ROWS or row.strip > 1 or has_pairs)


def _text(value: bytes) -> ctypes.c_void_p:
    """Return the address of a text, a constant of this module or of `rows.py`, which lives as long as the process."""
    return ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)


_table = cache(lambda: KernelTable(compiled.chosen()))
_lock = threading.RLock()
# A fork waits until no other thread compiles, because the child would find Numba's own lock taken.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def table() -> KernelTable:
    """Return the table of this process, which lives as long as the process."""
    with _lock:
        return _table()


def load(precision: str = "float32", *, decoding: bool = False, portable: bool = False) -> Kernels:
    """Return the table; the first call for a precision compiles its kernels or loads them from the cache (cache.py).

    decoding: whether the kernels of decoders are wanted, too. portable: whether it shall compute portable bits. Raises
    `UnsupportedError` for a precision of compiled kernels where there are none.
    """
    with _lock:
        kernel_table = table()
        kernel_table.fill(precision, decoding, portable)
        return kernel_table.kernels
