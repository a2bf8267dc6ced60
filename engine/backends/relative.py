"""Compute the terms that relative positions add to attention scores, as in DeBERTa; `Relative` has the formula."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..base.errors import WeightsError
from ..base.functions import product
from ..model.positions import relative_rows
from ..programs.operations import Affine, Relative


def relative_vectors(relative: Relative, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray | None, ...]:
    """Return K [rows, G*d] and Q [rows, H*d] in float64, the mapped table; None for a term that the score lacks.

    Raises `WeightsError` for vectors that float32 cannot hold.
    """

    def float64_of(name: str) -> np.ndarray:
        return np.asarray(weights[name], np.float64)

    table = float64_of(relative.table.name)
    if relative.norm is not None:
        centred = table - table.mean(axis=1, keepdims=True)
        table = centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + relative.eps)
        bias = float64_of(relative.norm.bias) if relative.norm.bias else 0.0
        table = table * float64_of(relative.norm.weight) + bias

    def map_table(affine: Affine | None) -> np.ndarray | None:
        if affine is None:
            return None
        vectors = product(table, weights[affine.weight]) + (float64_of(affine.bias) if affine.bias else 0.0)
        if not np.abs(vectors).max() <= np.finfo(np.float32).max:
            raise WeightsError(f"{affine.weight} makes vectors of relative positions that float32 cannot hold; the "
                               "weights hold numbers that are too large")
        return vectors

    return map_table(relative.key), map_table(relative.query)


def relative_terms(relative: Relative, weights: Mapping[str, np.ndarray], q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return q_t . K[b] + k_s . Q[b] for each query t and key s, before the scale: [B,H,T,S].

    q [B,H,T,d], k [B,G,S,d]; query head h belongs to key head h // (H/G). The result has the dtype of q.
    """
    (H, T, d), (G, S) = q.shape[1:], k.shape[1:3]
    rows = relative_rows(np.arange(T)[:, None] - np.arange(S), relative.limit, relative.buckets)
    keys, queries = relative_vectors(relative, weights)
    terms = np.zeros((len(q), H, T, S), q.dtype)
    for h in range(H):
        g = h // (H // G)
        if keys is not None:        # element (t, s) is column rows[t, s] of row t
            columns = q[:, h] @ keys[:, g * d : (g + 1) * d].T.astype(q.dtype)
            terms[:, h] += columns[:, np.arange(T)[:, None], rows]
        if queries is not None:     # element (t, s) is column rows[t, s] of row s
            columns = k[:, g] @ queries[:, h * d : (h + 1) * d].T.astype(q.dtype)
            terms[:, h] += columns[:, np.arange(S), rows]
    return terms
