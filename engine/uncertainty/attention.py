"""Summarise the attention weights of a text for `Look`: entropies as shares of their maximum, and rollout.

    entropy of token t in a head        -sum over keys s of w[t, s] log(w[t, s])
    share                               entropy / log(keys that t may read)
    rollout                             R_l = ((mean over heads of W_l) + I) / 2 R_(l-1),   R_0 = I

Rollout (Abnar and Zuidema 2020, section 3) follows the weights through all layers: row t says how much each input token
takes part in the vector of t, if every layer did nothing but mix vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.functions import log

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A function that returns x y^T, float32 [T, U], of float32 arrays x [T, S] and y [U, S]."""


def entropy_limits(weights: np.ndarray) -> NDArray[np.float32]:
    """Return the largest entropy that each token can have, in nats: log of the number of its keys, float32 [T].

    weights: [H, T, S] of the heads of a layer. A key that a window hides from a token has weight 0 in all heads.
    """
    visible = (weights > 0).any(axis=0).sum(axis=1)
    return log(np.maximum(visible, 1)).astype(np.float32)


def shares(entropies: np.ndarray, limits: np.ndarray) -> NDArray[np.float32]:
    """Divide entropies [H, T] by their limits [T]: from 0 to 1, and 0 for a token that reads one key alone."""
    quotients = np.divide(entropies, limits, out=np.zeros(entropies.shape, np.float32), where=limits > 0)
    return np.clip(quotients, 0, 1)      # rounding can lift a quotient above 1


def rollout(layers: Sequence[np.ndarray], product: Product) -> NDArray[np.float32]:
    """Return how much of each input token is in the vector of each token after the last layer: float32 [T, T].

    layers: the weights [H, T, T] of each layer, in order. product: its bits must not depend on the number of threads.
    """
    T = layers[0].shape[-1]
    rolled = np.eye(T, dtype=np.float32)
    for weights in layers:
        mixed = weights.mean(axis=0, dtype=np.float32)
        # Rows of weights sum to 1 only up to rounding, so each row is divided by its own sum, and not by 2.
        mixed = (mixed + np.eye(T, dtype=np.float32)) / (mixed.sum(axis=1, keepdims=True) + np.float32(1))
        rolled = product(np.ascontiguousarray(mixed), np.ascontiguousarray(rolled.T))
    return rolled
