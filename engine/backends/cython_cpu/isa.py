"""Choose the kernels that run: for the fastest instruction set of this CPU, or for the set that ENGINE_ISA names."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from ...errors import BackendUnavailable
from ...installation import install_command
from .native import Kernels, supports

INSTRUCTION_SETS = ("avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "portable", "wide")
"""The names of all instruction sets, the fastest first. Sets with vnni have instructions for int8 products, and bf16
also for bfloat16 products. `wide` is `portable` with the tile shapes of AVX-512; it is built for tests only."""

ANY_CPU = frozenset({"portable", "wide"})
"""The instruction sets whose code any CPU runs. `supports` must confirm any other set before its module is imported."""


def why_not(isa: str) -> str | None:
    """Return why the kernels of this instruction set cannot run here, or None when they can."""
    if isa not in INSTRUCTION_SETS:
        return f"no instruction set is called {isa!r}; choose {', '.join(INSTRUCTION_SETS)}"
    if find_spec(f"{__package__}.kernels_{isa}") is None:
        return f"{isa} kernels are not part of this build"
    if isa not in ANY_CPU and not supports(isa):
        return f"this CPU, or its operating system, lacks {isa}"
    return None


def available() -> list[str]:
    """Return the names of the instruction sets that run here, the fastest first."""
    return [isa for isa in INSTRUCTION_SETS if why_not(isa) is None]


@cache
def load(isa: str) -> Kernels:
    """Return the kernels of one instruction set; its module is imported only if the CPU can run it."""
    if reason := why_not(isa):
        raise BackendUnavailable(f"ENGINE_ISA: {reason}" if os.environ.get("ENGINE_ISA") == isa else reason)
    return Kernels(import_module(f"{__package__}.kernels_{isa}").table)


def chosen() -> Kernels:
    """Return the kernels that ENGINE_ISA names if it is set, or else the fastest kernels that run here."""
    name = os.environ.get("ENGINE_ISA") or next(iter(available()), None)
    if name is None:
        built = [isa for isa in INSTRUCTION_SETS if find_spec(f"{__package__}.kernels_{isa}")]
        raise BackendUnavailable(f"this CPU can run none of the kernels that were built ({', '.join(built) or 'none'});"
                                 f" to build the others, {install_command()}")
    return load(name)
