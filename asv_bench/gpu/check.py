"""Define a check: what a kernel computes beside the same in float64, and how near it must be."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.backends.numba_cuda.device import Device
from engine.weights.bfloat16 import from_bfloat16

BFLOAT16, FLOAT32, MODEL = 3e-3, 2e-5, 1.5e-2
"""Largest relative errors in the norm of all results: bfloat16 kernels, float32 kernels and models, bfloat16 models."""


@dataclass(frozen=True)
class Check:
    """One kernel in one case; `run` returns the device's result and the float64 result for the same operands."""

    name: str
    bound: float
    run: Callable[[Device], tuple[np.ndarray, np.ndarray]]

    def row(self, device: Device) -> dict[str, Any]:
        """Return name, bound, ok, and the relative error, or the reason why there is none with its traceback."""
        row: dict[str, Any] = {"name": self.name, "bound": self.bound, "ok": False}
        try:
            out, exact = self.run(device)
        except Exception as error:  # the other checks must run even if this one fails
            return row | {"why": f"{type(error).__name__}: {error}"[:300], "trace": traceback.format_exc()}
        if not np.isfinite(out).all():
            return row | {"why": "results are not finite"}
        error = float(np.linalg.norm(out - exact) / np.linalg.norm(exact))
        return row | {"error": error, "ok": error <= self.bound}


def download(device: Device, array: Any) -> np.ndarray:
    """Copy an array to the host, and convert bfloat16 to float32."""
    host = device.download(array)
    return from_bfloat16(host) if host.dtype == np.uint16 else host


def widened(operand: np.ndarray) -> np.ndarray:
    """Return operands in float64."""
    return (from_bfloat16(operand) if operand.dtype == np.uint16 else operand).astype(np.float64)
