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
from .dense import Dense, check_dense
from .errors import InputError, UnsupportedError, WeightsError, listed, shown
from .families import adapt_text, choose_task, fold, get_family, read_stem
from .families.peft import refuse_adapter
from .families.sentence_transformers import (
    MAX_TOKENIZER,
    check_code,
    find_modules,
    read_dense,
    read_text,
    tokenizer_settings,
)
from .layout import PREFIX, Layout
from .parameters import check, expected_shapes, matrices, packed_arrays, precision_of
from .precision import COMPUTED, canonical_name
from .stems import Stem, make_stem, stem_arrays, stem_document
from .weights.bfloat16 import widened
from .weights.files import MAX_JSON, FormatError, has_file, naming, parse_object, read_object, within
from .weights.folders import read_weights
from .weights.npz import read_npz, write_npz

FORMAT = "encoder-engine"
VERSION = 2
"""The newest version of the `.npz`. A file states the lowest version that can hold its model, so that older engines
read the file if they can."""

_ENTRIES = {"format", "version", "model", "text", "stem", "packed"}

ADVICE = "see docs/npz.md for what an .npz of weights holds"
"""What a message about a wrong `.npz` ends with."""

GENERATES = ("the file holds a model that generates tokens; load it with Generator (on the command line, add "
             "--generates)")

_PARTS = (".safetensors", ".bin", ".pt", ".pth")
"""Suffixes of files that hold the weights of a model, but not what the model is."""


@dataclass(frozen=True, eq=False)
class Model:
    """An encoder and everything needed to run it."""

    config: ModelConfig
    weights: Mapping[str, np.ndarray]
    """Arrays by name; `engine.parameters` states their names, shapes and dtypes."""
    text: TextConfig | None = None
    """How the model reads sentences; None for a model without a tokenizer, which runs on token ids alone."""
    dense: tuple[Dense, ...] = ()
    """Linear maps of a sentence's vector, after pooling and before it is scaled to unit length."""
    stem: Stem | None = None
    """What turns images or sound into the token vectors that the model reads; None for a model of texts."""
    layout: Layout | None = None
    """The layout of the linear maps of a model that is packed for some CPUs (`engine.layout`); None if it is not."""

    _checked: bool = field(default=False, init=False, repr=False)
    """Whether the numbers of the weights have been checked. `replace` returns a model that has not been checked."""

    def checked(self, source: str = "the model") -> Model:
        """Return the model with weights that fit the configuration and that kernels can read; raises `WeightsError`.

        The numbers of each model are checked once. Names, shapes and dtypes are checked at every call, because the
        weights may be a dictionary that somebody changes.
        """
        if type(self.config) is not ModelConfig or not isinstance(self.text, TextConfig | None):
            raise WeightsError(f"{source}: config must be a ModelConfig, and text a TextConfig or None")
        check(self.config, self.weights, source, numbers=not self._checked and self.layout is None, layout=self.layout)
        if not isinstance(self.stem, Stem | None) or (
                self.stem is not None and self.stem.weight.shape[0] != self.config.hidden_size):
            raise WeightsError(f"{source}: stem must be None, or make token vectors of width {self.config.hidden_size}")
        if not self._checked and self.text is not None:
            check_dense(self.dense, len(self.text.pooling) * self.config.hidden_size, source)
        weights = {name: np.require(np.asarray(array), requirements=["C", "A"]) for name, array in self.weights.items()}
        same = all(weights[name] is array for name, array in self.weights.items())
        model = self if same else replace(self, weights=weights)
        object.__setattr__(model, "_checked", True)
        return model

    @property
    def precision(self) -> str:
        """Return "int8" if any linear weight is int8, otherwise "float32" (bfloat16 weights count as float32).

        A packed model has the precision that it was packed for.
        """
        return precision_of(self.config, self.weights) if self.layout is None else self.layout.precision

    def precision_for(self, asked: str | None) -> str:
        """Return the name of the precision that was asked for, also by an alias; for None, that of the weights.

        Raises `UnsupportedError` for more than the weights have, and `InputError` for anything but a string or None.
        """
        if asked is None:
            return self.precision
        if not isinstance(asked, str):
            raise InputError(f"precision must be None or one of {', '.join(COMPUTED)}, not {shown(asked)}")
        asked = canonical_name(asked)
        if self.layout is not None and asked != self.precision:
            raise UnsupportedError(f"the file is packed for precision {self.precision!r}, not {shown(asked)}; load the "
                                   "original model")
        if self.precision == "int8" and asked != "int8":
            raise UnsupportedError(f"the weights are in int8 and do not give precision {shown(asked)}; convert or load "
                                   "the original model")
        return asked


def load_model(path: str | os.PathLike[str], *, memory: str = "map", task: str | None = None) -> Model:
    """Load an `.npz`, a Hugging Face folder or a sentence-transformers folder.

    Weights stay in the file, mapped read-only, unless they have to be converted to float32; matrices in bfloat16 and
    float16 stay as they are. memory="copy" reads the whole file into private memory instead, so that a change of the
    file cannot hurt. task: the adapter to merge, of a folder that holds adapters for several tasks. Raises
    `WeightsError`, with everything that is wrong with the weights in one message, `UnsupportedError` for a model that
    does not run here, and `InputError` for an unknown task.
    """
    if memory not in ("map", "copy"):
        raise InputError(f"memory must be 'map' or 'copy', not {shown(memory)}")
    path = model_path(path)
    if os.path.isdir(path):
        model = _read_folder(path, memory, task)
    elif os.path.isfile(path):
        if task is not None:
            raise InputError(f"{path}: task={shown(task)} chooses an adapter of a folder, and a file has none; load or "
                             "convert the folder with this task")
        model = _read_file(path, memory)
    else:
        raise WeightsError(explain_missing(path))
    return with_wide_vectors(model).checked(str(path))


def model_path(path: str | os.PathLike[str]) -> Path:
    """Return a caller's path with `~` replaced by the home folder; raises `InputError` for what is no path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the path of a model must be a str or a Path, not {shown(path)}")
    return Path(os.path.expanduser(os.fsdecode(path)))


def explain_missing(path: Path) -> str:
    """Describe a path that is neither a file nor a folder."""
    if os.path.lexists(path):
        return f"{path}: expected an .npz or the folder of a model, and this is neither a file nor a folder"
    found = f"{shown(str(path), 300)[1:-1]}: no such file or folder; expected an .npz or the folder of a model"
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(path)):
        return found
    return (f"{found}. The engine downloads nothing. For a model of the Hugging Face hub, get its folder with "
            f"huggingface_hub.snapshot_download({str(path)!r}), and pass the folder")


def with_wide_vectors(model: Model) -> Model:
    """Return the model with every half-precision parameter in float32, except the matrices, which plans widen."""
    kept = set(matrices(model.config))
    halves = {name: array for name, array in model.weights.items()
              if name not in kept and not name.startswith(PREFIX) and array.dtype in (np.uint16, np.float16)}
    return replace(model, weights=dict(model.weights) | {name: widened(array) for name, array in halves.items()})


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model as one `.npz`, which `load_model` reads back bit for bit.

    An existing file is replaced when the new one is complete. Raises `WeightsError` when the weights do not fit the
    configuration or the file cannot be written.
    """
    entries, arrays = contents_of(model)
    document = {"format": FORMAT, "version": _version(model), **entries}
    config = {"config": np.frombuffer(json.dumps(document, indent=1).encode(), np.uint8)}
    write_npz(path, config | arrays)


def contents_of(model: Model) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the entries of a file's JSON that describe the model, and the arrays beside it; raises as `save_model`."""
    check(model.config, model.weights, "the model to save", numbers=model.layout is None, layout=model.layout)
    names = expected_shapes(model.config, model.weights)
    weights = {name: model.weights[name] for name in names if name in model.weights}
    document: dict[str, Any] = {"model": model.config.to_json()}
    arrays: dict[str, np.ndarray] = {}
    if model.layout is not None:
        document["packed"] = model.layout.to_json()
        weights |= {name: model.weights[name] for name in packed_arrays(model.config, model.layout)}
    if model.text is not None:
        document["text"] = model.text.to_json()
        arrays["tokenizer"] = np.frombuffer(model.text.tokenizer_json, np.uint8)
        check_dense(model.dense, len(model.text.pooling) * model.config.hidden_size, "the model to save")
        if model.dense:
            document["text"]["dense"] = [dense.activation for dense in model.dense]
        for i, dense in enumerate(model.dense):
            arrays[f"dense.{i}.weight"] = dense.weight
            if dense.bias is not None:
                arrays[f"dense.{i}.bias"] = dense.bias
    if model.stem is not None:
        document["stem"] = stem_document(model.stem)
        arrays |= {f"stem.{name}": array for name, array in stem_arrays(model.stem).items()}
    return document, arrays | weights


def _version(model: Model) -> int:
    """Return the lowest version of the `.npz` that can hold this model."""
    new = model.config.to_json().keys() & set(NEW_IN_VERSION_2)
    if model.text is not None:
        new |= model.text.to_json().keys() & set(TEXT_NEW_IN_VERSION_2)
    return VERSION if new or model.dense or model.stem or model.layout is not None else 1


def _read_file(path: Path, memory: str) -> Model:
    if path.suffix == ".gguf":
        raise UnsupportedError(f"{path}: {GENERATES}")
    document, arrays = read_document(path, memory)
    with naming(path, ADVICE), within(path):
        if "decoder" in document:
            raise UnsupportedError(GENERATES)
        _check_document(document)
        return model_of(document, arrays)


def read_document(path: Path, memory: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the parsed JSON of an `.npz`, and its arrays."""
    if path.suffix in _PARTS:
        raise WeightsError(f"{path}: a {path.suffix} file alone does not describe a model; load the folder that holds "
                           "it and its config.json")
    arrays = read_npz(path, keep_float16=True, memory=memory, unread=PREFIX)
    with naming(path, ADVICE), within(path):
        if "config" not in arrays:
            raise FormatError(f"no array is called config; it holds {listed(sorted(arrays)) or 'nothing'}")
        return parse_object(_text_bytes("config", arrays.pop("config"), MAX_JSON)), arrays


def model_of(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    """Return the model of the entries and arrays that `contents_of` describes; raises `FormatError`."""
    config = ModelConfig.from_json(document["model"])
    text = None
    dense: tuple[Dense, ...] = ()
    if ("text" in document) != ("tokenizer" in arrays):
        raise FormatError("the config's text entry and the array called tokenizer must both be there, or neither")
    if "text" in document:
        tokenizer = _text_bytes("tokenizer", arrays.pop("tokenizer"), MAX_TOKENIZER)
        dense = _take_dense(document["text"], arrays)
        text = TextConfig.from_json(document["text"], tokenizer)
    stem = make_stem(document["stem"], take_stem(arrays)) if "stem" in document else None
    layout = Layout.from_json(document["packed"]) if "packed" in document else None
    return Model(config, arrays, text, dense, stem, layout)


def _take_dense(document: Any, arrays: dict[str, np.ndarray]) -> tuple[Dense, ...]:
    """Remove the entry "dense" and its arrays, and return the maps that they describe."""
    names = document.pop("dense", []) if isinstance(document, dict) else []
    if not isinstance(names, list) or not all(f"dense.{i}.weight" in arrays for i in range(len(names))):
        raise FormatError(f"the entry dense of the text configuration must list the activation of each array "
                          f"dense.0.weight, dense.1.weight ..., not {shown(names)}")
    return tuple(Dense(arrays.pop(f"dense.{i}.weight"), arrays.pop(f"dense.{i}.bias", None), name)
                 for i, name in enumerate(names))


def check_version(document: dict[str, Any], newest: int) -> None:
    """Raise `FormatError` or `UnsupportedError` unless the contents of config state a version up to `newest`."""
    if document.get("format") != FORMAT or type(document.get("version")) is not int:
        raise FormatError(f"the config must state the format {FORMAT!r} and its version, "
                          f"not {shown(document.get('format'))} and {shown(document.get('version'))}")
    if document["version"] > newest:
        raise UnsupportedError(f"format version {shown(document['version'])} is newer than {newest}, the newest that "
                               "this engine reads; upgrade encoder-engine")


def _check_document(document: dict[str, Any]) -> None:
    check_version(document, VERSION)
    if document["version"] < 1 or "model" not in document or document.keys() - _ENTRIES:
        raise FormatError("the config must have format, version, model and perhaps text, stem and packed, not "
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


def _read_folder(folder: Path, memory: str, task: str | None) -> Model:
    modules = find_modules(folder)
    home = modules.transformer
    refuse_adapter(home, "AutoModel")
    if not has_file(home / "config.json"):
        raise WeightsError(f"{home}: no config.json; expected an .npz or the folder of a model")
    values = read_object(home / "config.json")
    with within(home / "config.json"):
        family = get_family(values)
        config = family.read_config(values)
    check_code(modules, config)
    renamed = read_weights(home, family.NAMES.rename, keep_float16=True, memory=memory)
    text = read_text(modules, config)
    with within(home):
        merged = choose_task(family, renamed, values, task)
        weights = family.NAMES.split(fold(family, merged, values), config)
        own = _take_own_dense(weights)
        arrays = take_stem(weights)
        stem = read_stem(family, values, {name: widened(array) for name, array in arrays.items()})
        if text is not None and modules.pooling is None:
            text = adapt_text(family, text, values, tokenizer_settings(home))
    dense = own + tuple(read_dense(folder, memory) for folder in modules.dense)
    return Model(config, weights, text, dense if text is not None else (), stem)


def take_stem(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Remove the arrays of a stem, which are named stem.NAME, and return them by NAME."""
    return {name.removeprefix("stem."): arrays.pop(name) for name in list(arrays) if name.startswith("stem.")}


def _take_own_dense(weights: dict[str, np.ndarray]) -> tuple[Dense, ...]:
    """Remove the map of the pooled vector that a family has among its weights, and return it."""
    if "dense.0.weight" not in weights:
        return ()
    weight, bias = (array if array is None else widened(array)
                    for array in (weights.pop("dense.0.weight"), weights.pop("dense.0.bias", None)))
    assert weight is not None
    return (Dense(weight, bias),)
