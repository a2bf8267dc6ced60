"""Read and write capsules of DLPack, by which libraries exchange arrays without a copy (https://dmlc.github.io/dlpack).

cuda.core reads and writes them too, but bfloat16 only where the package ml_dtypes is installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

CUDA, CUDA_MANAGED = 2, 13
"""Types of devices (`DLDeviceType`): memory of an NVIDIA GPU, and memory that a GPU and the host share."""

DTYPES = {"float32": (2, 32), "bfloat16": (4, 16), "bool": (6, 8)}
"""Codes (`DLDataTypeCode`) and bits of the dtypes that are written."""
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class Tensor(ctypes.Structure):
    """The C struct `DLManagedTensor`: a `DLTensor`, then the manager and the deleter."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self.shape[: self.ndim])

    @property
    def steps(self) -> tuple[int, ...] | None:
        """The strides in elements; None for a contiguous array."""
        return tuple(self.strides[: self.ndim]) if self.strides else None

    @property
    def dtype(self) -> str:
        """The name of the dtype, such as "float32"."""
        name = "bool" if self.code == 6 else f"{_KINDS.get(self.code, f'code {self.code} ')}{self.bits}"
        return name if self.lanes == 1 else f"{name} x {self.lanes}"


_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""The type of a deleter of a tensor, and of a destructor of a capsule."""
_NAME, _USED = b"dltensor", b"used_dltensor"
"""The names of a capsule before and after its tensor is taken out, by the protocol."""


def _python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Return a function of Python's C API for ctypes."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_of_dying = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


class Imported:
    """A tensor that was read from a capsule; its memory lasts as long as this object."""

    def __init__(self, capsule: Any):
        """Take the tensor out of the capsule, which no one else can read after that; raises `ValueError`."""
        self.tensor = Tensor.from_address(_pointer(capsule, _NAME))
        _rename(capsule, _USED)
        self._address = ctypes.addressof(self.tensor)
        self._release = _DESTRUCTOR(self.tensor.deleter) if self.tensor.deleter else None

    def __del__(self) -> None:
        if release := getattr(self, "_release", None):
            release(self._address)


_exported: dict[int, tuple[Any, ...]] = {}
"""The owners of exported tensors by the address of each `Tensor`, until its reader calls the deleter."""


def write(pointer: int, device: tuple[int, int], dtype: str, shape: Sequence[int], strides: Sequence[int],
          owner: Any) -> Any:
    """Return a capsule of an array, which keeps its owner alive.

    device: a type of devices, and the number of the device. dtype: one of `DTYPES`. strides: in elements.
    """
    sizes, steps = ((ctypes.c_int64 * len(numbers))(*numbers) for numbers in (shape, strides))
    code, bits = DTYPES[dtype]
    # 1: numbers of an element, which is no vector; 0: the offset of the first byte; None: no manager beside _exported.
    tensor = Tensor(pointer, *device, len(shape), code, bits, 1, sizes, steps, 0, None,
                    ctypes.cast(_delete, ctypes.c_void_p).value)
    address = ctypes.addressof(tensor)
    _exported[address] = tensor, sizes, steps, owner
    return _new(address, _NAME, _drop_capsule)


@_DESTRUCTOR
def _delete(address: int, exported: dict[int, tuple[Any, ...]] = _exported) -> None:
    """Release the owner of a tensor; its reader calls this as the deleter, perhaps when the module's names are gone."""
    exported.pop(address, None)


@_DESTRUCTOR
def _drop_capsule(capsule: int) -> None:
    """Free a tensor whose capsule no one has read: its name is then still the first one."""
    if _is_valid(capsule, _NAME):
        _exported.pop(_pointer_of_dying(capsule, _NAME), None)


for _callback in (_delete, _drop_capsule):
    # Libraries may call these while the interpreter ends, when this module is gone: so they are never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))
