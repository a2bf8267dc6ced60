"""Run kernels as Python: blocks one after the other, the threads of a block in turns.

The function that is compiled is the function that runs; only `cuda` and the PTX functions are replaced (`in_python`).
One thread runs at a time and lets another run when it waits. Therefore results are reproducible, and a wait that never
ends is an error, not a hang. Addresses are checked: an access that is misaligned, or outside the arguments or the
block's shared memory, raises `EmulationError`.

The emulator does not model time, bank conflicts, or more than one order of threads. Asynchronous copies finish either
as late as the waits allow or at once (`launch`), so that one of the two shows a missing wait, and the other a slot that
is refilled too early.

Numba's own simulator knows neither warps nor PTX, needs seconds per block, and is discontinued with numba-cuda.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.backends.numba_cuda.kernel import Kernel
from engine.backends.numba_cuda.ptx.emulated import WARP, current
from engine.backends.numba_cuda.toolchain import DeviceFunction, PtxFunction, ScalarType, cuda, rebuilt

from .hopper_emulator import EmulationError, Hopper


def launch(kernel: Kernel, grid: int | tuple[int, ...], *arguments: Any, late: bool = True) -> None:
    """Run a kernel on scalars and NumPy arrays, which it may change.

    grid: number of blocks along x, or (x, y, z). late: True if asynchronous copies finish when they are waited for,
    False if they finish at once.
    """
    x, y, z = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
    body = as_python(kernel.body)
    for index in np.ndindex(z, y, x):
        ThreadBlock(kernel, body, (x, y, z), index[::-1], arguments, late).run()


def as_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with `cuda`, PTX functions and device functions replaced by their Python forms."""

    def exchange(value: Any) -> Any:
        if value is cuda:
            return _CUDA
        if isinstance(value, DeviceFunction):
            return as_python(value.py_func)
        return value.in_python if isinstance(value, PtxFunction) else value

    return rebuilt(function, exchange)


class Thread(threading.Thread):
    """A thread of a block. It runs only from the release of `go` to its next wait."""

    def __init__(self, block: ThreadBlock, number: int) -> None:
        super().__init__(daemon=True)
        self.block = block
        self.number = number
        self.go = threading.Semaphore(0)
        self.result: Any = None
        self.copies: deque[list[Callable[[], None]]] = deque()
        """Committed groups of asynchronous copies that are not finished, oldest first."""
        self.uncommitted: list[Callable[[], None]] = []

    def run(self) -> None:
        self.go.acquire()
        try:
            with np.errstate(all="ignore"):
                if self.block.failure is None:
                    self.block.body(*self.block.arguments)
        except _Abandoned:
            pass
        except BaseException as error:
            self.block.fail(error)
        self.block.unfinished.discard(self)
        self.block.hand_on()

    def together(self, action: Callable[..., Sequence[np.ndarray]], values: Sequence[Any]) -> list[Any]:
        """Run an action on a whole warp and return this lane's results; `action(*columns)` returns arrays [32].

        A column holds the scalars of 32 lanes as an array, or their arrays as a list.
        """

        def on_columns(rows: list[Any]) -> list[Any]:
            columns = [list(column) if isinstance(column[0], np.ndarray) else np.array(column)
                       for column in zip(*rows, strict=True)]
            outputs = action(*columns)
            return [[output[lane] for output in outputs] for lane in range(WARP)]

        return self.block.meet((f"warp {self.number // WARP}", action), WARP, values, on_columns)


class _Abandoned(Exception):
    """Raised in threads whose block has failed."""


class ThreadBlock:
    """A block of threads, its shared memory, and its waiting threads."""

    def __init__(self, kernel: Kernel, body: Callable[..., Any], grid: tuple[int, ...], index: tuple[int, ...],
                 arguments: Sequence[Any], late: bool) -> None:
        self.kernel, self.body, self.arguments, self.late = kernel, body, arguments, late
        self.grid, self.index = grid, index
        self.hopper = Hopper(self)
        self.shared = np.full(kernel.shared, 0xFF, np.uint8)
        """Dynamic shared memory, initialised with NaN, so that a read before a write shows in the result."""
        self.arrays: dict[Any, np.ndarray] = {}
        """Static shared memory, by the source line that allocates it."""
        self.spans = [_bytes(array) for array in arguments if isinstance(array, np.ndarray)]
        self.threads = [Thread(self, number) for number in range(kernel.threads)]
        self.unfinished = set(self.threads)
        self.ready = deque(self.threads)
        self.polling: list[tuple[Thread, Callable[[], bool]]] = []
        """The threads in `wait_until`, each with its condition."""
        self.meetings: dict[Any, list[tuple[Thread, Any]]] = {}
        """The threads that have come to each meeting so far, each with its argument."""
        self.failure: BaseException | None = None
        self.over = threading.Semaphore(0)      # released when no thread is left to run

    def run(self) -> None:
        """Run all threads to their ends; raises the error of the first thread that fails."""
        for thread in self.threads:
            thread.start()
        self.hand_on()
        self.over.acquire()
        for thread in self.threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def hand_on(self) -> None:
        """Let the next thread run."""
        if not self.ready:
            for thread, condition in [(t, ended) for t, ended in self.polling if ended()]:
                self.polling.remove((thread, condition))
                self.ready.append(thread)
        if not self.ready and self.unfinished:
            self.fail(EmulationError(f"{self.kernel.name}: {self._deadlock()}"))
        if self.ready:
            self.ready.popleft().go.release()
        else:
            self.over.release()

    def fail(self, error: BaseException) -> None:
        """Store the first error and wake all threads, so that they end."""
        self.failure = self.failure or error
        running = threading.current_thread()
        self.ready = deque(thread for thread in self.threads if thread in self.unfinished and thread is not running)
        self.polling.clear()

    def _deadlock(self) -> str:
        waiting = [f"{len(present)} threads from {present[0][0].number} at {key}"
                   for key, present in self.meetings.items()]
        return f"deadlock: {'; '.join(waiting)}; {len(self.polling)} threads poll"

    def suspend(self) -> None:
        """Let another thread run, and return when this thread has been made ready again."""
        thread = current()
        self.hand_on()
        if self.failure is None:        # after a failure no thread may be left to wake this one
            thread.go.acquire()
        if self.failure is not None:
            raise _Abandoned

    def meet(self, key: Any, size: int, argument: Any, action: Callable[[list[Any]], Sequence[Any]]) -> Any:
        """Wait for `size` threads at this key; the last one runs the action on their arguments, ordered by thread."""
        thread = current()
        present = self.meetings.setdefault(key, [])
        present.append((thread, argument))
        if len(present) < size:
            self.suspend()
            return thread.result
        del self.meetings[key]
        present.sort(key=lambda pair: pair[0].number)
        results = action([argument for _, argument in present])
        for (other, _), result in zip(present, results, strict=True):
            other.result = result
            if other is not thread:
                self.ready.append(other)
        return thread.result

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true, which other threads make true."""
        while not condition():
            self.polling.append((current(), condition))
            self.suspend()

    def shared_bytes(self, address: int, size: int, align: int) -> np.ndarray:
        """Return a view of dynamic shared memory."""
        if address % align or address < 0 or address + size > len(self.shared):
            raise EmulationError(f"{self.kernel.name}: {size} bytes, aligned to {align}, expected within "
                                 f"{len(self.shared)} of shared memory; got address {address}")
        return self.shared[address:address + size]

    def global_bytes(self, address: int, size: int, align: int) -> np.ndarray:
        """Return a view of memory that belongs to one of the arguments."""
        for start, span in self.spans:
            if start <= address and address + size <= start + len(span):
                if address % align:
                    raise EmulationError(f"{self.kernel.name}: a global address is not a multiple of {align}")
                return span[address - start:address - start + size]
        raise EmulationError(f"{self.kernel.name}: {size} bytes outside all arguments")


def _bytes(array: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the address of a contiguous array, and its bytes."""
    if not array.flags.c_contiguous:
        raise EmulationError(f"a kernel's arguments are contiguous; got strides {array.strides} of shape {array.shape}")
    return array.ctypes.data, array.reshape(-1).view(np.uint8)


class _Cuda:
    """The parts of `numba.cuda` that kernels use."""

    @property
    def threadIdx(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(x=current().number, y=0, z=0)

    @property
    def blockIdx(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(**dict(zip("xyz", current().block.index, strict=True)))

    @property
    def blockDim(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(x=current().block.kernel.threads, y=1, z=1)

    @property
    def gridDim(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(**dict(zip("xyz", current().block.grid, strict=True)))

    @staticmethod
    def grid(dimensions: int) -> int:
        if dimensions != 1:
            raise EmulationError("the emulator supports blocks of one dimension only")
        block = current().block
        return block.index[0] * block.kernel.threads + current().number

    @staticmethod
    def syncthreads() -> None:
        block = current().block
        block.meet("syncthreads", block.kernel.threads, argument=None, action=lambda present: present)

    class local:  # noqa: N801
        """Arrays of a thread, full of 0xAB as a GPU does not clear them."""

        @staticmethod
        def array(shape: Any, dtype: Any) -> np.ndarray:
            return np.full(shape, 0xAB, _dtype(dtype))

    class shared:  # noqa: N801
        """Static arrays of a block, one for each source line that allocates one."""

        @staticmethod
        def array(shape: Any, dtype: Any) -> np.ndarray:
            asking = sys._getframe(1)
            key = asking.f_code, asking.f_lineno
            return current().block.arrays.setdefault(key, np.full(shape, 0xAB, _dtype(dtype)))


def _dtype(kind: Any) -> np.dtype:
    return kind.numpy if isinstance(kind, ScalarType) else np.dtype(kind)


_CUDA = _Cuda()
