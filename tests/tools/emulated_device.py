"""Emulate a device: run the unchanged plan without a GPU, about a million times slower."""

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from engine.backends.numba_cuda.device import Device
from engine.backends.numba_cuda.kernel import Kernel

from .cuda_emulator import EmulationError, launch
from .hopper_emulator import tensor_map


class EmulatedDevice(Device):
    """A device whose arrays are NumPy's, initialised with NaN or 0xFF; it does all work at once."""

    multiprocessors = 1
    number = 0
    stream = 7

    def __init__(self, capability: tuple[int, int] = (8, 0)):
        self.capability = capability
        self.turn: AbstractContextManager[Any] = threading.RLock()
        self.memory: dict[int, int | None] = {}
        """The number of the GPU with the memory at an address, where it is another one, or none."""
        self._owners: list[Any] = []
        self._recording: list[tuple[Any, ...]] | None = None

    def activate(self) -> None:
        """Do nothing: every thread may use this device."""

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = 0xFF
        return array

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self.allocate(shape, dtype)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        if target.shape != source.shape or target.dtype != source.dtype:
            raise EmulationError(f"a copy from {source.dtype} {source.shape} does not fit the target, "
                                         f"{target.dtype} {target.shape}")
        target[...] = source

    def launch(self, kernel: Kernel, grid: tuple[int, ...], *arguments: Any) -> None:
        if 0 in grid:
            raise EmulationError(f"{kernel.name}: a launch needs blocks, not {grid}")
        for kind, value in zip(kernel.signature, arguments, strict=True):
            dtype, rank = getattr(kind, "dtype", kind).numpy, getattr(kind, "ndim", 0)
            if (dtype, rank) != (value.dtype, value.ndim):
                raise EmulationError(f"{kernel.name} takes {kind}, not {value.dtype} of shape {value.shape}")
        if self._recording is not None:
            self._recording.append((kernel, grid, *arguments))
        launch(kernel, grid, *arguments)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        launches = self._recording = []
        try:
            work()
        finally:
            self._recording = None

        def replay() -> None:
            for kernel, grid, *arguments in launches:
                launch(kernel, grid, *arguments)

        return replay

    def mark(self) -> Callable[[], None]:
        return lambda: None

    def tensor_map(self, matrix: np.ndarray, box_rows: int) -> np.ndarray:
        return tensor_map(matrix, box_rows)

    def pointer(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def adopt(self, pointer: int, count: int, dtype: Any, owner: Any) -> np.ndarray:
        self._owners.append(owner)
        return np.frombuffer((ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(pointer), dtype)

    def gpu_of(self, pointer: int) -> int | None:
        return self.memory.get(pointer, self.number)

    def wait_for(self, stream: int | None) -> None:
        """Do nothing: all work is done at once."""
