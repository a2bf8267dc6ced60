"""Compile kernels to C functions, typed by their annotations, with their helpers inlined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from llvmlite import ir
from numba import njit
from numba.core.ccallback import CFunc

from .structs import NUMBA_TYPES
from .vector import emits


class Cache(Protocol):
    """The interface that Numba requires of the cache of one function."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compile result, or None if there is none."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the compile result."""


def _helper(**options: bool | str) -> Callable[[Callable[..., Any]], Any]:
    # With the numpy error model a division by zero gives inf; a kernel could not raise an exception.
    return njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


helper = _helper()
"""A part of a kernel that LLVM may compile as a separate function."""

inline = _helper(forceinline=True)
"""A part of a kernel that LLVM always inlines."""

spliced = _helper(inline="always")
"""A part of a kernel that Numba inlines before LLVM sees it, so that a large part is not compiled twice."""

apart = _helper(forceinline=False)
"""A part of a kernel that calls `stays_apart`. Without this decorator it would inherit the option of its caller."""


@emits()
def stays_apart(b: ir.IRBuilder) -> None:
    """Keep LLVM from inlining the function that contains this call, so that it has all registers to itself."""
    b.function.attributes.add("noinline")


def compile_kernel(function: Callable[..., Any], cache: Cache) -> Any:
    """Return a kernel as a C function, from the cache or newly compiled.

    The names in its annotations give the types of its arguments (structs.py).
    """
    *arguments, result = (NUMBA_TYPES[name] for name in function.__annotations__.values())
    kernel: Any = CFunc(function, (tuple(arguments), result), {}, {"error_model": "numpy"})
    kernel._cache = cache
    kernel.compile()
    return kernel
