"""Read the folders of Hugging Face and of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, WeightsError, shown
from ..base.lazy import lazy
from ..families import get_family
from ..families.heads import PREFIX, read_heads
from ..families.parts import Family, Part, Parts, Values
from ..files.folder import ModelFolder
from ..model.generation_config import GenerationConfig
from ..model.text_config import TextConfig
from ..text.vocabularies.of_folder import read_tokenizers
from ..weights.bfloat16 import widened
from ..weights.dense import Dense
from ..weights.input_layers import take_stem
from ..weights.model import Model, Transformer
from .generation_settings import settings_of
from .head_tokens import with_tokens
from .logit_score import has_logit_score, read_logit_score
from .model_type import with_model_type
from .peft import refuse_adapter
from .sentence_transformers import (
    MODULES,
    check_code,
    find_modules,
    read_dense,
    read_text,
    sparse_settings,
    stated_pair_function,
    tokenizer_settings,
)
from .source import Source

CONFIG = "config.json"
_GENERATES = ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "WithLMHead", "MTModel")
"""How the names of the classes of transformers end that generate tokens."""


class FolderSource(Source):
    """The folder of a model with a config.json, and perhaps with the modules.json of sentence-transformers."""

    def __init__(self, folder: ModelFolder, memory: str):
        self.path, self.folder, self._memory = folder.path, folder, memory

    @lazy
    def kind(self) -> str:
        """Return as `Source.kind`: modules.json decides, or else what the family can do, or `architectures`."""
        if self.folder.has(MODULES):
            return "rank" if has_logit_score(self.folder) else "encode"
        family, values = _family(self.folder, "AutoModel")
        if family.read_generator is None:
            return "encode"
        if family.read_encoder is None:
            return family.generates
        names = values.get("architectures")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError(f"{self.folder.label(CONFIG)}: {shown(values.get('model_type'))} models can encode and "
                             f"{family.generates}, and the key architectures does not say which this one does; say "
                             f'kind="encode" or kind="{family.generates}"')
        return family.generates if any(name.endswith(_GENERATES) for name in names) else "encode"

    def answers(self) -> tuple[int, ...] | None:
        """Return as `Source.answers`, from the module LogitScore of sentence-transformers."""
        return read_logit_score(self.folder)

    def read(self, kind: str, task: str | None) -> Model:
        """Return as `Source.read`."""
        return self._read_encoder(task) if kind == "encode" else self._read_generator(kind, task)

    def _read_encoder(self, task: str | None) -> Model:
        if has_logit_score(self.folder):
            raise self.refuse_kind("encode", "rank")
        modules = find_modules(self.folder)
        home = modules.transformer
        family, values = _family(home, "AutoModel")
        if family.read_encoder is None:
            raise self.refuse_kind("encode", family.generates)
        with home.within(CONFIG):
            part = family.read_encoder(values)
        check_code(modules, part.config)
        renamed = home.tensors(part.names.rename, keep_float16=True, memory=self._memory)
        text = read_text(modules, part.config, translates=family.translates)
        with home.within():
            of_heads = {name.removeprefix(PREFIX): renamed.pop(name) for name in list(renamed)
                        if name.startswith(PREFIX)}
            config, weights = part.take(_merged(part, renamed, task))
            own = _take_own_dense(weights)
            heads = read_heads(part.names.heads, values | stated_pair_function(self.folder), config, of_heads)
            heads = with_tokens(heads, text, home)
            if stated := sparse_settings(modules):
                heads = tuple(replace(head, config=replace(head.config, **stated)) for head in heads)
            encoder = replace(_transformer(part, config, weights, text), heads=heads)
            if text is not None and modules.pooling is None and part.text is not None:
                encoder = replace(encoder, text=part.text(text, tokenizer_settings(home)))
        dense = own + tuple(read_dense(folder, self._memory) for folder in modules.dense)
        return Model(encoder=replace(encoder, dense=dense if text is not None else ()))

    def _read_generator(self, kind: str, task: str | None) -> Model:
        family, values = _family(self.folder, "AutoModelForCausalLM")
        if family.read_generator is None:
            raise self.refuse_kind(kind, "encode")
        self.refuse_task(task, "a model that generates has none; leave it out")
        with self.folder.within(CONFIG):
            parts = family.read_generator(values)
        generation = _generation(self.folder, values, parts.handled)
        names = [part.names.rename for part in (parts.encoder, parts.decoder) if part is not None]

        def wanted(name: str) -> str | None:
            return name if any(rename(name) is not None for rename in names) else None

        arrays = self.folder.tensors(wanted, keep_float16=True, memory=self._memory)
        source, target = read_tokenizers(self.folder, translates=True)
        return assemble(self.folder, parts, arrays, generation, source, target)


def _family(home: ModelFolder, loader: str) -> tuple[Family, Values]:
    """Return the family of a folder and the contents of its config.json; loader: as in `refuse_adapter`."""
    refuse_adapter(home, loader)
    if not home.has(CONFIG):
        inside = next((f"; it has {shown(path.name)}, so pass the path of that file"
                       for path in sorted(home.path.glob("*.gguf"))), "")
        raise WeightsError(f"{home}: no config.json; expected an .npz, a .gguf or the folder of a model{inside}")
    values = with_model_type(home, home.read_object(CONFIG), CONFIG)
    with home.within(CONFIG):
        return get_family(values), values


def _generation(folder: ModelFolder, values: Values, handled: tuple[str, ...]) -> GenerationConfig:
    name = "generation_config.json"
    stated = folder.has(name)
    with folder.within(name if stated else CONFIG):
        return settings_of(folder.read_object(name) if stated else None, values, handled)


def _merged(part: Part, weights: dict[str, np.ndarray], task: Any) -> dict[str, np.ndarray]:
    """Return renamed weights with the adapter of a task merged; raises `InputError` for an unknown task."""
    if not isinstance(task, str | None):
        raise InputError(f"task must be the name of one of the model's tasks, or None, not {shown(task)}")
    if part.adapters is not None:
        return part.adapters(weights, task)
    if task is not None:
        raise UnsupportedError(f"the model has no adapters, so that task={shown(task)} has no effect; leave it out")
    return weights


def _take_own_dense(weights: dict[str, np.ndarray]) -> tuple[Dense, ...]:
    """Remove the map of the pooled vector that a family has among its weights, and return it."""
    if "dense.0.weight" not in weights:
        return ()
    bias = weights.pop("dense.0.bias", None)
    return (Dense(widened(weights.pop("dense.0.weight")), None if bias is None else widened(bias)),)


def assemble(folder: object, parts: Parts, arrays: Mapping[str, np.ndarray], generation: GenerationConfig,
             source: TextConfig | None, target: TextConfig | None) -> Model:
    """Return the model of arrays under the names of a file; its parts share the memory of arrays that both read.

    folder: what an error message begins with. source, target: the tokenizers of the encoder and of the decoder.
    """
    def part_of(part: Part, text: TextConfig | None) -> Transformer:
        renamed = _renamed(folder, arrays, part.names.rename)
        text = None if text is None else replace(text, feeds_token_types=False)
        try:
            return _transformer(part, *part.take(renamed), text)
        except (UnsupportedError, WeightsError) as error:
            raise type(error)(f"{folder}: {error}") from None

    encoder = None if parts.encoder is None else part_of(parts.encoder, source)
    return Model(encoder=encoder, decoder=part_of(parts.decoder, target), generation=generation)


def _transformer(part: Part, config: Any, weights: dict[str, np.ndarray], text: TextConfig | None) -> Transformer:
    arrays = take_stem(weights)
    stem = part.stem and part.stem({name: widened(array) for name, array in arrays.items()})
    return Transformer(config, weights, text, stem=stem).with_wide_vectors()


def _renamed(folder: object, arrays: Mapping[str, np.ndarray],
             rename: Callable[[str], str | None]) -> dict[str, np.ndarray]:
    """Return the arrays that `rename` names, which are the same memory for both parts of a model."""
    renamed: dict[str, np.ndarray] = {}
    for old, array in arrays.items():
        name = rename(old)
        if name in renamed:
            raise WeightsError(f"{folder}: two tensors are both {name}, the second is {shown(old)}; remove the wrong "
                               "one")
        if name is not None:
            renamed[name] = array
    return renamed
