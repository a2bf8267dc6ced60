"""Choose the kernels compiled ahead of time that fill the rows of the kernel table which Numba's kernels leave empty.

They are the products on AMX's tiles, those of pairs of bfloat16 on AMD's CPUs, and those of weights in blocks: q8_0,
int4, q4_0 and q4_1. Their instructions are written by hand, so they gain nothing from being compiled for the CPU at
hand.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from ...base.install import install_command
from ..cpu.native.layout import table_in
from ..cython_cpu import isa
from .target import FEATURES, FUSED, NR, VL

TILE_FEATURES = ("amx-tile", "amx-bf16", "amx-int8")
"""LLVM's names of the features without which Numba compiles for a CPU without tiles."""


def why_not(name: str) -> str | None:
    """Return why the compiled kernels of an instruction set cannot stand beside Numba's, or None if they can.

    The panels of one table have one width, and portable bits need fused multiply-adds in all products.
    """
    if name == "amx" and (lacking := [feature for feature in TILE_FEATURES if f"+{feature}" not in FEATURES]):
        return f"Numba compiles for a CPU without {', '.join(lacking)}"
    if reason := isa.why_not(name):
        return reason
    kernels = isa.load(name)
    if (kernels.VL, kernels.NR) != (VL, NR):
        return (f"the {name} kernels have vectors of {kernels.VL} floats and panels of {kernels.NR} columns, and "
                f"Numba's have {VL} and {NR} here")
    if kernels.fused != FUSED:
        return f"only {f'the {name} kernels' if kernels.fused else 'the kernels of Numba'} fuse multiply-adds"
    return None


@cache
def chosen() -> str | None:
    """Return the instruction set whose kernels stand beside Numba's, or None if there is none.

    It is the one that ENGINE_ISA names, or else the fastest that is built, runs here and has Numba's vectors.
    """
    named = os.environ.get("ENGINE_ISA")
    names = [named] if named else [name for name in isa.fastest_first() if name not in isa.FOR_TESTS]
    return next((name for name in names if why_not(name) is None), None)


def explain() -> str:
    """Say why no compiled kernels stand beside Numba's, and what to do about it."""
    if named := os.environ.get("ENGINE_ISA"):
        return f"ENGINE_ISA={named}, but {why_not(named)}; unset ENGINE_ISA"
    return (f"none of this build that run here have Numba's vectors of {VL} floats; to build the others, "
            f"{install_command()}")


def rows_of(name: str) -> Any:
    """Return the rows of products, a ctypes array, in the kernel table of a compiled instruction set that runs here."""
    return table_in(isa.load(name).capsule).products
