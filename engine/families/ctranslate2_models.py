"""Read the architecture of a model that CTranslate2 converted: Transformers of an encoder and a decoder, and Whisper.

The variables of a model.bin have the names of python/ctranslate2/specs; sizes are those of the arrays, and the settings
are variables without dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ..config import AttentionKind, ModelConfig
from ..errors import UnsupportedError, WeightsError, shown
from ..stems import make_stem
from .fields import head_width, number
from .halves import Half, Halves, Weights
from .names import Names

_ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu"}
"""The supported activations by their numbers."""
_WITHOUT_EFFECT = ("alignment_heads", "alignment_layer", "embeddings_merge", "num_heads", "pre_norm", "activation",
                   "scale_embeddings", "alibi_use_positive_positions", "scale_alibi")
"""Settings that are read here, or that say nothing about what the supported models compute."""
_PLAIN = {"multi_query_attention": False, "quantization_type": 0}
"""The only supported value of these keys of config.json; null and an absent key are supported, too."""


class _Names(Names):
    def rename(self, name: str) -> str | None:
        """Return as `Names.rename`, for a name of CTranslate2."""
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
    "ffn.linear_0": "ffn.up",
    "ffn.linear_1": "ffn.down",
    "ffn.layer_norm": "ffn.norm",
}
_JOINED = {"attention.qkv": ("attention.query", "attention.key", "attention.value"),
           "cross.key_value": ("cross.key", "cross.value")}  # fmt: skip


def _names(half: str, other: str, changes: Mapping[str, str] = MappingProxyType({})) -> Names:
    embeddings = {
        f"{half}.embeddings.weight": "embeddings.word",
        f"{half}.embeddings_0.weight": "embeddings.word",
        f"{half}.position_encodings.encodings": "embeddings.position",
        f"{half}.layernorm_embedding.weight": "embeddings.norm.weight",
        f"{half}.layernorm_embedding.bias": "embeddings.norm.bias",
        f"{half}.layer_norm.weight": "final_norm.weight",
        f"{half}.layer_norm.bias": "final_norm.bias",
    }
    own = {f"{half}.projection.{kind}": f"logits.{kind}" for kind in ("weight", "bias")} if half == "decoder" else {}
    return _Names("", embeddings | own | dict(changes), f"{half}.layer_", _LAYER, (f"{other}.",), _JOINED)


_STEM = {
    "encoder.conv1.weight": "stem.weight",
    "encoder.conv1.bias": "stem.bias",
    "encoder.conv2.weight": "stem.weight2",
    "encoder.conv2.bias": "stem.bias2",
    "encoder.position_encodings.encodings": "stem.positions",
}


@dataclass(frozen=True)
class _File:
    """The settings and the shapes of a file."""

    settings: Mapping[str, float]
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Any]
    """The config.json beside it."""

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """Return the shape of an array that must be there; raises `WeightsError`."""
        shape = self.shapes.get(name, ())
        if len(shape) != dimensions:
            raise WeightsError(f"the file must have an array {name} of {dimensions} dimensions; it has {list(shape)}")
        return shape

    def flag(self, name: str, default: int = 0) -> bool:
        """Return a setting that must be 0 or 1."""
        value = self.settings.get(name, default)
        if value not in (0, 1):
            raise UnsupportedError(f"{name} = {shown(value)} is not supported; only 0 and 1 are")
        return value == 1

    def config(self, half: str, family: str, *, pre: bool) -> ModelConfig:
        """Return the configuration of an encoder, with the options that both halves have."""
        for name, value in self.settings.items():
            scope, _, key = name.rpartition("/")
            if scope == half and value and key not in _WITHOUT_EFFECT:
                raise UnsupportedError(f"{name} = {shown(value)} is not supported; only 0 is")
        heads, kind = self.settings.get(f"{half}/num_heads", 8), self.settings.get(f"{half}/activation", 0)
        if kind not in _ACTIVATIONS or type(heads) is not int:
            raise UnsupportedError(f"{half}/activation {shown(kind)} with {shown(heads)} heads is not supported; "
                                   f"supported are the activations {', '.join(map(str, _ACTIVATIONS))}")
        own = {key: value for key, value in self.values.items() if value is not None}
        for key, expected in _PLAIN.items():
            if own.get(key, expected) != expected:
                raise UnsupportedError(f"{key} = {shown(own[key])} is not supported; only {expected!r} is")
        ffn, width = self.shape(f"{half}/layer_0/ffn/linear_0/weight", 2)
        layers = {int(name.split("/")[1][6:]) for name in self.shapes
                  if name.startswith(f"{half}/layer_") and name.split("/")[1][6:].isdecimal()}  # fmt: skip
        return ModelConfig(
            family=family,
            hidden_size=width,
            num_layers=max(layers) + 1,
            num_heads=heads,
            head_width=head_width(width, heads),
            ffn_size=ffn,
            max_positions=self.shape(f"{half}/position_encodings/encodings", 2)[0],
            embedding_norm=f"{half}/layernorm_embedding/gamma" in self.shapes,
            norm_place="pre" if pre else "post",
            final_norm=f"{half}/layer_norm/gamma" in self.shapes,
            norm_eps=number(own, "layer_norm_epsilon", 1e-5),
            activation=_ACTIVATIONS[int(kind)],
        )

    def words(self, half: str, config: ModelConfig) -> ModelConfig:
        """Return the configuration with the word table of a half."""
        name = f"{half}/embeddings/weight" if f"{half}/embeddings/weight" in self.shapes else (
            f"{half}/embeddings_0/weight")  # fmt: skip
        rows, _ = self.shape(name, 2)
        scale = math.sqrt(config.hidden_size) if self.flag(f"{half}/scale_embeddings", 1) else 1.0
        return replace(config, vocab_size=rows, embedding_scale=scale)

    def decoder(self, config: ModelConfig, memory: int) -> ModelConfig:
        """Return the configuration of a decoder beside an encoder of this width."""
        return replace(config, attention_kinds=(AttentionKind(causal=True),), memory_size=memory, logits="own",
                       logits_bias="decoder/projection/bias" in self.shapes)


def _transformer(file: _File) -> Halves:
    pre = {half: file.flag(f"{half}/pre_norm", 1) for half in ("encoder", "decoder")}
    encoder = file.words("encoder", file.config("encoder", "transformer", pre=pre["encoder"]))
    decoder = file.words("decoder", file.config("decoder", "transformer", pre=pre["decoder"]))
    return Halves(Half(encoder, _names("encoder", "decoder")),
                  Half(file.decoder(decoder, encoder.hidden_size), _names("decoder", "encoder"), _tied))


def _whisper(file: _File) -> Halves:
    encoder = replace(file.config("encoder", "whisper", pre=True), activation="gelu", max_positions=0,
                      position_table=False)
    decoder = file.words("decoder", file.config("decoder", "whisper", pre=True))
    return Halves(Half(encoder, _names("encoder", "decoder", _STEM), stem=partial(make_stem, {"kind": "frames"})),
                  Half(file.decoder(decoder, encoder.hidden_size), _names("decoder", "encoder"), _tied))


def _tied(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Leave out the logits' own matrix where it is an alias of the word table."""
    words = weights.get("embeddings.word")
    if words is None or weights.get("logits.weight") is not words:
        return config, weights
    return replace(config, logits="tied"), {name: one for name, one in weights.items() if name != "logits.weight"}


_SPECIFICATIONS: dict[str, Callable[[_File], Halves]] = {"TransformerSpec": _transformer, "WhisperSpec": _whisper}


def read_halves(specification: str, settings: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]],
                values: Mapping[str, Any]) -> Halves:
    """Return the encoder and the decoder of a model.bin, from its settings and the shapes of its arrays.

    values: the contents of the config.json beside it. Raises `WeightsError` or `UnsupportedError`.
    """
    if specification not in _SPECIFICATIONS:
        raise UnsupportedError(f"the specification {shown(specification)} is not supported; supported are "
                               f"{', '.join(_SPECIFICATIONS)}")
    return _SPECIFICATIONS[specification](_File(settings, shapes, values))
