"""Call a function of a kernel table alone, through ctypes, with the types that table.pxd states."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from engine.backends.cpu.native.layout import PRODUCT_PLACES, STRUCTS, ctype, structures, table_in
from engine.backends.cpu.native.native import Kernels

FAR = 2**40


def function(kernels: Kernels, name: str, product: str = "") -> Callable[..., Any]:
    """Return a function of the kernel table, or of its product of this name.

    Arrays and structs are given as their addresses.
    """
    row = _row(kernels, product)
    member = next(member for member in STRUCTS[type(row).__name__] if member.name == name)
    called = ctypes.CFUNCTYPE(ctype(member.type), *map(ctype, member.arguments or ()))(getattr(row, name))
    return lambda *arguments: called(*map(_address, arguments))


def _row(kernels: Kernels, product: str) -> Any:
    table = table_in(kernels.capsule)
    return table.products[PRODUCT_PLACES[product]] if product else table


@contextmanager
def ready(kernels: Kernels, product: str) -> Iterator[None]:
    """Make this thread ready for the functions of a product inside of the block."""
    begins = _row(kernels, product).begin is not None
    if begins:
        function(kernels, "begin", product)()
    yield
    if begins:
        function(kernels, "end", product)()


def _address(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    return ctypes.addressof(value) if isinstance(value, ctypes.Structure) else value


def struct(name: str, **fields: Any) -> ctypes.Structure:
    """Return a struct of table.pxd with these fields, the others 0; its arrays must outlive it."""
    return structures()[name](**{field: _address(value) for field, value in fields.items()})


def stride(x: np.ndarray, axis: int = 0) -> int:
    """Return the numbers from one row of x to the next, or the same of another axis."""
    return x.strides[axis] // x.itemsize


def attention_call(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, low: int = -FAR, high: int = FAR,
                   bias: np.ndarray | None = None, mask: np.ndarray | None = None, **fields: Any) -> ctypes.Structure:
    """Return an `Attention` of one head: q [T,d], k [S,d], v [S,e], and the bias and the mask [T,S]."""
    arrays = {"q": q, "k": k, "v": v}
    fields |= arrays | {f"{name}_stride": stride(x) for name, x in arrays.items()}
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None:
            fields |= {name: x, f"{name}_t": stride(x), f"{name}_s": stride(x, 1)}
    sizes = {"T": len(q), "S": len(k), "d": q.shape[1], "e": v.shape[1]}
    return struct("Attention", **sizes, scale=scale, low=low, high=high, **fields)
