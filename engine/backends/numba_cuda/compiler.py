"""Compile kernels with numba-cuda and nvJitLink; no other module imports them. This needs no GPU.

numba-cuda compiles the Python of a kernel to LTO IR, and nvJitLink compiles that to a cubin, the code of one
architecture. For GPUs newer than both, `ptx` returns PTX, which the driver compiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from ...base.errors import BackendUnavailable
from ...base.install import install_command
from .kernel import Arch, Code, Kernel, arch_name
from .toolchain import ArrayType, DeviceFunction, PtxFunction, ScalarType, TupleType, cuda, rebuilt, types

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack   # numba-cuda 0.30 reads np.row_stack on import; NumPy 2.5 removed it

try:
    from numba import cuda as numba_cuda
    from numba import types as numba_types
    from numba.cuda.extending import intrinsic
except ImportError as error:
    raise BackendUnavailable(f"numba-cuda not found ({error}); {install_command('cuda-compile')}") from error

if getattr(numba_cuda, "implementation", None) != "NVIDIA":
    raise BackendUnavailable("numba's own CUDA target was found where NVIDIA's package numba-cuda was expected; "
                             f"{install_command('cuda-compile')}")

PTX = "7.8"
"""The version of PTX for GPUs that are newer than the cubins: that of CUDA 11.8."""


def cubin(kernel: Kernel, arch: Arch) -> Code:
    """Return the kernel's code for GPUs of an architecture such as (8, 0) or (9, 0, "a")."""
    code, _ = linked(kernel, arch)
    return code


def linked(kernel: Kernel, arch: Arch, *options: str) -> tuple[Code, str]:
    """Return the kernel's code, and the reports of nvJitLink for these options of ptxas, as one text."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    linker = Linker(ObjectCode.from_ltoir(_compile(kernel, arch, "ltoir")), options=LinkerOptions(
        arch=arch_name(arch), link_time_optimization=True, ptxas_options=list(options) or None))
    code = bytes(linker.link("cubin").code)
    [entry] = set(re.findall(rb"\0\.text\.([^\0]+)", code))
    return Code("cubin", entry.decode(), code), f"{linker.get_info_log()}\n{linker.get_error_log()}"


def ptx(kernel: Kernel, arch: Arch) -> Code:
    """Return the kernel's PTX for an architecture, which runs on newer ones, too, if it has no letter."""
    text = _compile(kernel, arch, "ptx")
    if arch < (9, 0):       # a driver compiles PTX of its own version or older, and ours uses nothing newer than this
        text = re.sub(r"^\.version \S+", f".version {PTX}", text, flags=re.MULTILINE)
    [entry] = re.findall(r"\.entry\s+([^\s(]+)", text)
    return Code("ptx", entry, text.encode())


def _compile(kernel: Kernel, arch: Arch, output: str) -> Any:
    """Return a kernel as LTO IR or as PTX; output: "ltoir" or "ptx".

    There is no fast-math, because masked scores are infinite; the PTX says which operations are approximate.
    """
    code, _ = numba_cuda.compile(
        rebuilt(kernel.body, _in_numba), tuple(map(_in_numba, kernel.signature)), device=False, abi="numba", cc=arch,
        output=output, launch_bounds=(kernel.threads, kernel.blocks_per_sm))    # ptxas allocates registers for these
    return code


def score_type(function: Callable[..., Any], further: Sequence[Any], capability: tuple[int, int]) -> tuple[str, bool]:
    """Compile a function (score, b, h, q_index, kv_index, *further) for a GPU; raises the errors of Numba.

    further: the types of the further arguments. Returns the name of the type of its result, and whether that is a real
    number.
    """
    index = types.int64
    signature = tuple(map(_in_numba, (types.float32, index, index, index, index, *further)))
    _, result = numba_cuda.compile(rebuilt(function, _in_numba), signature, device=True, abi="numba", cc=capability,
                                   output="ptx")
    return str(result), isinstance(result, numba_types.Integer | numba_types.Float)


def _in_numba(value: Any) -> Any:
    """Return numba-cuda's object for an object of `toolchain.py` in a kernel; other values stay as they are."""
    if value is cuda:
        return numba_cuda
    if value is types:
        return numba_types
    match value:
        case ScalarType():
            return getattr(numba_types, value.name)
        case ArrayType():
            return numba_types.Array(_in_numba(value.dtype), value.ndim, "C")
        case TupleType():
            return numba_types.UniTuple(_in_numba(value.kind), value.count)
        case DeviceFunction():
            return _inlined(value)
        case PtxFunction():
            return _intrinsic(value)
    return numba_types.void if value is types.void else value


@cache
def _inlined(function: DeviceFunction) -> Any:
    """Return a function whose body Numba inlines before it infers types.

    If the function were compiled separately, Numba would ask a device for its architecture.
    """
    return numba_cuda.jit(device=True, inline="always")(rebuilt(function.py_func, _in_numba))


@cache
def _intrinsic(function: PtxFunction) -> Any:
    """Return an intrinsic of Numba whose code the function's `generate` emits."""
    result = _in_numba(function.result)

    def resolve(context: Any, *given: Any) -> tuple[Any, Callable[..., Any]]:
        return result(*(actual if kind is types.Array else _in_numba(kind)
                        for kind, actual in zip(function.arguments, given, strict=True))), function.generate

    # Numba takes the number of arguments from the signature.
    names = ["context", *(f"a{i}" for i in range(len(function.arguments)))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    resolve.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(resolve)
