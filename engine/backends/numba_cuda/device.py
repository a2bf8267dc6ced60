"""A GPU as the plan sees it: memory, copies, launches, and launches recorded once and replayed.

Everything is queued on one stream and done in order. Arrays on the device are numba-cuda's, which slice like NumPy's.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...errors import BackendUnavailable
from .kernel import Kernel


class Device(Protocol):
    """Where a plan runs: a GPU, or its emulation."""

    capability: tuple[int, int]
    multiprocessors: int
    turn: threading.Lock
    """Held by whoever queues."""

    def activate(self) -> None:
        """Make it the calling thread's device; raises `BackendUnavailable` where that cannot be."""

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array on the device, not initialised."""

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array on the host that is copied from and to without a detour."""

    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy between contiguous arrays of one shape and dtype, either of which may be on the host.

        The host's side must stay as it is until the copy is done.
        """

    def launch(self, kernel: Kernel, grid: tuple[int, ...], *arguments: Any) -> None:
        """Queue a kernel on arrays of the device and scalars."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work`, which launches; returns what queues these launches, on these arrays, again.

        It may be run twice, and what it prepares the first time it must not prepare again.
        """

    def mark(self) -> Callable[[], None]:
        """A place in the queue: call it to wait until all that was queued before is done."""

    def tensor_map(self, matrix: Any, box_rows: int) -> Any:
        """What Hopper's TMA finds boxes [box_rows, 64] of a bfloat16 matrix by; lasts as long as the device does."""

    def share(self, array: Any) -> Any:
        """An array of the device as other libraries take it."""


def upload(device: Device, array: np.ndarray) -> Any:
    """A copy of an array on the device."""
    array = np.ascontiguousarray(array)
    copy = device.allocate(array.shape, array.dtype)
    device.copy(copy, array)
    device.mark()()
    return copy


class Gpu:
    """The CUDA device that is current when this is made."""

    def __init__(self) -> None:
        from cuda.core import Device as CoreDevice

        from .toolchain import cuda

        device = cuda.get_current_device()
        self.capability = tuple(device.compute_capability)
        self.multiprocessors = device.MULTIPROCESSOR_COUNT
        self.turn = threading.Lock()
        self._process = os.getpid()
        self._core = CoreDevice(device.id)
        self.activate()
        self._stream = self._core.create_stream()
        self._compiled: dict[int, tuple[Kernel, Any]] = {}
        self._maps: dict[tuple[int, ...], Any] = {}

    def activate(self) -> None:
        if os.getpid() != self._process:
            raise BackendUnavailable("CUDA does not survive a fork, and so no engine on a GPU does; start processes by "
                                     "spawn, or fork before the first such engine is loaded")
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
            warnings.filterwarnings("ignore", "Grid size")  # numba-cuda thinks that a small grid is a mistake
            self._compile(kernel)[grid, kernel.threads, self._stream, kernel.shared](*arguments)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        work()  # for its results, and since compiling and loading cannot be recorded
        self.mark()()
        builder = self._stream.create_graph_builder().begin_building()
        try:
            work()
        finally:
            builder.end_building()
        graph = builder.complete()
        return lambda: graph.launch(self._stream)

    def mark(self) -> Callable[[], None]:
        wait: Callable[[], None] = self._stream.record().sync
        return wait

    def tensor_map(self, matrix: Any, box_rows: int) -> Any:
        from .tensor_map import encode

        key = matrix.__cuda_array_interface__["data"][0], *matrix.shape, box_rows
        if key not in self._maps:
            self._maps[key] = upload(self, encode(*key))  # which depends on nothing else
        return self._maps[key]

    def share(self, array: Any) -> SharedArray:
        return SharedArray(array)

    def _compile(self, kernel: Kernel) -> Any:
        from .toolchain import compile_for_device

        if id(kernel) not in self._compiled:
            self._compiled[id(kernel)] = kernel, compile_for_device(kernel)  # the kernel is kept, and so is its id
        return self._compiled[id(kernel)][1]


class SharedArray:
    """An array that stays on the GPU, complete, for PyTorch, CuPy, JAX and others to take without a copy.

    By DLPack (`torch.from_dlpack`) or the CUDA array interface (`cupy.asarray`).
    """

    def __init__(self, array: Any):
        self.array = array
        """numba-cuda's."""
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype = array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self.array.__cuda_array_interface__
        return interface

    def __dlpack__(self, **options: Any) -> Any:
        return self._view().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._view().__dlpack_device__()
        return device

    def _view(self) -> Any:
        from cuda.core.utils import StridedMemoryView

        return StridedMemoryView.from_cuda_array_interface(self, stream_ptr=-1)  # the array is complete: nobody waits
