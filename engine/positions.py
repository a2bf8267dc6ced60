"""Angles of rotary position embeddings, computed in float64 and rounded once."""

from __future__ import annotations

import numpy as np


def rotary_angles(
    positions: np.ndarray, theta: float, width: int, dtype: np.dtype | type = np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of position * theta^(-2i/width) for i below width/2: two arrays [..., width/2].

    positions: numbers of any shape. Su et al., "RoFormer" (arXiv 2104.09864), equation 15.
    """
    angles = positions[..., None] * theta ** (-np.arange(0, width, 2) / width)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
