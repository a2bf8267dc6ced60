"""The interface of a family, `Family`, and of what it reads: the `Part`s of a model, an encoder and perhaps a decoder.

The modules of families make these objects, and `loading` calls their functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..base.errors import WeightsError
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from ..weights.attention_pooling import AttentionPooling
from ..weights.input_layers import Stem
from .names import Names

Values = dict[str, Any]
"""The contents of a JSON file."""
Weights = dict[str, np.ndarray]
"""Tensors by name."""


def _unchanged(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    return config, weights


@dataclass(frozen=True)
class Part:
    """How the encoder or the decoder of a model is read; every hook that a family can have is a field here."""

    config: ModelConfig
    names: Names
    finish: Callable[[ModelConfig, Weights], tuple[ModelConfig, Weights]] = _unchanged
    """Adds tensors that files lack, such as tables of sinusoids, or converts tensors to the engine's form. The weights
    have canonical names, except joined tensors, which are split afterwards."""
    stem: Callable[[Weights], Stem] | None = None
    """Makes the input layer for images or audio from arrays, by its fields; None for a part that reads token ids."""
    pooling: Callable[[Weights], AttentionPooling] | None = None
    """Makes the head that pools an image's vectors, from its arrays; None where the class token's vector is used."""
    adapters: Callable[[Weights, str | None], Weights] | None = None
    """Merges the adapter of a task into the weights, before `finish`; None for a model without adapters."""
    text: Callable[[TextConfig, Values], TextConfig] | None = None
    """Changes the text settings of a folder without modules.json, such as the pooling; the second argument is the
    contents of tokenizer_config.json."""

    def take(self, weights: Mapping[str, np.ndarray]) -> tuple[ModelConfig, Weights]:
        """Return the configuration and the weights of this part, from tensors by the names of `names.rename`."""
        config, finished = self.finish(self.config, dict(weights))
        return config, self.names.split(finished, config)


@dataclass(frozen=True)
class Parts:
    """The parts of a model with a decoder, and what else is known of the model."""

    decoder: Part
    encoder: Part | None = None
    handled: tuple[str, ...] = ()
    """Keys of generation_config.json that only this family has, and that its own code reads."""
    long_decoder: Part | None = None
    """The decoder for sequences beyond the length of the training, of a model whose rotary embedding has a table for
    these and another one for shorter sequences; None for a model with one table."""
    start_id: int | None = None
    """The first token of the decoder of a model whose head reads the decoder."""


@dataclass(frozen=True)
class Family:
    """The functions that read the models of a model_type. The argument of each is the contents of config.json.

    They raise `WeightsError` for impossible values, and `UnsupportedError` for what the engine lacks.
    """

    read_encoder: Callable[[Values], Part] | None = None
    """Describes the encoder that gives vectors; None for a family of models that only generate."""
    read_generator: Callable[[Values], Parts] | None = None
    """Describes the decoder, and the encoder that it reads by cross-attention; None for a family of encoders."""
    read_headed_decoder: Callable[[Values], Parts | None] | None = None
    """Describes encoder and decoder of a model whose head reads the decoder's vectors, and returns None for another
    model; None for a family without such models. `Names.heads` of the encoder has the heads."""
    translates: bool = False
    """Whether folders may hold the vocabularies of Marian or M2M100 in place of another tokenizer."""
    generates: str = "generate"
    """The kind of a model with a decoder: "generate", or "transcribe" for speech."""
    kind_without_class: str | Callable[[Values], str] | None = None
    """The kind, "encode" or "generate", of a model that can do both and whose config.json names no class, or a function
    that finds it by other keys; None raises an error for such a model."""
    remote_code: tuple[str, ...] = ()
    """The classes of remote code that compute the same, under their names in auto_map: folders were published with
    their code, before transformers had the family."""
    code_decides: str | None = None
    """A key that config.json must state as true or false beside remote code, because the code has its own default."""
    classes: str = ""
    """The beginning of the names of the classes, for a family from the time before config.json had a model_type."""
    own_keys: tuple[str, ...] = ()
    """Keys that transformers always writes for this family, by which it is told from an older family that has the same
    names of tensors."""
    read_images: Callable[[Values], Part] | None = None
    """Describes the image encoder of a folder whose `read_encoder` is that of its texts; None for other families."""


def decoder_config(**options: Any) -> ModelConfig:
    """Return a `ModelConfig` with the usual options of a decoder, changed by `options`.

    The usual decoder is pre-norm and causal, has neither a table of positions nor a norm of the embeddings, and ties
    the logits. A family that is an encoder, too, gives logits=None and its own kinds of attention.
    """
    usual: Values = {"position_table": False, "embedding_norm": False, "norm_place": "pre", "logits": "tied",
                     "attention_kinds": (AttentionKind(causal=True),)}
    return ModelConfig(**usual | options)


def with_one_norm(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the weights with a layer's one norm under the names of two, as a parallel layer has a norm for each part.

    It is a `Part.finish` for models whose attention and feed-forward network read the same norm.
    """
    copied = {name.replace(".attention.norm.", ".ffn.norm."): array for name, array in weights.items()
              if ".attention.norm." in name}
    if both := copied.keys() & weights.keys():
        raise WeightsError(f"the weights hold a tensor for {min(both)}, and the config says that attention and "
                           "feed-forward read the same norm; one of them is wrong")
    return config, weights | copied


def plain(read_config: Callable[[Values], ModelConfig], names: Names, **options: Any) -> Family:
    """Return a family of encoders without any hook of `Part`.

    read_config: returns the configuration from the contents of config.json. options: further fields of `Family`.
    """
    return Family(partial(_plain_part, read_config, names), **options)


def _plain_part(read_config: Callable[[Values], ModelConfig], names: Names, values: Values) -> Part:
    return Part(read_config(values), names)
