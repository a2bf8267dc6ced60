"""Allocate the memory of a plan: arrays on the device, and pinned memory on the host for input and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...programs.operations import reads, writes
from ...programs.program import Program
from .bucket import Shape, largest_shape
from .device import Device
from .kernels.norm import TO_BFLOAT16, TO_FLOAT32
from .support import FLOAT32, OPERAND, Layout, steps_of


@dataclass(frozen=True)
class WorkspaceRows:
    """The arrays of one pass, with as many rows as its shape has tokens."""

    ids: Any
    positions: Any
    types: Any
    cu_seqlens: Any
    tiles: Any
    embeds: Any
    """float32 [N, P], or None if the pass starts from ids."""
    arrays: dict[tuple[str, str], Any]
    """An array for each (form, buffer): float32 or the operands' dtype. In a float32 plan both forms are one array."""
    terms: Any
    """Operands [N, columns] for the terms of relative positions, or None if the model has none."""
    dummies: dict[str, Any]
    """For each form, an argument that a kernel does not use."""

    def outputs(self, name: str, forms: frozenset[str]) -> tuple[np.int32, Any, Any]:
        """Return the last arguments of a norm kernel: the bits of its results, its float32 and bfloat16 array."""
        results = {array.dtype.name: array for array in (self.arrays[form, name] for form in forms)}
        written = TO_FLOAT32 * ("float32" in results) + TO_BFLOAT16 * ("uint16" in results)
        return (np.int32(written), results.get("float32", self.dummies[FLOAT32]),
                results.get("uint16", self.dummies[OPERAND]))


class Workspace:
    """Arrays on the device for passes of up to `max_tokens` tokens: one for each result and form (`support.Step`)."""

    def __init__(self, device: Device, program: Program, max_tokens: int, operands: np.dtype,
                 layouts: Mapping[str, Layout], terms: int = 0):
        """Allocate the arrays; terms: the number of columns for the terms of relative positions."""
        largest = largest_shape(max_tokens)
        self._device = device
        self._integers = device.allocate((largest.size,), np.int32)
        self._dummies = {FLOAT32: device.allocate((1, 8), np.float32), OPERAND: device.allocate((1, 8), np.uint16)}
        self._arrays: dict[tuple[str, str], Any] = {}
        dtypes, allocated = {FLOAT32: np.dtype(np.float32), OPERAND: operands}, dict[tuple[str, np.dtype], Any]()
        for step in steps_of(program):
            names = writes(step.operation)
            for form in step.forms:
                key = names[0], dtypes[form]    # of one array, where all results of the operation lie side by side
                if key not in allocated:
                    columns = sum(layouts[name].columns for name in names)
                    allocated[key] = device.allocate((largest.tokens, columns), dtypes[form])
                self._arrays[form, names[0]] = allocated[key]
        self._terms = device.allocate((largest.tokens, terms), operands) if terms else None
        stored = layouts[reads(program.operations[-1])[0]]
        rows = self._arrays[FLOAT32, reads(program.operations[-1])[0]]
        self.result = rows if stored.columns == stored.width else device.allocate((largest.tokens, stored.width),
                                                                                   np.float32)
        """float32 [N, D]: the token vectors of a finished pass."""
        self._embedded = largest.tokens, layouts[writes(program.operations[0])[0]].columns      # of `embeds`

    @cached_property
    def embeds(self) -> Any:
        """Return float32 [N, P] for `inputs_embeds`, allocated at first use because few callers pass them."""
        return self._device.allocate(self._embedded, np.float32)

    def upload_integers(self, shape: Shape, staging: np.ndarray) -> None:
        """Queue the copy of a pass's integers from pinned memory to the device, as `Shape.views` divides them."""
        self._device.copy(self._integers[: shape.size], staging[: shape.size])

    def cu_seqlens(self, shape: Shape) -> Any:
        """Return int32 [tiles + 2]: cu_seqlens, without empty sequences, of the last pass, which has this shape."""
        return shape.views(self._integers)[3]

    def rows(self, shape: Shape) -> WorkspaceRows:
        """Return the arrays for a pass of this shape."""
        n = shape.tokens
        return WorkspaceRows(*shape.views(self._integers), self.embeds[:n] if shape.embeds else None,
                             {key: array[:n] for key, array in self._arrays.items()},
                             None if self._terms is None else self._terms[:n], self._dummies)


class Slot:
    """Pinned memory for one batch group: its integers on the way to the device, its token vectors on the way back."""

    def __init__(self, device: Device, max_tokens: int, width: int):
        self._device = device
        self.integers = device.pinned((largest_shape(max_tokens).size,), np.int32)
        self._vectors = device.pinned((max_tokens, width), np.float32)
        self._target: np.ndarray | None = None
        self._done: Callable[[], None] | None = None

    def queued(self) -> None:
        """Note that everything that reads `integers` has been queued."""
        self._done = self._device.mark()

    def fetch(self, vectors: Any, target: np.ndarray) -> None:
        """Queue the copy of the first n vectors [N, D] from the device; `finish` writes them to `target` [n, D]."""
        self._device.copy(self._vectors[: len(target)], vectors[: len(target)])
        self._target, self._done = target, self._device.mark()

    def finish(self) -> None:
        """Wait until the queued work is done, and write fetched vectors to their target."""
        if self._done is not None:
            self._done()
        if self._target is not None:
            self._target[:] = self._vectors[: len(self._target)]
        self._target = self._done = None
