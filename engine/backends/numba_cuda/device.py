"""Define the device that a plan uses: memory, copies, launches, and launches that are recorded once and replayed.

All work is queued on one stream and runs in order. cuda.core launches the kernels, whose code `stored.py` finds.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ...base.errors import BackendUnavailable
from . import memory, stored
from .driver import DriverError, bindings, call
from .kernel import Kernel
from .toolchain import ArrayType


class Device(Protocol):
    """The device that a plan runs on: a GPU, or its emulation."""

    capability: tuple[int, int]
    multiprocessors: int
    turn: AbstractContextManager[Any]
    """A lock that a thread holds while it queues work; it may take it again within."""

    @abstractmethod
    def activate(self) -> None:
        """Make this the calling thread's device; raises `BackendUnavailable` if that is impossible."""

    @abstractmethod
    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array on the device, not initialised."""

    @abstractmethod
    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array in page-locked host memory, which is copied without an intermediate buffer."""

    @abstractmethod
    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy between contiguous arrays of one shape and dtype, either of which may be on the host.

        The host array must not change until the copy is done.
        """

    @abstractmethod
    def launch(self, kernel: Kernel, grid: tuple[int, ...], *arguments: Any) -> None:
        """Queue a kernel; its arguments are arrays on the device and scalars."""

    @abstractmethod
    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work`, which queues launches, and return a function that queues the same launches again.

        They use the same arrays, by their addresses: the caller keeps the arrays while it keeps the function. `work`
        may be run twice, and must not repeat its preparations in the second run.
        """

    @abstractmethod
    def mark(self) -> Callable[[], None]:
        """Return a function that waits until all work that is queued now is done."""

    def wait(self) -> None:
        """Wait until all work that is queued now is done."""
        wait_for_work = self.mark()
        wait_for_work()

    def upload(self, array: np.ndarray) -> Any:
        """Return a copy of an array on the device."""
        array = np.ascontiguousarray(array)
        copy = self.allocate(array.shape, array.dtype)
        self.copy(copy, array)
        self.wait()
        return copy

    def download(self, array: Any) -> np.ndarray:
        """Return a copy of an array in the memory of the host, when all work that is queued now is done."""
        copy = np.empty(array.shape, array.dtype)
        self.copy(copy, array)
        self.wait()
        return copy

    @abstractmethod
    def tensor_map(self, matrix: Any, box_rows: int) -> Any:
        """Return a new tensor map, with which Hopper's TMA copies boxes [box_rows, 64] of a bfloat16 matrix.

        It depends on the address and the shape of the matrix alone.
        """

    number: int
    """Which GPU of the process it is, counted from 0."""
    stream: Any
    """The number of the stream of all work, for libraries that share an array by DLPack."""

    @abstractmethod
    def pointer(self, array: Any) -> int:
        """Return the address of an array on the device."""

    @abstractmethod
    def adopt(self, pointer: int, count: int, dtype: Any, owner: Any) -> Any:
        """Return an array [count] at an address on this device; it keeps the owner of the memory alive."""

    @abstractmethod
    def gpu_of(self, pointer: int) -> int | None:
        """Return the number of the GPU with the memory at an address; None if this process has no such memory."""

    @abstractmethod
    def wait_for(self, stream: int | None) -> None:
        """Wait until all work on a stream of another library is done, or on all streams for None."""


def recent_integers(device: Device, most: int) -> Callable[..., Any]:
    """Return a function of integers that uploads them as an int32 array, and caches the latest `most` arrays."""
    return lru_cache(most)(lambda *integers: device.upload(np.array(integers, np.int32)))


class Gpu(Device):
    """The CUDA device that is current when this is created. `Device` explains its methods and attributes."""

    def __init__(self) -> None:
        from cuda.core import Device as CoreDevice

        self._core = CoreDevice()
        self._process = os.getpid()     # a process with another number is a fork of this one
        self.activate()
        self.name = str(self._core.name)
        self.capability: tuple[int, int] = tuple(self._core.compute_capability)
        self.multiprocessors = int(self._core.properties.multiprocessor_count)
        self.number = int(self._core.device_id)
        self.turn: AbstractContextManager[Any] = threading.RLock()
        self._context = call("cuCtxGetCurrent")
        self._stream = self._core.create_stream()
        self.stream = int(self._stream.handle)
        self._loaded: dict[int, tuple[Kernel, Any]] = {}    # by the id of a kernel: the kernel, and its loaded code

    def activate(self) -> None:
        if os.getpid() != self._process:
            raise BackendUnavailable("CUDA does not survive a fork, so a forked process cannot use this engine; start "
                                     "processes with spawn, or fork before the first engine on a GPU is loaded")
        self._core.set_current()

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> memory.DeviceArray:
        return memory.allocate(self._context, shape, dtype)

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return memory.pinned(self._context, shape, dtype)

    def copy(self, target: Any, source: Any) -> None:
        memory.copy(target, source, self._stream.handle)

    def launch(self, kernel: Kernel, grid: tuple[int, ...], *arguments: Any) -> None:
        from cuda.core import LaunchConfig, launch

        words = list(flattened(kernel, arguments))
        blocks = (*grid, 1, 1)[:3]      # three axes; cuda.core counts the clusters along the first
        config = LaunchConfig(grid=(blocks[0] // kernel.cluster, *blocks[1:]), block=kernel.threads,
                              cluster=(kernel.cluster, 1, 1) if kernel.cluster > 1 else None,
                              shmem_size=kernel.shared, programmatic_stream_serialization=kernel.overlaps)
        launch(self._stream, config, self.load(kernel), *words)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        work()  # computes the results of this call; also, compiling and loading kernels cannot be recorded
        self.wait()
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

        rows, columns = matrix.shape
        return self.upload(encode(matrix.pointer, rows, columns, box_rows))

    def pointer(self, array: memory.DeviceArray) -> int:
        return array.pointer

    def adopt(self, pointer: int, count: int, dtype: Any, owner: Any) -> memory.DeviceArray:
        return memory.DeviceArray(owner, pointer, (count,), np.dtype(dtype))

    def gpu_of(self, pointer: int) -> int | None:
        attribute = bindings().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        try:
            return int(call("cuPointerGetAttribute", attribute, pointer))
        except DriverError:
            return None

    def wait_for(self, stream: int | None) -> None:
        if stream is None:
            call("cuCtxSynchronize")
        else:
            call("cuStreamSynchronize", stream)

    def load(self, kernel: Kernel) -> Any:
        """Return cuda.core's kernel, allowed the shared memory that it needs; a launch then starts at once."""
        if id(kernel) not in self._loaded:
            self._loaded[id(kernel)] = kernel, self._load_anew(kernel)    # keeping the kernel keeps its id unique
        return self._loaded[id(kernel)][1]

    def _load_anew(self, kernel: Kernel) -> Any:
        """Find or compile the code of a kernel, and load it; raises `BackendUnavailable` if the driver refuses it."""
        from cuda.core import ObjectCode

        code = stored.find(kernel, self.capability)
        make = ObjectCode.from_cubin if code.kind == "cubin" else ObjectCode.from_ptx
        try:
            loaded = make(code.content, name=kernel.name).get_kernel(code.entry)
        except Exception as error:  # each version of cuda.core has errors of its own
            raise BackendUnavailable(f"the CUDA driver cannot load the kernel {kernel.name} from {code.origin}, and "
                                     f"compute capability {self.capability}: {error}") from error
        if kernel.shared > DEFAULT_SHARED:
            largest = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuKernelSetAttribute", largest, kernel.shared, loaded.handle, call("cuCtxGetDevice"))
        return loaded


DEFAULT_SHARED = 48 * 1024
"""Bytes of dynamic shared memory that a kernel may use without setting an attribute."""


def flattened(kernel: Kernel, arguments: Sequence[Any]) -> Iterator[Any]:
    """Yield the words that the code of a kernel takes for its arguments, as numba-cuda lays them out.

    An array is two words for its owner, which kernels do not need, its size, the bytes of an element, its address, its
    shape and its strides. A number is itself. Raises `TypeError` for an array or a number of another type.
    """
    for kind, value in zip(kernel.signature, arguments, strict=True):
        dtype, rank = (kind.dtype.numpy, kind.ndim) if isinstance(kind, ArrayType) else (kind.numpy, 0)
        if (value.dtype, value.ndim) != (dtype, rank):
            raise TypeError(f"{kernel.name} takes {kind}, not {value.dtype} of shape {value.shape}")
        if rank:
            yield from (0, 0, value.size, dtype.itemsize, value.pointer, *value.shape, *value.strides)
        else:
            yield np.ctypeslib.as_ctypes_type(dtype)(value.item())
