"""Define the device that a plan uses: memory, copies, launches, and launches that are recorded once and replayed.

All work is queued on one stream and runs in order. Arrays on the device are numba-cuda's, which slice like NumPy's.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ...base.errors import BackendUnavailable
from .kernel import Kernel


class Device(Protocol):
    """The device that a plan runs on: a GPU, or its emulation."""

    capability: tuple[int, int]
    multiprocessors: int
    turn: AbstractContextManager[Any]
    """A lock that a thread holds while it queues work; it may take it again within."""

    def activate(self) -> None:
        """Make this the calling thread's device; raises `BackendUnavailable` if that is impossible."""

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array on the device, not initialised."""

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array in page-locked host memory, which is copied without an intermediate buffer."""

    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy between contiguous arrays of one shape and dtype, either of which may be on the host.

        The host array must not change until the copy is done.
        """

    def launch(self, kernel: Kernel, grid: tuple[int, ...], *arguments: Any) -> None:
        """Queue a kernel; its arguments are arrays on the device and scalars."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work`, which queues launches, and return a function that queues the same launches again.

        They use the same arrays, by their addresses: the caller keeps the arrays while it keeps the function. `work`
        may be run twice, and must not repeat its preparations in the second run.
        """

    def mark(self) -> Callable[[], None]:
        """Return a function that waits until all work that is queued now is done."""

    def tensor_map(self, matrix: Any, box_rows: int) -> Any:
        """Return a tensor map, with which Hopper's TMA copies boxes [box_rows, 64] of a bfloat16 matrix.

        It lasts as long as the device object.
        """

    number: int
    """Which GPU of the process it is, counted from 0."""
    stream: Any
    """The number of the stream of all work, for libraries that share an array by DLPack."""

    def pointer(self, array: Any) -> int:
        """Return the address of an array on the device."""

    def adopt(self, pointer: int, count: int, dtype: Any, owner: Any) -> Any:
        """Return an array [count] at an address on this device; it keeps the owner of the memory alive."""

    def gpu_of(self, pointer: int) -> int | None:
        """Return the number of the GPU with the memory at an address; None if this process has no such memory."""

    def wait_for(self, stream: int | None) -> None:
        """Wait until all work on a stream of another library is done, or on all streams for None."""


def upload(device: Device, array: np.ndarray) -> Any:
    """Return a copy of an array on the device."""
    array = np.ascontiguousarray(array)
    copy = device.allocate(array.shape, array.dtype)
    device.copy(copy, array)
    wait_for_copy = device.mark()
    wait_for_copy()
    return copy


class Gpu:
    """The CUDA device that is current when this object is created."""

    def __init__(self) -> None:
        from cuda.core import Device as CoreDevice

        from .toolchain import cuda

        device = cuda.get_current_device()
        self.capability = tuple(device.compute_capability)
        self.multiprocessors = device.MULTIPROCESSOR_COUNT
        self.number = int(device.id)
        self.turn: AbstractContextManager[Any] = threading.RLock()
        self._process = os.getpid()
        self._core = CoreDevice(device.id)
        self.activate()
        self._stream = self._core.create_stream()
        self.stream = int(self._stream.handle)
        self._compiled: dict[int, tuple[Kernel, Any]] = {}
        self._maps: dict[tuple[int, ...], Any] = {}

    def activate(self) -> None:
        if os.getpid() != self._process:
            raise BackendUnavailable("CUDA does not survive a fork, so a forked process cannot use this engine; start "
                                     "processes with spawn, or fork before the first engine on a GPU is loaded")
        self._core.set_current()

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        from .toolchain import cuda

        return cuda.device_array(shape, dtype)

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        from .toolchain import cuda

        return cuda.pinned_array(shape, dtype)

    def copy(self, target: Any, source: Any) -> None:
        if isinstance(target, np.ndarray):
            source.copy_to_host(target, stream=self._stream)
        else:
            target.copy_to_device(source, stream=self._stream)

    def launch(self, kernel: Kernel, grid: tuple[int, ...], *arguments: Any) -> None:
        with warnings.catch_warnings():
            # numba-cuda warns about small grids, and its text may begin with an escape sequence for bold letters.
            warnings.filterwarnings("ignore", ".*Grid size")
            self._compile(kernel)[grid, kernel.threads, self._stream, kernel.shared](*arguments)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        work()  # computes the results of this call; also, compiling and loading kernels cannot be recorded
        wait = self.mark()
        wait()
        builder = self._stream.create_graph_builder().begin_building()
        try:
            work()
        finally:
            builder.end_building()
        graph = builder.complete()
        return lambda: graph.launch(self._stream)

    def mark(self) -> Callable[[], None]:
        return self._stream.record().sync

    def tensor_map(self, matrix: Any, box_rows: int) -> Any:
        from .tensor_map import encode

        key = matrix.__cuda_array_interface__["data"][0], *matrix.shape, box_rows
        if key not in self._maps:
            self._maps[key] = upload(self, encode(*key))  # the map depends on the key only
        return self._maps[key]

    def pointer(self, array: Any) -> int:
        return int(array.__cuda_array_interface__["data"][0])

    def adopt(self, pointer: int, count: int, dtype: Any, owner: Any) -> Any:
        from .toolchain import cuda

        found = {"version": 3, "data": (pointer, False), "shape": (count,), "typestr": np.dtype(dtype).str}
        return cuda.from_cuda_array_interface(found, owner=owner, sync=False)

    def gpu_of(self, pointer: int) -> int | None:
        from cuda.bindings import driver

        attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        status, number = driver.cuPointerGetAttribute(attribute, pointer)
        return int(number) if status == driver.CUresult.CUDA_SUCCESS else None

    def wait_for(self, stream: int | None) -> None:
        from cuda.bindings import driver

        driver.cuCtxSynchronize() if stream is None else driver.cuStreamSynchronize(stream)

    def _compile(self, kernel: Kernel) -> Any:
        from .toolchain import compile_for_device

        if id(kernel) not in self._compiled:
            self._compiled[id(kernel)] = kernel, compile_for_device(kernel)  # keeping the kernel keeps its id unique
        return self._compiled[id(kernel)][1]
