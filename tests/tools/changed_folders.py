"""Copies of the folders of models with other settings, tensors and files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.files.safetensors import read_safetensors
from engine.weights.bfloat16 import widened

from .tiny_models import safetensors, write_json


def change(folder: Path, tensors: dict[str, np.ndarray] | None = None, *, keep: Callable[[str], bool] | None = None,
           rename: Callable[[str], str] = str, **config: Any) -> Path:
    """Change a folder: values of config.json, of which None removes one, and its tensors, which become float32.

    tensors: further ones. keep: says of a name whether its tensor stays. rename: gives other names.
    """
    values = json.loads((folder / "config.json").read_text(encoding="utf-8")) | config
    write_json(folder / "config.json", {key: value for key, value in values.items() if value is not None})
    arrays = {rename(name): widened(array) for name, array in read_safetensors(folder / "model.safetensors").items()
              if keep is None or keep(name)}
    (folder / "model.safetensors").write_bytes(safetensors(arrays | (tensors or {})))
    return folder


def changed(folder: Path, source: Path, tensors: dict[str, np.ndarray] | None = None, **changes: Any) -> Path:
    """Copy a folder and `change` it."""
    return change(Path(shutil.copytree(source, folder)), tensors, **changes)


def copied(folder: Path, source: Path, **files: Any) -> Path:
    """Copy a folder, with other JSON files."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for name, value in files.items():
        write_json(folder / f"{name}.json", value)
    return folder
