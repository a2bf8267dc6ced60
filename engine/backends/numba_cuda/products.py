"""Launch the linear maps and the attention of a forward pass in one of the precisions: choose kernels and grids.

All classes have the same methods, so that the plan does not depend on the precision.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from ...base.errors import UnsupportedError
from ...programs.program import Program
from ...weights.bfloat16 import to_bfloat16
from .device import Device, recent_integers
from .kernels import attention, attention_hopper, float32, linear, linear_few, linear_hopper
from .ptx.scores import CAP_RATE
from .support import buffers_of
from .weights import DeviceAffine, DeviceBias, DeviceRelative

# Each kernel object is created once, so that a device compiles it once for all plans.
_bfloat16_linear, _bfloat16_attention = cache(linear.linear_kernel), cache(attention.attention_kernel)
_hopper_linear, _hopper_attention = cache(linear_hopper.linear_kernel), cache(attention_hopper.attention_kernel)
_lay_out, _few_linear = cache(linear_hopper.lay_out_kernel), cache(linear_few.linear_kernel)
_float32_linear, _float32_attention = cache(float32.linear_kernel), cache(float32.attention_kernel)


RECENT = 64
"""How many tensor maps, and how many arrays of integers, are cached for the arrays of callers."""
KINDS = PLAIN, CHANGED, RELATIVE = "plain", "changed", "relative"
"""Kinds of attention: unchanged scores, scores with a cap or biases by distance, scores with relative positions."""


@dataclass(frozen=True)
class ScoreRule:
    """The scale, the window and the changes of an Attend's scores; the arrays are on the device."""

    scale: float
    window: tuple[int | None, int | None] = (None, None)
    """How many keys a query sees before and after its own; None for all of them."""
    softcap: float = 0.0
    bias: DeviceBias | None = None
    relative: DeviceRelative | None = None
    terms: Any = None
    """Memory for the terms of relative positions: operands [N, columns of relative.table]."""

    @property
    def options(self) -> dict[str, bool]:
        """Return the options with which the factories of attention kernels are called."""
        return {"capped": self.softcap > 0, "biased": self.bias is not None, "relative": self.relative is not None}

    @property
    def kind(self) -> str:
        """Return the kind of attention."""
        return RELATIVE if self.relative else CHANGED if self.softcap or self.bias else PLAIN

    def arguments(self, floats: Any, operands: Any, numbers: Any) -> list[Any]:
        """Return the arguments of an attention kernel from the scale to the row numbers of relative positions.

        floats, operands, numbers: dummies [1, 1] and [1] for the arrays that the kernel does not read.
        """
        sides = [np.int32(min(attention.UNBOUNDED if side is None else side, attention.UNBOUNDED))
                 for side in self.window]
        cap = self.softcap / self.scale
        line, slopes = (self.bias.line, self.bias.slopes) if self.bias else (floats, floats[0])
        terms = (self.terms, self.relative.numbers) if self.relative else (operands, numbers)
        return [np.float32(self.scale), *sides, np.float32(CAP_RATE / cap if cap else 0), np.float32(cap), line, slopes,
                *terms]


class Products(Protocol):
    """The linear maps and the attention of models on one device."""

    dtype: np.dtype
    """Dtype of the operands."""

    def convert(self, weight: np.ndarray) -> np.ndarray:
        """Convert the float32 weight of a linear map to an operand."""

    def convert_table(self, table: np.ndarray) -> np.ndarray:
        """Convert float32 to operands, for a kernel that reads rows as they are."""

    def head_width(self, d: int) -> int:
        """Return the number of columns that a head of width d takes with the zeros behind it."""

    def tile_rows(self, longest: int, d: int, kind: str = PLAIN) -> int:
        """Return the number of queries per entry of attention's work list.

        longest: the most tokens of a sequence. d: the width of a head with its zeros. kind: PLAIN, CHANGED or RELATIVE
        """

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        """Compute out = activation(x W^T + bias), or out = x W^T + bias + residual with float32 out and residual.

        out: float32 or operands. gate: whether the weights are those of a gate and of another map (`interleave`), whose
        results are multiplied
        """

    def attention(self, qkv: Any, out: Any, heads: int, scores: ScoreRule, cu_seqlens: Any, tiles: Any,
                  tile_rows: int) -> None:
        """Compute every token's attention, [N, H d], from queries, keys and values [N, (H + 2 G) d]."""


class BFloat16Products:
    """Computes on tensor cores, with operands in bfloat16 and sums in float32."""

    dtype = np.dtype(np.uint16)
    laid_out = False
    """Whether `convert` lays out weights by `linear_hopper.lay_out`."""

    def __init__(self, device: Device, tile: linear.Tile | None = None):
        """Hold the device. tile: the tile of linear maps, or None to choose it by the size."""
        self._device, self._tile = device, tile
        self._dummy = device.allocate((1, 1), np.float32)
        self._dummies = self._dummy, device.allocate((1, 1), np.uint16), device.allocate((1,), np.int32)

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return to_bfloat16(weight)

    def convert_table(self, table: np.ndarray) -> np.ndarray:
        return to_bfloat16(table)

    def head_width(self, d: int) -> int:
        return next(width for width in attention.WIDTHS if d <= width)

    def tile_rows(self, longest: int, d: int, kind: str = PLAIN) -> int:
        return 64 if longest <= 64 or d > attention.WIDEST_OF_128_ROWS or kind != PLAIN else 128

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        """Queue the kernel of a linear map, with a tile by the size of its result; see `Products.linear`."""
        N, M = out.shape[0], weights.bias.shape[0]
        if self._tile is None and N <= linear_few.MOST_ROWS:
            self._linear_few(x, weights, out, activation, residual, gate)
            return
        # Small tiles are used if large tiles would leave more than half of the GPU idle; the bits are the same.
        busy = 2 * _tiles(N, M, linear.LARGE) >= self._device.multiprocessors
        tile = self._tile or (linear.LARGE if busy else linear.SMALL)
        kernel = _bfloat16_linear(activation or "identity", residual is not None, tile, gate=gate,
                                  wide=residual is None and out.dtype == np.float32)
        addend = self._dummy if residual is None else residual
        grid = -(-M // tile.columns), -(-N // tile.rows)
        self._device.launch(kernel, grid, x, weights.weight, weights.bias, addend, out)

    def _linear_few(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None, residual: Any,
                    gate: bool) -> None:
        """Compute `linear` for at most `linear_few.MOST_ROWS` rows."""
        N, M = out.shape[0], weights.bias.shape[0]
        tokens = next(tokens for tokens in linear_few.TOKENS if tokens >= N or tokens == linear_few.TOKENS[-1])
        kernel = _few_linear(activation or "identity", residual is not None, tokens, gate=gate,
                             wide=residual is None and out.dtype == np.float32)
        addend = self._dummy if residual is None else residual
        self._device.launch(kernel, linear_few.linear_grid(N, M, tokens), x, weights.weight, weights.bias, addend, out,
                            np.int32(self.laid_out))

    def attention(self, qkv: Any, out: Any, heads: int, scores: ScoreRule, cu_seqlens: Any, tiles: Any,
                  tile_rows: int) -> None:
        """Queue the terms of relative positions if there are any, then attention; see `Products.attention`."""
        if scores.relative is not None:
            self._terms(qkv, scores.relative, scores.terms, 2 * heads)
        kernel = _bfloat16_attention(out.shape[1] // heads, tile_rows, **scores.options)
        self._device.launch(kernel, (len(tiles), heads), qkv, out, cu_seqlens, tiles, *scores.arguments(*self._dummies))

    def separate_attention(self, q: Any, k: Any, v: Any, out: Any, sizes: Sequence[int], limits: Any, scores: ScoreRule
                           ) -> None:
        """Compute the attention of heads that lie apart: q, out [B H T, d], k, v [B G S, d].

        sizes: H, G, T and S. limits: int32 [B, 1], the number of keys of each sequence. scores: without biases and
        relative positions.
        """
        T, d = sizes[2], out.shape[1]
        rows = self.tile_rows(T, d, scores.kind)
        kernel = _bfloat16_attention(d, rows, capped=scores.softcap > 0, apart=True)
        self._device.launch(kernel, (len(out) // T * -(-T // rows),), q, k, v, out, *map(np.int32, sizes),
                            limits, *scores.arguments(*self._dummies))

    def _terms(self, qkv: Any, relative: DeviceRelative, out: Any, heads: int) -> None:
        """Compute the terms of relative positions: each head of queries and keys times its rows of the table."""
        tile, N, M = linear.SMALL, out.shape[0], out.shape[1] // heads
        grid = -(-M // tile.columns), -(-N // tile.rows), heads
        self._device.launch(_bfloat16_linear("identity", False, tile, gate=False, wide=False), grid, qkv,
                            relative.table, relative.zeros, self._dummy, out)


class HopperProducts(BFloat16Products):
    """Computes the same with wgmma (products of four warps together) and TMA (copies by hardware), on capability 9.0.

    Attention of head widths outside `attention_hopper.WIDTHS`, and linear maps of few rows, still use mma.sync, the
    products of single warps.
    """

    laid_out = True

    def __init__(self, device: Device, tile: linear_hopper.HopperTile | None = None, most_maps: int | None = None):
        """tile: as `BFloat16Products`. most_maps: how many tensor maps are kept, the latest ones; None for all of them,
        as for a plan, whose arrays last and whose recorded launches hold the addresses of their maps.
        """
        super().__init__(device)
        self._hopper_tile, self._most_maps = tile, most_maps
        self._maps: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._sizes = recent_integers(device, RECENT)

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return linear_hopper.lay_out(to_bfloat16(weight))

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        """Queue the kernel of a linear map, with tensor maps of its operands; see `Products.linear`."""
        N, M, processors = out.shape[0], weights.bias.shape[0], self._device.multiprocessors
        if self._hopper_tile is None and N <= linear_few.MOST_ROWS:
            self._linear_few(x, weights, out, activation, residual, gate)
            return
        tile = self._hopper_tile or hopper_tile(N, M, processors, activation)
        x_map = self._map(x, tile.rows)     # TMA copies this many rows at a time
        w_map = self._map(weights.weight, tile.columns)
        addend = self._dummy if residual is None else residual
        kernel = _hopper_linear(activation or "identity", residual is not None, tile, gate=gate,
                                wide=residual is None and out.dtype == np.float32)
        grid = (min(processors, _tiles(N, M, tile)),)       # a block computes several tiles, one after the other
        self._device.launch(kernel, grid, x_map, w_map, weights.bias, addend, out, np.int32(x.shape[1]))

    def tile_rows(self, longest: int, d: int, kind: str = PLAIN) -> int:
        return super().tile_rows(longest, d, PLAIN if kind == CHANGED and d in attention_hopper.WIDTHS else kind)

    def attention(self, qkv: Any, out: Any, heads: int, scores: ScoreRule, cu_seqlens: Any, tiles: Any,
                  tile_rows: int) -> None:
        """Queue attention by wgmma where its kernel can compute it; see `Products.attention`."""
        d = out.shape[1] // heads
        if d not in attention_hopper.WIDTHS or scores.kind == RELATIVE:
            super().attention(qkv, out, heads, scores, cu_seqlens, tiles, tile_rows)
            return
        qkv_map = self._map(qkv, attention_hopper.KEYS)
        grid = (min(self._device.multiprocessors, len(tiles) * heads),)
        key_heads = np.int32((qkv.shape[1] // d - heads) // 2)
        capped, biased = scores.softcap > 0, scores.bias is not None
        self._device.launch(_hopper_attention(d, tile_rows, capped=capped, biased=biased), grid, qkv_map, out,
                            cu_seqlens, tiles, key_heads, *scores.arguments(*self._dummies)[:7])

    def separate_attention(self, q: Any, k: Any, v: Any, out: Any, sizes: Sequence[int], limits: Any, scores: ScoreRule
                           ) -> None:
        """Queue attention of heads that lie apart, by wgmma where its kernel can compute it."""
        T, d = sizes[2], out.shape[1]
        if d not in attention_hopper.WIDTHS:
            super().separate_attention(q, k, v, out, sizes, limits, scores)
            return
        rows = self.tile_rows(T, d, scores.kind)
        kernel = _hopper_attention(d, rows, capped=scores.softcap > 0, apart=True)
        grid = (min(self._device.multiprocessors, len(out) // T * -(-T // rows)),)
        maps = [self._map(matrix, attention_hopper.KEYS) for matrix in (q, k, v)]
        # 1: the key heads of an array with one head; [:7]: this kernel has no terms of relative positions.
        self._device.launch(kernel, grid, *maps, out, self._sizes(*sizes), limits, np.int32(1),
                            *scores.arguments(*self._dummies)[:7])

    def lay_out(self, weight: Any) -> Any:
        """Return a copy of operands [M,K] on the device in the layout of `convert`."""
        M, K = -(-len(weight) // 16) * 16, weight.shape[1]
        laid = self._device.allocate((M, K), np.uint16)
        self._device.launch(_lay_out(), linear_hopper.lay_out_grid(M, K), weight, laid)
        return laid

    def _map(self, matrix: Any, box_rows: int) -> Any:
        """Return the tensor map of a matrix, from the cache or new. box_rows: how many rows TMA copies at a time.

        The cache may drop a map at any time, because freeing memory waits for the kernels that are queued.
        """
        key = self._device.pointer(matrix), *matrix.shape, box_rows
        if key not in self._maps:
            self._maps[key] = self._device.tensor_map(matrix, box_rows)
            if self._most_maps is not None and len(self._maps) > self._most_maps:
                self._maps.popitem(last=False)
        self._maps.move_to_end(key)
        return self._maps[key]


def hopper_tile(N: int, M: int, processors: int, activation: str | None) -> linear_hopper.HopperTile:
    """Return the tile that was fastest on an H200 (`docs/gpu.md`) for this size; all tiles give the same bits."""
    if activation and _tiles(N, M, linear_hopper.LARGE) >= processors:
        return linear_hopper.LARGE
    fills_half = 2 * _tiles(N, M, linear_hopper.ALTERNATE) >= processors        # of the GPU
    return linear_hopper.ALTERNATE if fills_half else linear_hopper.SMALL


def _tiles(N: int, M: int, tile: linear.Tile | linear_hopper.HopperTile) -> int:
    """Return the number of tiles that cover a result [N, M]."""
    return -(-N // tile.rows) * -(-M // tile.columns)


class Float32Products:
    """Computes everything in float32, without tensor cores: for checks, not for speed."""

    dtype = np.dtype(np.float32)

    def __init__(self, device: Device):
        self._device = device
        self._dummy, self._numbers = device.allocate((1, 1), np.float32), device.allocate((1,), np.int32)

    def convert(self, weight: np.ndarray) -> np.ndarray:
        return weight

    def convert_table(self, table: np.ndarray) -> np.ndarray:
        return table

    def head_width(self, d: int) -> int:
        return -(-d // 32) * 32

    def tile_rows(self, longest: int, d: int, kind: str = PLAIN) -> int:
        return float32.TILE_ROWS

    def linear(self, x: Any, weights: DeviceAffine, out: Any, activation: str | None = None, residual: Any = None,
               gate: bool = False) -> None:
        """Queue the kernel of a linear map; see `Products.linear`."""
        addend = self._dummy if residual is None else residual
        self._device.launch(_float32_linear(activation, residual is not None, gate), float32.linear_grid(*out.shape), x,
                            weights.weight, weights.bias, addend, out)

    def attention(self, qkv: Any, out: Any, heads: int, scores: ScoreRule, cu_seqlens: Any, tiles: Any,
                  tile_rows: int) -> None:
        """Queue the terms of relative positions if there are any, then attention; see `Products.attention`."""
        d = out.shape[1] // heads
        key_heads = (qkv.shape[1] // d - heads) // 2
        if (relative := scores.relative) is not None:       # one linear map for each head of queries and of keys
            grid = *float32.linear_grid(len(scores.terms), scores.terms.shape[1] // (2 * heads)), 2 * heads
            self._device.launch(_float32_linear(None, False, False), grid, qkv, relative.table, relative.zeros,
                                self._dummy, scores.terms)
        self._device.launch(_float32_attention(d, **scores.options), float32.attention_grid(len(tiles), heads), qkv,
                            out, cu_seqlens, tiles, np.int32(heads), np.int32(key_heads),
                            *scores.arguments(self._dummy, self._dummy, self._numbers))


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
