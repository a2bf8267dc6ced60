"""The folder of a model, `ModelFolder`: its JSON files, and its weights in any format, in one file or several."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any, Protocol

import numpy as np

from ..base.errors import WeightsError, shown
from .reading import MAX_JSON, FormatError, has_file, naming, parse_list, parse_object, read_bytes, within
from .safetensors import read_safetensors
from .torch_checkpoint import read_checkpoint

ADVICE = "copy the model's folder again from its source"
"""The end of a message about a damaged file of a folder."""

_LONGEST_NAME = 1000
"""Limit on the characters of a path that a file of the folder states."""


class Reader(Protocol):
    """The signature of `read_safetensors` and `read_checkpoint`."""

    def __call__(self, path: Path, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False,
                 memory: str = "map") -> dict[str, np.ndarray]:
        """Return the tensors of one file under their new names, without those for which `rename` returns None.

        keep_float16: whether float16 stays as it is. memory: "map" for views of the file, or "copy".
        """


FORMATS: dict[str, Reader] = {"model.safetensors": read_safetensors, "pytorch_model.bin": read_checkpoint}
"""The reader of each file of weights, in the order of preference; `NAME.index.json` lists the parts of a split file."""
_INDEX = ".index.json"


class ModelFolder:
    """The folder of a model, from which readers get values and tensors by the names of files.

    A JSON file is read from disk once. All methods raise `WeightsError` for a file that cannot be read.
    """

    def __init__(self, path: Path):
        self.path = path
        self._contents: dict[str, bytes] = {}

    def __str__(self) -> str:
        return str(self.path)

    def label(self, name: str) -> str:
        """Return the name of a file for messages."""
        return str(self.path / name)

    def has(self, name: str) -> bool:
        """Return whether there is a regular file of this name."""
        return has_file(self.path / name)

    def names_in(self, name: str, suffix: str) -> list[str]:
        """Return the sorted names of the regular files with a suffix in a folder of this one; none without it."""
        return sorted(path.name for path in (self.path / name).glob(f"*{suffix}") if has_file(path))

    def read_object(self, name: str) -> dict[str, Any]:
        """Return a new copy of the JSON object in a file, which the caller may change."""
        with self.naming(name):
            return parse_object(self._text(name))

    def read_object_or_empty(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file, and an empty one where there is no file."""
        return self.read_object(name) if self.has(name) else {}

    def read_list(self, name: str) -> list[Any]:
        """Return a new copy of the JSON list in a file, which the caller may change."""
        with self.naming(name):
            return parse_list(self._text(name))

    def _text(self, name: str) -> bytes:
        """Return the text of a JSON file. The text is kept, and not the value, which has up to 30 times its memory."""
        if name not in self._contents:
            self._contents[name] = self.read_bytes(name, MAX_JSON)
        return self._contents[name]

    def read_bytes(self, name: str, limit: int) -> bytes:
        """Return the contents of a file; raises `FormatError` above `limit` bytes, so call it inside `naming`."""
        return read_bytes(self.path / name, limit)

    def naming(self, name: str) -> AbstractContextManager[None]:
        """Convert a `FormatError` or `OSError` of the block to a `WeightsError` about a file."""
        return naming(self.path / name, ADVICE)

    def within(self, name: str = "") -> AbstractContextManager[None]:
        """Put the name of a file, or of the folder, in front of the message of an error of the block."""
        return within(self.path / name)

    def has_weights(self) -> bool:
        """Return whether there is a file of weights, or the index of a split one."""
        return self._weights() is not None

    def weight_files(self) -> list[str]:
        """Return the names of the files that `tensors` reads, an index first; [] for a folder without weights."""
        weights = self._weights()
        if weights is None or not weights.endswith(_INDEX):
            return [] if weights is None else [weights]
        with self.naming(weights):
            return [weights, *shard_names(self.read_object(weights), weights)]

    def _weights(self) -> str | None:
        """Return the name of the file of weights, or of the index of a split file; None if there is neither."""
        return next((name for each in FORMATS for name in (each, each + _INDEX) if self.has(name)), None)

    def tensors(self, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False,
                memory: str = "map") -> dict[str, np.ndarray]:
        """Return the tensors as read-only arrays, by the names that `rename` returns; it returns None to leave one out.

        keep_float16, memory: as in `read_safetensors`. Raises `WeightsError`, also for a folder without weights.
        """
        name = self._weights()
        if name is None:
            raise WeightsError(f"{self}: no {', no '.join(FORMATS)} and no index of their parts. A state dict under "
                               "another name has to be renamed to pytorch_model.bin; from other formats, such as ONNX, "
                               "save the model with transformers: model.save_pretrained(folder)")
        read_one = FORMATS[name.removesuffix(_INDEX)]
        read = partial(read_shards, read=read_one) if name.endswith(_INDEX) else read_one
        return read(self.path / name, rename=rename, keep_float16=keep_float16, memory=memory)

    def tensor_names(self) -> list[str]:
        """Return the names of the tensors in the files of weights, without reading a tensor."""
        names: list[str] = []
        self.tensors(names.append)      # `append` returns None, so that each tensor is left out
        return names

    def folder(self, relative: str, stated_in: str) -> ModelFolder:
        """Return a folder inside this one by its relative path, which the file `stated_in` states.

        Raises `WeightsError` for a path that leads out of this folder.
        """
        parts = PureWindowsPath(relative)  # splits at both / and \, whichever system wrote the path
        if parts.anchor or ".." in parts.parts or not relative.isprintable() or len(relative) > _LONGEST_NAME:
            raise WeightsError(f"{self.label(stated_in)}: the module path {shown(relative)} leaves the model's folder, "
                               "or is too long")
        return self if not parts.parts else self._inside(parts.parts)

    def _inside(self, parts: tuple[str, ...]) -> ModelFolder:
        """Return the folder at the end of a path of names inside this one."""
        return ModelFolder(self.path.joinpath(*parts))


def read_shards(index: Path, read: Reader, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False,
                memory: str = "map") -> dict[str, np.ndarray]:
    """Return the tensors of a model that is split into several files, which lie beside their index.

    read: reads one file; it gets the other arguments.
    """
    with naming(index, ADVICE):
        shards = shard_names(parse_object(read_bytes(index, MAX_JSON)), index.name)
    arrays: dict[str, np.ndarray] = {}
    for shard in shards:
        shard_arrays = read(index.with_name(shard), rename, keep_float16=keep_float16, memory=memory)
        with naming(index, ADVICE):
            if twice := sorted(arrays.keys() & shard_arrays.keys()):
                raise FormatError(f"two shards hold {twice[0]}, the second is {shard}")
        arrays |= shard_arrays
    return arrays


def shard_names(values: dict[str, Any], index: str) -> list[str]:
    """Return the names of the files of a model that is split, which lie beside their index; raises `FormatError`.

    values: the contents of the index. index: its name.
    """
    suffix = Path(index.removesuffix(_INDEX)).suffix
    shards = values.get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise FormatError("expected a weight_map from tensor names to file names")
    for shard in shards.values():
        if not (shard.endswith(suffix) and shard.isprintable() and not set(shard) & set("/\\:")):
            raise FormatError(f"{shown(shard)} is not the name of a {suffix} file in the same folder")
    return sorted(set(shards.values()))
