"""The CUDA backend: kernels in Python, compiled by numba-cuda, tensor cores reached through inline PTX.

    plan.py       a model ready to run            kernel.py     what a kernel is
    products.py   which kernels, by precision     kernels/      the kernels
    weights.py    what is uploaded                ptx/          the instructions that Numba lacks, and an emulator
    workspace.py  the memory                      toolchain.py  numba-cuda
    bucket.py     batches as recorded shapes
    device.py     memory, launches, graphs        emulated.py   the same, without a GPU
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from ...config import ModelConfig, RunConfig
from ...errors import BackendUnavailable, UnsupportedError
from .. import Plan
from ..functional import Ops

if TYPE_CHECKING:
    from .device import Gpu

LEAST_CAPABILITY = (8, 0)
"""Of the GPU: Ampere, whose tensor cores take bfloat16."""

PRECISIONS = ("bfloat16", "float32")

INSTALL = "pip install 'encoder-engine[cuda]'"


class CudaBackend:
    """See `engine.backends.Backend`. `threads` mean nothing to it."""

    name = "cuda"

    def unavailable(self) -> str | None:
        """Why no GPU can be used here; None when one can. Does not raise."""
        if missing := [name for name in ("numba_cuda", "cuda.core") if not _there(name)]:
            return f"{' and '.join(missing)} not found; {INSTALL}"
        try:
            from .toolchain import cuda
        except BackendUnavailable as error:
            return str(error)
        if not cuda.is_available():
            return f"no CUDA driver: {_driver_error()}"
        try:
            device = cuda.get_current_device()
        except Exception as error:  # of the driver, whose kinds are many; whatever it was, there is no GPU
            return f"no GPU can be opened: {_line(error)}"
        if device.compute_capability < LEAST_CAPABILITY:
            return (f"compute capability {_dotted(LEAST_CAPABILITY)} is needed, and this GPU has "
                    f"{_dotted(device.compute_capability)}")
        return None

    def tuned(self) -> bool:
        """True: compiled for the GPU at hand."""
        return True

    def describe(self) -> str:
        """The GPU and the package that compiles for it."""
        from importlib.metadata import version

        from .toolchain import cuda

        device = cuda.get_current_device()
        name = device.name.decode() if isinstance(device.name, bytes) else device.name
        return (f"{name}, compute capability {_dotted(device.compute_capability)}, kernels compiled by numba-cuda "
                f"{version('numba-cuda')}; say precision='bfloat16' for its tensor cores")

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Upload the weights."""
        if run.precision not in PRECISIONS:
            raise UnsupportedError(f"the cuda backend computes in {' and '.join(PRECISIONS)}; "
                                   f"precision {run.precision!r} is not there")
        from .plan import CudaPlan

        return CudaPlan(_gpu(), config, weights, run)

    def ops(self, threads: int) -> Ops:
        """Raises `UnsupportedError`: there are only whole models here."""
        raise UnsupportedError("the cuda backend runs whole models, not single operations; they run on cython, numba "
                               "and reference")


@cache
def _gpu() -> Gpu:
    """The device, one for all engines of the process: its kernels are compiled once, its plans take turns."""
    from .device import Gpu

    return Gpu()


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # of the package that it is in
        return False


def _driver_error() -> str:
    from numba.cuda.cudadrv.driver import driver

    return _line(driver.initialization_error)


def _line(error: object) -> str:
    """An error's text on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _dotted(capability: tuple[int, ...]) -> str:
    return ".".join(map(str, capability))


BACKEND = CudaBackend()
