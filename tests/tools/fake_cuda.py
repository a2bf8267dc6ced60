"""Stand in for the CUDA driver and for cuda.core, in the memory of the host: the unchanged `Gpu` runs without a GPU.

`install` puts both under their names. Allocations and copies are real. A launch reads the words of its arguments as a
kernel's code does, and runs the kernel in the emulator.
"""

import ctypes
import sys
from enum import IntEnum
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np

from engine.backends.numba_cuda.kernel import Kernel
from engine.backends.numba_cuda.toolchain import ArrayType

from .cuda_emulator import launch as emulate


class Status(IntEnum):
    """Some results of the driver's calls."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100


class Driver(ModuleType):
    """The functions of `cuda.bindings.driver` that the backend calls, on a machine as it is asked for."""

    CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=0,
                                         CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=1)
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="number")
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared")

    def __init__(self, version=13_000, capability=(8, 0), devices=1, memory=1 << 30):
        super().__init__("cuda.bindings.driver")
        self.version, self.capability, self.devices, self.free = version, capability, devices, memory
        self.memory = memory
        self.held, self.attributes, self.contexts, self.waited = {}, [], ["primary"], []

    def cuDriverGetVersion(self):  # noqa: N802
        if self.version is None:
            raise RuntimeError("libcuda.so.1\n  is missing")
        return Status.CUDA_SUCCESS, self.version

    def cuInit(self, flags):  # noqa: N802
        return (Status.CUDA_SUCCESS if self.devices else Status.CUDA_ERROR_NO_DEVICE,)

    def cuDeviceGet(self, number):  # noqa: N802
        return Status.CUDA_SUCCESS, number

    def cuDeviceGetName(self, length, device):  # noqa: N802
        return Status.CUDA_SUCCESS, b"A GPU\0\0\0"

    def cuDeviceGetAttribute(self, attribute, device):  # noqa: N802
        return Status.CUDA_SUCCESS, self.capability[attribute]

    def cuCtxGetCurrent(self):  # noqa: N802
        return Status.CUDA_SUCCESS, self.contexts[-1]

    def cuCtxGetDevice(self):  # noqa: N802
        return Status.CUDA_SUCCESS, 0

    def cuCtxPushCurrent(self, context):  # noqa: N802
        self.contexts.append(context)
        return (Status.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self):  # noqa: N802
        return Status.CUDA_SUCCESS, self.contexts.pop()

    def cuMemGetInfo(self):  # noqa: N802
        return Status.CUDA_SUCCESS, self.free, self.memory

    def cuMemAlloc(self, size):  # noqa: N802
        if size > self.free:
            return Status.CUDA_ERROR_OUT_OF_MEMORY, 0
        array = np.full(size + 256, 0xFF, np.uint8)
        pointer = -(-array.ctypes.data // 256) * 256
        self.held[pointer] = array, size
        self.free -= size
        return Status.CUDA_SUCCESS, pointer

    def cuMemFree(self, pointer):  # noqa: N802
        assert self.contexts[-1] == "primary"
        self.free += self.held.pop(int(pointer))[1]
        return (Status.CUDA_SUCCESS,)

    cuMemAllocHost, cuMemFreeHost = cuMemAlloc, cuMemFree  # noqa: N815

    def cuMemcpyHtoDAsync(self, target, source, size, stream):  # noqa: N802
        assert stream == Stream.handle
        ctypes.memmove(int(target), int(source), size)
        return (Status.CUDA_SUCCESS,)

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync  # noqa: N815

    def cuPointerGetAttribute(self, attribute, pointer):  # noqa: N802
        known = any(start <= pointer < start + size for start, (_, size) in self.held.items())
        return (Status.CUDA_SUCCESS, 0) if known else (Status.CUDA_ERROR_INVALID_VALUE, None)

    def cuStreamSynchronize(self, stream):  # noqa: N802
        self.waited.append(stream)
        return (Status.CUDA_SUCCESS,)

    def cuCtxSynchronize(self):  # noqa: N802
        return self.cuStreamSynchronize("all")

    def cuKernelSetAttribute(self, attribute, value, kernel, device):  # noqa: N802
        self.attributes.append((attribute, value, kernel))
        return (Status.CUDA_SUCCESS,)


class Stream:
    """A stream that does all work at once, and its own builder of graphs."""

    handle = 77

    def __init__(self, log):
        self.log, self.recording = log, None

    def record(self):
        return SimpleNamespace(sync=lambda: self.log.append("wait"))

    def create_graph_builder(self):
        return self

    def begin_building(self):
        self.recording = []
        return self

    def end_building(self):
        self.launches, self.recording = self.recording, None

    def complete(self):
        launches = self.launches
        return SimpleNamespace(launch=lambda stream: [work() for work in launches])


class Core(ModuleType):
    """The parts of `cuda.core` that the backend uses; `log` lists the launches, with their configurations."""

    def __init__(self, driver, kernels):
        super().__init__("cuda.core")
        self.driver, self.kernels, self.log = driver, kernels, []
        self.LaunchConfig = lambda **options: SimpleNamespace(**options)
        self.ObjectCode = SimpleNamespace(from_cubin=self._code("cubin"), from_ptx=self._code("ptx"))

    def Device(self):  # noqa: N802
        return SimpleNamespace(
            name="A GPU", device_id=0, compute_capability=self.driver.capability,
            set_current=lambda: self.log.append("current"),
            properties=SimpleNamespace(multiprocessor_count=1), create_stream=lambda: Stream(self.log))

    def _code(self, kind):
        def make(content, name):
            def get_kernel(entry):
                if content == b"refused":
                    raise RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU")
                return SimpleNamespace(name=name, entry=entry, content=content, kind=kind, handle=f"handle of {name}")

            return SimpleNamespace(get_kernel=get_kernel)

        return make

    def launch(self, stream, config, loaded, *words):
        self.log.append((loaded, config, words))
        if self.kernels is None:
            return
        kernel = self.kernels[loaded.name]
        work = lambda: emulate(kernel, config.grid, *arguments_of(kernel, words))   # noqa: E731
        work() if stream.recording is None else stream.recording.append(work)


def arguments_of(kernel: Kernel, words):
    """Return the arrays and numbers of a launch, from the words that the code of the kernel takes."""
    found, rest = [], list(words)
    for kind in kernel.signature:
        if not isinstance(kind, ArrayType):
            found.append(kind.numpy.type(rest.pop(0).value))
            continue
        owner, parent, size, itemsize, pointer, *shape = rest[: 5 + kind.ndim]
        strides = rest[5 + kind.ndim : 5 + 2 * kind.ndim]
        del rest[: 5 + 2 * kind.ndim]
        dtype = kind.dtype.numpy
        array = np.frombuffer((ctypes.c_char * (size * itemsize)).from_address(pointer), dtype).reshape(shape)
        assert (owner, parent, itemsize, tuple(strides)) == (0, 0, dtype.itemsize, array.strides)
        found.append(array)
    assert not rest
    return found


def install(put=sys.modules.__setitem__, kernels=None, bindings="13.0.0", **machine):
    """Put the stand-ins under their names with `put(name, module)`, and return them.

    kernels: those that may be launched, by their names; None if no launch shall run.
    """
    driver = Driver(**machine)
    core = Core(driver, kernels)
    package, bound = ModuleType("cuda"), ModuleType("cuda.bindings")
    package.__path__, package.bindings, package.core = [], bound, core
    bound.__path__, bound.driver, bound.__version__ = [], driver, bindings
    for module in (package, bound, driver, core):
        module.__spec__ = ModuleSpec(module.__name__, None)
        put(module.__name__, module)
    return driver, core
