"""The linear maps that some sentence-transformers models have after pooling, such as sentence-t5 and LaBSE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..base.errors import WeightsError, shown

ACTIVATIONS = ("identity", "tanh")


class LinearOps(Protocol):
    """The operation that a backend provides for these maps."""

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        """Return activation(x [M,K] weight [N,K]^T + bias [N]) + residual [M,N]."""


@dataclass(frozen=True, eq=False)
class Dense:
    """One map of a sentence's vector: activation(weight x + bias)."""

    weight: np.ndarray
    """float32 [out, in]."""
    bias: np.ndarray | None = None
    """float32 [out]; None for no bias."""
    activation: str = "identity"
    """One of `ACTIVATIONS`."""

    def __call__(self, vectors: np.ndarray, ops: LinearOps) -> np.ndarray:
        """Return the images of vectors [n, in]: float32 [n, out]."""
        out = ops.linear(np.ascontiguousarray(vectors), self.weight, self.bias, None, None)
        return np.tanh(out) if self.activation == "tanh" else out


def check_dense(maps: Sequence[Dense], width: int, source: str) -> None:
    """Raise `WeightsError` unless the maps can follow one another, from vectors with `width` numbers on."""
    if not isinstance(maps, tuple) or not all(isinstance(dense, Dense) for dense in maps):
        raise WeightsError(f"{source}: dense must be a tuple of Dense, not {shown(maps)}")
    for i, dense in enumerate(maps):
        shapes = {"weight": (*np.shape(dense.weight)[:1], width), "bias": np.shape(dense.weight)[:1]}
        for name, array in (("weight", dense.weight), ("bias", dense.bias)):
            if array is None and name == "bias":
                continue
            if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shapes[name] or (
                    array.size == 0 or not np.isfinite(array).all()):
                found = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else shown(array)
                expected = f"[out, {width}]" if name == "weight" else f"{list(shapes['bias'])}"
                raise WeightsError(f"{source}: the {name} of Dense module {i} must be finite numbers, float32 "
                                   f"{expected}, not {found}")
        if dense.activation not in ACTIVATIONS:
            raise WeightsError(f"{source}: the activation of Dense module {i} must be one of {', '.join(ACTIVATIONS)}, "
                               f"not {shown(dense.activation)}")
        width = len(dense.weight)
