"""Define the arrays on the GPU that are results of calls, and adopt arrays of other libraries, without a copy.

An array is a view, with any strides, of a flat array on the device. This module needs no CUDA package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import InputError
from ...weights.bfloat16 import from_bfloat16
from . import dlpack

if TYPE_CHECKING:
    from .device import Device

STORED: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32), "bfloat16": np.dtype(np.uint16), "bool": np.dtype(np.uint8)}
"""The dtype of the flat array for the name of each dtype."""
_TYPESTR = {"float32": "<f4", "bfloat16": "<V2", "bool": "|b1"}     # of bfloat16 as PyTorch writes it


class SharedArray:
    """A complete array on the GPU, which PyTorch, CuPy, JAX and other libraries can use without a copy.

    They read it through DLPack (`torch.from_dlpack`) or the CUDA array interface (`cupy.asarray`); `numpy` copies it.
    """

    def __init__(self, device: Device, flat: Any, shape: Sequence[int], dtype: str = "float32",
                 strides: Sequence[int] | None = None):
        """flat: the array on the device, of one axis. dtype: a name in `STORED`. strides: in elements."""
        self.device, self.flat, self.dtype = device, flat, dtype
        self.shape: tuple[int, ...] = tuple(map(int, shape))
        self.strides: tuple[int, ...] = contiguous_strides(self.shape) if strides is None else tuple(strides)

    def __repr__(self) -> str:
        return f"SharedArray({list(self.shape)}, {self.dtype}, on the GPU)"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in the order of the axes, from the start of the flat array on."""
        return self.strides == contiguous_strides(self.shape)

    def reshape(self, *shape: Any) -> SharedArray:
        """Return the elements in another shape, of which one size may be -1; copies them if they are strided."""
        sizes = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        if -1 in sizes:
            sizes[sizes.index(-1)] = self.size // max(1, -math.prod(sizes))
        if math.prod(sizes) != self.size:
            raise ValueError(f"an array of shape {list(self.shape)} cannot have the shape {sizes}")
        return SharedArray(self.device, self.contiguous().flat, sizes, self.dtype)

    def transpose(self, *axes: int) -> SharedArray:
        """Return a view with the axes in another order."""
        return self.view([self.shape[axis] for axis in axes], [self.strides[axis] for axis in axes])

    def broadcast_to(self, shape: Sequence[int]) -> SharedArray:
        """Return a view of a larger shape, by NumPy's rules; raises `ValueError`."""
        missing = len(shape) - self.ndim
        if missing < 0 or any(n not in (1, m) for n, m in zip(self.shape, shape[missing:], strict=True)):
            raise ValueError(f"an array of shape {list(self.shape)} does not broadcast to {list(shape)}")
        strides = [0 if n == 1 else step for n, step in zip(self.shape, self.strides, strict=True)]
        return self.view(shape, [0] * missing + strides)

    def contiguous(self) -> SharedArray:
        """Return the array itself if it is contiguous, else a copy that is."""
        if self.is_contiguous:
            return self
        from .kernels.operations import gather_kernel, number_grid

        device, layout = self.device, np.array([self.shape, self.strides], np.int64)
        with device.turn:
            device.activate()
            copy = device.allocate((self.size,), STORED[self.dtype])
            device.launch(gather_kernel(STORED[self.dtype].name), number_grid(self.size), self.flat,
                          device.upload(layout), copy)
            device.wait()
        return SharedArray(device, copy, self.shape, self.dtype)

    def numpy(self) -> np.ndarray:
        """Return a copy in the memory of the host; bfloat16 becomes float32."""
        source = self.contiguous()
        with self.device.turn:
            self.device.activate()
            copy = self.device.download(source.flat)
        if self.dtype == "bfloat16":
            copy = from_bfloat16(copy)
        return (copy.view(bool) if self.dtype == "bool" else copy).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        itemsize = STORED[self.dtype].itemsize
        return {"version": 3, "shape": self.shape, "typestr": _TYPESTR[self.dtype], "stream": None,
                "data": (self.device.pointer(self.flat), False), "strides": tuple(n * itemsize for n in self.strides)}

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return dlpack.write(self.device.pointer(self.flat), self.__dlpack_device__(), self.dtype, self.shape,
                            self.strides, owner=self.flat)      # it is complete, so no stream has to wait

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.number

    def view(self, shape: Sequence[int], strides: Sequence[int]) -> SharedArray:
        """Return elements of the same memory, with other strides in elements."""
        return SharedArray(self.device, self.flat, shape, self.dtype, strides)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous array of this shape: products of the sizes of later axes."""
    products = list(accumulate(reversed(shape), int.__mul__, initial=1))        # from the last axis to the first
    return tuple(products[:-1])[::-1]


def lies_on_gpu(value: Any) -> bool:
    """Return whether a value is an array of any library that lies on a GPU."""
    if isinstance(value, np.ndarray):       # as nearly always
        return False
    if isinstance(value, SharedArray) or hasattr(value, "__cuda_array_interface__"):
        return True
    find_device = getattr(value, "__dlpack_device__", None)
    return callable(find_device) and find_device()[0] in _GPUS


_GPUS = (dlpack.CUDA, dlpack.CUDA_MANAGED)
"""The DLPack device types of memory that a GPU reads."""


def adopt(device: Device, name: str, value: Any, dtypes: Sequence[str] = ("float32", "bfloat16")) -> SharedArray:
    """Return an array of another library as a `SharedArray`, without a copy; raises `InputError` that names it.

    name: of the argument, for the error. dtypes: the names of the dtypes that it may have.
    """
    device.activate()
    if isinstance(value, SharedArray):
        array, pointer, number = value, 0, value.device.number
        shape, strides, dtype, owner = array.shape, array.strides, array.dtype, value
    elif hasattr(value, "__dlpack_device__"):
        pointer, number, shape, strides, dtype, owner = _from_dlpack(device, name, value)
    else:
        pointer, number, shape, strides, dtype, owner = _from_interface(device, name, value)
    if dtype not in dtypes:
        what = f"{' or '.join(dtypes)} on the GPU, not {dtype}"
        raise InputError(f"{name} must be {what}; convert it there, in PyTorch with {name}.{_CONVERSIONS[dtypes[0]]}")
    if 0 in shape:
        raise InputError(f"{name} has no elements, by its shape {list(shape)}; an array on the GPU must have some")
    if number != device.number:
        raise InputError(f"{name} lies on GPU {number}, and the backend cuda computes on GPU {device.number} in this "
                         f"process; copy it there, in PyTorch with {name}.to('cuda:{device.number}')")
    if isinstance(value, SharedArray):
        return value
    if strides is not None and _is_not_contiguous(shape, strides):
        raise InputError(f"{name} must be contiguous on the GPU, and its strides are {list(strides)} elements for the "
                         f"shape {list(shape)}; copy it, in PyTorch with {name}.contiguous()")
    flat = device.adopt(pointer, math.prod(shape), STORED[dtype], owner)
    return SharedArray(device, flat, shape, dtype)


def place(device: Device, array: np.ndarray) -> SharedArray:
    """Return a copy of a float32 array on the device."""
    with device.turn:
        device.activate()
        flat = device.upload(array.reshape(-1))
    return SharedArray(device, flat, array.shape)


_CONVERSIONS = {"float32": "float()", "bool": "bool()"}
"""The method of a PyTorch tensor that converts it to a dtype."""


def _is_not_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides are not those of a contiguous array; an axis of one element may have any stride."""
    return any(n > 1 and step != full
               for n, step, full in zip(shape, strides, contiguous_strides(shape), strict=True))


def _from_dlpack(device: Device, name: str, value: Any) -> tuple[Any, ...]:
    """Return (pointer, number of the GPU, shape, strides, dtype, owner) of an array with DLPack."""
    number = value.__dlpack_device__()[1]
    try:        # the library lets this stream wait for what computes the array; on another GPU it has no such stream
        capsule = value.__dlpack__(stream=device.stream) if number == device.number else value.__dlpack__()
        owner = dlpack.Imported(capsule)
    except Exception as error:      # libraries have errors of their own for arrays that they do not give away
        raise InputError(f"{name} cannot be read on the GPU: {' '.join(str(error).split())}") from error
    tensor = owner.tensor
    return ((tensor.data or 0) + tensor.byte_offset, number, tensor.sizes, tensor.steps, tensor.dtype, owner)


def _from_interface(device: Device, name: str, value: Any) -> tuple[Any, ...]:
    """Return the tuple of `_from_dlpack` for an array that has the CUDA array interface alone."""
    interface = value.__cuda_array_interface__
    pointer, shape = interface["data"][0] or 0, tuple(interface["shape"])
    dtype = {typestr: known for known, typestr in _TYPESTR.items()}.get(interface["typestr"])
    if dtype is None:
        dtype = str(np.dtype(interface["typestr"]))
    if interface.get("mask") is not None:
        raise InputError(f"{name} must be a plain array on the GPU, and it has a mask, which would be lost")
    number: int | None = device.number
    if 0 not in shape:
        number = device.gpu_of(pointer)
        if number is None:
            raise InputError(f"{name} names the address {pointer:#x}, at which no GPU has memory of this process; "
                             "libraries such as PyTorch share an array of another process by a handle (CUDA IPC)")
    strides = interface.get("strides")
    itemsize = np.dtype(interface["typestr"]).itemsize
    device.wait_for(interface.get("stream"))
    return pointer, number, shape, strides and tuple(step / itemsize for step in strides), dtype, value
