"""A model's weights as the kernels take them: in panels, heads padded to whole vectors, in the plan's precision."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping

import numpy as np

from ...config import ModelConfig
from ...parameters import input_heads
from ...quantize import quantize_linear, widen
from ...weights.bfloat16 import to_bfloat16
from .native import Kernels, NormWeights, PackedBFloat16, PackedInt8, PackedLinear, TableWeights

Packed = PackedLinear | PackedBFloat16 | PackedInt8

ACTIVATIONS = {"gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
"""As enum Activation in table.pxd."""

STORAGES = {"float32": 0, "uint16": 1, "int8": 2}
"""As enum Storage there, by dtype."""


def allocate(n: int) -> np.ndarray:
    """n zeroed floats, page-aligned, on huge pages where the system grants them; a forked child has its own copy."""
    memory = mmap.mmap(-1, max(1, n) * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.float32, n)


class Packer:
    """Packs the layers of one model for one kernel table."""

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], precision: str):
        self._kernels = kernels
        self._config = config
        self._weights = weights
        self._precision = precision

    def layer(self, i: int) -> tuple:
        """(qkv, output, attention norm, up, down, ffn norm), as the native encoder takes them."""
        attention, ffn = f"layers.{i}.attention", f"layers.{i}.ffn"
        return (
            self._heads(attention),
            self._output(f"{attention}.output"),
            self.norm(f"{attention}.norm"),
            self._linear(f"{ffn}.up", ACTIVATIONS[self._config.activation]),
            self._linear(f"{ffn}.down"),
            self.norm(f"{ffn}.norm"),
        )

    def norm(self, name: str) -> NormWeights:
        """Weight and bias of a norm."""
        return NormWeights(self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], self._config.norm_eps)

    def table(self, name: str) -> TableWeights | None:
        """A table of the embeddings as it is stored, not copied; None where the model has none of that name."""
        if name not in self._weights:
            return None
        rows = self._weights[name]
        return TableWeights(rows.view(np.uint8), STORAGES[rows.dtype.name], self._weights.get(f"{name}_scale"))

    def _linear(self, name: str, activation: int = 0) -> Packed:
        weight, scale = self._rows(name)
        N = self._padded(len(weight))
        bias = np.zeros(N, np.float32)
        bias[: len(weight)] = self._weights[f"{name}.bias"]
        return self._panels(weight.shape[1], bias, [(0, weight, scale)], activation)

    def _heads(self, prefix: str) -> Packed:
        """Queries, keys and values as one map of 3*H heads, each of d columns padded to a whole number of vectors."""
        H, d, D = self._config.num_heads, self._config.head_width, self._config.hidden_size
        dp = self._padded(d)
        bias = np.zeros((3, H, dp), np.float32)
        heads = []
        for i, name in enumerate(("query", "key", "value")):
            bias[i, :, :d] = self._weights[f"{prefix}.{name}.bias"].reshape(H, d)
            weight, scale = self._rows(f"{prefix}.{name}")
            heads += [((i * H + h) * dp, w, s) for h, (w, s) in
                      enumerate(zip(weight.reshape(H, d, D), scale.reshape(H, d), strict=True))]
        return self._panels(D, bias.reshape(-1), heads)

    def _output(self, name: str) -> Packed:
        """The map back from the padded heads [H*dp] to [D]."""
        H, d, D = self._config.num_heads, self._config.head_width, self._config.hidden_size
        weight, scale = self._rows(name)
        padded = np.zeros((D, H, self._padded(d)), weight.dtype)
        padded[:, :, :d] = weight.reshape(D, H, d)
        bias = np.zeros(self._padded(D), np.float32)
        bias[:D] = self._weights[f"{name}.bias"]
        return self._panels(H * padded.shape[2], bias, [(0, padded.reshape(D, -1), scale)])

    def _rows(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The weight [N,K] of a linear map in the plan's precision, and the scale of each row: ones but in int8."""
        stored = f"{name}.weight"
        weight = self._weights[stored]
        if weight.dtype == np.int8:
            return weight, self._weights[f"{stored}_scale"]
        if self._precision == "int8":
            return quantize_linear(widen(self._weights, stored), input_heads(self._config, stored))
        if self._precision == "float32":
            weight = widen(self._weights, stored)
        elif weight.dtype != np.uint16:
            weight = to_bfloat16(weight)
        return weight, np.ones(len(weight), np.float32)

    def _panels(self, K: int, bias: np.ndarray, parts: Iterable[tuple[int, np.ndarray, np.ndarray]],
                activation: int = 0) -> Packed:
        """A map of len(bias) columns from parts: the first column of each, its rows of weights, and their scales."""
        N = len(bias)
        packed: Packed
        if self._precision == "int8":
            size = N * -(-K // self._kernels.DOT) * self._kernels.DOT
            scales = np.ones(N, np.float32)
            packed = PackedInt8(self._kernels, allocate(-(-size // 4)).view(np.int8)[:size], K, scales, bias,
                                np.zeros(N, np.float32), activation)
            for column, _, scale in parts:
                scales[column : column + len(scale)] = scale
        elif self._precision == "bfloat16":
            size = N * -(-K // 2)
            packed = PackedBFloat16(self._kernels, allocate(size).view(np.uint16), K, bias, activation)
        else:
            packed = PackedLinear(self._kernels, allocate(N * K), bias, activation)
        for column, weight, _ in parts:
            packed.fill(np.ascontiguousarray(weight), column)
        return packed

    def _padded(self, n: int) -> int:
        return -(-n // self._kernels.VL) * self._kernels.VL
