"""Hold the cosines and sines of a model's rotary embeddings on the device, up to the largest position so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model.positions import rotary_angles
from ...programs.operations import Heads, Rotary
from ...programs.program import Program
from .device import Device


class Rotations:
    """Tables of cosines and sines, float32 [positions, pairs] each, of every rotary embedding of a program."""

    def __init__(self, device: Device, program: Program, positions: int):
        """Compute the tables up to a number of positions, or up to the model's limit if that is less."""
        self._device = device
        rotaries = {operation.rotary: None for operation in program.operations      # a dict keeps their order
                    if isinstance(operation, Heads) and operation.rotary is not None}
        self._tables: dict[Rotary, tuple[Any, Any]] = {}
        self._positions = 0
        self._limit = max((rotary.positions for rotary in rotaries), default=0)
        self._rotaries = tuple(rotaries)
        self.hold(positions)

    def __getitem__(self, rotary: Rotary) -> tuple[Any, Any]:
        """Return the cosines and the sines of a rotary embedding."""
        return self._tables[rotary]

    def hold(self, positions: int) -> bool:
        """Compute longer tables if they lack one of the first `positions` positions; return whether they did.

        The length at least doubles, up to the limit, so that growing positions make few new tables.
        """
        positions = min(positions, self._limit)
        if positions <= self._positions:
            return False
        self._positions = min(max(positions, 2 * self._positions), self._limit)
        for rotary in self._rotaries:
            numbers = np.arange(min(self._positions, rotary.positions))
            tables = rotary_angles(numbers, rotary.theta, rotary.width, scale=rotary.scale,
                                   frequencies=rotary.frequencies, factor=rotary.factor)
            self._tables[rotary] = self._device.upload(tables[0]), self._device.upload(tables[1])
        return True
