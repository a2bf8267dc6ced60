"""The table of a rotary embedding, of which the positions are computed that passes read."""

from __future__ import annotations

import numpy as np

from ...model.positions import rotary_angles
from ...programs.operations import Rotary

_POSITIONS = 2**12
"""How many rows are computed together: in float64 they take much more memory than in the table."""


class Angles:
    """cos and sin, float32 [positions, width/2] each, of a rotary embedding.

    The arrays are as large as the model has positions, because instructions hold their addresses. What nobody has
    written takes no memory: a model of a million positions needs half a gigabyte of addresses, and the memory of the
    longest sequence so far.
    """

    def __init__(self, rotary: Rotary):
        """Make arrays whose numbers `fill` computes."""
        self._rotary, self._filled = rotary, 0
        self.cos, self.sin = (np.empty((rotary.positions, rotary.width // 2), np.float32) for _ in range(2))

    def fill(self, positions: int) -> None:
        """Compute the angles of so many positions, and up to 4,095 more, unless they are there. No pass may run."""
        rotary = self._rotary
        while self._filled < min(positions, rotary.positions):
            missing = np.arange(self._filled, min(self._filled + _POSITIONS, rotary.positions))
            self.cos[missing], self.sin[missing] = rotary_angles(
                missing, rotary.theta, rotary.width, scale=rotary.scale, frequencies=rotary.frequencies,
                factor=rotary.factor)
            self._filled = int(missing[-1]) + 1
