"""Read `.safetensors` files: 8 bytes with the length of a JSON header, the header, then the data of all tensors.

    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}

Offsets count from the end of the header. The limits of the format are enforced: the header starts with `{`, no name
occurs twice, and the tensors cover the data without a hole or an overlap. The header has at most 8 MB, room for 70,000
tensors; the format allows 100 MB, which would take up to 3 GB of memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import shown
from .reading import MAX_JSON, FormatError, map_file, naming, parse_object, read_only, wanted_names

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}
# The NumPy dtypes of the types that are read: numbers, and on request integers.
_READABLE = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}
_INTEGERS = {"I8": "<i1", "U8": "<u1", "I16": "<i2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8"}
_MAX_DIMENSIONS = 8
_ADVICE = "copy the file again from its source, or save the model again as safetensors"


@dataclass(frozen=True)
class _Tensor:
    """The entry of a tensor in the header."""

    name: str
    dtype: str
    """The name of its type, a key of `_BITS`."""
    shape: tuple[int, ...]
    begin: int
    """The offset of its first byte after the header."""
    end: int
    """The offset after its last byte."""


def read_safetensors(path: str | os.PathLike[str], rename: Callable[[str], str | None] = str, *,
                     keep_float16: bool = False, memory: str = "map", keep_integers: bool = False
                     ) -> dict[str, np.ndarray]:
    """Return the tensors of a file as read-only arrays, under the names that `rename` returns for them.

    A tensor whose new name is None is neither read nor converted, whatever its dtype. F32 and BF16 tensors, and F16
    tensors with keep_float16, are views of one memory map, or with memory="copy" of private memory; a BF16 tensor is
    returned as its bits in uint16. F16 is otherwise converted to float32 exactly, and F64 is rounded to float32. With
    keep_integers, tensors of integers keep their dtype, except U16, which is refused because uint16 stands for BF16
    here. Raises `WeightsError` for a file that breaks the format, for any other dtype, and for two tensors with the
    same new name.
    """
    path = Path(path)
    with naming(path, _ADVICE):
        data = map_file(path, memory)
        tensors, start = _read_header(data)
        by_name = {tensor.name: tensor for tensor in tensors}
        return {name: _read_tensor(data, start, by_name[old], keep_float16, keep_integers)
                for name, old in wanted_names(by_name, rename).items()}


def _read_header(data: mmap) -> tuple[list[_Tensor], int]:
    """Return all tensors in order of position, and the offset at which their data starts."""
    if len(data) < 8:
        raise FormatError("the file is too short to be a safetensors file")
    length = int.from_bytes(data[:8], "little")
    start = 8 + length
    if length > MAX_JSON or start > len(data):
        raise FormatError(f"the header claims {length:,} bytes; the file has {len(data) - 8:,}, and at most "
                          f"{MAX_JSON:,} are allowed")
    if data[8:9] != b"{":
        raise FormatError("the header does not start with '{': not a safetensors file")
    header = parse_object(data[8:start])
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError("__metadata__ must map text to text")
    tensors = sorted((_parse_tensor(name, entry) for name, entry in header.items()), key=lambda t: (t.begin, t.end))
    end = 0     # of the tensors so far, counted from the start of the data
    for tensor in tensors:
        if tensor.begin != end:
            raise FormatError(f"tensor {shown(tensor.name)} starts at {tensor.begin:,}, which leaves a hole or an "
                              f"overlap at {end:,}")
        end = tensor.end
    if end != len(data) - start:
        raise FormatError(f"the tensors take {end:,} bytes but {len(data) - start:,} follow the header")
    return tensors, start


def _parse_tensor(name: str, entry: Any) -> _Tensor:
    """Return the entry of a tensor in the header; raises `FormatError`."""
    if not name.isprintable():
        raise FormatError(f"the tensor name {name[:80]!r} is not printable")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"tensor {shown(name)} must have dtype, shape and data_offsets and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise FormatError(f"tensor {shown(name)} has the unknown dtype {shown(dtype)}")
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise FormatError(f"tensor {shown(name)} has the impossible shape {shown(shape)}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(f"tensor {shown(name)} has the impossible data_offsets {shown(offsets)}")
    begin, end = offsets
    if math.prod(shape) * _BITS[dtype] != 8 * (end - begin):
        raise FormatError(f"tensor {shown(name)} has {end - begin:,} bytes, which is not shape {shape} of {dtype}")
    return _Tensor(name, dtype, tuple(shape), begin, end)


def _are_sizes(values: Any) -> bool:
    """Return whether a value of the header is a list of integers that a size or an offset can have."""
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 2**63 for n in values)


def _read_tensor(data: mmap, start: int, tensor: _Tensor, keep_float16: bool, keep_integers: bool) -> np.ndarray:
    """Return the tensor read-only: a view of the map when it is aligned and keeps its dtype, otherwise a copy."""
    readable = _READABLE | (_INTEGERS if keep_integers else {})
    if tensor.dtype not in readable:
        raise FormatError(f"tensor {shown(tensor.name)} has dtype {tensor.dtype}; expected {', '.join(readable)}")
    if tensor.begin == tensor.end:
        raise FormatError(f"tensor {shown(tensor.name)} is empty, shape {list(tensor.shape)}")
    flat = np.frombuffer(data, readable[tensor.dtype], math.prod(tensor.shape), start + tensor.begin)
    return read_only(flat.reshape(tensor.shape),
                     kept=tensor.dtype in ("BF16", *_INTEGERS) or (tensor.dtype == "F16" and keep_float16))
