"""Define the reference's single operations, which `engine.ops` and `execute.py` call, by `formulas.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from ..ops_interface import AttentionCall
from .attention import attention
from .formulas import ACTIVATIONS, column_maxima, layer_norm, linear, rms_norm, rotate, softmax

_without_warnings = partial(np.errstate, invalid="ignore", over="ignore")
"""Turns off NumPy's warnings, because the other backends do not warn about the caller's NaN and infinity either."""


class ReferenceOps:
    """The operations of `engine.backends.ops_interface.Ops`, in the dtype of their inputs, float32 or float64."""

    def keep(self, arrays: Iterable[np.ndarray]) -> None:
        """Do nothing: arrays are read where they are."""

    def attention(self, call: AttentionCall) -> np.ndarray:
        with _without_warnings():
            return attention(call)

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        with _without_warnings():
            y = linear(x, weight, bias)
            y = y if activation is None else ACTIVATIONS[activation](y)
            return y if residual is None else y + residual

    def columns(self, weight: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        return weight, bias

    def column_maxima(self, parts: Sequence[np.ndarray], columns: tuple[np.ndarray, np.ndarray | None]) -> np.ndarray:
        with _without_warnings():
            return column_maxima(parts, *columns)

    def layer_norm(self, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
        with _without_warnings():
            return layer_norm(x, weight, bias, eps)

    def rms_norm(self, x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
        with _without_warnings():
            return rms_norm(x, weight, eps)

    def softmax(self, x: np.ndarray) -> np.ndarray:
        with _without_warnings():
            return softmax(x)

    def activate(self, activation: str, x: np.ndarray) -> np.ndarray:
        with _without_warnings():
            return ACTIVATIONS[activation](x)

    def gate(self, activation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with _without_warnings():
            return ACTIVATIONS[activation](x) * y

    def rotate(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
        with _without_warnings():
            return rotate(x, cos, sin, interleaved)
