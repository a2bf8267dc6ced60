"""Pack a model's weights into the panels of the kernels, in the plan's precision, with heads padded to vectors."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np

from ...positions import rotary_angles
from ...precision import COMPUTED, STORED
from ...program import Buffer, Linear, Rotary, Table
from ...quantize import quantize_linear, widen
from ...weights.bfloat16 import to_bfloat16
from .native import NormWeights, PackedLinear, Product, TableWeights

ACTIVATIONS = {"gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
"""The values of enum Activation in table.pxd."""


def allocate(n: int) -> np.ndarray:
    """Return n zeroed floats, page-aligned, on huge pages where the system grants them, private to a forked child."""
    memory = mmap.mmap(-1, max(1, n) * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel can be built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.float32, n)


class Packer:
    """Makes the data that the instructions of one model read: packed linear maps, norms, tables and angles."""

    def __init__(self, product: Product, weights: Mapping[str, np.ndarray]):
        self._product = product
        self._weights = weights
        self._angles: dict[Rotary, tuple[np.ndarray, np.ndarray]] = {}

    def padded(self, width: int, heads: int | None = None) -> int:
        """Return the width of a row in memory: each head, or the row, is padded to whole vectors."""
        each, VL = width // (heads or 1), self._product.kernels.VL
        return (heads or 1) * -(-each // VL) * VL

    def norm(self, weight: str, bias: str | None, eps: float, width: int) -> NormWeights:
        """Return weight, bias and epsilon of a norm; an absent bias is zeros."""
        shift = np.zeros(width, np.float32) if bias is None else self._weights[bias]
        return NormWeights(self._weights[weight], shift, eps)

    def table(self, table: Table | None) -> TableWeights | None:
        """Return a table of the embeddings as it is stored, without a copy; a float16 table is widened."""
        if table is None:
            return None
        rows = self._weights[table.name]
        if STORED[rows.dtype] not in COMPUTED:
            rows = widen(self._weights, table.name)
        storage, scale = COMPUTED.index(STORED[rows.dtype]), self._weights.get(f"{table.name}_scale")
        return TableWeights(rows.view(np.uint8), storage, scale)

    def angles(self, rotary: Rotary) -> tuple[np.ndarray, np.ndarray]:
        """Return cos and sin [positions, width/2] of a rotary embedding, made once for all layers that share it."""
        if rotary not in self._angles:
            positions = np.arange(rotary.positions)
            self._angles[rotary] = rotary_angles(positions, rotary.theta, rotary.width, scale=rotary.scale)
        return self._angles[rotary]

    def linear(self, operation: Linear, x: Buffer) -> PackedLinear:
        """Pack all parts of an operation as one map, whose inputs are laid out as the buffer x is."""
        NR = self._product.kernels.NR
        widths = [self.padded(part.width, part.heads) for part in operation.parts]
        N, K = sum(widths), self.padded(x.width, x.heads) if x.heads else x.width
        bias, scale = np.zeros(N, np.float32), np.ones(N, np.float32)
        pieces = []
        for index, part in enumerate(operation.parts):
            weight, own = self._rows(part.weight, x)
            own_bias = None if part.bias is None else self._weights[part.bias]
            if operation.gate:
                runs = _halves_of_panels(part.width, N, NR, second=index == 1)
            else:
                runs = _heads(part.width, part.heads, widths[index], sum(widths[:index]))
            for column, rows in runs:
                columns = slice(column, column + rows.stop - rows.start)
                pieces.append((column, weight[rows]))
                scale[columns] = own[rows]
                if own_bias is not None:
                    bias[columns] = own_bias[rows]
        return self._pack(K, bias, scale, pieces, ACTIVATIONS[operation.activation] if operation.activation else 0)

    def _pack(self, K: int, bias: np.ndarray, scale: np.ndarray, pieces: list[tuple[int, np.ndarray]],
              activation: int) -> PackedLinear:
        product, step = self._product, self._product.depth_step
        size = len(bias) * -(-K // step) * step * product.weight_bytes
        panels = allocate(-(-size // 4)).view(np.uint8)[:size]
        packed = PackedLinear(product, panels, K, bias, scale if product.precision == "int8" else None, activation)
        for column, rows in pieces:
            packed.fill(np.ascontiguousarray(rows), column)
        return packed

    def _rows(self, name: str, x: Buffer) -> tuple[np.ndarray, np.ndarray]:
        """Return a weight [N,K] in the plan's precision, padded as x is, and the rows' scales, 1 except in int8."""
        weight, scale = self._rounded(name, x.heads or 1)
        if x.heads:
            width = x.width // x.heads
            padded = np.zeros((len(weight), x.heads, self.padded(width)), weight.dtype)
            padded[:, :, :width] = weight.reshape(len(weight), x.heads, width)
            weight = padded.reshape(len(weight), -1)
        return weight, scale

    def _rounded(self, name: str, heads: int) -> tuple[np.ndarray, np.ndarray]:
        stored, precision = self._weights[name], self._product.precision
        if stored.dtype == np.int8:
            return stored, self._weights[f"{name}_scale"]
        if precision == "int8":
            return quantize_linear(widen(self._weights, name), heads)
        if precision == "float32":
            stored = widen(self._weights, name)
        elif stored.dtype != np.uint16:
            stored = to_bfloat16(widen(self._weights, name))
        return stored, np.ones(len(stored), np.float32)


def _heads(width: int, heads: int | None, padded: int, start: int) -> Iterator[tuple[int, slice]]:
    """Yield (first column, rows of the weight) for each head of a part that begins at column `start`."""
    count = heads or 1
    for h in range(count):
        yield start + h * (padded // count), slice(h * (width // count), (h + 1) * (width // count))


def _halves_of_panels(width: int, N: int, NR: int, second: bool) -> Iterator[tuple[int, slice]]:
    """Yield (first column, rows of the weight) for one of the two parts of a gate, which fills half of each panel."""
    for panel in range(0, N, NR):
        half = min(N - panel, NR) // 2
        first = panel // 2
        yield panel + half * second, slice(first, min(first + half, width))
