"""Call the CUDA driver through cuda-bindings, and say why it cannot be used."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ...base.errors import BackendUnavailable
from ...base.install import install_command, older_package

LEAST_CAPABILITY = (8, 0)
"""Lowest compute capability of the GPU: Ampere, the first with bfloat16 tensor cores."""
LEAST_DRIVER = 12_000
"""The lowest version of CUDA of a driver that runs the stored kernels, as the driver writes 12.0."""
NEEDED = ("cuda.bindings", "cuda.core")
"""The packages without which no GPU is used."""


class DriverError(BackendUnavailable):
    """A call of the driver failed."""

    def __init__(self, name: str, status: Any):
        super().__init__(f"the CUDA driver failed in {name}: {status.name}")
        self.status = int(status)


OUT_OF_MEMORY = 2
"""The status of a call for which the GPU or the host has too little memory."""


def bindings() -> ModuleType:
    """Return the module with the driver's functions, which is imported here, because it may not be installed."""
    from cuda.bindings import driver

    return driver


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the driver and return its result, or a tuple of several; raises `DriverError`."""
    status, *results = getattr(bindings(), name)(*arguments)
    if int(status):
        raise DriverError(name, status)
    return results[0] if len(results) == 1 else tuple(results)


def capability(device: Any) -> tuple[int, int]:
    """Return the compute capability of a device of the driver."""
    names = bindings().CUdevice_attribute
    return (int(call("cuDeviceGetAttribute", names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)),
            int(call("cuDeviceGetAttribute", names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)))


def why_not() -> str | None:
    """Return why no GPU can be used here, or None if one can. Does not raise."""
    if missing := [name for name in NEEDED if not _is_installed(name)]:
        return f"{' and '.join(missing)} not found; {install_command('cuda')}"
    try:
        driver = call("cuDriverGetVersion")
    except Exception as error:  # without a driver, each version of the bindings has an error of its own
        return f"no CUDA driver: {_line(error)}; it needs an NVIDIA GPU with its driver, and the other backends do not"
    if reason := _too_old(driver):
        return reason
    try:
        call("cuInit", 0)
        here = capability(call("cuDeviceGet", 0))
    except Exception as error:  # each error means that there is no usable GPU
        return f"no GPU can be opened: {_line(error)}"
    if here < LEAST_CAPABILITY:
        return f"compute capability {dotted(LEAST_CAPABILITY)} is needed, and this GPU has {dotted(here)}"
    return None


def _too_old(driver: int) -> str | None:
    """Return why a driver is too old for the kernels or the bindings, and what to do; None if it is not.

    driver: its version of CUDA as the driver writes it, 1000 * major + 10 * minor.
    """
    here = f"the driver of this machine is of CUDA {driver // 1000}.{driver % 1000 // 10}"
    if driver < LEAST_DRIVER:
        return f"{here}, and the kernels need CUDA 12.0 (driver 525) or newer: update the driver"
    from cuda import bindings

    major = int(bindings.__version__.split(".")[0])
    if driver // 1000 < major:
        return (f"{here}, and the package cuda-bindings {bindings.__version__} needs CUDA {major} or newer: "
                f"{older_package('cuda-bindings', major)}, or update the driver")
    return None


def _is_installed(name: str) -> bool:
    """Return whether a module can be found, without importing it."""
    try:
        return find_spec(name) is not None
    except ImportError:  # the parent package cannot be imported
        return False


def _line(error: object) -> str:
    """Return an error's text on one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def dotted(capability: tuple[int, ...]) -> str:
    """Return a version such as 8.0."""
    return ".".join(map(str, capability))
