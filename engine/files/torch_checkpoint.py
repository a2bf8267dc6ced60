"""Read the tensors of a file of `torch.save`, such as pytorch_model.bin, without torch.

There are two formats. Both hold one pickle, in which a tensor is a call of `torch._utils._rebuild_tensor_v2` on a part
of a storage; `torch_pickle.py` reads it.

    since torch 1.6   a zip archive: ROOT/data.pkl, ROOT/byteorder, ROOT/version, and ROOT/data/KEY for each storage
    before            pickles of a magic number, 1001, a description of the system, the value, and a list of keys; then
                      the number of elements, in 8 bytes, and the elements of each storage
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import shown
from .reading import FormatError, map_file, naming, read_only, wanted_names
from .torch_pickle import MAX_PICKLE, Function, read_pickle
from .zip import check_inflation, list_members, read_member

_STORAGES = {
    "Double": "<f8", "Float": "<f4", "Half": "<f2", "BFloat16": "<u2", "Long": "<i8", "Int": "<i4", "Short": "<i2",
    "Char": "|i1", "Byte": "|u1", "Bool": "|b1", "ComplexFloat": "<c8", "ComplexDouble": "<c16", "Untyped": "|u1",
}
"""The NumPy dtype of the elements of each kind of storage; bfloat16 is read as its bits."""
_READABLE = ("Double", "Float", "Half", "BFloat16")
"""The kinds of storages whose tensors are read."""
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""The dtypes of torch that a pickle may name."""
_WRAPPERS = ("state_dict", "model")
"""Keys under which training scripts keep the state dict beside other objects."""
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001        # the first two values of the older format
_MAX_DIMENSIONS = 8
_MAX_SIZE = 2**48
"""Limit on the elements of a storage, and on the sizes, strides and offset of a tensor."""
_FREE_COPIES, _MAX_COPIES = 2**26, 4
"""Bytes of converted tensors that are always allowed, and the limit on all of them, in bytes per byte of the file."""


@dataclass(frozen=True)
class _Storage:
    """A storage, whose elements one or more tensors share: its key in the file, a key of `_STORAGES`, its elements."""

    key: str
    kind: str
    size: int
    """The number of elements."""


@dataclass(frozen=True)
class _Tensor:
    """A part of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _StorageType:
    """A class of storages that a pickle names, such as torch.FloatStorage."""

    name: str       # a key of `_STORAGES`


_Contents: TypeAlias = Callable[[_Storage], memoryview]
"""The type of a function that returns the bytes of a storage."""


def read_checkpoint(path: str | os.PathLike[str], rename: Callable[[str], str | None] = str, *,
                    keep_float16: bool = False, memory: str = "map") -> dict[str, np.ndarray]:
    """Return the tensors of a file of `torch.save` as read-only arrays, by the names that `rename` returns for them.

    The file holds a state dict, or a dictionary that has one under "state_dict" or "model"; values that are no tensors
    are left out. Nothing in the file is called or imported. For the rest, see `read_safetensors`: a tensor whose new
    name is None is not read, dtypes are kept or converted in the same way, and contiguous tensors that keep their
    dtype are views of one memory map. Raises `WeightsError`.
    """
    path = Path(path)
    with naming(path, _advice(path)):
        data = map_file(path, memory)
        value, contents = (_open_archive if data[:2] == b"PK" else _open_legacy)(data)
        tensors = _tensors(value)
        arrays, copied, allowed = {}, 0, max(_FREE_COPIES, _MAX_COPIES * len(data))
        for name, old in wanted_names(tensors, rename).items():
            storage = tensors[old].storage
            view = _view(name, tensors[old], contents(storage))
            kept = storage.kind == "BFloat16" or (storage.kind == "Half" and keep_float16)
            dtype = np.dtype(_STORAGES[storage.kind]).newbyteorder("=") if kept else np.dtype(np.float32)
            if view.dtype != dtype or not (view.flags.c_contiguous and view.flags.aligned):
                copied += view.size * dtype.itemsize
                if copied > allowed:
                    raise FormatError(f"its tensors take more than {allowed:,} bytes, more than weights in a file of "
                                      f"{len(data):,} bytes can hold")
            arrays[name] = read_only(view, kept)
        return arrays


def _advice(path: Path) -> str:
    """Return the advice at the end of a message about a wrong file; only a part of a model has a .pt file."""
    ways = ("torch.save(model.state_dict(), 'pytorch_model.bin'), or as safetensors with model.save_pretrained(folder)"
            if path.suffix != ".pt" else f"torch.save(part.state_dict(), {shown(path.name)})")
    return f"where torch is installed, save the weights alone with {ways}; or copy the file again from its source"


def _open_archive(data: mmap) -> tuple[Any, _Contents]:
    """Return the value of the pickle in a zip archive, and a function that returns the bytes of a storage."""
    members = {member.name: member for member in list_members(data)}
    check_inflation(data, members.values())
    # the folder in the archive, with "/" at its end, which torch names after the file
    roots = [name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl")]
    if len(roots) != 1 or f"{roots[0]}constants.pkl" in members:
        raise FormatError("expected one data.pkl of torch.save in the archive; "
                          f"found {'a TorchScript program' if roots else 'none'}")
    [root] = roots
    order = members.get(f"{root}byteorder")
    if order is not None and bytes(read_member(data, order)) != b"little":
        raise FormatError("it was written on a big-endian machine, which is not supported")
    if members[f"{root}data.pkl"].size > MAX_PICKLE:
        raise FormatError(f"its data.pkl has more than {MAX_PICKLE:,} bytes")
    cached: dict[str, memoryview] = {}

    def contents(storage: _Storage) -> memoryview:
        """Return the bytes of a storage, which are read and checked once."""
        if storage.key not in cached:
            member = members.get(f"{root}data/{storage.key}")
            if member is None:
                raise FormatError(f"the archive lacks the storage {shown(storage.key)}")
            _check_size(storage, member.size)
            cached[storage.key] = read_member(data, member)
        return cached[storage.key]

    value, _ = read_pickle(read_member(data, members[f"{root}data.pkl"]), _NAMES, _Storages().find)
    return value, contents


def _open_legacy(data: mmap) -> tuple[Any, _Contents]:
    """Return the value of the main pickle of an older file, and a function that returns the bytes of a storage."""
    rest = memoryview(data)     # the bytes that are not read yet
    storages = _Storages()
    try:
        magic, size = read_pickle(rest[:64], {})
    except FormatError:
        magic, size = None, 0
    if type(magic) is not int or magic != _MAGIC:
        raise FormatError("it is no file of torch.save: it starts neither as a zip archive nor as the older format")
    values = []         # the values of four pickles; only the third one, the state dict, names storages
    for persistent in (None, None, storages.find, None):
        rest = rest[size:]
        value, size = read_pickle(rest, _NAMES, persistent)
        values.append(value)
    protocol, system, value, keys = values
    if type(protocol) is not int or protocol != _PROTOCOL or type(system) is not dict:
        raise FormatError("it has an unknown version of the older format of torch.save")
    if system.get("little_endian") is not True:
        raise FormatError("it was written on a big-endian machine, which is not supported")
    if type(keys) is not list or not all(type(key) is str for key in keys) or sorted(keys) != sorted(storages.known):
        raise FormatError("its list of storages does not fit its tensors")
    rest, contents = rest[size:], {}
    for key in keys:
        storage = storages.known[key]
        _check_size(storage, int.from_bytes(rest[:8], "little") * _itemsize(storage))
        end = 8 + storage.size * _itemsize(storage)
        if end > len(rest):
            raise FormatError("the file is cut short")
        contents[key], rest = rest[8:end], rest[end:]
    if len(rest):
        raise FormatError(f"{len(rest):,} bytes follow its last storage")
    return value, lambda storage: contents[storage.key]


class _Storages:
    """The storages that a pickle has named so far, by persistent ids."""

    def __init__(self) -> None:
        self.known: dict[str, _Storage] = {}        # by key

    def find(self, identifier: Any) -> _Storage:
        """Return the storage of a persistent id: ("storage", kind, key, device, size), and None in the older format."""
        match identifier:
            case ("storage", _StorageType(kind), str(key), str(), int(size)) if 0 <= size < _MAX_SIZE:
                pass
            case ("storage", _StorageType(kind), str(key), str(), int(size), None) if 0 <= size < _MAX_SIZE:
                pass
            case _:
                raise FormatError("the pickle has a persistent id that names no storage")
        storage = _Storage(key, kind, size)
        if self.known.setdefault(key, storage) != storage:
            raise FormatError(f"the storage {shown(key)} has two kinds or two sizes")
        return storage


def _check_size(storage: _Storage, size: int) -> None:
    """Raise `FormatError` unless a storage has this number of bytes in the file."""
    if size != storage.size * _itemsize(storage):
        raise FormatError(f"the storage {shown(storage.key)} has {size:,} bytes, which is not {storage.size:,} "
                          f"elements of {storage.kind}")


def _itemsize(storage: _Storage) -> int:
    """Return the bytes of an element of a storage."""
    return np.dtype(_STORAGES[storage.kind]).itemsize


def _rebuild_tensor(arguments: tuple[Any, ...]) -> _Tensor:
    """Return the tensor that a call of `torch._utils._rebuild_tensor_v2` makes; raises `FormatError`.

    arguments: storage, offset, shape, strides, whether gradients are needed, hooks, and perhaps metadata.
    """
    match arguments:
        case (_Storage() as storage, int(offset), tuple(shape), tuple(strides), bool(), dict(), *metadata):
            numbers = [offset, *shape, *strides]
            if (len(shape) == len(strides) <= _MAX_DIMENSIONS and not any(metadata) and len(metadata) <= 1
                    and all(type(n) is int and 0 <= n < _MAX_SIZE for n in numbers)):
                return _Tensor(storage, offset, shape, strides)
    raise FormatError("the pickle has a tensor that torch.save does not write for weights")


def _rebuild_parameter(arguments: tuple[Any, ...]) -> _Tensor:
    """Return the tensor of a parameter. arguments: tensor, whether gradients are needed, hooks."""
    match arguments:
        case (_Tensor() as tensor, bool(), dict()):
            return tensor
    raise FormatError("the pickle has a parameter that is no tensor")


def _ordered_dict(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Return an empty dict for a call of `OrderedDict()`; later instructions of the pickle fill it."""
    if arguments:
        raise FormatError("the pickle makes a dictionary in a way in which torch.save does not")
    return {}


def _size(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the tuple that a call of `torch.Size(shape)` gets."""
    match arguments:
        case (tuple(shape),):
            return shape
    raise FormatError("the pickle has a torch.Size that is no tuple")


_NAMES: dict[str, Any] = {
    "collections.OrderedDict": Function(_ordered_dict),
    "torch._utils._rebuild_tensor_v2": Function(_rebuild_tensor),
    "torch._utils._rebuild_parameter": Function(_rebuild_parameter),
    "torch.Size": Function(_size),
    "torch.storage.UntypedStorage": _StorageType("Untyped"),
    **{f"torch.{kind}Storage": _StorageType(kind) for kind in _STORAGES},
    **{f"torch.{name}": name for name in _DTYPES},
}
"""All names that a pickle may use, by their dotted paths: functions that build plain values, types and dtypes."""


def _tensors(value: Any) -> dict[str, _Tensor]:
    """Return the tensors, by name, of a state dict, or of one that a training script saved inside a dictionary."""
    for key in _WRAPPERS:
        if type(value) is dict and type(value.get(key)) is dict:
            value = value[key]
            break
    if type(value) is not dict:
        raise FormatError(f"it holds no state dict, which maps names to tensors, but {type(value).__name__}")
    tensors = {name: one for name, one in value.items() if type(name) is str and isinstance(one, _Tensor)}
    if not tensors:
        raise FormatError("its state dict has no tensors; expected names and tensors, at the top or under one of the "
                          f"keys {', '.join(_WRAPPERS)}")
    return tensors


def _view(name: str, tensor: _Tensor, contents: memoryview) -> np.ndarray:
    """Return a tensor as a view of its storage's bytes, with the strides that it was saved with."""
    storage, shape, strides = tensor.storage, tensor.shape, tensor.strides
    if storage.kind not in _READABLE:
        raise FormatError(f"tensor {shown(name)} has the kind {storage.kind}; expected {', '.join(_READABLE)}")
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if 0 in shape:
        raise FormatError(f"tensor {shown(name)} is empty, shape {list(shape)}")
    if last >= storage.size or math.prod(shape) > storage.size:
        raise FormatError(f"tensor {shown(name)} of shape {list(shape)} and strides {list(strides)} does not lie in "
                          f"its storage of {storage.size:,} elements")
    flat = np.frombuffer(contents, _STORAGES[storage.kind])[tensor.offset:last + 1]
    dense = [math.prod(shape[i + 1:]) for i in range(len(shape))]       # the strides of a C-contiguous tensor
    if all(n == 1 or stride == step for n, stride, step in zip(shape, strides, dense, strict=True)):
        return flat.reshape(shape)
    steps = [stride * flat.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)
