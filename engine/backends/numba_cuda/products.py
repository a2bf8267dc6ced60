"""Launch the linear maps and the attention of a forward pass in one of the precisions: choose kernels and grids.

All classes have the same methods, so that the plan does not depend on the precision.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Protocol

import numpy as np

from ...config import ModelConfig
from ...errors import UnsupportedError
from ...weights.bfloat16 import to_bfloat16
from .device import Device
from .kernels import attention, attention_hopper, float32, linear, linear_hopper
from .weights import Linear

# Each kernel object is created once, so that a device compiles it once for all plans.
_bfloat16_linear, _bfloat16_attention = cache(linear.linear_kernel), cache(attention.attention_kernel)
_hopper_linear, _hopper_attention = cache(linear_hopper.linear_kernel), cache(attention_hopper.attention_kernel)
_float32_linear, _float32_attention = cache(float32.linear_kernel), cache(float32.attention_kernel)

_FAR = np.int32(attention.FAR)


class Products(Protocol):
    """The linear maps and the attention of one model on one device."""

    dtype: np.dtype
    """Dtype of the operands."""

    def convert(self, weight: np.ndarray) -> np.ndarray:
        """Convert the float32 weight of a linear map to an operand."""

    def tile_rows(self, longest: int) -> int:
        """Return the number of queries per entry of attention's work list, for sequences of up to `longest` tokens."""

    def linear(self, x: Any, weights: Linear, out: Any, activation: str | None = None, residual: Any = None) -> None:
        """Compute out = activation(x W^T + bias), or x W^T + bias + residual; then out and residual are float32."""

    def attention(self, qkv: Any, out: Any, cu_seqlens: Any, tiles: Any, tile_rows: int) -> None:
        """Compute every token's attention, [N, H d], from queries, keys and values [N, 3 H d]."""


class BFloat16Products:
    """Computes on tensor cores, with operands in bfloat16 and sums in float32."""

    dtype = np.dtype(np.uint16)

    def __init__(self, device: Device, config: ModelConfig, tile: linear.Tile | None = None):
        """Check that the model fits the kernels. tile: the tile of linear maps, or None to choose it by the size."""
        self._device, self._config, self._tile = device, config, tile
        problems = []
        if config.head_width not in attention.WIDTHS:
            widths = ", ".join(map(str, attention.WIDTHS))
            problems.append(f"heads of width {widths}, and this model's are of {config.head_width}")
        sizes = {"hidden_size": config.hidden_size, "ffn_size": config.ffn_size}
        problems += [f"{name} a multiple of 8, and this model's is {n}" for name, n in sizes.items() if n % 8]
        if problems:
            raise UnsupportedError(f"the cuda backend in bfloat16 needs {'; '.join(problems)}; precision='float32' "
                                   "runs any model, with slow kernels")
        self._dummy = device.allocate((1, 1), np.float32)

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return to_bfloat16(weight)

    def tile_rows(self, longest: int) -> int:
        return 64 if longest <= 64 else 128

    def linear(self, x: Any, weights: Linear, out: Any, activation: str | None = None, residual: Any = None) -> None:
        # Small tiles are used if large tiles would leave more than half of the GPU idle; the bits are the same.
        N, M = out.shape
        busy = 2 * _tiles(N, M, linear.LARGE) >= self._device.multiprocessors
        tile = self._tile or (linear.LARGE if busy else linear.SMALL)
        kernel = _bfloat16_linear(activation or "identity", residual is not None, tile)
        addend = self._dummy if residual is None else residual
        grid = -(-M // tile.columns), -(-N // tile.rows)
        self._device.launch(kernel, grid, x, weights.weight, weights.bias, addend, out)

    def attention(self, qkv: Any, out: Any, cu_seqlens: Any, tiles: Any, tile_rows: int) -> None:
        d, grid = self._config.head_width, (len(tiles), self._config.num_heads)
        self._device.launch(_bfloat16_attention(d, tile_rows), grid, qkv, out, cu_seqlens, tiles,
                            np.float32(1.0 / math.sqrt(d)), _FAR, _FAR, self._dummy)


class HopperProducts(BFloat16Products):
    """Computes the same with wgmma and TMA, on compute capability 9.0; other head widths still use mma.sync."""

    def __init__(self, device: Device, config: ModelConfig, tile: linear_hopper.Tile | None = None):
        super().__init__(device, config)
        self._hopper_tile = tile

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return linear_hopper.lay_out(to_bfloat16(weight))

    def linear(self, x: Any, weights: Linear, out: Any, activation: str | None = None, residual: Any = None) -> None:
        (N, M), processors = out.shape, self._device.multiprocessors
        tile = self._hopper_tile or _hopper_tile(N, M, processors)
        x_map = self._device.tensor_map(x, tile.rows)
        w_map = self._device.tensor_map(weights.weight, tile.columns)
        addend = self._dummy if residual is None else residual
        kernel = _hopper_linear(activation or "identity", residual is not None, tile)
        grid = (min(processors, _tiles(N, M, tile)),)
        self._device.launch(kernel, grid, x_map, w_map, weights.bias, addend, out, np.int32(x.shape[1]))

    def attention(self, qkv: Any, out: Any, cu_seqlens: Any, tiles: Any, tile_rows: int) -> None:
        H, d = self._config.num_heads, self._config.head_width
        if d not in attention_hopper.WIDTHS:
            super().attention(qkv, out, cu_seqlens, tiles, tile_rows)
            return
        qkv_map = self._device.tensor_map(qkv, attention_hopper.KEYS)
        self._device.launch(_hopper_attention(d, tile_rows), (len(tiles), H), qkv_map, out, cu_seqlens, tiles,
                            np.int32(H), np.float32(1.0 / math.sqrt(d)))


def _hopper_tile(N: int, M: int, processors: int) -> linear_hopper.Tile:
    """Return the largest tile that keeps the multiprocessors busy; all tiles give the same bits."""
    if _tiles(N, M, linear_hopper.LARGE) >= processors:
        return linear_hopper.LARGE
    busy = 2 * _tiles(N, M, linear_hopper.ALTERNATE) >= processors
    return linear_hopper.ALTERNATE if busy else linear_hopper.SMALL


def _tiles(N: int, M: int, tile: linear.Tile | linear_hopper.Tile) -> int:
    """Return the number of tiles in [N, M]."""
    return -(-N // tile.rows) * -(-M // tile.columns)


class Float32Products:
    """Computes everything in float32, without tensor cores: for checks, not for speed."""

    dtype = np.dtype(np.float32)

    def __init__(self, device: Device, config: ModelConfig):
        self._device, self._config = device, config
        self._dummy = device.allocate((1, 1), np.float32)

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return weight

    def tile_rows(self, longest: int) -> int:
        return float32.TILE_ROWS

    def linear(self, x: Any, weights: Linear, out: Any, activation: str | None = None, residual: Any = None) -> None:
        addend = self._dummy if residual is None else residual
        self._device.launch(_float32_linear(activation, residual is not None), float32.linear_grid(*out.shape), x,
                            weights.weight, weights.bias, addend, out)

    def attention(self, qkv: Any, out: Any, cu_seqlens: Any, tiles: Any, tile_rows: int) -> None:
        H, d = self._config.num_heads, self._config.head_width
        self._device.launch(_float32_attention(d), float32.attention_grid(len(tiles), H), qkv, out, cu_seqlens, tiles,
                            np.int32(H), np.int32(H), np.float32(1.0 / math.sqrt(d)))


def choose_products(device: Device, config: ModelConfig, precision: str) -> Products:
    """Choose the fastest kernels for "bfloat16" or "float32"; raises `UnsupportedError` if they cannot run a model."""
    if precision == "float32":
        return Float32Products(device, config)
    return (HopperProducts if device.capability == (9, 0) else BFloat16Products)(device, config)
