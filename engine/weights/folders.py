"""Find the files with the weights of a model folder, in any format, in one file or several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from ..errors import WeightsError, shown
from .checkpoint import read_checkpoint
from .files import FormatError, has_file, naming, read_object
from .safetensors import read_safetensors

_ADVICE = "copy the model's folder again from its source"


class Reader(Protocol):
    """What `read_safetensors` and `read_checkpoint` have in common."""

    def __call__(self, path: Path, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False,
                 memory: str = "map") -> dict[str, np.ndarray]:
        """Return the tensors of one file under their new names."""


FORMATS: dict[str, Reader] = {"model.safetensors": read_safetensors, "pytorch_model.bin": read_checkpoint}
"""The reader of each file of weights, in the order of preference; `NAME.index.json` lists the parts of a split one."""


def read_weights(folder: Path, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False,
                 memory: str = "map") -> dict[str, np.ndarray]:
    """Return the tensors of a model folder, read as `read_safetensors` describes; raises `WeightsError`."""
    for name, read in FORMATS.items():
        if has_file(folder / name):
            return read(folder / name, rename, keep_float16=keep_float16, memory=memory)
        if has_file(folder / f"{name}.index.json"):
            return read_shards(folder / f"{name}.index.json", read, rename, keep_float16=keep_float16, memory=memory)
    raise WeightsError(f"{folder}: no {', no '.join(FORMATS)} and no index of their parts. A state dict under another "
                       "name has to be renamed to pytorch_model.bin; from other formats, save the model with "
                       "transformers: model.save_pretrained(folder)")


def read_shards(index: Path, read: Reader, rename: Callable[[str], str | None] = str, *, keep_float16: bool = False,
                memory: str = "map") -> dict[str, np.ndarray]:
    """Return the tensors of a model that is split into several files, which lie beside their index."""
    suffix = Path(index.name.removesuffix(".index.json")).suffix
    shards = read_object(index).get("weight_map")
    with naming(index, _ADVICE):
        if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
            raise FormatError("expected a weight_map from tensor names to file names")
        for shard in shards.values():
            if not (shard.endswith(suffix) and shard.isprintable() and not set(shard) & set("/\\:")):
                raise FormatError(f"{shown(shard)} is not the name of a {suffix} file in the same folder")
    arrays: dict[str, np.ndarray] = {}
    for shard in sorted(set(shards.values())):
        found = read(index.with_name(shard), rename, keep_float16=keep_float16, memory=memory)
        with naming(index, _ADVICE):
            if twice := sorted(arrays.keys() & found.keys()):
                raise FormatError(f"two shards hold {twice[0]}, the second is {shard}")
        arrays |= found
    return arrays
