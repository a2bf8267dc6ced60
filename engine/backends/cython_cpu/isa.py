"""Choose the kernels that run: for the fastest instruction set of this CPU, or for the set that ENGINE_ISA names."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from ...base.errors import BackendUnavailable
from ...base.install import install_command
from ...model.precision import COMPUTED, WAYS
from ..cpu.native.native import ARCHITECTURE, OF_ARCHITECTURE, Kernels, made_by_amd, refusal

FOR_TESTS = ("wide", "amxemulated")
"""Built for tests only. wide: `baseline` with the tile shapes of AVX-512; amxemulated: also AMX's tiles, in plain C."""

INSTRUCTION_SETS = (*OF_ARCHITECTURE.get(ARCHITECTURE, ()), "baseline", *FOR_TESTS)
"""The names of all instruction sets of the architecture that we are compiled for, the fastest first."""

EXPLAINED = ("amx", "neonbf16", "neondot")
"""The instruction sets for which `explain` says why they are not in use."""

ANY_CPU = frozenset({"baseline", *FOR_TESTS})
"""The instruction sets whose code any CPU runs. Before the module of any other set is imported, `refusal` must find no
reason against it."""

BFLOAT16_REASONS = {
    True: "AMD's CPUs multiply bfloat16 faster by vdpbf16ps than by FMAs of widened weights",
    False: "CPUs that AMD did not make multiply bfloat16 faster by FMAs of widened weights than by vdpbf16ps",
}
"""The reason for the bfloat16 instruction of a CPU without tiles, by whether AMD made the CPU."""


def fastest_first() -> list[str]:
    """Return the names of all instruction sets, the fastest on this CPU first.

    The instruction for bfloat16 products makes twice as many operations per second as FMAs on AMD's CPUs (measured on
    Zen 4 and Zen 5), and half as many on Intel's (measured on Sapphire Rapids). On Intel's, `avx512vnni` is faster: it
    widens bfloat16 weights and uses FMAs. The maker decides, and no measurement, because results have other bits with
    other instructions, and two runs on one CPU have to agree. AMX's tiles multiply bfloat16 nineteen times as fast as
    FMAs multiply float32 (measured on Sapphire Rapids).
    """
    first = "avx512bf16" if made_by_amd() else "avx512vnni"
    return sorted(INSTRUCTION_SETS, key=lambda isa: isa not in ("amx", first))     # a stable sort


@cache
def is_built(isa: str) -> bool:
    """Return whether the kernels of an instruction set are part of this installation; looking takes 0.1 ms."""
    return find_spec(f"{__package__}.kernels_{isa}") is not None


def why_not(isa: str) -> str | None:
    """Return why the kernels of this instruction set cannot run here, or None when they can."""
    if isa not in INSTRUCTION_SETS:
        renamed = " any more, and its new name is 'baseline'" if isa == "portable" else ""
        return f"no instruction set is called {isa!r}{renamed}; choose {', '.join(INSTRUCTION_SETS)}"
    if not is_built(isa):
        return f"{isa} kernels are not part of this build"
    return None if isa in ANY_CPU else refusal(isa)


def available() -> list[str]:
    """Return the names of the instruction sets that run here, the fastest first."""
    return [isa for isa in fastest_first() if why_not(isa) is None]


def explain(kernels: Kernels) -> list[str]:
    """Say by which instruction these kernels multiply in each precision, and why not by a faster one."""
    def instructions(decodes: bool) -> list[str]:
        products = [kernels.product(name, decodes) for name in (*COMPUTED, *WAYS)]
        return [f"{product.precision} by {product.instruction}" for product in products if product.exists]

    of_encoders, of_decoders = instructions(decodes=False), instructions(decodes=True)
    lines = [", ".join(of_encoders)]
    if others := [text for text in of_decoders if text not in of_encoders]:
        lines.append(f"in decoders {', '.join(others)}")
    if "avx512bf16" in available() and kernels.isa in ("avx512bf16", "avx512vnni"):
        lines.append(BFLOAT16_REASONS[bool(made_by_amd())])
    faster = INSTRUCTION_SETS[: INSTRUCTION_SETS.index(kernels.isa)]
    return lines + [reason for name in faster if name in EXPLAINED and (reason := why_not(name))]


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
        built = [isa for isa in INSTRUCTION_SETS if is_built(isa)]
        raise BackendUnavailable(f"this CPU can run none of the kernels that were built ({', '.join(built) or 'none'});"
                                 f" to build the others, {install_command()}")
    return load(name)
