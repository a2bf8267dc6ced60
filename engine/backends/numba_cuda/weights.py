"""A model's weights on the device, laid out once for the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...config import ModelConfig
from ...quantize import widen
from .device import Device, upload


@dataclass(frozen=True)
class Linear:
    """x W^T + bias: the weight [M,K] in the operands' dtype, the bias float32 [M]."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class Norm:
    """float32 [D] each."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class Layer:
    """`qkv` makes queries, keys and values of all heads, side by side."""

    qkv: Linear
    output: Linear
    attention_norm: Norm
    up: Linear
    down: Linear
    ffn_norm: Norm


@dataclass(frozen=True)
class Embeddings:
    """float32 tables [V,D], [P,D] and [Y,D]; what the model lacks is a dummy of one number."""

    word: Any
    position: Any
    token_type: Any
    norm: Norm


@dataclass(frozen=True)
class Weights:
    """All of a model's."""

    embeddings: Embeddings
    layers: list[Layer]


def upload_weights(
    device: Device, config: ModelConfig, weights: Mapping[str, np.ndarray], convert: Callable[[np.ndarray], np.ndarray]
) -> Weights:
    """Copy everything to the device; `convert` takes the float32 weight of a linear map to the operands' dtype."""
    return _Uploader(device, weights, convert).model(config)


class _Uploader:
    """Parameters by their names in `engine.parameters`."""

    def __init__(self, device: Device, weights: Mapping[str, np.ndarray], convert: Callable[[np.ndarray], np.ndarray]):
        self.device, self.weights, self.convert = device, weights, convert

    def model(self, config: ModelConfig) -> Weights:
        word, position, types = (self.table(f"embeddings.{name}", 2) for name in ("word", "position", "token_type"))
        embeddings = Embeddings(word, position, types, self.norm("embeddings.norm"))
        return Weights(embeddings, [self.layer(f"layers.{i}.") for i in range(config.num_layers)])

    def layer(self, prefix: str) -> Layer:
        return Layer(
            qkv=self.linear(*(f"{prefix}attention.{name}" for name in ("query", "key", "value"))),
            output=self.linear(f"{prefix}attention.output"),
            attention_norm=self.norm(f"{prefix}attention.norm"),
            up=self.linear(f"{prefix}ffn.up"),
            down=self.linear(f"{prefix}ffn.down"),
            ffn_norm=self.norm(f"{prefix}ffn.norm"),
        )

    def linear(self, *names: str) -> Linear:
        """Linear maps of one input, as one."""
        weight = self.convert(np.concatenate([self.read(f"{name}.weight") for name in names]))
        bias = np.concatenate([self.read(f"{name}.bias") for name in names])
        return Linear(upload(self.device, weight), upload(self.device, bias))

    def norm(self, name: str) -> Norm:
        return Norm(self.table(f"{name}.weight", 1), self.table(f"{name}.bias", 1))

    def table(self, name: str, rank: int) -> Any:
        """A parameter in float32, or the dummy."""
        return upload(self.device, self.read(name) if name in self.weights else np.zeros((1,) * rank, np.float32))

    def read(self, name: str) -> np.ndarray:
        """A parameter in float32."""
        return widen(self.weights, name)
