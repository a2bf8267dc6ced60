"""Compute activations: device functions for the epilogues of other kernels.

The formulas are those of `backends/reference/formulas.py`, in float32, with libdevice's erfc, tanh and exp
(2 ulp and less).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..toolchain import device_function

_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1.0), np.float32(0.0)
_SQRT_HALF = np.float32(math.sqrt(0.5))
_SQRT_2_OVER_PI, _CUBE = np.float32(math.sqrt(2.0 / math.pi)), np.float32(0.044715)


@device_function
def gelu(x: Any) -> Any:
    """Return x Phi(x), with erfc, which loses no digits where x is far below zero."""
    return _HALF * x * np.float32(math.erfc(-x * _SQRT_HALF))


@device_function
def gelu_tanh(x: Any) -> Any:
    """Return the tanh approximation of GELU."""
    return _HALF * x * (_ONE + np.float32(math.tanh(_SQRT_2_OVER_PI * (x + _CUBE * x * x * x))))


@device_function
def relu(x: Any) -> Any:
    """Return max(x, 0), and NaN for NaN."""
    return _ZERO if x < _ZERO else x


@device_function
def silu(x: Any) -> Any:
    """Return x / (1 + e^-x), computed with e^-|x|, which does not overflow."""
    decay = np.float32(math.exp(-abs(x)))
    return x * (decay if x < _ZERO else _ONE) / (_ONE + decay)


@device_function
def identity(x: Any) -> Any:
    """Return x."""
    return x


ACTIVATIONS: dict[str | None, Callable[[Any], Any]] = {
    None: identity,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "silu": silu,
}
"""The device function of each name in `engine.model.config.ACTIVATIONS`, and of silu; None leaves a number
unchanged."""
