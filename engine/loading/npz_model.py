"""Write and read the engine's own file of a model, an `.npz`; docs/npz.md describes it.

The array called config holds a JSON object. Versions 1, 2 and 4 hold an encoder: format, version, model and perhaps
text, stem and packed. Version 4 may also have heads, whose arrays are called heads.TASK.NAME, no layers, and modules
other than plain linear maps; or in place of one encoder the encoders of several tasks: parts, routes (the number of
each task's part), default (the number of the part that runs where a call names no task, or null) and shared (an array
of one part by the name of an equal one of another), with the number of a part in front of each array. Version 3 holds a
model that generates: format, version, generation (the settings that are not the defaults), decoder and perhaps encoder
(each with model and perhaps text, stem and packed), and shared: the names of arrays that both parts have and that the
file holds once, as the encoder's. Arrays of version 3 have the name of their part in front. Version 5 is any of these
with weights in int4 or in blocks, and version 6 any of these with what a model of images has: images (how an image
becomes pixels), heads of two rows, two first tokens, or an encoder of images beside that of texts, whose route is
called "image".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..base.arguments import renamed_arguments
from ..base.errors import InputError, UnsupportedError, WeightsError, listed, shown
from ..files.npz import read_npz, write_npz
from ..files.reading import MAX_JSON, FormatError, naming, parse_object, within
from ..model.config import NEW_IN_VERSION_2, ModelConfig
from ..model.generation_config import GenerationConfig
from ..model.head import ROWS_OF_TASKS, WIDE_ROWS, HeadConfig
from ..model.image_config import ImageConfig
from ..model.precision import FORMATS, STORED
from ..model.text_config import TEXT_NEW_IN_VERSION_2, TextConfig
from ..text.safety import MAX_TOKENIZER
from ..weights.attention_pooling import make_pooling
from ..weights.calibration import Calibration
from ..weights.head import Head, check_heads
from ..weights.input_layers import Frames, Patches, make_stem, stem_arrays, stem_document
from ..weights.model import IMAGE, Model, Transformer
from ..weights.modules import MOST_MODULES, Module, make_module, module_document
from ..weights.packed import PACKED_PREFIX, PackedFormat
from ..weights.parameters import check, expected_shapes, matrices, packed_arrays, take_arrays
from .other_libraries import NEMO, OF_NEMO
from .source import Source

FORMAT = "encoder-engine"
"""What the entry "format" of a file's description says."""
ENCODER, GENERATOR, HEADED, IN_BLOCKS, OF_IMAGES = 2, 3, 4, 5, 6
"""The versions of a file: the newest one with an encoder alone, then of a model that generates, of an encoder with
heads, of any of these with weights in int4 or in blocks, and of any of these for images. A file states the lowest
version that can hold its model, so that older engines read the file if they can, and say that they are older if not."""
ADVICE = "see docs/npz.md for what an .npz of weights holds"
"""The end of a message about a wrong `.npz`."""
_PARTS = ("encoder", "decoder")
_OF_PART = {"model", "text", "stem", "images", "pooling", "dense", "packed"}
"""The keys of the description of an encoder or a decoder in the file."""
_DENSE, _TOKEN_MODULES = "dense", "token_modules"
"""The entries of the text configuration that list modules; also the beginnings of the names of the modules' arrays."""
_MOST_PARTS = 32
"""Limit on the encoders of a file, and on its tasks."""
_HEADS = "heads."
"""The beginning of the names of the arrays of heads."""
_CALIBRATION = "calibration."
"""The beginning of the names of the arrays of calibrations. The configuration does not mention them, so that every
version may have them, and a reader that takes only the arrays that it knows leaves them alone."""
_NOT_WHOLE = (".safetensors", ".bin", ".pt", ".pth")
"""Suffixes of files that hold the weights of a model, but not its configuration."""


class HoldsModel(Protocol):
    """An object whose model `save` writes: an `Engine`, a `Generator`, a `Reranker` or a `Transcriber`."""

    def to_model(self) -> Model:
        """Return the model, with the calibrations and the text settings of the object."""


@renamed_arguments
def save(model: Model | HoldsModel, path: str | os.PathLike[str]) -> None:
    """Write a model, or that of an engine, as one `.npz`, which `load_model` reads back bit for bit.

    The weights of an engine's model are those of the files that it was loaded from. An existing file is replaced when
    the new one is complete. An array of the decoder that is equal to the encoder's of the same name is written once.
    Raises `WeightsError` when the weights do not fit the configuration or the file cannot be written, and `InputError`
    for anything but a `Model`.
    """
    if not isinstance(model, Model) and hasattr(type(model), "to_model"):
        model = model.to_model()
    if not isinstance(model, Model):
        raise InputError(f"save takes a Model or an engine, and then the path, not {shown(model)}; load_model returns "
                         "a Model")
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise InputError(f"save takes the path of the file to write, as a str or a Path, not {shown(path)}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InputError(f"the path {shown(path)} has characters that no file name can have") from None
    document, arrays = _contents(model)
    text = json.dumps({"format": FORMAT, **document}, indent=1)
    write_npz(path, {"config": np.frombuffer(text.encode(), np.uint8)} | arrays)


def _contents(model: Model) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the JSON object that describes a model in its `.npz`, and its arrays by name; raises as `save` does."""
    model.check_parts("the model to save")
    if model.routes or model.images is not None:
        return _contents_of_routes(model)
    if model.decoder is None:
        assert model.encoder is not None
        entries, arrays = _contents_of(model.encoder, "the model to save")
        return {"version": _version(model.encoder)} | entries, arrays
    version = IN_BLOCKS if any(map(_has_blocks, model.parts.values())) else GENERATOR
    document: dict[str, Any] = {"version": version, "generation": _settings_without_defaults(model.generation)}
    arrays, shared = {}, []
    for name, part in model.parts.items():
        document[name], part_arrays = _contents_of(part, f"the model to save, {name}")
        for key, array in part_arrays.items():
            if _equal(arrays.get(f"encoder.{key}"), array):
                shared.append(key)
            else:
                arrays[f"{name}.{key}"] = array
    return document | {"shared": shared}, arrays


def _contents_of_routes(model: Model) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the JSON object of a model with an encoder for each task, and its arrays; raises the errors of `save`.

    An encoder of images beside an encoder of texts is written as the encoder of the task `IMAGE`.
    """
    parts = list(model.parts.values())
    numbers = {id(part): i for i, part in enumerate(parts)}
    routes = model.routes if model.images is None else {IMAGE: model.images}
    document: dict[str, Any] = {
        "version": max(HEADED if model.images is None else OF_IMAGES, *map(_version, parts)),
        "routes": {task: numbers[id(part)] for task, part in routes.items()},
        "default": None if model.encoder is None else numbers[id(model.encoder)], "parts": [], "shared": {}}
    arrays: dict[str, np.ndarray] = {}
    for i, part in enumerate(parts):
        part_document, part_arrays = _contents_of(part, f"the model to save, part {i}")
        document["parts"].append(part_document)
        for name, array in part_arrays.items():
            # The name of an equal array of an earlier part, which the file then holds once for both.
            same = next((f"{n}.{name}" for n in range(i) if _equal(arrays.get(f"{n}.{name}"), array)), None)
            if same is None:
                arrays[f"{i}.{name}"] = array
            else:
                document["shared"][f"{i}.{name}"] = same
    return document, arrays


def _contents_of(part: Transformer, source: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the JSON object of an encoder or a decoder, and its arrays by name; raises the errors of `save`.

    source: the beginning of error messages.
    """
    check(part.config, part.weights, source, layout=part.layout)
    names = expected_shapes(part.config, part.weights)
    # A packed model has panels in place of some weights; they are added below.
    weights = {name: part.weights[name] for name in names if name in part.weights}
    document: dict[str, Any] = {"model": part.config.to_json()}
    arrays: dict[str, np.ndarray] = {}
    if part.layout is not None:
        document["packed"] = part.layout.to_json()
        weights |= {name: part.weights[name] for name in packed_arrays(part.config, part.layout)}
    if part.text is not None:
        document["text"] = part.text.to_json()
        arrays["tokenizer"] = np.frombuffer(part.text.tokenizer_json, np.uint8)
        part.check_modules(source)
        for entry, modules in ((_DENSE, part.modules), (_TOKEN_MODULES, part.token_modules)):
            entries, module_arrays = _entry_of_modules(entry, modules)
            document["text"] |= entries
            arrays |= module_arrays
    if part.stem is not None:
        document["stem"] = stem_document(part.stem)
        arrays |= {f"stem.{name}": array for name, array in stem_arrays(part.stem).items()}
    if part.images is not None:
        document["images"] = part.images.to_json()
    if part.pooling is not None:
        document["pooling"] = part.pooling.document()
        arrays |= {f"pooling.{name}": array for name, array in part.pooling.arrays.items()}
    if part.text is None and part.modules:
        part.check_modules(source)
        entries, module_arrays = _entry_of_modules(_DENSE, part.modules)
        document |= entries
        arrays |= module_arrays
    if heads := check_heads(part.heads, part.config, source):
        document["heads"] = [head.config.to_json() for head in heads]
        arrays |= {f"{_HEADS}{head.config.task}.{name}": array for head in heads
                   for name, array in head.weights.items()}
    arrays |= {f"{_CALIBRATION}{one.task}.{name}": array for one in part.check_calibrations(source)
               for name, array in one.arrays.items()}
    return document, arrays | weights


def _entry_of_modules(entry: str, modules: tuple[Module, ...]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return {entry: the list of the modules' descriptions}, or {} for no modules, and their arrays by name."""
    if not modules:
        return {}, {}
    arrays = {f"{entry}.{i}.{name}": array for i, module in enumerate(modules)
              for name, array in module.arrays.items()}
    return {entry: [module_document(module) for module in modules]}, arrays


def _version(encoder: Transformer) -> int:
    """Return the lowest version of the `.npz` that can hold this encoder."""
    # What needs the newest version is asked first. Patches with one first token fit older versions.
    has_first_tokens = isinstance(encoder.stem, Patches) and encoder.stem.first_count != 1
    of_images = encoder.images is not None or encoder.pooling is not None or (encoder.text is None and encoder.modules)
    if of_images or has_first_tokens or any(head.config.rows in WIDE_ROWS for head in encoder.heads):
        return OF_IMAGES
    if _has_blocks(encoder):
        return IN_BLOCKS
    late = encoder.text is not None and encoder.text.late is not None
    if late or encoder.heads or encoder.token_modules or encoder.config.num_layers == 0 or not all(
            isinstance(module_document(module), str) for module in encoder.modules):
        return HEADED
    new = encoder.config.to_json().keys() & set(NEW_IN_VERSION_2)
    if encoder.text is not None:
        new |= encoder.text.to_json().keys() & set(TEXT_NEW_IN_VERSION_2)
    return ENCODER if new or encoder.modules or encoder.stem or encoder.layout is not None else 1


def _has_blocks(part: Transformer) -> bool:
    """Return whether any matrix is stored in blocks, or packed for a precision of blocks."""
    stored = {part.precision, *(STORED.get(part.weights[name].dtype) for name in matrices(part.config)
                                if name in part.weights)}
    return any(FORMATS[name].block > 1 for name in stored if name)


def _settings_without_defaults(config: GenerationConfig) -> dict[str, Any]:
    """Return the settings of generation, by name, that do not have their defaults."""
    values = asdict(config)
    return {f.name: values[f.name] for f in fields(config) if getattr(config, f.name) != f.default}


def _equal(a: np.ndarray | None, b: np.ndarray) -> bool:
    """Return whether two arrays have the same type, shape and numbers; False for None."""
    return a is not None and a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


def _is_zip(path: Path) -> bool:
    """Return whether a file begins as a ZIP archive, which every .npz is, whatever its name."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


class NpzSource(Source):
    """An `.npz` of any version, whose arrays are mapped into memory."""

    def __init__(self, path: Path, memory: str):
        """Read the names and the description; memory: how `read_npz` keeps arrays. Raises `WeightsError`."""
        self.path = path
        if path.suffix in _NOT_WHOLE:
            raise WeightsError(f"{path}: a {path.suffix} file alone does not describe a model; load the folder that "
                               "holds it and its config.json")
        if path.suffix == ".onnx":
            raise WeightsError(f"{path}: the engine reads no ONNX; load the folder of the model that it was made from")
        if path.suffix == NEMO:
            raise UnsupportedError(f"{path}: {OF_NEMO}")
        if path.suffix == ".json":
            raise WeightsError(f"{path}: a .json file does not hold a model; load the folder that holds it")
        if path.suffix != ".npz" and not _is_zip(path):
            raise WeightsError(f"{path} is no model: expected an .npz or a .gguf file, or the folder that holds "
                               "config.json and the weights")
        self._arrays = read_npz(path, keep_float16=True, memory=memory, unread=PACKED_PREFIX)
        with naming(path, ADVICE), within(path):
            if "config" not in self._arrays:
                raise FormatError(f"no array is called config; it holds {listed(sorted(self._arrays)) or 'nothing'}")
            self._document = parse_object(_text_bytes("config", self._arrays.pop("config"), MAX_JSON))
            _check_document(self._document)

    def refuse_long_context(self) -> UnsupportedError:
        """Return the error for long_context: a file has one table of positions, chosen when it was written."""
        return UnsupportedError(f"{self.path}: long_context=True chooses between two tables of positions of a folder "
                                "or a GGUF file, and an .npz holds one; leave it out, and for the table for long "
                                "sequences write the file anew: engine convert FOLDER OUT.npz --long-context")

    @property
    def _has_images(self) -> bool:
        """Whether the file has an encoder of images beside that of texts."""
        return "routes" in self._document and _holds_images(self._document)

    @property
    def kind(self) -> str:
        """Return the kind of use, "encode", "generate" or "transcribe", by the parts and heads in the file."""
        heads = self._document.get("heads")
        if isinstance(heads, list) and any(isinstance(head, dict) and head.get("task") == "transcribe"
                                           for head in heads):
            return "transcribe"
        if not _generates(self._document) or _feeds_heads(self._document):
            return "encode"
        stem = self._document.get("encoder", {}).get("stem")
        return "transcribe" if isinstance(stem, dict) and stem.get("kind") == Frames.kind else "generate"

    def read(self, kind: str, task: str | None) -> Model:
        """Return the model of the file; for the task `IMAGE`, the encoder of images alone."""
        if task != IMAGE or not self._has_images:
            self.refuse_task(task, "a file has none; load or convert the folder with this task")
        if (kind == "encode") != (self.kind == "encode"):
            raise self.refuse_kind(kind, self.kind)
        document, arrays = deepcopy(self._document), dict(self._arrays)     # the functions below remove what they read
        with naming(self.path, ADVICE), within(self.path):
            if "routes" in document:
                model = _with_routes(document, arrays)
                return Model(encoder=model.images) if task == IMAGE else model
            if not _generates(document):
                return Model(encoder=_transformer_of(document, arrays))
            parts = {name: _transformer_of(document[name], arrays_of_part)
                     for name, arrays_of_part in _arrays_of_parts(document, arrays).items()}
            try:
                generation = GenerationConfig().changed(**document["generation"])
            except InputError as error:
                raise FormatError(f"the settings of generation are wrong: {error}") from error
        return Model(encoder=parts.get("encoder"), decoder=parts["decoder"], generation=generation)


def _arrays_of_parts(document: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of each part that the document describes, by their names without the part's; empties `arrays`.

    Raises `FormatError` for arrays of no part.
    """
    for name in document["shared"]:
        if f"encoder.{name}" not in arrays or f"decoder.{name}" in arrays:
            raise FormatError(f"the shared array {shown(name)} must be one of the encoder's, and not the decoder's")
        arrays[f"decoder.{name}"] = arrays[f"encoder.{name}"]
    by_part = {}
    for part in _PARTS:
        arrays_of_part = take_arrays(arrays, f"{part}.")
        if part in document:
            by_part[part] = arrays_of_part
        elif arrays_of_part:
            raise FormatError(f"there are arrays of the {part}, which the config does not describe")
    if arrays:
        raise FormatError(f"the names of arrays begin with encoder. or decoder., which {listed(sorted(arrays))} do not")
    return by_part


def _transformer_of(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Transformer:
    """Return the encoder or the decoder that `_contents_of` described; raises `FormatError`.

    Removes from `document` and `arrays` what is read; the arrays that are left are the weights.
    """
    config = ModelConfig.from_json(document["model"])
    text = None
    modules: tuple[Module, ...] = ()
    token_modules: tuple[Module, ...] = ()
    if ("text" in document) != ("tokenizer" in arrays):
        raise FormatError("the config's text entry and the array called tokenizer must both be there, or neither")
    if "text" in document:
        tokenizer = _text_bytes("tokenizer", arrays.pop("tokenizer"), MAX_TOKENIZER)
        modules, token_modules = (_take_modules(document["text"], entry, arrays) for entry in (_DENSE, _TOKEN_MODULES))
        text = TextConfig.from_json(document["text"], tokenizer)
    elif _DENSE in document:        # modules of an image encoder
        modules = _take_modules(document, _DENSE, arrays)
    stem = make_stem(document["stem"], take_arrays(arrays, "stem.")) if "stem" in document else None
    images = ImageConfig.from_json(document["images"]) if "images" in document else None
    pooling = make_pooling(document["pooling"], take_arrays(arrays, "pooling.")) if "pooling" in document else None
    layout = PackedFormat.from_json(document["packed"]) if "packed" in document else None
    heads = _take_heads(document.get("heads", []), arrays)
    calibrations = _take_calibrations(arrays)
    return Transformer(config, arrays, text=text, modules=modules, token_modules=token_modules, stem=stem,
                       images=images, pooling=pooling, layout=layout, heads=heads,
                       calibrations=calibrations).with_wide_vectors()


def _with_routes(document: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    """Return the model with an encoder for each task that `_contents_of_routes` described; raises `FormatError`."""
    for name, same in document["shared"].items():
        if same not in arrays or name in arrays:
            raise FormatError(f"the shared array {shown(name)} must not be in the file, and {shown(same)} must be")
        arrays[name] = arrays[same]
    parts = [_transformer_of(part, take_arrays(arrays, f"{i}.")) for i, part in enumerate(document["parts"])]
    if arrays:
        raise FormatError(f"the names of arrays begin with the number of a part, which {listed(sorted(arrays))} do not")
    default = document["default"]
    encoder = None if default is None else parts[default]
    if _holds_images(document):
        return Model(encoder=encoder, images=parts[document["routes"][IMAGE]])
    return Model(encoder=encoder, routes={task: parts[number] for task, number in document["routes"].items()})


def _holds_images(document: Mapping[str, Any]) -> bool:
    """Return whether the routes of a model are an encoder of texts and one of images, and not tasks of texts."""
    return document["version"] >= OF_IMAGES and document["routes"].keys() == {IMAGE}


def _take_heads(document: Any, arrays: dict[str, np.ndarray]) -> tuple[Head, ...]:
    """Return the heads that the entry "heads" describes; removes their arrays from `arrays`."""
    if not isinstance(document, list) or len(document) > len(ROWS_OF_TASKS):
        raise FormatError(f"the entry heads must list at most {len(ROWS_OF_TASKS)} heads, not {shown(document)}")
    return tuple(Head(config, take_arrays(arrays, f"{_HEADS}{config.task}."))
                 for config in map(HeadConfig.from_json, document))


def _take_calibrations(arrays: dict[str, np.ndarray]) -> tuple[Calibration, ...]:
    """Return the calibrations in a file, unchecked; removes their arrays from `arrays`. `Transformer` checks them."""
    by_task: dict[str, dict[str, np.ndarray]] = {}
    for name, array in take_arrays(arrays, _CALIBRATION).items():
        task, _, array_name = name.partition(".")
        by_task.setdefault(task, {})[array_name] = array
    return tuple(Calibration(task, of_task) for task, of_task in by_task.items())


def _take_modules(document: Any, entry: str, arrays: dict[str, np.ndarray]) -> tuple[Module, ...]:
    """Return the modules that an entry of the text configuration lists; removes the entry and the modules' arrays."""
    documents = document.pop(entry, []) if isinstance(document, dict) else []
    if not isinstance(documents, list) or len(documents) > MOST_MODULES:
        raise FormatError(f"the entry {entry} of the text configuration must list at most {MOST_MODULES} modules, not "
                          f"{shown(documents)}")
    return tuple(make_module(module, take_arrays(arrays, f"{entry}.{i}.")) for i, module in enumerate(documents))


def _check_document(document: dict[str, Any]) -> None:
    """Raise `FormatError` or `UnsupportedError` unless the JSON has the entries of its version."""
    version = document.get("version")
    if document.get("format") != FORMAT or type(version) is not int:
        raise FormatError(f"the config must state the format {FORMAT!r} and its version, "
                          f"not {shown(document.get('format'))} and {shown(version)}")
    if version > OF_IMAGES:
        raise UnsupportedError(f"format version {shown(version)} is newer than {OF_IMAGES}, the newest that this "
                               "engine reads; upgrade encoder-engine")
    allowed = _OF_PART | {"format", "version"} | ({"heads"} if version >= HEADED else set())
    if _generates(document):
        _check_generator(document)
    elif version >= HEADED and "routes" in document:
        _check_routes(document)
    elif version < 1 or "model" not in document or not document.keys() <= allowed:
        raise FormatError("the config must have format, version, model and perhaps text, stem and packed, and in "
                          f"version {HEADED} heads, not {listed(sorted(document))}")


def _generates(document: dict[str, Any]) -> bool:
    """Return whether a file has a decoder, which either generates or feeds heads (`_feeds_heads`)."""
    return document["version"] == GENERATOR or (document["version"] >= IN_BLOCKS and "decoder" in document)


def _feeds_heads(document: dict[str, Any]) -> bool:
    """Return whether a decoder gives `logits_size` numbers for the heads of the encoder (BART's), and no words."""
    decoder = document.get("decoder")
    model = decoder.get("model") if isinstance(decoder, dict) else None
    return isinstance(model, dict) and bool(model.get("logits_size"))


def _check_routes(document: dict[str, Any]) -> None:
    """Raise `FormatError` unless the description of encoders by task has its entries, each in the right form."""
    routes, parts, shared = document["routes"], document.get("parts"), document.get("shared")
    default = document.get("default")
    if (document.keys() != {"format", "version", "routes", "default", "parts", "shared"}
            or not isinstance(parts, list) or not 1 <= len(parts) <= _MOST_PARTS
            or not all(isinstance(part, dict) and "model" in part and part.keys() <= _OF_PART | {"heads"}
                       for part in parts)
            or not isinstance(routes, dict) or not routes or len(routes) > _MOST_PARTS
            or not all(type(number) is int and 0 <= number < len(parts) for number in routes.values())
            or not (default is None or (type(default) is int and 0 <= default < len(parts)))
            or not isinstance(shared, dict) or not all(isinstance(name, str) for name in shared.values())):
        raise FormatError("the config of a model with routes must have format, version, routes, default, parts and "
                          f"shared, not {listed(sorted(document))}, or one of these has the wrong form")


def _check_generator(document: dict[str, Any]) -> None:
    """Raise `FormatError` unless the description of a model that generates has its entries, each in the right form."""
    shared, settings = document.get("shared"), document.get("generation")
    parts = [document[part] for part in _PARTS if part in document]
    allowed = _OF_PART | ({"heads"} if _feeds_heads(document) else set())
    if (document.keys() - {"encoder"} != {"format", "version", "generation", "shared", "decoder"}
            or not isinstance(settings, dict)
            or not isinstance(shared, list) or not all(isinstance(name, str) for name in shared)
            or not all(isinstance(part, dict) and "model" in part and part.keys() <= allowed for part in parts)):
        raise FormatError("the config of a generating model must have format, version, generation, shared, decoder and "
                          f"perhaps encoder, not {listed(sorted(document))}, or one of these has the wrong form")


def _text_bytes(name: str, array: np.ndarray, limit: int) -> bytes:
    """Return the UTF-8 of a text in an array of uint8, or of one NumPy string (UTF-32), as other exporters write it.

    name: of the array, for messages. limit: the most bytes.
    """
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
