"""Angles of rotary position embeddings, computed in float64 and rounded once."""

from __future__ import annotations

import numpy as np


def rotary_angles(
    positions: np.ndarray, theta: float, width: int, dtype: np.dtype | type = np.float32, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of position / scale * theta^(-2i/width) for i below width/2: two arrays [..., width/2].

    positions: numbers of any shape. Su et al., "RoFormer" (arXiv 2104.09864), equation 15. scale: Chen et al.,
    "Extending Context Window of Large Language Models via Positional Interpolation" (arXiv 2306.15595), equation 4.
    """
    angles = positions[..., None] / scale * theta ** (-np.arange(0, width, 2) / width)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def static_ntk(theta: float, factor: float, width: int) -> tuple[float, float]:
    """Return the theta and the scale of a rotary embedding whose longest wave is `factor` times as long.

    The frequencies are (theta * factor)^(-2i/width) / factor^(2/width) for i below width/2. The last of them is
    theta^(2/width - 1) / factor. Su Jianlin, kexue.fm/archives/9706.
    """
    return theta * factor, factor ** (2 / width)
