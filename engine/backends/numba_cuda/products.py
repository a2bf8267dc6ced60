"""Launch the linear maps and the attention of a forward pass in one of the precisions: choose kernels and grids.

All classes have the same methods, so that the plan does not depend on the precision.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np

from ...base.errors import UnsupportedError
from ...programs.program import Program
from ...weights.bfloat16 import to_bfloat16
from .device import Device
from .kernels import attention, attention_hopper, float32, linear, linear_hopper
from .support import buffers_of
from .weights import DeviceAffine

# Each kernel object is created once, so that a device compiles it once for all plans.
_bfloat16_linear, _bfloat16_attention = cache(linear.linear_kernel), cache(attention.attention_kernel)
_hopper_linear, _hopper_attention = cache(linear_hopper.linear_kernel), cache(attention_hopper.attention_kernel)
_float32_linear, _float32_attention = cache(float32.linear_kernel), cache(float32.attention_kernel)


class Products(Protocol):
    """The linear maps and the attention of models on one device."""

    dtype: np.dtype
    """Dtype of the operands."""

    def convert(self, weight: np.ndarray) -> np.ndarray:
        """Convert the float32 weight of a linear map to an operand."""

    def head_width(self, d: int) -> int:
        """Return the number of columns that a head of width d takes with the zeros behind it."""

    def tile_rows(self, longest: int, d: int) -> int:
        """Return the number of queries per entry of attention's work list.

        longest: the most tokens of a sequence. d: the width of a head with its zeros
        """

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        """Compute out = activation(x W^T + bias), or out = x W^T + bias + residual with float32 out and residual.

        out: float32 or operands. gate: whether the weights are those of a gate and of another map (`interleave`), whose
        results are multiplied
        """

    def attention(self, qkv: Any, out: Any, heads: int, scale: float, cu_seqlens: Any, tiles: Any, tile_rows: int,
                  window: tuple[int | None, int | None] = (None, None)) -> None:
        """Compute every token's attention, [N, H d], from queries, keys and values [N, (H + 2 G) d].

        window: how many keys a query sees before and after its own; None for all of them
        """


class BFloat16Products:
    """Computes on tensor cores, with operands in bfloat16 and sums in float32."""

    dtype = np.dtype(np.uint16)

    def __init__(self, device: Device, tile: linear.Tile | None = None):
        """Hold the device. tile: the tile of linear maps, or None to choose it by the size."""
        self._device, self._tile = device, tile
        self._dummy = device.allocate((1, 1), np.float32)

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return to_bfloat16(weight)

    def head_width(self, d: int) -> int:
        return next(width for width in attention.WIDTHS if d <= width)

    def tile_rows(self, longest: int, d: int) -> int:
        return 64 if longest <= 64 or d > attention.WIDEST_OF_128_ROWS else 128

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        # Small tiles are used if large tiles would leave more than half of the GPU idle; the bits are the same.
        N, M = out.shape[0], weights.bias.shape[0]
        busy = 2 * _tiles(N, M, linear.LARGE) >= self._device.multiprocessors
        tile = self._tile or (linear.LARGE if busy else linear.SMALL)
        kernel = _bfloat16_linear(activation or "identity", residual is not None, tile, gate=gate,
                                  wide=residual is None and out.dtype == np.float32)
        addend = self._dummy if residual is None else residual
        grid = -(-M // tile.columns), -(-N // tile.rows)
        self._device.launch(kernel, grid, x, weights.weight, weights.bias, addend, out)

    def attention(self, qkv: Any, out: Any, heads: int, scale: float, cu_seqlens: Any, tiles: Any, tile_rows: int,
                  window: tuple[int | None, int | None] = (None, None)) -> None:
        kernel = _bfloat16_attention(out.shape[1] // heads, tile_rows)
        self._device.launch(kernel, (len(tiles), heads), qkv, out, cu_seqlens, tiles, np.float32(scale),
                            *_sides(window))


class HopperProducts(BFloat16Products):
    """Computes the same with wgmma (products of four warps together) and TMA (copies by hardware), on capability 9.0.

    Attention of head widths outside `attention_hopper.WIDTHS` still uses mma.sync, products of single warps.
    """

    def __init__(self, device: Device, tile: linear_hopper.HopperTile | None = None):
        super().__init__(device)
        self._hopper_tile = tile

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return linear_hopper.lay_out(to_bfloat16(weight))

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        N, M, processors = out.shape[0], weights.bias.shape[0], self._device.multiprocessors
        tile = self._hopper_tile or hopper_tile(N, M, processors, activation)
        x_map = self._device.tensor_map(x, tile.rows)       # TMA copies this many rows at a time
        w_map = self._device.tensor_map(weights.weight, tile.columns)
        addend = self._dummy if residual is None else residual
        kernel = _hopper_linear(activation or "identity", residual is not None, tile, gate=gate,
                                wide=residual is None and out.dtype == np.float32)
        grid = (min(processors, _tiles(N, M, tile)),)       # a block computes several tiles, one after the other
        self._device.launch(kernel, grid, x_map, w_map, weights.bias, addend, out, np.int32(x.shape[1]))

    def attention(self, qkv: Any, out: Any, heads: int, scale: float, cu_seqlens: Any, tiles: Any, tile_rows: int,
                  window: tuple[int | None, int | None] = (None, None)) -> None:
        d = out.shape[1] // heads
        if d not in attention_hopper.WIDTHS:
            super().attention(qkv, out, heads, scale, cu_seqlens, tiles, tile_rows, window)
            return
        qkv_map = self._device.tensor_map(qkv, attention_hopper.KEYS)
        grid = (min(self._device.multiprocessors, len(tiles) * heads),)
        key_heads = np.int32((qkv.shape[1] // d - heads) // 2)
        self._device.launch(_hopper_attention(d, tile_rows), grid, qkv_map, out, cu_seqlens, tiles, key_heads,
                            np.float32(scale), *_sides(window))


def hopper_tile(N: int, M: int, processors: int, activation: str | None) -> linear_hopper.HopperTile:
    """Return the tile that was fastest on an H200 (`docs/gpu.md`) for this size; all tiles give the same bits."""
    if activation and _tiles(N, M, linear_hopper.LARGE) >= processors:
        return linear_hopper.LARGE
    busy = 2 * _tiles(N, M, linear_hopper.ALTERNATE) >= processors      # at least half of the GPU
    return linear_hopper.ALTERNATE if busy else linear_hopper.SMALL


def _sides(window: tuple[int | None, int | None]) -> list[np.int32]:
    """Return the arguments of a kernel for a window."""
    return [np.int32(min(attention.UNBOUNDED if side is None else side, attention.UNBOUNDED)) for side in window]


def _tiles(N: int, M: int, tile: linear.Tile | linear_hopper.HopperTile) -> int:
    """Return the number of tiles in [N, M]."""
    return -(-N // tile.rows) * -(-M // tile.columns)


class Float32Products:
    """Computes everything in float32, without tensor cores: for checks, not for speed."""

    dtype = np.dtype(np.float32)

    def __init__(self, device: Device):
        self._device = device
        self._dummy = device.allocate((1, 1), np.float32)

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return weight

    def head_width(self, d: int) -> int:
        return -(-d // 32) * 32

    def tile_rows(self, longest: int, d: int) -> int:
        return float32.TILE_ROWS

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        addend = self._dummy if residual is None else residual
        self._device.launch(_float32_linear(activation, residual is not None, gate), float32.linear_grid(*out.shape), x,
                            weights.weight, weights.bias, addend, out)

    def attention(self, qkv: Any, out: Any, heads: int, scale: float, cu_seqlens: Any, tiles: Any, tile_rows: int,
                  window: tuple[int | None, int | None] = (None, None)) -> None:
        d = out.shape[1] // heads
        key_heads = (qkv.shape[1] // d - heads) // 2
        self._device.launch(_float32_attention(d), float32.attention_grid(len(tiles), heads), qkv, out, cu_seqlens,
                            tiles, np.int32(heads), np.int32(key_heads), np.float32(scale), *_sides(window))


def choose_products(device: Device, program: Program, precision: str) -> Products:
    """Choose the fastest kernels for a precision; raises `UnsupportedError` if they cannot run a program."""
    if precision == "float32":
        return Float32Products(device)
    _check_widths(program)
    return (HopperProducts if device.capability == (9, 0) else BFloat16Products)(device)


def _check_widths(program: Program) -> None:
    """Raise `UnsupportedError` if the bfloat16 kernels cannot run a program because of its heads."""
    widths = {buffer.width // buffer.heads for buffer in buffers_of(program).values() if buffer.heads}
    if max(widths, default=0) > attention.WIDTHS[-1]:
        raise UnsupportedError(f"the cuda backend in bfloat16 needs heads of up to {attention.WIDTHS[-1]} columns, and "
                               f"this model's have {max(widths)}; precision='float32' runs any width, with slow "
                               "kernels")
