"""The `.npz` of a model that generates: the arrays of its encoder and decoder under the prefixes of these names.

The array called config holds a JSON object: format, version, generation (the settings that are not the defaults),
decoder and perhaps encoder (each with model and perhaps text and stem, as in the file of an encoder), and shared: the
names of arrays that both halves have and that the file holds once, as the encoder's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError, UnsupportedError, listed, shown
from .generation.settings import GenerationConfig
from .model import ADVICE, FORMAT, Model, check_version, contents_of, model_of, read_document
from .weights.files import FormatError, naming, within
from .weights.npz import write_npz

VERSION = 3
"""The version of a file with a generating model; versions 1 and 2 hold encoders (model.py)."""

_HALVES = ("encoder", "decoder")


def write_sequence_npz(path: str | os.PathLike[str], halves: Mapping[str, Model], generation: GenerationConfig) -> None:
    """Write a generating model; halves: the models under "decoder" and perhaps "encoder". Raises `WeightsError`.

    An array of the decoder that is equal to the encoder's of the same name is written once.
    """
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "generation": _changed(generation)}
    arrays: dict[str, np.ndarray] = {}
    shared = []
    for half in _HALVES:
        if half not in halves:
            continue
        document[half], own = contents_of(halves[half])
        for name, array in own.items():
            if _equal(arrays.get(f"encoder.{name}"), array):
                shared.append(name)
            else:
                arrays[f"{half}.{name}"] = array
    document["shared"] = shared
    config = {"config": np.frombuffer(json.dumps(document, indent=1).encode(), np.uint8)}
    write_npz(path, config | arrays)


def read_sequence_npz(path: Path, memory: str) -> tuple[dict[str, Model], GenerationConfig]:
    """Return what `write_sequence_npz` wrote; raises `WeightsError` and `UnsupportedError`."""
    document, arrays = read_document(path, memory)
    with naming(path, ADVICE), within(path):
        _check_document(document)
        for name in document["shared"]:
            if f"encoder.{name}" not in arrays or f"decoder.{name}" in arrays:
                raise FormatError(f"the shared array {shown(name)} must be one of the encoder's, and not the decoder's")
            arrays[f"decoder.{name}"] = arrays[f"encoder.{name}"]
        halves = {}
        for half in _HALVES:
            own = _take(arrays, half)
            if half in document:
                halves[half] = model_of(document[half], own)
            elif own:
                raise FormatError(f"there are arrays of the {half}, which the config does not describe")
        if arrays:
            raise FormatError(f"the names of arrays begin with encoder. or decoder., which "
                              f"{listed(sorted(arrays))} do not")
        try:
            return halves, GenerationConfig().changed(**document["generation"])
        except InputError as error:
            raise FormatError(f"the settings of generation are wrong: {error}") from error


def _changed(config: GenerationConfig) -> dict[str, Any]:
    """Return the settings that do not have their defaults."""
    values = asdict(config)
    return {f.name: values[f.name] for f in fields(config) if getattr(config, f.name) != f.default}


def _equal(a: np.ndarray | None, b: np.ndarray) -> bool:
    return a is not None and a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


def _take(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Remove the arrays of a prefix, and return them without it."""
    names = [name for name in arrays if name.startswith(f"{prefix}.")]
    return {name.removeprefix(f"{prefix}."): arrays.pop(name) for name in names}


def _check_document(document: dict[str, Any]) -> None:
    check_version(document, VERSION)
    if document["version"] < VERSION:
        raise UnsupportedError("the file holds an encoder, which generates no tokens; load it with Engine")
    shared, settings = document.get("shared"), document.get("generation")
    halves = [document[half] for half in _HALVES if half in document]
    if (document.keys() - {"encoder"} != {"format", "version", "generation", "shared", "decoder"}
            or not isinstance(settings, dict)
            or not isinstance(shared, list) or not all(isinstance(name, str) for name in shared)
            or not all(isinstance(half, dict) and "model" in half and half.keys() <= {"model", "text", "stem", "packed"}
                       for half in halves)):  # fmt: skip
        raise FormatError("the config of a generating model must have format, version, generation, shared, decoder and "
                          f"perhaps encoder, not {listed(sorted(document))}, or one of these has the wrong form")
