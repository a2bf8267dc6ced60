"""Read a model that CTranslate2 converted: transformers of an encoder and a decoder for translation, and Whisper.

The variables of a model.bin have the names of python/ctranslate2/specs in its source. Variables without dimensions are
the settings, and the sizes of the model follow from the shapes of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ..base.errors import InputError, UnsupportedError, WeightsError, shown
from ..base.lazy import lazy
from ..families.fields import head_width, number, refuse_others
from ..families.names import JOINED_HEADS, Names
from ..families.parts import Part, Parts, Weights
from ..files.ctranslate2 import CTranslate2File
from ..files.folder import ModelFolder
from ..files.reading import FormatError
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from ..model.generation_config import GenerationConfig
from ..model.text_config import TextConfig
from ..text.special_tokens import END, START, special_ids
from ..text.vocabularies.of_folder import read_tokenizers
from ..weights.input_layers import make_stem
from ..weights.model import Model
from .hugging_face import assemble
from .source import Source

_ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu"}
"""The supported activations by their numbers in files."""
_WITHOUT_EFFECT = ("alignment_heads", "alignment_layer", "embeddings_merge", "num_heads", "pre_norm", "activation",
                   "scale_embeddings", "alibi_use_positive_positions", "scale_alibi")
"""Settings that are read in other places, or that say nothing about what the supported models compute."""
_PLAIN = {"multi_query_attention": False, "quantization_type": 0}
"""The only supported value of these keys of config.json; null and an absent key are supported, too."""

MODEL = "model.bin"
"""The file of the weights."""
_WHISPER = "WhisperSpec"
VOCABULARIES = ("shared_vocabulary", "target_vocabulary", "vocabulary")
"""Names of the file that lists the decoder's tokens, by version, without the suffix .json or .txt."""
_MAX_LINES = 16_000_000
"""Limit on the bytes of a .txt list of tokens."""
_FIRST_TIME = 50
"""The latest first timestamp, in steps of 0.02 s, which is OpenAI's own limit; files do not state it."""


def is_ctranslate2(folder: ModelFolder) -> bool:
    """Return whether a folder has CTranslate2's file of weights, and none of Hugging Face's."""
    return not folder.has_weights() and folder.has(MODEL)


class CTranslate2Source(Source):
    """A folder with model.bin, perhaps with config.json, and with a tokenizer or vocabularies."""

    def __init__(self, folder: ModelFolder, memory: str):
        self.path, self._folder, self._memory = folder.path, folder, memory

    @property
    def kind(self) -> str:
        """Return "transcribe" for Whisper, otherwise "generate"."""
        return "transcribe" if self._file.specification == _WHISPER else "generate"

    @lazy
    def _file(self) -> CTranslate2File:
        """The open file of the weights."""
        return CTranslate2File(self.path / MODEL, self._memory)

    def read(self, kind: str, task: str | None) -> Model:
        """Return the model: an encoder and a decoder."""
        if kind == "encode":
            raise self.refuse_kind(kind, self.kind)
        self.refuse_task(task, "a converted model has none; leave it out")
        file, folder = self._file, self._folder
        values = folder.read_object_or_empty("config.json")
        with folder.within():
            parts = read_parts(file.specification, file.settings, file.shapes, values)
        source, target = read_tokenizers(folder, translates=True)
        generation = _generation(folder, file.specification, values, target)
        return assemble(folder, parts, file.read(keep_float16=True), generation, source, target)


class _Names(Names):
    """Names of CTranslate2, which have slashes, and gamma and beta for the weight and bias of a norm."""

    def rename(self, name: str) -> str | None:
        """Return the canonical name of a variable of CTranslate2; None for one that is left out."""
        dotted = name.replace("/", ".")
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            dotted = dotted.removesuffix(old) + new if dotted.endswith(old) else dotted
        return super().rename(dotted)


_LAYER = {
    "self_attention.linear_0": "attention.qkv",
    "self_attention.linear_1": "attention.output",
    "self_attention.layer_norm": "attention.norm",
    "attention.linear_0": "cross.query",
    "attention.linear_1": "cross.key_value",
    "attention.linear_2": "cross.output",
    "attention.layer_norm": "cross.norm",
    "ffn.linear_0": "ffn.up", "ffn.linear_1": "ffn.down",
    "ffn.layer_norm": "ffn.norm",
}
_JOINED = JOINED_HEADS | {"cross.key_value": ("cross.key", "cross.value")}


def _names(part: str, other: str, changes: Mapping[str, str] = MappingProxyType({})) -> Names:
    """Return the names of the arrays of a part, "encoder" or "decoder". other: the part that is left out.

    changes: arrays outside of layers with other canonical names than usual.
    """
    embeddings = {
        f"{part}.embeddings.weight": "embeddings.word",
        f"{part}.embeddings_0.weight": "embeddings.word",
        f"{part}.position_encodings.encodings": "embeddings.position",
        f"{part}.layernorm_embedding.weight": "embeddings.norm.weight",
        f"{part}.layernorm_embedding.bias": "embeddings.norm.bias",
        f"{part}.layer_norm.weight": "final_norm.weight",
        f"{part}.layer_norm.bias": "final_norm.bias",
    }
    logits = {f"{part}.projection.{kind}": f"logits.{kind}" for kind in ("weight", "bias")} if part == "decoder" else {}
    return _Names(prefix="", embeddings=embeddings | logits | dict(changes), layers=f"{part}.layer_", layer=_LAYER,
                  left_out=(f"{other}.",), joined=_JOINED)


_STEM = {
    "encoder.conv1.weight": "stem.weight", "encoder.conv1.bias": "stem.bias",
    "encoder.conv2.weight": "stem.weight2", "encoder.conv2.bias": "stem.bias2",
    "encoder.position_encodings.encodings": "stem.positions",
}


@dataclass(frozen=True)
class _File:
    """The settings and the shapes of a model.bin, by the names of variables, and the configurations that they make."""

    settings: Mapping[str, float]
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Any]
    """The contents of the config.json beside it."""

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """Return the shape of an array that must be there; raises `WeightsError`."""
        shape = self.shapes.get(name, ())
        if len(shape) != dimensions:
            raise WeightsError(f"the file must have an array {name} of {dimensions} dimensions; it has {list(shape)}")
        return shape

    def flag(self, name: str, default: int = 0) -> bool:
        """Return a setting that must be 0 or 1 as a bool; raises `UnsupportedError` for another number."""
        value = self.settings.get(name, default)
        if value not in (0, 1):
            raise UnsupportedError(f"{name} = {shown(value)} is not supported; only 0 and 1 are")
        return value == 1

    def config(self, part: str, family: str, *, pre: bool) -> ModelConfig:
        """Return the configuration of a part, "encoder" or "decoder", without its words and cross-attention.

        pre: whether the part is pre-norm. Raises `UnsupportedError` for settings that the engine lacks.
        """
        for name, value in self.settings.items():
            scope, _, key = name.rpartition("/")
            if scope == part and value and key not in _WITHOUT_EFFECT:
                raise UnsupportedError(f"{name} = {shown(value)} is not supported; only 0 is")
        heads, kind = self.settings.get(f"{part}/num_heads", 8), self.settings.get(f"{part}/activation", 0)
        if kind not in _ACTIVATIONS or type(heads) is not int:
            raise UnsupportedError(f"{part}/activation {shown(kind)} with {shown(heads)} heads is not supported; "
                                   f"supported are the activations {', '.join(map(str, _ACTIVATIONS))}")
        stated = {key: value for key, value in self.values.items() if value is not None}
        refuse_others(stated, _PLAIN)
        ffn, width = self.shape(f"{part}/layer_0/ffn/linear_0/weight", 2)
        start = f"{part}/layer_"
        # The numbers of the layers, from 0 on, as strings: the largest one tells how many layers there are.
        numbers = {name.removeprefix(start).split("/")[0] for name in self.shapes if name.startswith(start)}
        return ModelConfig(
            family=family,
            hidden_size=width,
            num_layers=max(int(number) for number in numbers if number.isdecimal()) + 1,
            num_heads=heads,
            head_width=head_width(width, heads),
            ffn_size=ffn,
            max_positions=self.shape(f"{part}/position_encodings/encodings", 2)[0],
            embedding_norm=f"{part}/layernorm_embedding/gamma" in self.shapes,
            norm_place="pre" if pre else "post",
            final_norm=f"{part}/layer_norm/gamma" in self.shapes,
            norm_eps=number(stated, "layer_norm_epsilon", 1e-5),
            activation=_ACTIVATIONS[int(kind)],
        )

    def words(self, part: str, config: ModelConfig) -> ModelConfig:
        """Return the configuration of a part with the size and the scale of its word table."""
        name = f"{part}/embeddings/weight" if f"{part}/embeddings/weight" in self.shapes else (
            f"{part}/embeddings_0/weight")
        rows, _ = self.shape(name, 2)
        scale = math.sqrt(config.hidden_size) if self.flag(f"{part}/scale_embeddings", 1) else 1.0
        return replace(config, vocab_size=rows, embedding_scale=scale)

    def decoder(self, config: ModelConfig, memory: int) -> ModelConfig:
        """Return the configuration with what makes it a decoder; memory: the width of the encoder's vectors."""
        return replace(config, attention_kinds=(AttentionKind(causal=True),), memory_size=memory, logits="own",
                       logits_bias="decoder/projection/bias" in self.shapes)


def _transformer(file: _File) -> Parts:
    """Return the encoder and the decoder of a model of translation."""
    pre = {part: file.flag(f"{part}/pre_norm", 1) for part in ("encoder", "decoder")}
    encoder = file.words("encoder", file.config("encoder", "transformer", pre=pre["encoder"]))
    decoder = file.words("decoder", file.config("decoder", "transformer", pre=pre["decoder"]))
    return Parts(Part(file.decoder(decoder, encoder.hidden_size), _names("decoder", "encoder"), _tied),
                 encoder=Part(encoder, _names("encoder", "decoder")))


def _whisper(file: _File) -> Parts:
    """Return the encoder and the decoder of Whisper, whose files state neither its GELU nor that it is pre-norm.

    The stem of the encoder, of two convolutions, adds the positions in place of a table.
    """
    encoder = replace(file.config("encoder", "whisper", pre=True), activation="gelu", max_positions=0,
                      position_table=False)
    decoder = file.words("decoder", file.config("decoder", "whisper", pre=True))
    stem = partial(make_stem, {"kind": "frames"})
    return Parts(Part(file.decoder(decoder, encoder.hidden_size), _names("decoder", "encoder"), _tied),
                 encoder=Part(encoder, _names("encoder", "decoder", _STEM), stem=stem))


def _tied(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the decoder with tied logits, without their own matrix, if that is an alias of the word table."""
    words = weights.get("embeddings.word")
    if words is None or weights.get("logits.weight") is not words:
        return config, weights
    return replace(config, logits="tied"), {name: one for name, one in weights.items() if name != "logits.weight"}


_SPECIFICATIONS: dict[str, Callable[[_File], Parts]] = {"TransformerSpec": _transformer, _WHISPER: _whisper}


def read_parts(specification: str, settings: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]],
                values: Mapping[str, Any]) -> Parts:
    """Return the encoder and the decoder of a model.bin, from its settings and the shapes of its arrays.

    values: the contents of the config.json beside it. Raises `WeightsError` or `UnsupportedError`.
    """
    if specification not in _SPECIFICATIONS:
        raise UnsupportedError(f"the specification {shown(specification)} is not supported; supported are "
                               f"{', '.join(_SPECIFICATIONS)}")
    return _SPECIFICATIONS[specification](_File(settings, shapes, values))


def _generation(folder: ModelFolder, specification: str, values: Mapping[str, Any],
                text: TextConfig | None) -> GenerationConfig:
    """Return the settings of generation in a folder of CTranslate2; raises `WeightsError`.

    values: the contents of its config.json. text: its tokenizer, in which the special tokens of Whisper are found.
    """
    if specification == _WHISPER:
        ids = special_ids(text)
        if START not in ids or END not in ids:
            raise WeightsError(f"{folder}: a model of speech needs a tokenizer.json with the tokens {START} and {END}")
        settings: dict[str, Any] = {"decoder_start_token_id": ids[START], "eos_token_id": ids[END],
                                 "max_initial_timestamp_index": _FIRST_TIME}
        for setting, key in (("suppress_tokens", "suppress_ids"), ("begin_suppress_tokens", "suppress_ids_begin")):
            settings[setting] = [number for number in _numbers(folder, values, key) if number >= 0]
        try:
            return GenerationConfig(**settings | {"alignment_heads": values.get("alignment_heads")})
        except InputError as error:
            raise WeightsError(f"{folder.label('config.json')}: {error}") from None
    id_of = _words(folder)
    names = {"eos_token_id": values.get("eos_token", "</s>"), "bos_token_id": values.get("bos_token", "<s>"),
             "decoder_start_token_id": values.get("decoder_start_token", "<s>")}
    known: dict[str, Any] = {key: id_of[name] for key, name in names.items() if isinstance(name, str) and name in id_of}
    return GenerationConfig(**known)


def _numbers(folder: ModelFolder, values: Mapping[str, Any], key: str) -> list[int]:
    """Return the ids that config.json lists under a key; none where it lacks the key."""
    numbers = values.get(key, [])
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise WeightsError(f"{folder.label('config.json')}: {key} must be a list of ids, not {shown(numbers)}")
    return numbers


def _words(folder: ModelFolder) -> dict[str, int]:
    """Return the id of each of the decoder's tokens, by the token's text; {} if the folder lists none."""
    for name in VOCABULARIES:
        if folder.has(f"{name}.json"):
            words = folder.read_list(f"{name}.json")
            if not all(isinstance(word, str) for word in words):
                raise WeightsError(f"{folder.label(f'{name}.json')}: expected a list of texts")
            return {word: i for i, word in enumerate(words)}
        if folder.has(f"{name}.txt"):
            with folder.naming(f"{name}.txt"):
                try:
                    lines = folder.read_bytes(f"{name}.txt", _MAX_LINES).decode("utf-8").split("\n")
                except UnicodeDecodeError:
                    raise FormatError("it is not UTF-8") from None
            return {line.rstrip("\r"): i for i, line in enumerate(lines) if line}
    return {}
