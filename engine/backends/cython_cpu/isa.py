"""Which instruction set's kernels run: the first that this CPU has, or the one that ENGINE_ISA names."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from ...errors import BackendUnavailable
from ...installation import install_command
from .native import Kernels, supports

INSTRUCTION_SETS = ("avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "portable", "wide")
"""Fastest first; vnni: with instructions for products of 8-bit integers; bf16: of bfloat16 too. `wide` is `portable`
with the tile shapes of AVX-512, built for tests only."""

ANY_CPU = frozenset({"portable", "wide"})
"""Those whose code any CPU runs. Every other name must be confirmed by `supports` before its module is imported."""


def why_not(isa: str) -> str | None:
    """Why kernels of this instruction set cannot run here; None when they can."""
    if isa not in INSTRUCTION_SETS:
        return f"no instruction set is called {isa!r}; choose {', '.join(INSTRUCTION_SETS)}"
    if find_spec(f"{__package__}.kernels_{isa}") is None:
        return f"{isa} kernels are not part of this build"
    if isa not in ANY_CPU and not supports(isa):
        return f"this CPU, or its operating system, lacks {isa}"
    return None


def available() -> list[str]:
    """Names of the instruction sets that run here, fastest first."""
    return [isa for isa in INSTRUCTION_SETS if why_not(isa) is None]


@cache
def load(isa: str) -> Kernels:
    """The kernels of one instruction set; its module is imported only after its features were found."""
    if reason := why_not(isa):
        raise BackendUnavailable(f"ENGINE_ISA: {reason}" if os.environ.get("ENGINE_ISA") == isa else reason)
    return Kernels(import_module(f"{__package__}.kernels_{isa}").table)


def chosen() -> Kernels:
    """Return the kernels to use: ENGINE_ISA's if it is set, else the fastest that run here."""
    name = os.environ.get("ENGINE_ISA") or next(iter(available()), None)
    if name is None:
        built = [isa for isa in INSTRUCTION_SETS if find_spec(f"{__package__}.kernels_{isa}")]
        raise BackendUnavailable(f"this CPU can run none of the kernels that were built ({', '.join(built) or 'none'});"
                                 f" to build the others, {install_command()}")
    return load(name)
