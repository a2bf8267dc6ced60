"""Turn logits into calibrated probabilities.

    softmax(z / T + b)          temperature T, and a bias b for each class, or 0

The logit z of a head with one output stands for the logits (0, z) of the classes "no" and "yes".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..base.functions import exp
from .temperature import two_classes


def probabilities(logits: np.ndarray, temperature: float = 1.0, bias: np.ndarray | None = None) -> NDArray[np.float64]:
    """Return the probabilities of each class, float64 [n, K], of logits [n, K]; of [n, 1] those of "no" and "yes".

    bias: [K], or [1] for logits [n, 1]. Each row is computed alone, in one order, so its bits do not depend on others.
    """
    rows = logits.astype(np.float64) / temperature
    if bias is not None:
        rows += bias.astype(np.float64)
    rows = two_classes(rows)
    for row in rows:
        row[:] = exp(row - row.max())
        row /= row.sum()
    return rows
