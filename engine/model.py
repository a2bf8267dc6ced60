"""A model in memory, and its two forms on disk: the engine's `.npz`, and a folder that other tools exported."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .config import NEW_IN_VERSION_2, TEXT_NEW_IN_VERSION_2, ModelConfig, TextConfig
from .errors import InputError, UnsupportedError, WeightsError, listed, shown
from .families import Family, get_family
from .families.sentence_transformers import MAX_TOKENIZER, find_modules, read_text
from .parameters import check, expected_shapes, matrices, precision_of
from .precision import COMPUTED, canonical_name
from .weights.bfloat16 import from_bfloat16
from .weights.files import MAX_JSON, FormatError, has_file, naming, parse_object, read_object, within
from .weights.npz import read_npz, write_npz
from .weights.safetensors import read_safetensors, read_shards

FORMAT = "encoder-engine"
VERSION = 2
"""The newest version of the `.npz`. A file states the lowest version that can hold its model, so that older engines
read the file if they can."""

_NO_SAFETENSORS = """no model.safetensors. A pytorch_model.bin is a pickle, which can run code when it is read, and is \
therefore never read here. Convert it once, where torch is installed:
  model = transformers.AutoModel.from_pretrained({folder!r})
  model.save_pretrained({folder!r}, safe_serialization=True)"""


@dataclass(frozen=True, eq=False)
class Model:
    """An encoder and everything needed to run it."""

    config: ModelConfig
    weights: Mapping[str, np.ndarray]
    """Arrays by name; `engine.parameters` states their names, shapes and dtypes."""
    text: TextConfig | None = None
    """How the model reads sentences; None for a model without a tokenizer, which runs on token ids alone."""

    _checked: bool = field(default=False, init=False, repr=False)
    """Whether the numbers of the weights have been checked. `replace` returns a model that has not been checked."""

    def checked(self, source: str = "the model") -> Model:
        """Return the model with weights that fit the configuration and that kernels can read; raises `WeightsError`.

        The numbers of each model are checked once. Names, shapes and dtypes are checked at every call, because the
        weights may be a dictionary that somebody changes.
        """
        if type(self.config) is not ModelConfig or not isinstance(self.text, TextConfig | None):
            raise WeightsError(f"{source}: config must be a ModelConfig, and text a TextConfig or None")
        check(self.config, self.weights, source, numbers=not self._checked)
        weights = {name: np.require(np.asarray(array), requirements=["C", "A"]) for name, array in self.weights.items()}
        same = all(weights[name] is array for name, array in self.weights.items())
        model = self if same else replace(self, weights=weights)
        object.__setattr__(model, "_checked", True)
        return model

    @property
    def precision(self) -> str:
        """Return "int8" if any linear weight is int8, otherwise "float32" (bfloat16 weights count as float32)."""
        return precision_of(self.config, self.weights)

    def precision_for(self, asked: str | None) -> str:
        """Return the name of the precision that was asked for, also by an alias; for None, that of the weights.

        Raises `UnsupportedError` for more than the weights have, and `InputError` for anything but a string or None.
        """
        if asked is None:
            return self.precision
        if not isinstance(asked, str):
            raise InputError(f"precision must be None or one of {', '.join(COMPUTED)}, not {asked!r}")
        asked = canonical_name(asked)
        if self.precision == "int8" and asked != "int8":
            raise UnsupportedError(f"the weights are in int8 and do not give precision {asked!r}; convert or load the "
                                   "original model")
        return asked


def load_model(path: str | os.PathLike[str], *, memory: str = "map") -> Model:
    """Load an `.npz`, a Hugging Face folder or a sentence-transformers folder.

    Weights stay in the file, mapped read-only, unless they have to be converted to float32; matrices in bfloat16 and
    float16 stay as they are. memory="copy" reads the whole file into private memory instead, so that a change of the
    file cannot hurt. Raises `WeightsError`, with everything that is wrong with the weights in one
    message, and `UnsupportedError` for a model that does not run here.
    """
    if memory not in ("map", "copy"):
        raise InputError(f"memory must be 'map' or 'copy', not {shown(memory)}")
    path = model_path(path)
    if os.path.isdir(path):
        model = _read_folder(path, memory)
    elif os.path.isfile(path):
        model = _read_file(path, memory)
    else:
        raise WeightsError(_missing(path))
    return _with_wide_vectors(model).checked(str(path))


def model_path(path: str | os.PathLike[str]) -> Path:
    """Return a caller's path with `~` replaced by the home folder; raises `InputError` for what is no path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the path of a model must be a str or a Path, not {shown(path)}")
    return Path(os.path.expanduser(os.fsdecode(path)))


def _missing(path: Path) -> str:
    if os.path.lexists(path):
        return f"{path}: expected an .npz or the folder of a model, and this is neither a file nor a folder"
    found = f"{shown(str(path), 300)[1:-1]}: no such file or folder; expected an .npz or the folder of a model"
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(path)):
        return found
    return (f"{found}. The engine downloads nothing. For a model of the Hugging Face hub, get its folder with "
            f"huggingface_hub.snapshot_download({str(path)!r}), and pass the folder")


def _with_wide_vectors(model: Model) -> Model:
    """Return the model with every half-precision parameter in float32, except the matrices, which plans widen."""
    kept = set(matrices(model.config))
    halves = {name: array for name, array in model.weights.items()
              if name not in kept and array.dtype in (np.uint16, np.float16)}
    wide = {name: from_bfloat16(array) if array.dtype == np.uint16 else array.astype(np.float32)
            for name, array in halves.items()}
    return replace(model, weights=dict(model.weights) | wide)


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model as one `.npz`, which `load_model` reads back bit for bit.

    An existing file is replaced when the new one is complete. Raises `WeightsError` when the weights do not fit the
    configuration or the file cannot be written.
    """
    check(model.config, model.weights, "the model to save")
    weights = {name: model.weights[name] for name in expected_shapes(model.config, model.weights)}
    document: dict[str, Any] = {"format": FORMAT, "version": _version(model), "model": model.config.to_json()}
    arrays = {}
    if model.text is not None:
        document["text"] = model.text.to_json()
        arrays["tokenizer"] = np.frombuffer(model.text.tokenizer_json, np.uint8)
    arrays["config"] = np.frombuffer(json.dumps(document, indent=1).encode(), np.uint8)
    write_npz(path, arrays | weights)


def _version(model: Model) -> int:
    """Return the lowest version of the `.npz` that can hold this model."""
    new = model.config.to_json().keys() & set(NEW_IN_VERSION_2)
    if model.text is not None:
        new |= model.text.to_json().keys() & set(TEXT_NEW_IN_VERSION_2)
    return VERSION if new else 1


def _read_file(path: Path, memory: str) -> Model:
    if path.suffix == ".safetensors":
        raise WeightsError(f"{path}: a .safetensors file alone does not describe a model; load the folder that holds "
                           "it and its config.json")
    arrays = read_npz(path, keep_float16=True, memory=memory)
    with naming(path, "see the README for what an .npz of weights holds"), within(path):
        if "config" not in arrays:
            raise FormatError(f"no array is called config; it holds {listed(sorted(arrays)) or 'nothing'}")
        document = parse_object(_text_bytes("config", arrays.pop("config"), MAX_JSON))
        _check_document(document)
        config = ModelConfig.from_json(document["model"])
        text = None
        if ("text" in document) != ("tokenizer" in arrays):
            raise FormatError("the config's text entry and the array called tokenizer must both be there, or neither")
        if "text" in document:
            tokenizer = _text_bytes("tokenizer", arrays.pop("tokenizer"), MAX_TOKENIZER)
            text = TextConfig.from_json(document["text"], tokenizer)
    return Model(config, arrays, text)


def _check_document(document: dict[str, Any]) -> None:
    if document.get("format") != FORMAT or type(document.get("version")) is not int:
        raise FormatError(f"the config must state the format {FORMAT!r} and its version, "
                          f"not {shown(document.get('format'))} and {shown(document.get('version'))}")
    if document["version"] > VERSION:
        raise UnsupportedError(f"format version {shown(document['version'])} is newer than {VERSION}, the newest that "
                               "this engine reads; upgrade encoder-engine")
    if document["version"] < 1 or "model" not in document or document.keys() - {"format", "version", "model", "text"}:
        raise FormatError("the config must have format, version, model and perhaps text, not "
                          f"{listed(sorted(document))}")


def _text_bytes(name: str, array: np.ndarray, limit: int) -> bytes:
    """The bytes of a text kept as a vector of uint8 or, by someone who exported by hand, as one NumPy string."""
    if array.size * array.dtype.itemsize > (limit if array.dtype == np.uint8 else 4 * limit):
        raise FormatError(f"the text called {name} has {array.nbytes:,} bytes; at most {limit:,} are allowed")
    if array.dtype == np.uint8:
        return array.tobytes()
    if array.dtype.kind == "U" and array.size == 1:
        try:
            little_endian = array.astype(array.dtype.newbyteorder("<")).tobytes()
            return little_endian.decode("utf-32-le").rstrip("\0").encode()
        except ValueError:
            raise FormatError(f"the string called {name} is not valid Unicode") from None
    raise FormatError(f"the array called {name} must be uint8 or one string, not {array.dtype} of shape "
                      f"{list(array.shape)}")


def _read_folder(folder: Path, memory: str) -> Model:
    modules = find_modules(folder)
    home = modules.transformer
    if has_file(home / "adapter_config.json"):
        raise UnsupportedError(f"{home}: adapters (adapter_config.json) are not applied; merge it into the model first")
    if not has_file(home / "config.json"):
        raise WeightsError(f"{home}: no config.json; expected an .npz or the folder of a model")
    values = read_object(home / "config.json")
    with within(home / "config.json"):
        family = get_family(values)
        config = family.read_config(values)
    weights = family.NAMES.split(_read_tensors(home, family, memory), config)
    return Model(config, weights, read_text(modules, config))


def _read_tensors(folder: Path, family: Family, memory: str) -> dict[str, np.ndarray]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if has_file(single):
        return read_safetensors(single, family.NAMES.rename, keep_float16=True, memory=memory)
    if has_file(index):
        return read_shards(index, family.NAMES.rename, keep_float16=True, memory=memory)
    raise WeightsError(f"{folder}: {_NO_SAFETENSORS.format(folder=str(folder))}")
