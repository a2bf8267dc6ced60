"""Compile kernels to C functions, typed by their annotations, with their helpers inlined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

from .cache import KernelCache
from .structs import NUMBA_TYPES


class _Part(JITCodeLibrary):
    """The code of a helper, which LLVM optimizes and finishes as a part of kernels, and never alone.

    Numba would do both for each helper with all that it calls, in nearly half of the time that kernels take.
    """

    def _optimize_final_module(self) -> None:       # Numba calls this and the next method for each function
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True      # says so without the work


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Write the LLVM code of a helper as a `_Part`."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library, state.flags.no_compile = _Part(state.targetctx.codegen(), state.func_id.func_qualname), True
        changed = super().run_pass(state)
        # Numba knows a function by its entry from Python, a unique callable. Nobody calls the one made here.
        entry = [state].append
        state["cr"] = state["cr"]._replace(cfunc=entry)
        state.targetctx.insert_user_function(entry, state["cr"].fndesc, [state.library])
        return changed


class _PartCompiler(CompilerBase):
    """Numba's compiler, with `_PartLowering` in the place of `NativeLowering`."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_PartLowering if each is NativeLowering else each, name) for each, name in passes.passes]
        passes.finalize()
        return [passes]


def _helper(**options: bool | str) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function as a part of kernels. options: of `numba.njit`."""
    # With the numpy error model a division by zero gives inf; a kernel could not raise an exception.
    return njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=_PartCompiler,
                **options)


helper = _helper()
"""A part of a kernel that LLVM may compile as a separate function."""

inline = _helper(forceinline=True)
"""A part of a kernel that LLVM always inlines."""


def compile_kernel(function: Callable[..., Any], cache: KernelCache) -> Any:
    """Return a kernel as a C function, from the cache or newly compiled.

    The names in its annotations give the types of its arguments (structs.py).
    """
    *arguments, result = (NUMBA_TYPES[name] for name in function.__annotations__.values())
    kernel: Any = CFunc(function, (tuple(arguments), result), {}, {"error_model": "numpy"})
    kernel._cache = cache
    kernel.compile()
    return kernel
