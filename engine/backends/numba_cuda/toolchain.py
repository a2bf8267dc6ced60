"""Provide the names that kernels are written with, without a compiler: `cuda`, `types`, `ir`, kinds of functions.

A kernel is a Python function that looks up these names. `compiler.py` exchanges them for those of numba-cuda, the
emulator of the tests for its own, and a process that launches stored kernels needs neither of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import CellType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from ..global_names import global_names

__all__ = ["ArrayType", "DeviceFunction", "PtxFunction", "ScalarType", "TupleType", "cuda", "device_function", "ir",
           "rebuilt", "types"]


class ScalarType:
    """The type of a number. Kernels also call it to convert a number; in Python the result is a NumPy scalar."""

    def __init__(self, name: str):
        self.name = name
        self.numpy = np.dtype("bool" if name == "boolean" else name)

    def __call__(self, value: Any) -> Any:
        return self.numpy.type(value)

    def __getitem__(self, dimensions: Any) -> ArrayType:
        """Return the type of a C-contiguous array: `kind[::1]` of one dimension, `kind[:, ::1]` of two."""
        slices = dimensions if isinstance(dimensions, tuple) else (dimensions,)
        if slices != (slice(None),) * (len(slices) - 1) + (slice(None, None, 1),):
            raise ValueError(f"kernels take arrays without gaps, {self.name}[::1] or {self.name}[:, ::1]; got {slices}")
        return ArrayType(self, len(slices))

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ArrayType:
    """The type of an array without gaps, as an argument of a kernel."""

    dtype: ScalarType
    ndim: int

    def __repr__(self) -> str:
        return f"{self.dtype}[{':, ' * (self.ndim - 1)}::1]"


@dataclass(frozen=True)
class TupleType:
    """The type of several results of one type."""

    kind: ScalarType
    count: int


types: Any = SimpleNamespace(
    **{name: ScalarType(name) for name in ("boolean", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
                                           "uint64", "float32", "float64")},
    Array="any array", UniTuple=TupleType, void="nothing")
"""The types of kernels, by Numba's names; `Array` stands for any array, and `void` for no result."""


class _Cuda:
    """Stands for `numba.cuda` in the source of kernels, where it is looked up in compiled or emulated code only."""

    def __repr__(self) -> str:
        return "the cuda of kernels, which only compiled and emulated code has"


class _Module:
    """A module that is imported when it is first used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


cuda: Any = _Cuda()
ir: Any = _Module("llvmlite.ir")
"""LLVM's code, which only the compiler writes."""


@dataclass(frozen=True, eq=False)
class DeviceFunction:
    """A function that kernels call, compiled as a part of them."""

    py_func: Callable[..., Any]


device_function: Any = DeviceFunction
"""Decorator of a function that kernels call."""


@dataclass(frozen=True, eq=False)
class PtxFunction:
    """A function that kernels call, whose code we write ourselves."""

    result: Any
    arguments: Sequence[Any]
    """Types; `types.Array` accepts any array."""
    generate: Callable[..., Any]
    """Emits LLVM code, as a code generator of Numba's: (context, builder, signature, values)."""
    in_python: Callable[..., Any]
    """The function that the emulator runs in its place."""


def rebuilt(function: Callable[..., Any], exchange: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a copy of a function whose globals and closure variables are replaced by `exchange` of their values."""
    names = {name: exchange(function.__globals__[name]) for name in global_names(function.__code__)
             if name in function.__globals__}
    cells = tuple(CellType(exchange(cell.cell_contents)) for cell in function.__closure__ or ())
    made = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__,
                        function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made
