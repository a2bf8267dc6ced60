"""Define arrays on the GPU and in page-locked memory of the host, which the CUDA driver allocates and frees."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import Any

import numpy as np

from ...base.errors import BackendUnavailable
from .driver import OUT_OF_MEMORY, DriverError, call


class Allocation:
    """Bytes that the driver allocated in a context, freed with the last array in them."""

    def __init__(self, pointer: int, size: int, free: str, context: Any):
        """free: the name of the driver's function that frees them."""
        self.pointer, self.size = pointer, size
        self._free, self._context, self._process = free, context, os.getpid()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Describe the bytes to NumPy, which keeps this object; only for memory of the host."""
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.pointer, False)}

    def __del__(self) -> None:
        if os.getpid() != self._process:        # CUDA does not survive a fork
            return
        # The garbage collector may call this on a thread of the user, whose context has to stay as it is.
        with suppress(Exception):   # the interpreter ends, and the driver with it, or a kernel failed before
            call("cuCtxPushCurrent", self._context)
            try:
                call(self._free, self.pointer)
            finally:
                call("cuCtxPopCurrent")


class DeviceArray:
    """An array without gaps on the GPU. It slices along its first dimension, as NumPy's do."""

    def __init__(self, memory: Allocation, pointer: int, shape: tuple[int, ...], dtype: np.dtype):
        self.memory = memory
        """The owner of the bytes, which frees them when the last array in them is gone."""
        self.pointer, self.shape, self.dtype = pointer, shape, dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from an element to the next one of each dimension."""
        return tuple(math.prod(self.shape[i + 1 :]) * self.dtype.itemsize for i in range(self.ndim))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice) -> DeviceArray:
        """Return a view of some rows, which lie side by side, or of one."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step != 1:
                raise IndexError(f"an array on the GPU has rows side by side, in steps of 1; got {rows}")
            return self._view(start, (max(0, stop - start), *self.shape[1:]))
        if not -len(self) <= rows < len(self):
            raise IndexError(f"row {rows} of an array with {len(self)}")
        return self._view(rows % len(self), self.shape[1:])

    def _view(self, first: int, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(self.memory, self.pointer + first * self.strides[0], shape, self.dtype)

    def reshape(self, *shape: int) -> DeviceArray:
        """Return a view with another shape of as many elements."""
        if math.prod(shape) != self.size:
            raise ValueError(f"{self.size} elements of shape {self.shape} do not fill the shape {shape}")
        return DeviceArray(self.memory, self.pointer, shape, self.dtype)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False),
                "strides": None}


def allocate(context: Any, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    """Return an array on the GPU of the current context, not initialised.

    Raises `BackendUnavailable` if the GPU has too little memory for it.
    """
    dtype = np.dtype(dtype)
    size = max(1, math.prod(shape) * dtype.itemsize)
    try:
        pointer = int(call("cuMemAlloc", size))
    except DriverError as error:
        if error.status != OUT_OF_MEMORY:
            raise
        free, total = call("cuMemGetInfo")
        raise BackendUnavailable(
            f"the GPU has too little memory: {_megabytes(size)} more are needed, and {_megabytes(free)} of "
            f"{_megabytes(total)} are free; load the model with a smaller max_batch_tokens, or free memory that other "
            "engines and programs hold") from error
    return DeviceArray(Allocation(pointer, size, "cuMemFree", context), pointer, shape, dtype)


def pinned(context: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array in page-locked memory of the host; raises `BackendUnavailable` if there is too little of it."""
    dtype = np.dtype(dtype)
    size = max(1, math.prod(shape) * dtype.itemsize)
    try:
        pointer = int(call("cuMemAllocHost", size))
    except DriverError as error:
        if error.status != OUT_OF_MEMORY:
            raise
        raise BackendUnavailable(f"the host has no {_megabytes(size)} of page-locked memory for the copies to and from "
                                 "the GPU; load the model with a smaller max_batch_tokens") from error
    held = np.asarray(Allocation(pointer, size, "cuMemFreeHost", context))
    return held[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def copy(target: DeviceArray | np.ndarray, source: DeviceArray | np.ndarray, stream: Any) -> None:
    """Queue a copy between arrays without gaps, at least one of which is on the GPU."""
    if target.shape != source.shape or target.dtype != source.dtype:
        raise ValueError(f"a copy from {source.dtype} {source.shape} does not fit {target.dtype} {target.shape}")
    if not target.nbytes:
        return
    match target, source:
        case np.ndarray(), DeviceArray():
            call("cuMemcpyDtoHAsync", _address(target), source.pointer, target.nbytes, stream)
        case DeviceArray(), np.ndarray():
            # A copy from memory that is not page-locked has read it when the call returns.
            call("cuMemcpyHtoDAsync", target.pointer, _address(np.ascontiguousarray(source)), target.nbytes, stream)
        case DeviceArray(), DeviceArray():
            call("cuMemcpyDtoDAsync", target.pointer, source.pointer, target.nbytes, stream)


def _address(array: np.ndarray) -> int:
    """Return the address of an array on the host; raises `ValueError` for one with gaps."""
    if not array.flags.c_contiguous:
        raise ValueError(f"arrays without gaps are copied; got strides {array.strides} of shape {array.shape}")
    return array.ctypes.data


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
