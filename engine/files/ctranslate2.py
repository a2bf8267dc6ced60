"""Read model.bin, in which CTranslate2 keeps the weights of a converted model.

    version (4 bytes), name of the specification and its revision (4), number of variables (4)
    for each variable: name, number of dimensions (1), sizes (4 each), type (1), bytes of its data (4), the data
    since version 3: number of aliases (4); for each: its name, and the name of the variable that it stands for

A name has its length in 2 bytes in front, which counts the NUL at its end. Versions 2 and 3 have the bytes of an
element in the place of the type, and the number of elements in the place of the bytes. All integers are little-endian.
Layout and types follow python/ctranslate2/specs/model_spec.py and src/models/model.cc of CTranslate2.

A matrix in int8 or int16 is stored as round(scale * weight), with the scale of each row, or of the whole matrix, in the
variable NAME_scale. Variables without dimensions are settings of layers, such as the number of heads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..base.errors import shown
from .cursor import Cursor
from .reading import FormatError, map_file, naming, read_only, wanted_names

_VERSIONS = range(2, 7)
_TYPES = (("float32", "<f4"), ("int8", "|i1"), ("int16", "<i2"), ("int32", "<i4"), ("float16", "<f2"),
          ("bfloat16", "<u2"))
_BY_SIZE = {4: 0, 2: 2, 1: 1}
"""The index in `_TYPES` for the bytes of an element, by which versions 2 and 3 state the type."""
_ALIASES_FROM, _TYPES_FROM = 3, 4
"""The first versions with aliases, and with the type and the bytes of each variable."""
_INT16_SCALE = np.float32(1000)
"""The scale of int16 in old files, which do not state it."""
_MAX_VARIABLES = 100_000
_MAX_DIMENSIONS = 8
_ADVICE = "copy the file again from its source, or convert the model again with CTranslate2"


@dataclass(frozen=True)
class _Variable:
    """A named array in the file, or without dimensions a setting; its numbers are read on demand."""

    name: str
    """Its own name, not that of an alias."""
    type: str
    """The name of the type in `_TYPES`."""
    dtype: str
    """The NumPy dtype of the numbers in the file."""
    shape: tuple[int, ...]
    start: int
    """The offset of its first byte in the file."""


class CTranslate2File:
    """An open model.bin: its settings are read, its arrays are read on demand."""

    specification: str
    """The kind of the model, such as "TransformerSpec" or "WhisperSpec"."""
    revision: int
    settings: dict[str, float]
    """The number, an int or a float, of each variable without dimensions, by its name."""

    def __init__(self, path: str | os.PathLike[str], memory: str = "map"):
        """Read the list of variables; raises `WeightsError` for a file that breaks the format."""
        self.path = Path(path)
        with naming(self.path, _ADVICE):
            self._data = map_file(self.path, memory)
            self._parse()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array, by its name and by each alias of it; scales are left out."""
        scales = self._scales
        return {name: one.shape for name, one in self._variables.items() if one.shape and one.name not in scales}

    @property
    def _scales(self) -> set[str]:
        """The names of the variables that hold scales of integers."""
        return {f"{one.name}_scale" for one in self._variables.values() if one.type in ("int8", "int16")}

    def read(self, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False) -> dict[str, np.ndarray]:
        """Return the arrays, read-only, by the names that `rename` returns for their names and for their aliases.

        An array for which it returns None is not read. Arrays in float32, in bfloat16 (as uint16) and, with
        keep_float16, in float16 are views of the mapped file where they are aligned. An alias gives the same array
        object. Arrays in int8 and int16 are divided by their scales and become float32; int32 stays. Raises
        `WeightsError`.
        """
        arrays: dict[str, np.ndarray] = {}
        made: dict[_Variable, np.ndarray] = {}
        with naming(self.path, _ADVICE):
            scales = self._scales
            names = [old for old, variable in self._variables.items() if variable.shape and variable.name not in scales]
            for name, old in wanted_names(names, rename, what="arrays").items():
                variable = self._variables[old]
                if variable not in made:
                    made[variable] = self._array(variable, keep_float16)
                arrays[name] = made[variable]
        return arrays

    def _parse(self) -> None:
        """Read the settings, and the list of the variables and their aliases."""
        cursor = _Cursor(self._data)
        version = cursor.integer(4)
        if version not in _VERSIONS:
            raise FormatError(f"it has version {version} of CTranslate2's format; expected {_VERSIONS[0]} to "
                              f"{_VERSIONS[-1]}")
        self.specification, self.revision = cursor.name(), cursor.integer(4)
        variables: dict[str, _Variable] = {}
        for _ in range(cursor.count("variables")):
            name = cursor.name()
            if name in variables:
                raise FormatError(f"two variables are called {shown(name)}")
            variables[name] = cursor.variable(name, version)
        aliases: dict[str, _Variable] = {}
        for _ in range(cursor.count("aliases") if version >= _ALIASES_FROM else 0):
            alias, name = cursor.name(), cursor.name()
            if name not in variables or alias in variables or alias in aliases:
                raise FormatError(f"the alias {shown(alias)} of {shown(name)} stands for no variable, or its name is "
                                  "taken")
            aliases[alias] = variables[name]
        if cursor.position != len(self._data):
            raise FormatError(f"{len(self._data) - cursor.position:,} bytes follow its last alias")
        self._variables = variables | aliases
        self.settings = {name: self._flat(one)[0].item() for name, one in self._variables.items()
                         if not one.shape and one.name not in self._scales}

    def _flat(self, variable: _Variable) -> np.ndarray:
        """Return the numbers of a variable as a view of the file, in one dimension."""
        return np.frombuffer(self._data, variable.dtype, math.prod(variable.shape), variable.start)

    def _array(self, variable: _Variable, keep_float16: bool) -> np.ndarray:
        """Return the array of a variable as `read` describes it."""
        flat = self._flat(variable)
        if variable.type in ("int8", "int16"):
            return read_only(self._divide_by_scales(variable.name, flat.reshape(variable.shape)), kept=False)
        return read_only(flat.reshape(variable.shape), kept=variable.type in ("bfloat16", "int32") or (
            variable.type == "float16" and keep_float16))

    def _divide_by_scales(self, name: str, integers: np.ndarray) -> np.ndarray:
        """Return the integers of the variable `name` as float32, divided by the scale of each row or of the array."""
        variable = self._variables.get(f"{name}_scale")
        scale = self._flat(variable) if variable is not None else np.full(1, _INT16_SCALE)
        stated = variable is not None or integers.dtype.itemsize == 2       # only int16 has a default, `_INT16_SCALE`
        if not stated or scale.dtype != np.float32 or scale.size not in (1, len(integers)):
            raise FormatError(f"the array {shown(name)} in {integers.dtype} of shape {list(integers.shape)} needs "
                              f"{name}_scale: a number in float32, or one for each row")
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise FormatError(f"{name}_scale has numbers that are not above 0 and finite")
        rows = integers.astype(np.float32).reshape(len(integers), -1)
        with np.errstate(over="ignore", invalid="ignore"):  # a later check reports what a tiny scale gives
            rows *= np.float32(1) / scale.reshape(-1, 1)
        return rows.reshape(integers.shape)


class _Cursor(Cursor):
    """A position in a model.bin; integer(n) reads n bytes as a number, and skip(n) returns where the next n begin."""

    def count(self, what: str) -> int:
        """Read a number of things; raises `FormatError` if it is absurd. what: their name, for the message."""
        count = self.integer(4)
        if count > _MAX_VARIABLES:
            raise FormatError(f"it claims {count:,} {what}; at most {_MAX_VARIABLES:,} are allowed")
        return count

    def name(self) -> str:
        """Read a name, with its length in front and a NUL at its end, and return it without either."""
        size = self.integer(2)
        start = self.skip(size)
        name = self.data[start:start + size]
        if not name.endswith(b"\0") or not name[:-1].isascii() or not name[:-1].decode().isprintable() or size < 2:
            raise FormatError(f"the name {shown(name)} at byte {start:,} is not printable ASCII with a NUL at its end")
        return name[:-1].decode()

    def variable(self, name: str, version: int) -> _Variable:
        """Read the header of the variable `name`, and skip its numbers, which follow. version: of the file."""
        dimensions = self.integer(1)
        if dimensions > _MAX_DIMENSIONS:
            raise FormatError(f"variable {shown(name)} has {dimensions} dimensions; at most {_MAX_DIMENSIONS} are "
                              "allowed")
        shape = tuple(self.integer(4) for _ in range(dimensions))
        number, size = self.integer(1), self.integer(4)
        if version < _TYPES_FROM:       # they are the bytes of an element, and the number of elements
            number, size = _BY_SIZE.get(number, len(_TYPES)), size * number
        if number >= len(_TYPES):
            raise FormatError(f"variable {shown(name)} has an unknown type; expected "
                              f"{', '.join(kind for kind, _ in _TYPES)}")
        kind, dtype = _TYPES[number]
        if 0 in shape or math.prod(shape) * np.dtype(dtype).itemsize != size:
            raise FormatError(f"variable {shown(name)} has {size:,} bytes, which is not shape {list(shape)} of {kind}")
        return _Variable(name, kind, dtype, shape, self.skip(size))
