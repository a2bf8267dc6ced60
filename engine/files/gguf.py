"""Read GGUF files, in which llama.cpp keeps a language model: its settings, its tokenizer and its tensors.

    "GGUF", version, number of tensors, number of settings
    settings: key, type, value; a list is the type of its elements, their number, and the elements
    for each tensor: name, number of dimensions, sizes (the innermost first), type, offset
    the data of the tensors, each at a multiple of general.alignment

Integers are little-endian, lengths have 64 bits, and texts have a length in front. The layout follows docs/gguf.md of
ggml. As in llama.cpp, tensors must lie in the order of their list without holes.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import WeightsError, shown
from .cursor import Cursor
from .gguf_blocks import KEPT, TYPES, BlockType, dequantize, keep
from .gguf_parts import check_parts, part_paths
from .reading import FormatError, map_file, naming, read_only, wanted_names, within

_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8",
            12: "<f8"}
"""The dtype of each type of setting that is a number; type 7 is a Boolean in a byte."""
_BOOLEAN, _TEXT, _LIST = 7, 8, 9        # types of settings
_PLAIN = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}        # types of tensors that have no blocks
_MAX_SETTINGS, _MAX_TENSORS = 10_000, 100_000
"""Limits on the numbers of settings and of tensors, far above those of real files, as are the limits below."""
_MAX_TEXTS = 1_000_000
"""Limit on the texts in all lists of a file; the largest tokenizers have 262,000 tokens and as many merges again."""
_MAX_TEXT = 8_000_000
"""Limit on the bytes of one text, such as a template."""
_MAX_NAME = 1000
"""Limit on the bytes of the name of a tensor or a setting."""
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 2**16
_ADVICE = "copy the file again from its source, or convert the model again with llama.cpp"


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a file: its type, its shape and the place of its bytes, which are read on demand."""

    kind: BlockType
    shape: tuple[int, ...]
    """The outermost size first, as in NumPy."""
    begin: int
    """The offset of its first byte in the file; while the list of tensors is read, in the data of all tensors."""
    end: int
    """The offset after its last byte, counted in the same way."""


@dataclass(frozen=True)
class _Split:
    """One of the files of a model, mapped, with its settings and its list of tensors."""

    path: Path
    data: mmap
    settings: dict[str, Any]
    tensors: dict[str, _Tensor]

    @classmethod
    def open(cls, path: Path, memory: str) -> _Split:
        """Map a file, and read its settings and its list of tensors; raises `WeightsError`."""
        with naming(path, _ADVICE):
            data = map_file(path, memory)
            return cls(path, data, *_parse(data))


class GgufFile:
    """An open GGUF file: `settings` are read, tensors are read on demand.

    A model may lie in several files, NAME-00001-of-0000N.gguf and so on, which llama.cpp's llama-gguf-split writes. The
    path of any of them opens all. The settings are those of the first file; each has tensors of its own.
    """

    settings: dict[str, Any]
    """Values by key: int, float, bool, str, a list of str, or an array of numbers."""

    def __init__(self, path: str | os.PathLike[str], memory: str = "map"):
        """Read the settings and the list of tensors; raises `WeightsError` for a file that breaks the format."""
        self.path = Path(path)
        self._parts = [_Split.open(self.path, memory)]
        with naming(self.path, _ADVICE):
            if paths := part_paths(self.path, self._parts[0].settings):
                self._parts = [_Split.open(one, memory) for one in paths]
                check_parts([part.settings for part in self._parts], [list(part.tensors) for part in self._parts])
        self.settings = self._parts[0].settings

    @property
    def types(self) -> dict[str, str]:
        """The name of the type of each tensor, by the tensor's name."""
        return {name: tensor.kind.name for part in self._parts for name, tensor in part.tensors.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, the outermost size first, by the tensor's name."""
        return {name: tensor.shape for part in self._parts for name, tensor in part.tensors.items()}

    def read(self, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False,
             blocks_of: Callable[[str, np.ndarray], np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Return the tensors as read-only arrays, by the names that `rename` returns for them.

        A tensor whose new name is None is not read. F32, BF16 and, with keep_float16, F16 are views of the map where
        they are aligned. Blocks are converted to float32, to the numbers of llama.cpp. With blocks_of, matrices [N, K]
        stay in blocks [N, K/32] (`engine.weights.blocks`): Q8_0, Q4_0 and Q4_1 as views, Q5_0 as blocks of Q8_0, which
        hold the same numbers, and other types as `blocks_of` returns them from the name and the float32 numbers.
        Raises `WeightsError` for types without a conversion here, and for two tensors with the same new name.
        """
        arrays: dict[str, np.ndarray] = {}
        for part in self._parts:
            with naming(part.path, _ADVICE), within(part.path):
                arrays |= {name: _read_tensor(part.data, old, part.tensors[old], keep_float16, blocks_of)
                           for name, old in wanted_names(part.tensors, rename, taken=arrays).items()}
        return arrays


class _Cursor(Cursor):
    """A position in a GGUF file; integer(n) reads n bytes as a number, and skip(n) returns where the next n begin."""

    def __init__(self, data: mmap):
        super().__init__(data)
        self.texts_left = _MAX_TEXTS    # how many more texts the lists of the file may have

    def text(self, limit: int = _MAX_TEXT) -> str:
        """Read a text with its length in front; raises `FormatError` for one of more than `limit` bytes."""
        size = self.integer(8)
        if size > limit:
            raise FormatError(f"it has a text of {size:,} bytes; at most {limit:,} are allowed here")
        start = self.skip(size)
        try:
            return self.data[start:start + size].decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError(f"the text at byte {start:,} is not UTF-8") from None

    def name(self) -> str:
        """Read a name of a setting or a tensor; raises `FormatError` for an empty or unprintable one."""
        name = self.text(_MAX_NAME)
        if not name or not name.isprintable():
            raise FormatError(f"the name {shown(name)} is empty or not printable")
        return name

    def value(self, kind: int) -> Any:
        """Read the value of a setting, a text, a number, or a list of either. kind: the number of its type."""
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            kind, count = self.integer(4), self.integer(8)
            if kind == _TEXT:
                return self.texts(count)
            return self.numbers(kind, count)
        return self.numbers(kind, 1)[0].item()

    def numbers(self, kind: int, count: int) -> np.ndarray:
        """Read `count` numbers into a new array [count]. kind: the number of their type."""
        if kind not in _SCALARS:
            raise FormatError(f"a setting has the type {kind}, which is not one that GGUF has here")
        dtype = np.dtype(_SCALARS[kind])
        start = self.skip(count * dtype.itemsize)
        # `astype` copies, so that the array does not keep the whole map of the file alive.
        numbers = np.frombuffer(self.data, dtype, count, start).astype(dtype.newbyteorder("="))
        if kind != _BOOLEAN:
            return numbers
        if numbers.max(initial=0) > 1:
            raise FormatError(f"a Boolean has the value {numbers.max()}; expected 0 or 1")
        return numbers.astype(bool)

    def texts(self, count: int) -> list[str]:
        """Read a list of texts; raises `FormatError` if all lists of the file have too many."""
        self.texts_left -= count
        if self.texts_left < 0:
            raise FormatError(f"its lists have more than {_MAX_TEXTS:,} texts")
        return [self.text() for _ in range(count)]


def _parse(data: mmap) -> tuple[dict[str, Any], dict[str, _Tensor]]:
    """Return the settings of a file, and its tensors by name."""
    cursor = _Cursor(data)
    if data[:4] != b"GGUF":
        raise FormatError(f"it does not start with GGUF but with {data[:4]!r}")
    cursor.skip(4)
    version = cursor.integer(4)
    if version not in (2, 3):
        swapped = int.from_bytes(struct.pack(">I", version), "little")
        raise FormatError("it was written for a big-endian machine, which is not supported" if swapped in (2, 3) else
                          f"it has version {version} of GGUF; expected 2 or 3")
    tensor_count, setting_count = cursor.integer(8), cursor.integer(8)
    if tensor_count > _MAX_TENSORS or setting_count > _MAX_SETTINGS:
        raise FormatError(f"it claims {tensor_count:,} tensors and {setting_count:,} settings; at most "
                          f"{_MAX_TENSORS:,} and {_MAX_SETTINGS:,} are allowed")
    settings: dict[str, Any] = {}
    for _ in range(setting_count):
        key = cursor.name()
        if key in settings:
            raise FormatError(f"the setting {shown(key)} occurs twice")
        settings[key] = cursor.value(cursor.integer(4))
    alignment = settings.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise FormatError(f"general.alignment must be a power of two of at most {_MAX_ALIGNMENT:,}, not "
                          f"{shown(alignment)}")
    return settings, _parse_tensors(cursor, tensor_count, alignment)


def _parse_tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, _Tensor]:
    """Read the list of `count` tensors, and return them by name, with their offsets in the file.

    alignment: of the first byte of each, in bytes.
    """
    tensors: dict[str, _Tensor] = {}
    end = aligned = 0       # the end of the last tensor in the data, and the next multiple of the alignment
    for _ in range(count):
        name = cursor.name()
        dimensions = cursor.integer(4)
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise FormatError(f"tensor {shown(name)} has {dimensions:,} dimensions; expected 1 to {_MAX_DIMENSIONS}")
        shape = tuple(cursor.integer(8) for _ in range(dimensions))[::-1]
        number, begin = cursor.integer(4), cursor.integer(8)
        if name in tensors:
            raise FormatError(f"two tensors are called {shown(name)}")
        if number not in TYPES:
            raise FormatError(f"tensor {shown(name)} has the unknown type {number}: the file is damaged, or newer "
                              "than this version of the engine")
        kind = TYPES[number]
        if 0 in shape or math.prod(shape) >= 2**60 or shape[-1] % kind.size:
            raise FormatError(f"tensor {shown(name)} has the impossible shape {list(shape)} for {kind.name}, which "
                              f"has blocks of {kind.size}")
        if begin != aligned:
            raise FormatError(f"tensor {shown(name)} starts at {begin:,} of the data; expected {aligned:,}, after the "
                              "tensor before it")
        end = begin + math.prod(shape) // kind.size * kind.nbytes
        aligned = end + -end % alignment
        tensors[name] = _Tensor(kind, shape, begin, end)
    if not tensors:  # a file with a tokenizer alone, which some writers do not pad
        return tensors
    start = cursor.position + -cursor.position % alignment
    if not start + end <= len(cursor.data) <= start + aligned:      # the last tensor may lack its padding
        raise FormatError(f"its tensors take {end:,} bytes, but {len(cursor.data) - start:,} follow the list of "
                          "tensors")
    return {name: _Tensor(tensor.kind, tensor.shape, start + tensor.begin, start + tensor.end)
            for name, tensor in tensors.items()}


def _read_tensor(data: mmap, name: str, tensor: _Tensor, keep_float16: bool,
                 blocks_of: Callable[[str, np.ndarray], np.ndarray] | None) -> np.ndarray:
    """Return the tensor as `GgufFile.read` describes it: a view of the map, or a copy if it has to be converted."""
    kind = tensor.kind
    if kind.name in _PLAIN:
        flat = np.frombuffer(data, _PLAIN[kind.name], math.prod(tensor.shape), tensor.begin).reshape(tensor.shape)
        return read_only(flat, kept=kind.name == "BF16" or (kind.name == "F16" and keep_float16))
    if kind.dequantize is not None:
        blocks = np.frombuffer(data, np.uint8, tensor.end - tensor.begin, tensor.begin)
        if blocks_of is None or len(tensor.shape) != 2:
            array = dequantize(kind, blocks, tensor.shape)
        elif kind.name in KEPT:
            array = keep(kind, blocks).reshape(tensor.shape[0], -1)
        else:
            array = blocks_of(name, dequantize(kind, blocks, tensor.shape))
        array.flags.writeable = False
        return array
    readable = [*_PLAIN, *(one.name for one in TYPES.values() if one.dequantize is not None)]
    raise WeightsError(f"tensor {shown(name)} has type {kind.name}; expected {', '.join(readable)}. llama.cpp's "
                       "llama-quantize --allow-requantize writes the model in one of them")
