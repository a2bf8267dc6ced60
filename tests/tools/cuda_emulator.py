"""Run kernels as Python: blocks one after the other, the warps of a block in turns, the lanes of a warp together.

The function that is compiled is the function that runs, rewritten over lanes (`warp_program.py`); `cuda` and the PTX
functions are replaced (`in_python`). One warp runs at a time and lets another run when it waits. Therefore results are
reproducible, and a wait that never ends is an error, not a hang. Addresses are checked: an access that is misaligned,
or outside the arguments or the block's shared memory, raises `EmulationError`.

The emulator does not model time, bank conflicts, or more than one order of warps. In static shared memory it finds a
lane that reads what another lane of its warp wrote, without a `sync_warp` in between. Asynchronous copies finish either
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

from engine.backends.global_names import global_names
from engine.backends.numba_cuda.kernel import Kernel
from engine.backends.numba_cuda.ptx.emulated import WARP, current
from engine.backends.numba_cuda.toolchain import DeviceFunction, PtxFunction, ScalarType, cuda

from .hopper_emulator import Hopper
from .warp_program import EmulationError, Lanes, LocalArray, warp_program


def launch(kernel: Kernel, grid: int | tuple[int, ...], *arguments: Any, late: bool = True) -> None:
    """Run a kernel on scalars and NumPy arrays, which it may change.

    grid: number of blocks along x, or (x, y, z). late: True if asynchronous copies finish when they are waited for,
    False if they finish at once.
    """
    x, y, z = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
    body = over_lanes(kernel.body)
    for index in np.ndindex(z, y, x):
        ThreadBlock(kernel, body, (x, y, z), index[::-1], arguments, late).run()


def over_lanes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function for a warp, with `cuda`, PTX functions and device functions replaced by their Python forms.
    """

    def exchange(value: Any) -> Any:
        if value is cuda:
            return _CUDA
        if isinstance(value, DeviceFunction):
            return over_lanes(value.py_func)
        return value.in_python if isinstance(value, PtxFunction) else value

    code, cells = function.__code__, function.__closure__ or ()
    names = {name: function.__globals__[name] for name in global_names(code) if name in function.__globals__}
    names.update(zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    return warp_program(function, {name: exchange(value) for name, value in names.items()}, current)


class Warp(threading.Thread, Lanes):
    """A warp of a block. It runs only from the release of `go` to its next wait."""

    def __init__(self, block: ThreadBlock, number: int) -> None:
        threading.Thread.__init__(self, daemon=True)
        lanes = block.kernel.threads - number * WARP
        Lanes.__init__(self, np.arange(number * WARP, (number + 1) * WARP),
                       None if lanes >= WARP else np.arange(WARP) < lanes)
        self.block = block
        self.number = number
        self.go = threading.Semaphore(0)
        self.result: Any = None
        self.copies: deque[list[Callable[[], None]]] = deque()
        """Committed groups of asynchronous copies that are not finished, oldest first."""
        self.uncommitted: list[Callable[[], None]] = []
        self._writers: dict[int, np.ndarray] = {}
        """For arrays in static shared memory, by `id`: the lane that wrote each element since `show_writes`, or -1."""

    def store(self, array: Any, index: Any, value: Any) -> None:
        """Set array[index] of each lane, and note who wrote to static shared memory."""
        super().store(array, index, value)
        if id(array) in self.block.static:
            writers = self._writers.setdefault(id(array), np.full(array.shape, -1))
            super().store(writers, index, np.arange(WARP))

    def load(self, array: Any, index: Any) -> Any:
        """Return array[index] of each lane, unless another lane wrote there and has not shown it."""
        writers = self._writers.get(id(array))
        if writers is not None:
            lanes = super().load(writers, index)
            if self.those((lanes != -1) & (lanes != np.arange(WARP)))[0].any():
                raise EmulationError(f"{self.block.kernel.name}: a lane reads what another one wrote to shared memory, "
                                     "without sync_warp or syncthreads in between")
        return super().load(array, index)

    def show_writes(self) -> None:
        """Let all lanes of the warp see what each wrote."""
        self._writers.clear()

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

    def together(self, action: Callable[..., Any], values: Sequence[Any]) -> Any:
        """Return action(*values), for which all lanes of the warp must come; numbers become arrays [32]."""
        if self.mask is not None:
            self.block.meet((f"warp {self.number}", action), WARP, None, lambda _: [])
        return action(*(value if isinstance(value, LocalArray) else np.broadcast_to(value, WARP) for value in values))


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
        self.static: set[int] = set()
        """The same arrays, by `id`."""
        self.spans = [_bytes(array) for array in arguments if isinstance(array, np.ndarray)]
        self.warps = [Warp(self, number) for number in range(-(-kernel.threads // WARP))]
        self.unfinished = set(self.warps)
        self.ready = deque(self.warps)
        self.polling: list[tuple[Warp, Callable[[], bool]]] = []
        """The warps in `wait_until`, each with its condition."""
        self.meetings: dict[Any, list[tuple[Warp, Any]]] = {}
        """The warps that have come to each meeting so far, each with its argument."""
        self.failure: BaseException | None = None
        self.over = threading.Semaphore(0)      # released when no warp is left to run

    def run(self) -> None:
        """Run all warps to their ends; raises the error of the first warp that fails."""
        for warp in self.warps:
            warp.start()
        self.hand_on()
        self.over.acquire()
        for warp in self.warps:
            warp.join()
        if self.failure is not None:
            raise self.failure

    def hand_on(self) -> None:
        """Let the next warp run."""
        if not self.ready:
            for warp, condition in [(w, ended) for w, ended in self.polling if ended()]:
                self.polling.remove((warp, condition))
                self.ready.append(warp)
        if not self.ready and self.unfinished:
            self.fail(EmulationError(f"{self.kernel.name}: {self._deadlock()}"))
        if self.ready:
            self.ready.popleft().go.release()
        else:
            self.over.release()

    def fail(self, error: BaseException) -> None:
        """Store the first error and wake all warps, so that they end."""
        self.failure = self.failure or error
        running = threading.current_thread()
        self.ready = deque(warp for warp in self.warps if warp in self.unfinished and warp is not running)
        self.polling.clear()

    def _deadlock(self) -> str:
        waiting = [f"{sum(warp.active() for warp, _ in present)} threads from {present[0][0].first()} at {key}"
                   for key, present in self.meetings.items()]
        return f"deadlock: {'; '.join(waiting)}; {len(self.polling)} warps poll"

    def suspend(self) -> None:
        """Let another warp run, and return when this warp has been made ready again."""
        warp = current()
        self.hand_on()
        if self.failure is None:        # after a failure no warp may be left to wake this one
            warp.go.acquire()
        if self.failure is not None:
            raise _Abandoned

    def meet(self, key: Any, size: int, argument: Any, action: Callable[[list[Any]], Sequence[Any]]) -> Any:
        """Wait for `size` threads at this key; the last warp runs the action on their arguments, one of each warp."""
        warp = current()
        present = self.meetings.setdefault(key, [])
        present.append((warp, argument))
        if sum(other.active() for other, _ in present) < size:
            self.suspend()
            return warp.result
        del self.meetings[key]
        present.sort(key=lambda pair: pair[0].number)
        results = action([argument for _, argument in present])
        for (other, _), result in zip(present, results, strict=True):
            other.result = result
            if other is not warp:
                self.ready.append(other)
        return warp.result

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true, which other warps make true."""
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

    def places(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return memory of an argument as rows of `size` bytes, and the rows that begin at the addresses.

        All addresses lie in one argument, and are multiples of the size.
        """
        low, high = int(addresses.min()), int(addresses.max())
        self.global_bytes(high, size, align=size)
        span = self.global_bytes(low, high + size - low, align=size)
        rows = (addresses - low) // size
        if (rows * size != addresses - low).any():
            raise EmulationError(f"{self.kernel.name}: a global address is not a multiple of {size}")
        return span.reshape(-1, size), rows

    def shared_places(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return dynamic shared memory as rows of `size` bytes, and the rows that begin at the addresses."""
        for address in (addresses.min(), addresses.max(), *addresses[addresses % size != 0][:1]):
            self.shared_bytes(int(address), size, align=size)
        return self.shared[:len(self.shared) // size * size].reshape(-1, size), addresses // size


def _bytes(array: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the address of a contiguous array, and its bytes."""
    if not array.flags.c_contiguous:
        raise EmulationError(f"a kernel's arguments are contiguous; got strides {array.strides} of shape {array.shape}")
    return array.ctypes.data, array.reshape(-1).view(np.uint8)


class _Cuda:
    """The parts of `numba.cuda` that kernels use."""

    @property
    def threadIdx(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(x=current().threads, y=0, z=0)

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
    def grid(dimensions: int) -> np.ndarray:
        if dimensions != 1:
            raise EmulationError("the emulator supports blocks of one dimension only")
        block = current().block
        numbers: np.ndarray = block.index[0] * block.kernel.threads + current().threads
        return numbers

    @staticmethod
    def syncthreads() -> None:
        warp = current()
        warp.show_writes()
        warp.block.meet("syncthreads", warp.block.kernel.threads, argument=None, action=lambda present: present)

    class local:  # noqa: N801
        """Arrays of a thread."""

        @staticmethod
        def array(shape: Any, dtype: Any) -> LocalArray:
            return LocalArray(shape, _dtype(dtype))

    class shared:  # noqa: N801
        """Static arrays of a block, one for each source line that allocates one."""

        @staticmethod
        def array(shape: Any, dtype: Any) -> np.ndarray:
            asking = sys._getframe(1)
            key = asking.f_code, asking.f_lineno
            block = current().block
            array = block.arrays.setdefault(key, np.full(shape, 0xAB, _dtype(dtype)))
            block.static.add(id(array))
            return array


def _dtype(kind: Any) -> np.dtype:
    return kind.numpy if isinstance(kind, ScalarType) else np.dtype(kind)


_CUDA = _Cuda()
