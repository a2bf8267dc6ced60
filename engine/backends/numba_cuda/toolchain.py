"""Import numba-cuda and work around its limitations; no other module imports it.

Modules in `numba_cuda` import `cuda`, `types`, `ir` and `intrinsic` from here. This module needs no GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import BackendUnavailable
from ...base.install import install_command
from .kernel import Arch, Kernel

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack   # numba-cuda 0.30 reads np.row_stack on import; NumPy 2.5 removed it

try:
    from llvmlite import ir
    from numba import cuda, types
    from numba.cuda.extending import intrinsic
except ImportError as error:
    raise BackendUnavailable(f"numba-cuda not found ({error}); {install_command('cuda')}") from error

if getattr(cuda, "implementation", None) != "NVIDIA":
    raise BackendUnavailable("numba's own CUDA target was found where NVIDIA's package numba-cuda was expected; "
                             f"{install_command('cuda')}")

DEFAULT_SHARED = 48 * 1024
"""Bytes of dynamic shared memory that a kernel may use without setting an attribute."""

__all__ = ["compile_for_device", "cuda", "device_function", "intrinsic", "ir", "lto_ir", "ptx", "score_type",
           "types"]

device_function = cuda.jit(device=True, inline="always")
"""Decorator of a function that kernels call: Numba inlines its body before it infers types.

(If the function were compiled separately, Numba would ask a device for its architecture.)
"""


def ptx(kernel: Kernel, arch: Arch) -> str:
    """Return the kernel's PTX for an architecture such as (8, 0) or (9, 0, "a"), without a device.

    It is compiled without fast-math, because masked scores are infinite. The PTX says which operations are approximate.
    """
    return _compile(kernel, arch, "ptx")


def lto_ir(kernel: Kernel, arch: Arch) -> bytes:
    """Return the LTO IR that numba-cuda passes to nvJitLink to compile the kernel for a device of that architecture."""
    return _compile(kernel, arch, "ltoir")


def score_type(function: Any, further: tuple[Any, ...], arch: Arch) -> Any:
    """Compile a function (score, b, h, q_index, kv_index, *further) for a device, and return the type of its result.

    further: Numba types. Raises the errors of Numba.
    """
    place = types.int64
    signature = (types.float32, place, place, place, place, *further)
    _, result = cuda.compile(function, signature, device=True, abi="numba", cc=arch[:2], output="ptx")
    return result


def _compile(kernel: Kernel, arch: Arch, output: str) -> Any:
    code, _ = cuda.compile(kernel.body, kernel.signature, device=False, abi="numba", cc=arch, output=output,
                           launch_bounds=launch_bounds(kernel))
    return code


def launch_bounds(kernel: Kernel) -> tuple[int, int]:
    """Return (threads per block, blocks per multiprocessor), from which ptxas allocates registers."""
    return kernel.threads, kernel.blocks_per_sm


def compile_for_device(kernel: Kernel) -> Any:
    """Compile a kernel for the current device, and allow it the shared memory that it needs.

    Returns numba-cuda's dispatcher. numba-cuda itself cannot request more than 48 KB
    (https://github.com/NVIDIA/numba-cuda/issues/94).
    """
    compiled = cuda.jit(kernel.signature, launch_bounds=launch_bounds(kernel))(kernel.body)
    if kernel.shared > DEFAULT_SHARED:
        from cuda.bindings.driver import CUfunction_attribute
        from numba.cuda.cudadrv.driver import driver

        function = compiled.overloads[kernel.signature]._codelibrary.get_cufunc()
        largest = CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.cuKernelSetAttribute(largest, kernel.shared, function.handle, cuda.get_current_device().id)
    return compiled
