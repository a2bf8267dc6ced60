"""Arrays that say that they lie on a GPU, as those of other libraries do; the emulated device reads their memory."""

from typing import Any

import numpy as np

from engine.backends.numba_cuda import dlpack


class InterfaceArray:
    """An array with the CUDA array interface alone, as Numba's are."""

    def __init__(self, array: np.ndarray, **changes: Any):
        self.array, self._changes = array, changes

    @classmethod
    def of(cls, shared: Any) -> "InterfaceArray":
        """Return an array of `engine` as another library has it."""
        return cls(np.empty(shared.shape, np.float32), **shared.__cuda_array_interface__)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self.array.flags.c_contiguous else self.array.strides
        return {"version": 3, "shape": self.array.shape, "typestr": self.array.dtype.str, "strides": strides,
                "data": (self.array.ctypes.data, False), "stream": 1} | self._changes


class DlpackArray:
    """An array with DLPack alone, as PyTorch's are; uint16 stands for the bits of bfloat16."""

    def __init__(self, array: np.ndarray, gpu: int = 0, error: Exception | None = None):
        self.array, self._gpu, self._error = array, gpu, error
        self.stream: Any = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._gpu

    def __dlpack__(self, stream: Any = None) -> Any:
        if self._error is not None:
            raise self._error
        self.stream = stream
        array, name = self.array, "bfloat16" if self.array.dtype == np.uint16 else self.array.dtype.name
        steps = [step // array.itemsize for step in array.strides]
        return dlpack.write(array.ctypes.data, self.__dlpack_device__(), name, array.shape, steps, owner=array)


class HostCapsule:
    """An array of `engine`, whose DLPack says that it lies in the memory of the host, so that NumPy reads it."""

    def __init__(self, shared: Any):
        self._shared = shared

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        shared = self._shared
        return dlpack.write(shared.device.pointer(shared.flat), (1, 0), shared.dtype, shared.shape, shared.strides,
                            owner=shared.flat)
