"""Processes in which NumPy, its library of matrix products and libm choose the code of other CPUs.

`ENGINE_ISA` changes the kernels alone, and these three choose their own code by the CPU.
"""

import hashlib
import math
import platform
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

FUNCTIONS, PRODUCTS, LIBM = "NumPy's functions", "NumPy's products", "libm"

WITHOUT_AVX512 = ("AVX512F", "AVX512CD", "AVX512_SKX", "AVX512_CLX", "AVX512_CNL", "AVX512_ICL", "AVX512_SPR", "X86_V4")
WITHOUT_AVX2 = (*WITHOUT_AVX512, "AVX2", "FMA3", "X86_V3")
"""The names of NumPy 1 and 2 for what its functions need."""
_WITHOUT_FMA = "glibc.cpu.hwcaps=-FMA_Usable,-FMA,-FMA4_Usable,-FMA4,-AVX2_Usable,-AVX2"
"""The names of older and of newer versions of glibc."""


class Choice(NamedTuple):
    """The variables of a process whose libraries choose other code."""

    variables: Mapping[str, str]
    changes: tuple[str, ...] = ()
    """What of `computed` has to have other bits on every x86 CPU with AVX2, or the variables would have no effect."""


def numpy_without(*names: str) -> dict[str, str]:
    """Return an environment in which NumPy does not use those features that it dispatches on and that have these names.

    It complains of others.
    """
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(name for name in _compiled().__cpu_dispatch__ if name in names)}


def _compiled() -> Any:
    """Return NumPy's own compiled module, which had another name before NumPy 2."""
    return import_module(f"numpy.{'_core' if hasattr(np, '_core') else 'core'}._multiarray_umath")


def other_libraries() -> dict[str, Choice]:
    """Return processes that change what ENGINE_ISA does not, by what they say of themselves."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    functions = (FUNCTIONS,) if x86 and not {"AVX2", "X86_V3"} & {*_compiled().__cpu_baseline__} else ()
    libm = (LIBM,) if x86 and platform.libc_ver()[0] == "glibc" else ()
    old = numpy_without(*WITHOUT_AVX2)
    return {
        "NumPy without AVX-512, OpenBLAS for Haswell": Choice(numpy_without(*WITHOUT_AVX512) | {
            "OPENBLAS_CORETYPE": "Haswell"}),
        "NumPy without AVX2, OpenBLAS for Nehalem": Choice(old | {"OPENBLAS_CORETYPE": "Nehalem"}, functions),
        "libm without FMA, OpenBLAS for Sandy Bridge on 4 threads": Choice(
            {"GLIBC_TUNABLES": _WITHOUT_FMA, "OPENBLAS_CORETYPE": "Sandybridge", "OPENBLAS_NUM_THREADS": "4"}, libm),
        "NumPy without AVX2, libm without FMA, OpenBLAS for Prescott": Choice(
            old | {"GLIBC_TUNABLES": _WITHOUT_FMA, "OPENBLAS_CORETYPE": "Prescott"}, (*functions, *libm)),
    }


def computed() -> dict[str, str]:
    """Return digests of what the libraries of this process compute; where these differ, they choose other code."""
    x = np.arange(-6000, 6000) / 997
    single, square = x.astype(np.float32), x[:10_000].reshape(100, 100)
    found = {FUNCTIONS: [function(values) for function in (np.exp, np.tanh) for values in (single, x)],
             PRODUCTS: [square @ square.T, square.astype(np.float32) @ square.T.astype(np.float32)],
             LIBM: [np.array([function(number) for number in x]) for function in (math.exp, math.sin, math.tanh)]}
    return {name: hashlib.sha256(b"".join(values.tobytes() for values in arrays)).hexdigest()[:16]
            for name, arrays in found.items()}
