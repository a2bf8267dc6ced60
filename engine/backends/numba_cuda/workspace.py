"""The memory of a plan: what the passes work in on the device, and what they come from and go to on the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...config import ModelConfig
from .bucket import Shape, largest_shape
from .device import Device


@dataclass(frozen=True)
class Rows:
    """The arrays of one pass, as many rows as its shape has."""

    ids: Any
    positions: Any
    types: Any
    cu_seqlens: Any
    tiles: Any
    embeds: Any
    """float32 [N, D], or None where the pass starts from ids."""
    x32: Any
    """float32 [N, D]: the residual stream, and at last the result."""
    x16: Any
    """The same in bfloat16; a dummy in float32."""
    x: Any
    """Whichever of the two is the operand of products."""
    sum: Any
    """float32 [N, D]: a residual sum before its norm."""
    qkv: Any
    heads: Any
    up: Any
    """[N, 3 H d], [N, H d] and [N, F] in the operands' dtype."""


class Workspace:
    """Arrays on the device for passes of up to `max_tokens` tokens; bytes a token: 8 D, and 4 H d + D + F operands."""

    def __init__(self, device: Device, config: ModelConfig, max_tokens: int, operands: np.dtype):
        largest = largest_shape(max_tokens)
        N, D, width = largest.tokens, config.hidden_size, config.num_heads * config.head_width
        self._device = device
        self._shape = N, D
        self._integers = device.allocate((largest.size,), np.int32)
        self.x32, self._sum = (device.allocate((N, D), np.float32) for _ in range(2))
        self._half = operands != np.float32
        self._x16 = device.allocate((N, D) if self._half else (1, 1), np.uint16)
        self._qkv, self._heads, self._up = (
            device.allocate((N, columns), operands) for columns in (3 * width, width, config.ffn_size))

    @cached_property
    def embeds(self) -> Any:
        """float32 [N, D], for `inputs_embeds`, which few models are given."""
        return self._device.allocate(self._shape, np.float32)

    def take(self, shape: Shape, staging: np.ndarray) -> None:
        """Queue the copy of a pass's integers to the device."""
        self._device.copy(self._integers[: shape.size], staging[: shape.size])

    def cu_seqlens(self, shape: Shape) -> Any:
        """int32 [tiles + 2]: the sequences, empty ones left out, of the pass of that shape that was last taken."""
        return shape.views(self._integers)[3]

    def rows(self, shape: Shape) -> Rows:
        """The arrays for a pass."""
        n = shape.tokens
        ids, positions, types, cu_seqlens, tiles = shape.views(self._integers)
        x32, x16 = self.x32[:n], self._x16[:n]
        return Rows(ids, positions, types, cu_seqlens, tiles, self.embeds[:n] if shape.embeds else None, x32, x16,
                    x16 if self._half else x32, self._sum[:n], self._qkv[:n], self._heads[:n], self._up[:n])


class Slot:
    """Pinned memory for a group on its way: its integers going in, its token vectors coming out."""

    def __init__(self, device: Device, config: ModelConfig, max_tokens: int):
        self._device = device
        self.integers = device.pinned((largest_shape(max_tokens).size,), np.int32)
        self._vectors = device.pinned((max_tokens, config.hidden_size), np.float32)
        self._target: np.ndarray | None = None
        self._done: Callable[[], None] | None = None

    def queued(self) -> None:
        """All that reads `integers` has been queued."""
        self._done = self._device.mark()

    def fetch(self, vectors: Any, target: np.ndarray) -> None:
        """Queue the copy of the first of some vectors [N, D] on the device, for `target` [n, D]."""
        self._device.copy(self._vectors[: len(target)], vectors[: len(target)])
        self._target, self._done = target, self._device.mark()

    def finish(self) -> None:
        """Wait for what was queued, and hand over what was fetched."""
        if self._done is not None:
            self._done()
        if self._target is not None:
            self._target[:] = self._vectors[: len(self._target)]
        self._target = self._done = None
