"""The compiled kernels that Numba's kernels must equal to the last bit on this CPU."""

import ctypes
from importlib import import_module

import pytest

from engine.backends.cpu.native.native import Kernels

WITHOUT = "needs numba: pip install '.[numba]'"
structs, target = (pytest.importorskip(f"engine.backends.numba_cpu.{name}", reason=WITHOUT)
                   for name in ("compiler.structs", "target"))

CAPSULE, COPIES = b"engine.KernelTable", []

PEERS = {
    (16, "vpdpbusd"): "avx512vnni", (16, "vpmaddubsw"): "avx512", (8, "vpdpbusd"): "avxvnni", (8, "vpmaddubsw"): "avx2",
    (4, "lanes"): "neon" if target.ARM else "baseline"}  # fmt: skip
PEER = PEERS[target.VL, target.INTEGERS]
"""The compiled kernels that have the same vector length, tile shapes and integer instructions as Numba's."""

BFLOAT16_PEER = "avx512bf16" if target.PAIR_STEPS == 1 else PEER
"""The compiled kernels that have the same instructions for bfloat16. If their operands are bfloat16, so is their
attention; Numba's is float32."""


def attending_in_float32(name):
    """Return a copy of the compiled kernels of this name, with the attention of float32 in every precision.

    It also lacks what Numba's kernels do not have: results that are written as operands, and approximate activations.
    """
    module = import_module(f"engine.backends.cython_cpu.kernels_{name}")
    api, layout = ctypes.pythonapi, structs.LAYOUTS["KernelTable"]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    copy = layout.from_buffer_copy(layout.from_address(api.PyCapsule_GetPointer(module.table, CAPSULE)))
    for row in copy.products:
        row.attention_scratch, row.attention = copy.products[0].attention_scratch, copy.products[0].attention
        row.attend_rows = row.operands_depth = row.approximates = row.hidden_columns = 0
    COPIES.append(copy)     # kernels do not keep their memory alive
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return Kernels(new(("PyCapsule_New", api))(ctypes.addressof(copy), CAPSULE, None))
