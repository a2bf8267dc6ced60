"""Describe a kernel: its launch, its emulation, its code and the checks of its resources use this one description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Arch = tuple[int, int] | tuple[int, int, str]
"""A compute capability: (8, 0), or (9, 0, "a") for code that runs on that capability only."""


@dataclass(frozen=True)
class Kernel:
    """A kernel with its compile-time constants as closure variables, made by a factory in `kernels/`."""

    name: str
    """A readable name with the constants: "attention d=64 rows=128"."""
    body: Callable[..., None]
    """The function that numba-cuda compiles; its arguments are arrays and scalars."""
    signature: tuple[Any, ...]
    """Numba types of the arguments."""
    threads: int
    """Threads per block."""
    shared: int = 0
    """Bytes of dynamic shared memory per block."""
    arch: Arch = (8, 0)
    """The lowest compute capability that the kernel runs on, or the only one if it has a letter."""
    registers: int = 255
    """Largest number of registers per thread, which the compile test checks."""
    blocks_per_sm: int = 1
    """Number of blocks that must fit the registers of a multiprocessor."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """Number of times that the code must contain certain SASS instructions: {"HMMA": 128}."""
    cluster: int = 1
    """Number of neighbouring blocks along x that run at the same time and share memory; it divides the grid."""
    overlaps: bool = False
    """True if it may start before the kernel before it ends, for which it waits itself (griddepcontrol.wait)."""
    stored: bool = True
    """False if the body holds a function of the user, so that name and constants do not tell its code."""

    def identity(self) -> str:
        """Return the name and the constants, which tell the kernel from all others of the same sources."""
        closure = zip(self.body.__code__.co_freevars, self.body.__closure__ or (), strict=True)
        constants = {name: cell.cell_contents for name, cell in closure if _plain(cell.cell_contents)}
        launch = self.signature, self.threads, self.shared, self.blocks_per_sm, self.arch
        return f"{self.name} {sorted(constants.items())} {launch}"

    @property
    def module(self) -> str:
        """The module in `kernels/` that made it."""
        return self.body.__module__.rpartition(".")[2]

    def target(self, capability: tuple[int, int]) -> Arch:
        """Return the architecture to compile for, so that the code runs on GPUs of this compute capability.

        Code for 8.0 runs on all GPUs of 8.x. Only code for "9.0a" may use all that Hopper has.
        """
        special: dict[int, Arch] = {8: (8, 0), 9: (9, 0, "a")}
        return special.get(capability[0], capability)


@dataclass(frozen=True)
class Code:
    """The compiled code of one kernel."""

    kind: str
    """"cubin", for one architecture, or "ptx", which the driver compiles."""
    entry: str
    """The name of the kernel in the code."""
    content: bytes
    origin: str = "a compiler"
    """Where it comes from, for messages."""


def arch_name(arch: Arch) -> str:
    """Return an architecture as NVIDIA's tools spell it: sm_80 or sm_90a."""
    return "sm_" + "".join(map(str, arch))


def _plain(value: Any) -> bool:
    """Return whether a constant has a text that is the same in every version of Python and NumPy."""
    return all(map(_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str)
