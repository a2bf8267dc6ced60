"""The kernel table, filled with functions that Numba compiles for the very CPU it runs on, at the first use."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from ..cython_cpu.native import Kernels
from . import attention, bfloat16, elementwise, embed, int8, linear, norm, roofline, rotary, softmax
from .cache import KernelCache
from .compiling import compile_kernel
from .structs import LAYOUTS
from .target import DOT, MR, NR, OPERAND_BYTES, VL

KERNELS: dict[str, Callable[..., Any]] = {
    "pack": linear.pack,
    "linear": linear.linear,
    "attention_scratch": attention.attention_scratch,
    "attention": attention.attention,
    "layer_norm": norm.layer_norm,
    "rms_norm": norm.rms_norm,
    "softmax": softmax.softmax,
    "rotate": rotary.rotate,
    "embed": embed.embed,
    "activate": elementwise.activate,
    "gate": elementwise.gate,
    "fma_rounds": roofline.fma_rounds,
    "read": roofline.read,
}
"""The functions by their field in the table."""

KERNELS_OF: dict[str, dict[str, Callable[..., Any]]] = {
    "float32": {},
    # No attention_bfloat16: where it is NULL, attention is in float32.
    "bfloat16": {
        "to_operands": bfloat16.to_operands,
        "pack_bfloat16": bfloat16.pack_bfloat16,
        "linear_bfloat16": bfloat16.linear_bfloat16,
        "pair_rounds": bfloat16.pair_rounds,
    },
    "int8": {
        "quantize": int8.quantize,
        "pack_int8": int8.pack_int8,
        "linear_int8": int8.linear_int8,
        "dot_rounds": int8.dot_rounds,
    },
}
"""What a precision takes besides: NULL until it is asked for, as compiling takes seconds."""

_ISA = b"numba"
_CAPSULE = b"engine.KernelTable"


class _Table:
    """The table's memory, the machine code that it points to, and its face."""

    def __init__(self) -> None:
        self.memory = LAYOUTS["KernelTable"](VL=VL, NR=NR, MR=MR, DOT=DOT, operand_bytes=OPERAND_BYTES)
        self.memory.isa = ctypes.cast(ctypes.c_char_p(_ISA), ctypes.c_void_p)
        self.compiled: dict[str, Any] = {}
        self.precisions: set[str] = set()
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.kernels = Kernels(capsule(ctypes.addressof(self.memory), _CAPSULE, None))

    def fill(self, precision: str) -> None:
        if precision in self.precisions:    # every single operation asks
            return
        missing = {name: function for name, function in (KERNELS | KERNELS_OF[precision]).items()
                   if name not in self.compiled}
        for name, function in _progress(missing):
            self.compiled[name] = compile_kernel(function, KernelCache(name))
            setattr(self.memory, name, self.compiled[name].address)
        self.precisions.add(precision)


_table = cache(_Table)
_lock = threading.Lock()


def load(precision: str = "float32") -> Kernels:
    """The table; the first call for a precision compiles its kernels, or loads them from the cache (cache.py)."""
    with _lock:
        table = _table()
        table.fill(precision)
        return table.kernels


def _progress(kernels: dict[str, Any]) -> Any:
    """The items, behind a progress bar that shows itself when they take more than a second."""
    from tqdm import tqdm

    return tqdm(kernels.items(), "compiling kernels", delay=1, leave=False, unit="kernel")
