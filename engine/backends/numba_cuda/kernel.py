"""Describe a kernel: its launch, its emulation and the checks of its resources use this one description."""

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
