"""How kernels become machine code: helpers are inlined, kernels are C functions typed by their annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from numba import njit
from numba.core.ccallback import CFunc

from .structs import NUMBA_TYPES


class Cache(Protocol):
    """What Numba asks of a cache of one function."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compile result; None where there is none."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compile result."""


def _helper(**options: bool | str) -> Callable[[Callable[..., Any]], Any]:
    # The numpy error model: a division by zero gives inf instead of raising, which no kernel could.
    return njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)


helper = _helper()
"""A part of a kernel, which LLVM may leave a function."""

inline = _helper(forceinline=True)
"""A part of a kernel that is always inlined."""

spliced = _helper(inline="always")
"""A part of a kernel that Numba puts into it before LLVM sees either: saves compiling a large part twice."""


def compile_kernel(function: Callable[..., Any], cache: Cache) -> Any:
    """A C function, from the cache or compiled, with the argument types that the annotations name (structs.py)."""
    *arguments, result = (NUMBA_TYPES[name] for name in function.__annotations__.values())
    kernel: Any = CFunc(function, (tuple(arguments), result), {}, {"error_model": "numpy"})
    kernel._cache = cache
    kernel.compile()
    return kernel
