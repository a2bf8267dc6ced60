"""Matrices in fewer bits: bfloat16, or int8, symmetric, with one scale for each row.

In int8, w ~ weight * scale[:, None], where scale is the largest |w| of a row over 127 and weight = w / scale is rounded
half to even. The affine map is that of Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference" (arXiv 1712.05877, equation 1, without a zero point); a scale for each row of a
transformer's weights, beside one for each token's activations, is the scheme of ZeroQuant (arXiv 2206.01861). A row is
an output channel of a linear map, or a token of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .errors import InputError
from .parameters import matrices
from .weights.bfloat16 import from_bfloat16, to_bfloat16

if TYPE_CHECKING:
    from .model import Model

_BLOCK = 2**20
"""Numbers worked on at a time: bounds the float32 temporary."""


def quantize_rows(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 [N, K] in -127..127 and float32 scale [N] of a finite float32 matrix w [N, K] (see the module).

    A row of zeros has the scale 1. Raises `InputError` for anything but a finite float32 matrix.
    """
    if w.ndim != 2 or w.dtype != np.float32 or w.size == 0:
        raise InputError(f"quantize_rows takes a float32 matrix [N, K], not {w.dtype} of shape {list(w.shape)}")
    weight, scale = np.empty(w.shape, np.int8), np.empty(len(w), np.float32)
    rows = max(1, _BLOCK // w.shape[1])
    for i in range(0, len(w), rows):
        block = w[i : i + rows]
        largest = np.maximum(block.max(axis=1), -block.min(axis=1))
        if not np.isfinite(largest).all():
            raise InputError("quantize_rows takes finite numbers, and the matrix holds NaN or infinity")
        step = largest / np.float32(127)
        step[step == 0] = 1
        ratio = block / step[:, None]
        np.rint(ratio, out=ratio)
        # Where the scale is subnormal, and so itself rounded, the ratio may exceed 127.
        weight[i : i + rows] = np.clip(ratio, -127, 127, out=ratio)
        scale[i : i + rows] = step
    return weight, scale


def widen(weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """The float32 numbers that the matrix of this name stands for: itself, or a copy where it is in fewer bits."""
    array = weights[name]
    if array.dtype == np.int8:
        return array * weights[f"{name}_scale"][:, None]
    return from_bfloat16(array) if array.dtype == np.uint16 else array


def convert_model(model: Model, precision: str) -> Model:
    """The model with all its matrices, linear weights and tables, in this precision, and all else as it was.

    precision: "float32", "bfloat16" (rounded half to even) or "int8". What is so already is not copied.

    Raises `UnsupportedError` for linear weights in int8 that are to become another, and `WeightsError` for what
    bfloat16 cannot hold.
    """
    model.precision_for(precision)
    weights = dict(model.weights)
    for name in matrices(model.config):
        stored = weights[name].dtype
        if precision == "float32":
            weights[name] = widen(weights, name)
            weights.pop(f"{name}_scale", None)
        elif precision == "bfloat16" and stored != np.uint16:
            weights[name] = to_bfloat16(widen(weights, name))
            weights.pop(f"{name}_scale", None)
        elif precision == "int8" and stored != np.int8:
            weights[name], weights[f"{name}_scale"] = quantize_rows(widen(weights, name))
    return replace(model, weights=weights)
