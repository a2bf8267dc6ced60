"""The kernel table, filled with functions that Numba compiles for the very CPU it runs on, at the first use."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from ..cython_cpu.native import Kernels
from . import attention, bfloat16, elementwise, embed, int8, linear, norm, roofline, rotary, softmax
from .cache import KernelCache
from .compiling import compile_kernel
from .structs import LAYOUTS
from .target import CODE_BYTES, DOT, MR, NR, OPERAND_BYTES, VL

KERNELS = {
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
    "quantize": int8.quantize,
    "pack_int8": int8.pack_int8,
    "linear_int8": int8.linear_int8,
    "dot_rounds": int8.dot_rounds,
    # No attention_bfloat16: where it is NULL, attention is in float32.
    "to_operands": bfloat16.to_operands,
    "pack_bfloat16": bfloat16.pack_bfloat16,
    "linear_bfloat16": bfloat16.linear_bfloat16,
    "pair_rounds": bfloat16.pair_rounds,
    "fma_rounds": roofline.fma_rounds,
    "read": roofline.read,
}
"""The functions by their field in the table."""

_ISA = b"numba"
_CAPSULE = b"engine.KernelTable"
_lock = threading.Lock()
_loaded: list[tuple[Kernels, Any, Any]] = []
"""The table, and what has to live as long as it: its memory and the machine code."""


def load() -> Kernels:
    """The table; the first call compiles it, some seconds, or loads it from the cache (cache.py)."""
    with _lock:
        if not _loaded:
            compiled = {name: compile_kernel(function, KernelCache(name)) for name, function in _progress(KERNELS)}
            table = LAYOUTS["KernelTable"](VL=VL, NR=NR, MR=MR, DOT=DOT, code_bytes=CODE_BYTES,
                                           operand_bytes=OPERAND_BYTES)
            table.isa = ctypes.cast(ctypes.c_char_p(_ISA), ctypes.c_void_p)
            for name, kernel in compiled.items():
                setattr(table, name, kernel.address)
            capsule = ctypes.pythonapi.PyCapsule_New
            capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
            _loaded.append((Kernels(capsule(ctypes.addressof(table), _CAPSULE, None)), table, compiled))
        return _loaded[0][0]


def _progress(kernels: dict[str, Any]) -> Any:
    """The items, behind a progress bar that shows itself when they take more than a second."""
    from tqdm import tqdm

    return tqdm(kernels.items(), "compiling kernels", delay=1, leave=False, unit="kernel")
