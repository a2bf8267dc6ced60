"""Define the device that a plan uses: memory, copies, launches, and launches that are recorded once and replayed.

All work is queued on one stream and runs in order. Arrays on the device are numba-cuda's, which slice like NumPy's.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...base.errors import BackendUnavailable
from .kernel import Kernel


class Device(Protocol):
    """The device that a plan runs on: a GPU, or its emulation."""

    capability: tuple[int, int]
    multiprocessors: int
    turn: threading.Lock
    """A lock that a thread holds while it queues work."""

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

    def share(self, array: Any) -> Any:
        """Return an array on the device in a form that other libraries accept."""


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
        self.turn = threading.Lock()
        self._process = os.getpid()
        self._core = CoreDevice(device.id)
        self.activate()
        self._stream = self._core.create_stream()
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

    def share(self, array: Any) -> SharedArray:
        return SharedArray(array)

    def _compile(self, kernel: Kernel) -> Any:
        from .toolchain import compile_for_device

        if id(kernel) not in self._compiled:
            self._compiled[id(kernel)] = kernel, compile_for_device(kernel)  # keeping the kernel keeps its id unique
        return self._compiled[id(kernel)][1]


class SharedArray:
    """A complete array on the GPU, which PyTorch, CuPy, JAX and other libraries can use without a copy.

    They read it through DLPack (`torch.from_dlpack`) or the CUDA array interface (`cupy.asarray`).
    """

    def __init__(self, array: Any):
        self.array = array
        """The array of numba-cuda."""
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype = array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return self._view().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view().__dlpack_device__()

    def _view(self) -> Any:
        from cuda.core.utils import StridedMemoryView

        return StridedMemoryView.from_cuda_array_interface(self, stream_ptr=-1)  # no stream to wait for
