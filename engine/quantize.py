"""Linear weights in int8: symmetric, one scale for each output channel.

w ~ weight * scale[:, None], where scale is the largest |w| of a row over 127 and weight = w / scale is rounded half to
even. The affine map is that of Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference" (arXiv 1712.05877, equation 1, without a zero point); a scale for each row of a
transformer's weights, beside one for each token's activations, is the scheme of ZeroQuant (arXiv 2206.01861).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .errors import InputError
from .parameters import linear_maps

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


def quantize_model(model: Model) -> Model:
    """The model with its linear maps in int8 and all else as it was; one that is in int8 already is returned itself."""
    if model.precision == "int8":
        return model
    weights = dict(model.weights)
    for name in linear_maps(model.config):
        weights[f"{name}.weight"], weights[f"{name}.weight_scale"] = quantize_rows(weights[f"{name}.weight"])
    return replace(model, weights=weights)
