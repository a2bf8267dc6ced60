"""Describe how the encoder and the decoder of a generating model are read from the tensors of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..config import ModelConfig
from ..stems import Stem
from .names import Names

Weights = dict[str, np.ndarray]


def _unchanged(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    return config, weights


@dataclass(frozen=True)
class Half:
    """The encoder or the decoder of a model."""

    config: ModelConfig
    names: Names
    finish: Callable[[ModelConfig, Weights], tuple[ModelConfig, Weights]] = _unchanged
    """Adds what files do not hold, such as tables of sinusoids, or changes what they hold in another form. The weights
    have canonical names, except joined tensors, which are split afterwards."""
    stem: Callable[[Weights], Stem] | None = None
    """Makes what turns sound into token vectors, from arrays under the names of its fields; None for a half that reads
    token ids."""

    def take(self, weights: Mapping[str, np.ndarray]) -> tuple[ModelConfig, Weights]:
        """Return the configuration and the weights of this half, from tensors that `names.rename` has named."""
        config, found = self.finish(self.config, dict(weights))
        return config, self.names.split(found, config)


@dataclass(frozen=True)
class Halves:
    """What a config.json says of a generating model."""

    encoder: Half | None
    decoder: Half
    handled: tuple[str, ...] = ()
    """Keys of generation_config.json that are the family's own."""


class GeneratingFamily(Protocol):
    """What the module of a family of generating models provides."""

    def read_halves(self, values: dict[str, Any]) -> Halves:
        """Return the encoder, if there is one, and the decoder that the contents of a config.json describe."""
