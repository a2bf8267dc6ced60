"""Test arrays on the GPU: their views, and what other libraries read of them."""

import gc
import weakref

import numpy as np
import pytest

from engine.backends.numba_cuda import dlpack
from engine.backends.numba_cuda.shared_array import SharedArray, adopt, lies_on_gpu

from ...tools.emulated_device import EmulatedDevice
from ...tools.gpu_arrays import DlpackArray, HostCapsule, InterfaceArray

DEVICE = EmulatedDevice()


def shared(array, dtype="float32"):
    return SharedArray(DEVICE, array.reshape(-1), array.shape, dtype)


numbers = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_views():
    array = shared(numbers)
    assert (array.ndim, array.size, len(array)) == (3, 24, 2)
    turned = array.transpose(2, 0, 1)
    assert not turned.is_contiguous
    assert np.array_equal(turned.numpy(), numbers.transpose(2, 0, 1))
    assert np.array_equal(turned.reshape(4, -1).numpy(), numbers.transpose(2, 0, 1).reshape(4, 6))
    assert array.reshape((6, 4)).flat is array.flat
    spread = shared(numbers[:, :1]).broadcast_to((5, 2, 3, 4))
    assert np.array_equal(spread.numpy(), np.broadcast_to(numbers[:, :1], (5, 2, 3, 4)))
    with pytest.raises(ValueError, match=r"shape \[2, 3, 4\] does not broadcast to \[3, 4\]"):
        array.broadcast_to((3, 4))
    with pytest.raises(ValueError, match=r"cannot have the shape \[5, 5\]"):
        array.reshape(5, 5)
    with pytest.raises(TypeError, match="without axes"):
        len(shared(np.ones((), np.float32)))
    assert repr(array) == "SharedArray([2, 3, 4], float32, on the GPU)"


def test_numbers_of_every_dtype():
    bits = np.array([0x3F80, 0xC000], np.uint16)
    assert np.array_equal(shared(bits, "bfloat16").numpy(), np.array([1, -2], np.float32))
    assert shared(np.array([1, 0], np.uint8), "bool").numpy().tolist() == [True, False]


def test_other_libraries_read_it():
    turned = shared(numbers).transpose(2, 0, 1)
    interface = turned.__cuda_array_interface__
    assert (interface["shape"], interface["strides"], interface["typestr"]) == ((4, 2, 3), (4, 48, 16), "<f4")
    assert interface["data"] == (numbers.ctypes.data, False)
    assert turned.__dlpack_device__() == (2, 0)
    assert np.array_equal(np.from_dlpack(HostCapsule(turned)), numbers.transpose(2, 0, 1))
    for given in (turned, shared(np.ones(2, np.uint16), "bfloat16")):
        again = adopt(DEVICE, "x", DlpackArray(np.ascontiguousarray(given.flat)))
        assert again.dtype == given.dtype
        assert np.array_equal(again.flat, given.flat)


def test_memory_lives_as_long_as_its_reader():
    """The memory of a capsule is freed with the array that was read from it, or with a capsule that no one reads."""
    class Owner(np.ndarray):
        pass

    for read in (True, False):
        array = np.ones(3, np.float32).view(Owner)
        gone = weakref.ref(array)
        capsule = dlpack.write(array.ctypes.data, (2, 0), "float32", (3,), (1,), owner=array)
        taken = dlpack.Imported(capsule) if read else None
        del array
        assert gone() is not None
        if taken is not None:
            assert (taken.tensor.sizes, taken.tensor.steps, taken.tensor.dtype) == ((3,), (1,), "float32")
            with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
                dlpack.Imported(capsule)
        del capsule, taken
        gc.collect()
        assert gone() is None


def test_what_lies_on_a_gpu():
    assert lies_on_gpu(shared(numbers))
    assert lies_on_gpu(InterfaceArray(numbers))
    assert lies_on_gpu(DlpackArray(numbers))
    assert not lies_on_gpu(numbers)
    assert not lies_on_gpu(HostCapsule(shared(numbers)))
    assert not lies_on_gpu([1.0])
