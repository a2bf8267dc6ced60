"""Run whole models on a GPU: kernels in Python, compiled by numba-cuda, which use tensor cores through inline PTX.

    plan.py       a model ready to run            kernel.py     the description of a kernel
    products.py   the kernels of each precision   kernels/      the kernels
    weights.py    the uploaded weights            ptx/          the instructions that Numba lacks, and an emulator
    workspace.py  the memory                      toolchain.py  numba-cuda
    bucket.py     batches as recorded shapes      support.py    what is run of a program, and refused
    device.py     memory, launches, graphs        ops.py        single operations, and score functions
    shared_array.py  arrays that other libraries read, and theirs, by dlpack.py
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import BackendUnavailable, UnsupportedError
from ...base.install import install_command
from ...model.config import ModelConfig
from ...model.run_config import RunConfig
from ...programs import program_of
from ..interfaces import Plan
from ..ops_interface import Ops
from .support import check

if TYPE_CHECKING:
    from .device import Gpu

LEAST_CAPABILITY = (8, 0)
"""Lowest compute capability of the GPU: Ampere, the first with bfloat16 tensor cores."""

PRECISIONS = ("bfloat16", "float32")


class CudaBackend:
    """The backend "cuda"; see `engine.backends.interfaces.Backend`. It ignores `threads`."""

    name = "cuda"

    def unavailable(self) -> str | None:
        """Return why no GPU can be used here, or None if one can. Does not raise."""
        if missing := [name for name in ("numba_cuda", "cuda.core") if not _there(name)]:
            return f"{' and '.join(missing)} not found; {install_command('cuda')}"
        try:
            from .toolchain import cuda
        except BackendUnavailable as error:
            return str(error)
        if not cuda.is_available():
            return f"no CUDA driver: {_driver_error()}"
        try:
            device = cuda.get_current_device()
        except Exception as error:  # the driver has many types of errors, and each means that there is no usable GPU
            return f"no GPU can be opened: {_line(error)}"
        if device.compute_capability < LEAST_CAPABILITY:
            return (f"compute capability {_dotted(LEAST_CAPABILITY)} is needed, and this GPU has "
                    f"{_dotted(device.compute_capability)}")
        return None

    def tuned(self) -> bool:
        """Return True: kernels are compiled for the present GPU."""
        return True

    def describe(self) -> str:
        """Describe the GPU and the package that compiles for it."""
        from importlib.metadata import version

        from .toolchain import cuda

        device = cuda.get_current_device()
        name = device.name.decode() if isinstance(device.name, bytes) else device.name
        return (f"{name}, compute capability {_dotted(device.compute_capability)}, kernels compiled by numba-cuda "
                f"{version('numba-cuda')}; say precision='bfloat16' for its tensor cores")

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
        check(program_of(config))  # before the CUDA packages are loaded and the GPU is opened
        from .plan import CudaPlan

        return CudaPlan(_gpu(), config, weights, run)

    def ops(self, threads: int, portable: bool = False) -> Ops:
        """Return the single operations, in float32; see `ops.CudaOps`."""
        from .ops import CudaOps

        return CudaOps(_gpu())


@cache
def _gpu() -> Gpu:
    """Return the device, which all engines of the process share, so that its kernels are compiled once."""
    from .device import Gpu

    return Gpu()


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # the parent package cannot be imported
        return False


def _driver_error() -> str:
    from numba.cuda.cudadrv.driver import driver

    return _line(driver.initialization_error)


def _line(error: object) -> str:
    """Return an error's text on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _dotted(capability: tuple[int, ...]) -> str:
    return ".".join(map(str, capability))


BACKEND = CudaBackend()
