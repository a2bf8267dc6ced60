"""The table of a rotary embedding, whose rows are computed up to the largest position that passes have read."""

from __future__ import annotations

import numpy as np

from ...model.positions import rotary_angles
from ...programs.operations import Rotary

_BLOCK_ROWS = 2**12
"""How many rows are computed at a time, which bounds the memory of their float64 numbers."""


class Angles:
    """cos and sin, float32 [positions, width/2] each, of a rotary embedding.

    The arrays have a row for each position of the model from the beginning, because instructions hold their addresses,
    so they cannot grow. Rows that are not written yet take no memory, only a range of addresses: half a gigabyte for a
    model of a million positions.
    """

    def __init__(self, rotary: Rotary):
        """Make the arrays, without computing a row."""
        self._rotary, self._filled = rotary, 0      # how many rows are computed
        self.cos, self.sin = (np.empty((rotary.positions, rotary.width // 2), np.float32) for _ in range(2))

    def fill(self, positions: int) -> None:
        """Compute the rows of the first `positions` positions, and up to 4,095 more, that are not computed yet.

        No pass may run, so the caller has the turn of the plan.
        """
        rotary = self._rotary
        while self._filled < min(positions, rotary.positions):
            missing = np.arange(self._filled, min(self._filled + _BLOCK_ROWS, rotary.positions))
            self.cos[missing], self.sin[missing] = rotary_angles(
                missing, rotary.theta, rotary.width, scale=rotary.scale, frequencies=rotary.frequencies,
                factor=rotary.factor)
            self._filled = int(missing[-1]) + 1
