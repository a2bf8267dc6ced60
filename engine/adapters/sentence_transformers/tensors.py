"""Convert tensors of torch to arrays and back. torch is imported only where a call asks for tensors or gives some."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...base.arguments import flag
from ...base.errors import UnsupportedError
from ...heads.sparse import SparseVectors


class Device(str):
    """The name of a device, with the attribute `type` of a `torch.device`."""

    @property
    def type(self) -> str:
        """The kind of the device."""
        return str(self)


def cpu() -> Any:
    """Return the CPU: a `torch.device` if torch has been imported, else a `Device`."""
    torch = imported_torch()
    return Device("cpu") if torch is None else torch.device("cpu")


def imported_torch() -> Any:
    """Return the module torch if the program has imported it, else None."""
    return sys.modules.get("torch")


def import_torch(asked: str) -> Any:
    """Return the module torch; raises `UnsupportedError` without the package. asked: the option, for the message."""
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError(f"{asked} asks for tensors, which need the package torch; install torch, or ask for "
                               "NumPy arrays") from error
    return torch


def read_form(convert_to_numpy: Any, convert_to_tensor: Any) -> tuple[Any, bool]:
    """Return (torch if a call asks for tensors, else None; whether it asks for one tensor in place of a list).

    The arguments are those of `encode` and `predict`. Raises `InputError` and `UnsupportedError`.
    """
    as_tensor = flag("convert_to_tensor", convert_to_tensor)
    if flag("convert_to_numpy", convert_to_numpy) and not as_tensor:
        return None, False
    return import_torch("convert_to_tensor=True" if as_tensor else "convert_to_numpy=False"), as_tensor


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch, or a list or tuple that begins with one."""
    if isinstance(value, (list, tuple)):
        return bool(value) and is_tensor(value[0])
    torch = imported_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def to_tensors(torch: Any, value: Any) -> Any:
    """Return an array as a tensor with memory of its own; the same for arrays in a dictionary or a list."""
    if isinstance(value, dict):
        return {name: torch.tensor(array) for name, array in value.items()}
    return [to_tensors(torch, one) for one in value] if isinstance(value, list) else torch.tensor(value)


def to_array(value: Any) -> Any:
    """Return a dense tensor as a float32 array, a list of tensors as a list of arrays, and other values unchanged.

    A tensor of int8 or uint8, such as vectors in fewer bits, keeps its type.
    """
    if isinstance(value, (list, tuple)):
        return [to_array(one) for one in value]
    if not is_tensor(value):
        return value
    value = value.detach().cpu()
    return value.numpy() if str(value.dtype) in ("torch.int8", "torch.uint8") else value.float().numpy()


def like(result: np.ndarray, *arguments: Any) -> Any:
    """Return a result as a tensor if one of the arguments of the call is one, otherwise as an array."""
    return import_torch("a tensor").from_numpy(result) if any(map(is_tensor, arguments)) else result


def sparse_tensor(torch: Any, vectors: SparseVectors) -> Any:
    """Return sparse vectors as a coalesced sparse tensor of torch, [n, V]."""
    rows = np.repeat(np.arange(len(vectors)), np.diff(vectors.indptr))
    coordinates = torch.from_numpy(np.stack([rows, vectors.indices.astype(np.int64)]))
    values = torch.from_numpy(vectors.values.copy())
    return torch.sparse_coo_tensor(coordinates, values, vectors.shape, check_invariants=False).coalesce()


def to_sparse(value: Any) -> SparseVectors:
    """Return sparse or dense tensors and arrays [n, V] or [V], or a list of these, as `SparseVectors` of n rows."""
    if isinstance(value, SparseVectors):
        return value
    if isinstance(value, (list, tuple)):
        parts = [to_sparse(one) for one in value]
        sizes = [size for part in parts for size in np.diff(part.indptr)]
        return SparseVectors(np.concatenate([np.zeros(0, np.int32), *(part.indices for part in parts)]),
                             np.concatenate([np.zeros(0, np.float32), *(part.values for part in parts)]),
                             np.cumsum([0, *sizes], dtype=np.int64), (len(sizes), parts[0].shape[1] if parts else 0))
    if is_tensor(value) and value.is_sparse:
        value = value if value.ndim == 2 else value.unsqueeze(0)
        value = value.coalesce()
        (rows, columns), values, shape = value.indices().numpy(), value.values().numpy(), tuple(value.shape)
    else:
        dense = np.atleast_2d(np.asarray(to_array(value), np.float32))
        (rows, columns), shape = np.nonzero(dense), dense.shape
        values = dense[rows, columns]
    indptr = np.searchsorted(rows, np.arange(shape[0] + 1)).astype(np.int64)       # `rows` ascend
    return SparseVectors(columns.astype(np.int32), values.astype(np.float32), indptr, shape)
