"""A model that generates, in memory, and how it is read: from an `.npz`, a folder of Hugging Face, or a GGUF file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .config import TextConfig
from .converted import read_settings
from .errors import InputError, WeightsError, shown
from .families import ctranslate2_models, gguf_models
from .families.generating import get_generating_family
from .families.halves import Half, Halves
from .families.peft import refuse_adapter
from .families.sentence_transformers import read_tokenizer
from .generation.files import settings_of
from .generation.settings import GenerationConfig
from .model import Model, explain_missing, model_path, take_stem, with_wide_vectors
from .sequence_npz import read_sequence_npz, write_sequence_npz
from .vocabularies.fairseq import read_m2m
from .vocabularies.gguf import read_gguf_tokenizer
from .vocabularies.marian import read_marian
from .weights.bfloat16 import widened
from .weights.ctranslate2 import CTranslate2File
from .weights.files import has_file, naming, read_object, within
from .weights.folders import FORMATS, read_weights
from .weights.gguf import GgufFile

_Rename = Callable[[str], "str | None"]


@dataclass(frozen=True, eq=False)
class SequenceModel:
    """A decoder, the encoder that it reads, and how the model generates unless a call says otherwise.

    `decoder.text` and `encoder.text` are the tokenizers of the two sides; a model with one tokenizer has it in both.
    """

    decoder: Model
    encoder: Model | None = None
    generation: GenerationConfig = field(default_factory=GenerationConfig)

    def checked(self, source: str = "the model") -> SequenceModel:
        """Return the model with weights that fit the configurations; raises `WeightsError`."""
        if not self.decoder.config.decodes:
            raise WeightsError(f"{source}: the decoder's configuration has no logits, so it generates nothing")
        if self.encoder is not None and self.encoder.config.decodes:
            raise WeightsError(f"{source}: the encoder's configuration has logits, which only a decoder has")
        memory = self.decoder.config.memory_size
        width = self.encoder.config.hidden_size if self.encoder is not None else 0
        if memory != width:
            raise WeightsError(f"{source}: the decoder reads vectors of width {memory} by cross-attention, and the "
                               f"encoder gives vectors of width {width}; both must be equal, or 0 without an encoder")
        encoder = self.encoder.checked(f"{source}, encoder") if self.encoder is not None else None
        return replace(self, decoder=self.decoder.checked(f"{source}, decoder"), encoder=encoder)

    @property
    def halves(self) -> dict[str, Model]:
        """Return the models by their names in files: "encoder", if there is one, and "decoder"."""
        return ({} if self.encoder is None else {"encoder": self.encoder}) | {"decoder": self.decoder}


def save_sequence_model(model: SequenceModel, path: str | os.PathLike[str]) -> None:
    """Write a generating model as one `.npz`, which `load_sequence_model` reads back bit for bit.

    An existing file is replaced when the new one is complete. Raises `WeightsError` when the weights do not fit the
    configurations or the file cannot be written.
    """
    model = model.checked("the model to save")
    write_sequence_npz(path, model.halves, model.generation)


def load_sequence_model(path: str | os.PathLike[str], *, memory: str = "map") -> SequenceModel:
    """Load a generating model from an `.npz`, a folder of Hugging Face or of CTranslate2, or a `.gguf` file.

    memory: as in `load_model`, which says more about weights.

    Raises `WeightsError`, with everything that is wrong with the weights in one message, and `UnsupportedError` for a
    model or a setting that does not run here.
    """
    if memory not in ("map", "copy"):
        raise InputError(f"memory must be 'map' or 'copy', not {shown(memory)}")
    path = model_path(path)
    if path.suffix == ".gguf":
        model = _read_gguf(path, memory)
    elif os.path.isdir(path):
        model = _read_folder(path, memory)
    elif os.path.isfile(path):
        halves, generation = read_sequence_npz(path, memory)
        wide = {name: with_wide_vectors(half) for name, half in halves.items()}
        model = SequenceModel(**wide, generation=generation)
    else:
        raise WeightsError(explain_missing(path))
    return model.checked(str(path))


def _read_folder(folder: Path, memory: str) -> SequenceModel:
    if has_file(folder / "model.bin") and not any(has_file(folder / name) for name in FORMATS):
        return _read_ctranslate2(folder, memory)
    refuse_adapter(folder, "AutoModelForCausalLM")
    if not has_file(folder / "config.json"):
        raise WeightsError(f"{folder}: no config.json; expected the folder of a model")
    values = read_object(folder / "config.json")
    settings = folder / "generation_config.json"
    with within(folder / "config.json"):
        halves = get_generating_family(values).read_halves(values)
    stated = has_file(settings)
    with within(settings if stated else folder / "config.json"):
        generation = settings_of(read_object(settings) if stated else None, values, halves.handled)

    def wanted(name: str) -> str | None:
        parts = [half.names.rename for half in (halves.encoder, halves.decoder) if half is not None]
        return name if any(rename(name) is not None for rename in parts) else None

    arrays = read_weights(folder, wanted, keep_float16=True, memory=memory)
    return _assembled(folder, halves, arrays, generation, *_texts(folder))


def _read_ctranslate2(folder: Path, memory: str) -> SequenceModel:
    """Return a model that CTranslate2 converted, from its model.bin, config.json and tokenizer or vocabularies."""
    file = CTranslate2File(folder / "model.bin", memory)
    values = read_object(folder / "config.json") if has_file(folder / "config.json") else {}
    with within(folder):
        halves = ctranslate2_models.read_halves(file.specification, file.settings, file.shapes, values)
    source, target = _texts(folder)
    generation = read_settings(folder, file.specification, values, target)
    return _assembled(folder, halves, file.read(keep_float16=True), generation, source, target)


def _assembled(path: Path, halves: Halves, arrays: Mapping[str, np.ndarray], generation: GenerationConfig,
               source: TextConfig | None, target: TextConfig | None) -> SequenceModel:
    """Return the model of arrays under the names of a file; both halves share the memory of arrays that both read."""
    encoder = None if halves.encoder is None else _model(path, halves.encoder, arrays, source)
    return SequenceModel(_model(path, halves.decoder, arrays, target), encoder, generation)


def _model(path: Path, half: Half, arrays: Mapping[str, np.ndarray], text: TextConfig | None) -> Model:
    renamed = _renamed(path, arrays, half.names.rename)
    with within(path):
        config, weights = half.take(renamed)
    stem = None
    if half.stem is not None:
        stem = half.stem({name: widened(array) for name, array in take_stem(weights).items()})
    return with_wide_vectors(Model(config, weights, text, stem=stem))


def _renamed(path: Path, arrays: Mapping[str, np.ndarray], rename: _Rename) -> dict[str, np.ndarray]:
    """Return the arrays that `rename` names, which are the same memory for both halves of a model."""
    renamed: dict[str, np.ndarray] = {}
    for old, array in arrays.items():
        name = rename(old)
        if name in renamed:
            raise WeightsError(f"{path}: two tensors are both {name}, the second is {shown(old)}; remove the wrong one")
        if name is not None:
            renamed[name] = array
    return renamed


def _texts(folder: Path) -> tuple[TextConfig | None, TextConfig | None]:
    """Return how texts of the source and of the target become tokens, or None for a model that takes ids only."""
    sides = None if has_file(folder / "tokenizer.json") else read_marian(folder)
    if sides is not None:
        return sides.source, sides.target
    if not has_file(folder / "tokenizer.json") and (text := read_m2m(folder)) is not None:
        return text, text
    tokenizer = read_tokenizer(folder)
    text = None if tokenizer is None else TextConfig(tokenizer, feeds_token_types=False)
    return text, text


def _read_gguf(path: Path, memory: str) -> SequenceModel:
    file = GgufFile(path, memory)
    with naming(path, "convert the model again with llama.cpp"), within(path):
        half = gguf_models.read_half(file.settings, file.shapes)
        text = TextConfig(read_gguf_tokenizer(file.settings), feeds_token_types=False)
        generation = gguf_models.read_generation(file.settings)
    arrays = file.read(keep_float16=True)
    return _assembled(path, Halves(None, half), arrays, GenerationConfig(**generation), text, text)
