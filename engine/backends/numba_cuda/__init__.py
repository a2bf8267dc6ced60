"""Run whole models on a GPU: kernels in Python, compiled by numba-cuda, which use tensor cores through inline PTX.

    plan.py       a model ready to run            kernel.py     the description of a kernel
    products.py   the kernels of each precision   kernels/      the kernels
    weights.py    the uploaded weights            ptx/          the instructions that Numba lacks, and an emulator
    workspace.py  the memory of a plan            toolchain.py  the names that kernels are written with
    bucket.py     batches as recorded shapes      compiler.py   numba-cuda and nvJitLink
    device.py     launches, graphs                stored.py     compiled kernels, as files
    memory.py     arrays on the device            support.py    what is run of a program, and refused
    driver.py     the CUDA driver                 ops.py        single operations; score_function.py for attention
    observing.py  what is observed of a pass
    shared_array.py   arrays that other libraries read, and theirs, through dlpack.py
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import UnsupportedError
from ...model.config import ModelConfig
from ...model.run_config import RunConfig
from ...programs import program_of
from ..interfaces import Plan
from ..ops_interface import Ops
from . import driver
from .support import check

if TYPE_CHECKING:
    from .device import Gpu

PRECISIONS = ("bfloat16", "float32")


class CudaBackend:
    """The backend "cuda"; see `engine.backends.interfaces.Backend`. It ignores `threads`."""

    name = "cuda"
    batch_invariant = True

    def unavailable(self) -> str | None:
        """Return why no GPU can be used here, or None if one can. Does not raise."""
        return driver.why_not()

    def tuned(self) -> bool:
        """Return True, because kernels are compiled for the present GPU."""
        return True

    def describe(self) -> str:
        """Describe the GPU and the kernels for it, on a line each."""
        from .stored import describe

        name = driver.call("cuDeviceGetName", 256, device := driver.call("cuDeviceGet", 0))
        capability = driver.capability(device)
        return (f"{name.split(bytes(1))[0].decode()}, compute capability {driver.dotted(capability)}; say "
                f"precision='bfloat16' for its tensor cores\n{describe(capability)}")

    def layout(self, precision: str, decodes: bool = False, portable: bool = False) -> None:
        """Return None, because the packed maps of a file are for kernels of CPUs."""

    def no_portable_bits(self) -> str:
        """Return why this backend has no portable bits."""
        return ('the cuda backend adds in the order of its GPU, so that it has no portable bits; use backend="cython" '
                'or backend="numba", or bits="fastest"')

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Upload the weights and return a plan; raises `UnsupportedError` with all that is not run of a model."""
        if run.precision not in PRECISIONS:
            raise UnsupportedError(f"the cuda backend computes in {' and '.join(PRECISIONS)}; "
                                   f"precision {run.precision!r} is not there")
        check(program_of(config))  # before the GPU is opened
        from .plan import CudaPlan

        return CudaPlan(_gpu(), config, weights, run)

    def ops(self, threads: int, portable: bool = False) -> Ops:
        """Return the single operations; see `ops.CudaOps`."""
        from .ops import CudaOps

        return CudaOps(_gpu())


@cache
def _gpu() -> Gpu:
    """Return the device, which all engines of the process share, so that its kernels are loaded once."""
    from .device import Gpu

    return Gpu()


BACKEND = CudaBackend()
