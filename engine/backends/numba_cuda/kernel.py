"""The one description of a kernel, from which it is launched, emulated and held to its budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Arch = tuple[int, int] | tuple[int, int, str]
"""A compute capability: (8, 0), or (9, 0, "a") for code that runs on that one alone."""


@dataclass(frozen=True)
class Kernel:
    """A kernel with its compile-time constants closed over, as a factory in `kernels/` makes it."""

    name: str
    """For people, with the constants: "attention d=64 rows=128"."""
    body: Callable[..., None]
    """What numba-cuda compiles; its arguments are arrays and scalars."""
    signature: tuple[Any, ...]
    """Numba's types of the arguments."""
    threads: int
    """Of a block."""
    shared: int = 0
    """Bytes of dynamic shared memory."""
    arch: Arch = (8, 0)
    """The lowest it runs on, or with a letter the only one."""
    registers: int = 255
    """A thread's budget, which the compile gate holds."""
    blocks_per_sm: int = 1
    """So many blocks must fit a multiprocessor's registers."""
    instructions: Mapping[str, int] = field(default_factory=dict)
    """SASS instructions that the code must hold, exactly so often: {"HMMA": 128}."""
