"""Read the folders of models of Hugging Face and of sentence-transformers, for load.py: `FolderSource`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, WeightsError, listed, shown
from ..base.lazy import lazy
from ..families import get_family
from ..families.heads import HEAD_PREFIX, read_heads
from ..families.parts import Family, Part, Parts, Values, Weights
from ..files.folder import ModelFolder
from ..files.reading import naming, wanted_names
from ..model.generation_config import GenerationConfig
from ..model.text_config import TextConfig
from ..text.vocabularies.of_folder import read_tokenizers
from ..weights.bfloat16 import widened
from ..weights.head import Head, tasks_of
from ..weights.input_layers import Patches
from ..weights.model import IMAGE, Model, Transformer
from ..weights.modules import SENTENCE, TOKENS, Dense, Module, Normalize
from ..weights.parameters import take_arrays
from ..weights.waveform import Waveform
from .bge_m3 import read_bge_m3
from .chat import read_chat
from .colbert import LINEAR, stanford_modules
from .generation_settings import GENERATION, settings_of
from .head_tokens import with_tokens
from .image_settings import read_image_settings
from .left_out import drop_extra, is_of_images, warn_of_head, warn_of_images
from .logit_score import has_logit_score, read_logit_score
from .model_type import with_model_type
from .module_list import MODULES, Late, Modules, Pooled, SparseStatic, Splade, Static
from .modules import read_modules
from .other_libraries import CONFIG, refuse_other_library
from .peft import refuse_adapter
from .router import find_routes
from .sentence_transformers import (
    check_code,
    read_text,
    sparse_settings,
    stated_pair_function,
    tokenizer_settings,
    with_settings,
)
from .source import ALONE, Source
from .spelling import gives_letters, with_spelling, without_letters
from .static import is_static, read_sparse_static, read_static

LOG = logging.getLogger("engine")
GREATEST_CONTRAST = 100
"""The largest absolute value of logit_scale, the logarithm of a factor, and of logit_bias; 4.6 and -16 are usual."""
SETFIT = "model_head.pkl"
"""The classifier in a folder of SetFit, which is a pickle of scikit-learn."""
_EXPORT = """SetFit's classifier is a pickle of scikit-learn, which could run any code, so the engine reads none. \
Export its numbers where you trust the file,
    import joblib, numpy
    head = joblib.load("model_head.pkl")
    numpy.savez("head.npz", coef=head.coef_, intercept=head.intercept_, classes=head.classes_)
and move it out of the folder. The logits of texts are then engine.encode(texts) @ coef.T + intercept"""
_GENERATES = ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "WithLMHead", "MTModel")
"""Ends of the names of the classes of transformers that generate tokens."""
_WITH_HEAD = {"ForSequenceClassification": "classify", "ForTokenClassification": "tag",
              "ForQuestionAnswering": "answer"}
"""Ends of the names of the classes whose heads the engine runs on encoders alone, and the commands for these heads."""


_TABLES = {Static: read_static, SparseStatic: read_sparse_static}
"""The readers of modules that read texts with a table in place of a transformer."""


@dataclass(frozen=True)
class _Home:
    """The contents of the folder of a first module, before the other modules say how it is used."""

    encoder: Transformer
    """The encoder, still without its text settings, heads and modules, unless it is static."""
    part: Part | None = None
    """How the family reads the encoder; None for a static model."""
    values: Values = field(default_factory=dict)
    """The contents of config.json."""
    heads: Weights = field(default_factory=dict)
    """The tensors of heads."""
    dense: tuple[Dense, ...] = ()
    """A linear map of the pooled vector, if the tensors of the encoder have one."""
    translates: bool = False
    """Whether the folder may hold vocabularies of Marian or M2M100 (`Family.translates`)."""
    unread: tuple[str, ...] = ()
    """The names of tensors that the family leaves out."""
    has_images: bool = False
    """Whether the folder has an image encoder beside this one, which the task `IMAGE` reads."""
    linear: np.ndarray | None = None
    """The map of the vectors of tokens in a folder of Stanford's ColBERT."""


class FolderSource(Source):
    """The folder of a model with a config.json, and perhaps with the modules.json of sentence-transformers."""

    def __init__(self, folder: ModelFolder, memory: str):
        self.path, self.folder, self._memory = folder.path, folder, memory
        self._spells = False        # whether a head of letters is read, which an encoder alone does without

    @lazy
    def kind(self) -> str:
        """The kind of use: "encode", "rank", "generate" or "transcribe".

        modules.json decides first; then whether the family has an encoder or a decoder alone; for a family with both,
        the class that config.json names, or else `Family.kind_without_class`.
        """
        if self.folder.has(MODULES):
            return "rank" if has_logit_score(self.folder) else "encode"
        if is_static(self.folder):
            return "encode"
        family, values = _family(self.folder, "AutoModel")
        if family.read_generator is None:
            return "transcribe" if _gives_letters(family, values) else "encode"     # letters: a CTC head of speech
        if family.read_encoder is None:
            self._refuse_head(family, values)
            return family.generates
        names = values.get("architectures")
        if not names and family.kind_without_class is not None:
            usual = family.kind_without_class
            return usual if isinstance(usual, str) else usual(values)
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError(f"{self.folder.label(CONFIG)}: {shown(values.get('model_type'))} models can encode and "
                             f"{family.generates}, and the key architectures does not say which this one does; say "
                             f'kind="encode" or kind="{family.generates}"')
        return family.generates if any(name.endswith(_GENERATES) for name in names) else "encode"

    def _refuse_head(self, family: Family, values: Values) -> None:
        """Raise `UnsupportedError` if config.json names a class with a head, which a model that generates lacks."""
        names = values.get("architectures")
        for name in names if isinstance(names, list) else []:
            command = next((tried for end, tried in _WITH_HEAD.items() if str(name).endswith(end)), None)
            if command is not None and family.read_encoder is None:
                raise UnsupportedError(
                    f"{self.folder.label(CONFIG)}: it names {shown(name)}, and the engine reads no such head of "
                    f"{shown(values.get('model_type'))} models. {ALONE}")
            if command is not None:
                raise self.refuse_use(f"{CONFIG} names {shown(name)}, whose head would be lost", "encode", command)

    def refuse_generator(self) -> None:
        """Raise `UnsupportedError` for a language model with modules.json, or with the class of a head."""
        if not self.folder.has(CONFIG):
            return
        family, values = _family(self.folder, "AutoModelForCausalLM")
        if family.read_generator is None:
            return
        if self.folder.has(MODULES):
            kind, what = ("rank", "a reranker") if has_logit_score(self.folder) else ("encode", "an embedding model")
            raise self.refuse_use(f"{MODULES} makes it {what}", kind=kind, command=kind)
        self._refuse_head(family, values)

    def answers(self) -> tuple[int, ...] | None:
        """Return the ids of the tokens that a reranker scores, by its module LogitScore; None for other models."""
        return read_logit_score(self.folder)

    def read(self, kind: str, task: str | None) -> Model:
        """Return the model for a kind of use; for "encode" without a decoder, unless a head reads it."""
        self._spells = kind == "transcribe" and _gives_letters(*_family(self.folder, "AutoModelForCTC"))
        if self._spells:
            return self._read_letters(task)
        return self._read_encoder(task) if kind == "encode" else self._read_generator(kind, task)

    def _read_letters(self, task: str | None) -> Model:
        """Return an encoder of recordings with the head that gives letters."""
        model = self._read_encoder(task)
        if model.kind != "transcribe":
            raise WeightsError(f"{self.path}: {CONFIG} names a model with a head of letters, lm_head, and the weights "
                               "lack it; copy the weights again from the source of the model")
        return model

    def _read_encoder(self, task: str | None) -> Model:
        """Read a model that encodes: a static one, or one of a family, with the modules of sentence-transformers."""
        if has_logit_score(self.folder):
            raise self.refuse_kind("encode", "rank")
        if self.folder.has(SETFIT):
            raise UnsupportedError(f"{self.folder.label(SETFIT)}: {_EXPORT}")
        if not self.folder.has(MODULES) and is_static(self.folder):
            self.refuse_task(task, "a static model has none; leave it out")
            return Model(encoder=read_static(self.folder, self._memory))
        if not self.folder.has(MODULES) and (model := self._read_headed_decoder(task)) is not None:
            return model
        routes = find_routes(self.folder)
        known: dict[str, _Home] = {}        # by folder; tasks may share modules, or their folders: each is read once
        if isinstance(routes, Modules):
            encoder = self._read_modules(routes, task, known)
            return Model(encoder=encoder, images=self._images_beside(routes, known[str(routes.home)]))
        chosen = [*routes.tasks.values(), *([] if routes.default is None else [routes.default])]
        unique = {id(modules): modules for modules in chosen}
        encoders = {key: self._read_modules(modules, task, known) for key, modules in unique.items()}
        return Model(encoder=None if routes.default is None else encoders[id(routes.default)],
                     routes={name: encoders[id(modules)] for name, modules in routes.tasks.items()})

    def _images_beside(self, modules: Modules, home: _Home) -> Transformer | None:
        """Return the encoder of images in the folder of an encoder of texts; None if there is none that runs."""
        if not home.has_images:
            return None
        try:
            return self._read_modules(modules, IMAGE, {})
        except UnsupportedError as error:
            LOG.warning("%s; so this model reads texts alone, and its encoder of images is left out", error)
            return None

    def _read_modules(self, modules: Modules, task: str | None, known: dict[str, _Home]) -> Transformer:
        """Return the encoder that these modules make. known: the folders that were read, which other modules may share.

        Adds the folder of the first module to `known`. Raises `WeightsError`, `UnsupportedError` and `InputError`.
        """
        place = str(modules.home)
        if place not in known:
            read_home = self._read_table if type(modules) in _TABLES else self._read_transformer
            known[place] = read_home(modules, task)
        home = known[place]
        text = self._text(modules, home)
        heads = self._heads(modules, home, text)
        after = home.dense + read_modules(modules.after, name=SENTENCE, memory=self._memory)
        if text is None:
            of_images = isinstance(home.encoder.stem, Patches)
            return replace(home.encoder, heads=heads, modules=after if of_images else ())
        return replace(home.encoder, text=text, heads=heads, modules=after,
                       token_modules=self._token_modules(modules, home))

    def _read_table(self, modules: Modules, task: str | None) -> _Home:
        """Read the folder of a first module that is a table in place of a transformer; raises an error for any task."""
        self.refuse_task(task, "a static model has none; leave it out")
        return _Home(encoder=_TABLES[type(modules)](modules.home, self._memory))

    def _read_transformer(self, modules: Modules, task: str | None) -> _Home:
        """Read the folder of a first module that is a transformer."""
        home = modules.home
        family, values = _family(home, "AutoModel")
        if family.read_encoder is None:
            raise self._refuse_language_model(family, values)
        read = family.read_encoder
        if task == IMAGE and family.read_images is not None:
            read, task = family.read_images, None
        with home.within(CONFIG):
            part = read(values)
        check_code(modules, part.config)
        colbert = {LINEAR: LINEAR} if modules.colbert is not None and modules.colbert.is_stanford else {}
        names: dict[str, str | None] = {}       # canonical names by those in the files; None for a tensor left out

        def note_name(tensor: str) -> str | None:
            """Return the canonical name of a tensor, and note it in `names`."""
            return names.setdefault(tensor, colbert.get(tensor) or part.names.rename(tensor))

        tensors = home.tensors(note_name, keep_float16=True, memory=self._memory)
        linear = tensors.pop(LINEAR, None) if colbert else None
        with home.within():
            heads = take_arrays(tensors, HEAD_PREFIX)
            config, weights = part.take(_with_adapter(part, tensors, task))
            dense = _take_own_dense(weights)
            drop_extra(home, part.names, config, weights, names)
            scale, bias = (weights.pop(f"contrast.{name}", None) for name in ("scale", "bias"))
            encoder = _transformer(part, config, weights)
            if isinstance(encoder.stem, Patches):
                settings = read_image_settings(home, str(values["model_type"]))
                if settings is not None and scale is not None:
                    settings = replace(settings, scale=math.exp(_number_of(scale)),
                                       bias=None if bias is None else _number_of(bias))
                encoder = replace(encoder, images=settings)
            return _Home(encoder, part=part, values=values, heads=heads, dense=dense,
                         translates=family.translates, linear=linear,
                         has_images=family.read_images not in (None, read) and any(map(is_of_images, names)),
                         unread=tuple(tensor for tensor, name in names.items() if name is None))

    def _refuse_language_model(self, family: Family, values: Values) -> Exception:
        """Return the error for the folder of an encoder whose family has language models alone."""
        self._refuse_head(family, values)
        if not self.folder.has(MODULES):
            return self.refuse_kind("encode", family.generates)
        return UnsupportedError(f"{self.path}: {MODULES} makes it an embedding model, and the engine runs "
                                f"{shown(values.get('model_type'))} models as language models alone, which give "
                                f"no vectors. {ALONE}")

    def _text(self, modules: Modules, home: _Home) -> TextConfig | None:
        """Return the text settings of an encoder; None if it reads no text or has no vocabulary for the engine."""
        if isinstance(home.encoder.stem, Waveform):     # it reads no texts; its vocabulary is that of the head
            return None
        if home.part is None:       # a table
            return None if home.encoder.text is None else with_settings(home.encoder.text, modules)
        if isinstance(home.encoder.stem, Patches):      # the folder's tokenizer is that of its other encoder
            return None
        text = read_text(modules, home.part.config, translates=home.translates)
        # No module states the pooling, so the family's own applies.
        if text is not None and not isinstance(modules, Pooled) and home.part.text is not None:
            with modules.home.within():
                text = home.part.text(text, tokenizer_settings(modules.home))
        return text

    def _heads(self, modules: Modules, home: _Home, text: TextConfig | None) -> tuple[Head, ...]:
        """Return the heads of an encoder; text: its text settings, or None. Warns of heads that are left out."""
        folder, config, heads = modules.home, home.encoder.config, home.encoder.heads
        if home.part is not None:
            values = home.values | stated_pair_function(self.folder)        # which a cross-encoder's folder states
            with folder.within():
                heads = with_tokens(read_heads(home.part.names.heads, values, config, home.heads), text, folder)
            warn_of_head(folder, home.values, tasks_of(heads), (*home.unread, *home.heads))
            heads = with_spelling(heads, folder) if self._spells else without_letters(heads)
            if not home.has_images:
                warn_of_images(folder, home.unread)
            if text is not None and not isinstance(modules, Late | Splade):     # other models may be a BGE-M3
                heads += read_bge_m3(folder, text, config.vocab_size, self._memory)
        if stated := sparse_settings(modules):
            with folder.within():
                heads = tuple(replace(head, config=replace(head.config, **stated)) for head in heads)
        return heads

    def _token_modules(self, modules: Modules, home: _Home) -> tuple[Module, ...]:
        """Return the modules that change the vectors of tokens, in the order in which they run."""
        colbert = modules.colbert
        read = read_modules(modules.before, name=TOKENS, memory=self._memory, usual=TOKENS if colbert else SENTENCE)
        if colbert is None:
            return read
        if not colbert.is_stanford:     # a folder of PyLate, whose code scales the vectors of tokens to length 1
            scaled = any(isinstance(module, Normalize) for module in read)
            return read if scaled else (*read, Normalize(source=TOKENS, target=TOKENS))
        with modules.home.within():
            return stanford_modules(colbert, home.linear, home.encoder.config.hidden_size)

    def _read_headed_decoder(self, task: str | None) -> Model | None:
        """Return the model if it has a head that reads its decoder's vectors (BART), otherwise None.

        The names of the head are listed with the encoder's, and `Model.encoder` holds the head.
        """
        home = self.folder
        family, values = _family(home, "AutoModel")
        if family.read_headed_decoder is None:
            return None
        with home.within(CONFIG):
            parts = family.read_headed_decoder(values)
        if parts is None:
            return None
        assert parts.encoder is not None
        self.refuse_task(task, "a model whose head reads a decoder has none; leave it out")
        encoder = parts.encoder
        arrays = self._arrays_of(parts)

        def of_head(name: str) -> str | None:
            """Return the canonical name of a tensor of the head; None for another tensor."""
            renamed = encoder.names.rename(name)
            return renamed if renamed is not None and renamed.startswith(HEAD_PREFIX) else None

        renamed = _renamed(home, arrays, of_head)
        tensors = {name.removeprefix(HEAD_PREFIX): array for name, array in renamed.items()}
        others = {name: array for name, array in arrays.items() if of_head(name) is None}
        model = assemble(home, parts, others, GenerationConfig(decoder_start_token_id=parts.start_id),
                         source=None, target=None)
        assert model.encoder is not None
        text = read_text(Modules(folder=home, home=home), encoder.config, translates=family.translates)
        with home.within():
            heads = with_tokens(read_heads(encoder.names.heads, values, encoder.config, tensors), text, home)
        if not heads:
            raise WeightsError(f"{home}: config.json names {listed(values['architectures'])}, and the weights lack its "
                               "head")
        return replace(model, encoder=replace(model.encoder, text=text, heads=heads))

    def _arrays_of(self, parts: Parts) -> dict[str, np.ndarray]:
        """Return the tensors that one of the parts reads, by their names in the files."""
        names = [part.names.rename for part in (parts.encoder, parts.decoder) if part is not None]
        unread: list[str] = []

        def wanted(name: str) -> str | None:
            """Return the name of a tensor that a part reads; None for another one, which is noted in `unread`."""
            if any(rename(name) is not None for rename in names):
                return name
            unread.append(name)
            return None

        arrays = self.folder.tensors(wanted, keep_float16=True, memory=self._memory)
        warn_of_images(self.folder, unread)
        return arrays

    def _read_generator(self, kind: str, task: str | None) -> Model:
        """Return a model that generates; kind: of use, "generate", "rank" or "transcribe", as the caller asks."""
        family, values = _family(self.folder, "AutoModelForCausalLM")
        if family.read_generator is None:
            raise self.refuse_kind(kind, "transcribe" if _gives_letters(family, values) else "encode")
        self.refuse_task(task, "a model that generates has none; leave it out")
        with self.folder.within(CONFIG):
            parts = self.with_context(family.read_generator(values))
        generation = _generation(self.folder, values, parts.handled)
        arrays = self._arrays_of(parts)
        source, target = read_tokenizers(self.folder, translates=True)
        if kind == "generate" and parts.encoder is None and target is not None:
            source = target = replace(target, chat=read_chat(self.folder))
        return assemble(self.folder, parts, arrays, generation, source, target)


def _family(home: ModelFolder, loader: str) -> tuple[Family, Values]:
    """Return the family and the config.json of a folder; loader: the class of transformers that would load it."""
    refuse_adapter(home, loader)
    if not home.has(CONFIG):
        inside = next((f"; it has {shown(name)}, so pass the path of that file"
                       for name in home.names_in("", ".gguf")), "")
        if not inside:
            refuse_other_library(home)
        raise WeightsError(f"{home}: no config.json; expected an .npz, a .gguf or the folder of a model{inside}")
    values = with_model_type(home, home.read_object(CONFIG), CONFIG)
    with home.within(CONFIG):
        return get_family(values), values


def _gives_letters(family: Family, values: Values) -> bool:
    """Return whether a model is an encoder of recordings whose head gives the letters of each token."""
    return family.read_generator is None and gives_letters(values)


def _generation(folder: ModelFolder, values: Values, handled: tuple[str, ...]) -> GenerationConfig:
    """Return the settings of generation of a folder, from generation_config.json, or in older folders from config.json.

    values: the contents of config.json. handled: keys that the family reads itself (`Parts.handled`).
    """
    stated = folder.has(GENERATION)
    with folder.within(GENERATION if stated else CONFIG):
        return settings_of(folder.read_object(GENERATION) if stated else None, values, handled)


def _with_adapter(part: Part, weights: dict[str, np.ndarray], task: Any) -> dict[str, np.ndarray]:
    """Return renamed weights with the adapter of a task merged into them; task=None for no adapter.

    Raises `InputError` for an unknown task, and `UnsupportedError` for a task of a model without adapters.
    """
    if not isinstance(task, str | None):
        raise InputError(f"task must be the name of one of the model's tasks, or None, not {shown(task)}")
    if part.adapters is not None:
        return part.adapters(weights, task)
    if task is not None:
        raise UnsupportedError(f"the model has no adapters, so that task={shown(task)} has no effect; leave it out")
    return weights


def _number_of(array: np.ndarray) -> float:
    """Return the one number of an array, logit_scale or logit_bias; raises `WeightsError` if it is impossible."""
    number = float(widened(array).reshape(-1)[0]) if array.size == 1 else math.nan
    if not abs(number) <= GREATEST_CONTRAST:
        raise WeightsError(f"logit_scale and logit_bias must be one number each, from -{GREATEST_CONTRAST} to "
                           f"{GREATEST_CONTRAST}, not {shown(array)}")
    return number


def _take_own_dense(weights: dict[str, np.ndarray]) -> tuple[Dense, ...]:
    """Return the linear map of the pooled vector, if a family has one among its weights; removes it from `weights`."""
    if "dense.0.weight" not in weights:
        return ()
    bias = weights.pop("dense.0.bias", None)
    return (Dense(widened(weights.pop("dense.0.weight")), None if bias is None else widened(bias)),)


def assemble(folder: object, parts: Parts, arrays: Mapping[str, np.ndarray], generation: GenerationConfig,
             source: TextConfig | None, target: TextConfig | None) -> Model:
    """Return a model that generates, from arrays by their names in a file; parts share arrays that both read.

    folder: the beginning of error messages. source, target: the text settings of the encoder and of the decoder.
    """
    encoder = None if parts.encoder is None else assemble_part(folder, parts.encoder, arrays, source)
    return Model(encoder=encoder, decoder=assemble_part(folder, parts.decoder, arrays, target), generation=generation)


def assemble_part(folder: object, part: Part, arrays: Mapping[str, np.ndarray], text: TextConfig | None) -> Transformer:
    """Return one part of a model from arrays by their names in a file. folder: the beginning of error messages."""
    renamed = _renamed(folder, arrays, part.names.rename)
    # Neither models that generate nor encoders of GGUF files read token types.
    text = None if text is None else replace(text, feeds_token_types=False)
    try:
        return _transformer(part, *part.take(renamed), text)
    except (UnsupportedError, WeightsError) as error:
        raise type(error)(f"{folder}: {error}") from None


def _transformer(part: Part, config: Any, weights: dict[str, np.ndarray],
                 text: TextConfig | None = None) -> Transformer:
    """Return a part of a model from its tensors by canonical names; "stem." begins the names of its input layer's.

    Removes the tensors of the input layer and of the pooling from `weights`, and keeps the rest.
    """
    arrays = take_arrays(weights, "stem.")
    stem = part.stem and part.stem({name: widened(array) for name, array in arrays.items()})
    arrays = take_arrays(weights, "pooling.")
    pooling = part.pooling and part.pooling({name: widened(array) for name, array in arrays.items()})
    return Transformer(config, weights, text, stem=stem, pooling=pooling).with_wide_vectors()


def _renamed(folder: object, arrays: Mapping[str, np.ndarray],
             rename: Callable[[str], str | None]) -> dict[str, np.ndarray]:
    """Return, by their new names, the arrays for which `rename` returns a name; they are not copied."""
    with naming(folder, "remove the wrong one"):
        return {name: arrays[old] for name, old in wanted_names(arrays, rename).items()}
