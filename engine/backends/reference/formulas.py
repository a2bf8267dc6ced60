"""The operations of a transformer encoder, each written as its formula, in the precision of its arguments.

The code is slow and simple on purpose, because the kernels are tested against it. `ops.py` calls it.
Letters: T tokens of one sequence, D model width, H heads, d head width, F feed-forward width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return x W^T + b.

    x [T, in], weight [out, in], bias [out] -> [T, out]
    """
    return x @ weight.T if bias is None else x @ weight.T + bias


def column_maxima(parts: Sequence[np.ndarray], weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return max over t of (x_t W^T + b), for each part x [T, in]; -inf for a part without rows.

    B parts, weight [out, in], bias [out] -> [B, out]
    """
    rows = [linear(x, weight, bias).max(axis=0, initial=-np.inf) for x in parts]
    return np.array(rows, weight.dtype).reshape(len(parts), len(weight))


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x Phi(x), where Phi(x) = (1 + erf(x / sqrt 2)) / 2 is the normal distribution function. Any shape.

    Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2. Phi is evaluated as erfc(-x / sqrt 2) / 2,
    which loses no digits to cancellation where x is far below zero.
    """
    z = x.astype(np.float64).ravel() / -math.sqrt(2.0)
    phi = 0.5 * np.array([*map(math.erfc, z.tolist())])
    return x * phi.astype(x.dtype).reshape(x.shape)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, an approximation of `gelu`. Any shape.

    Hendrycks and Gimpel (2016), section 2.
    """
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def relu(x: np.ndarray) -> np.ndarray:
    """Return max(x, 0). Any shape."""
    return np.maximum(x, 0.0)


def silu(x: np.ndarray) -> np.ndarray:
    """Return x / (1 + e^-x), and its limit 0 at -inf. Any shape.

    Hendrycks and Gimpel (2016), section 2. The code uses e^-|x|, which does not overflow.
    """
    decay = np.exp(-np.abs(x))
    return np.where(np.isneginf(x), 0.0, x) * np.where(x < 0.0, decay, 1.0) / (1.0 + decay)


ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu, "silu": silu}
"""The activations by their names in `engine.model.config.ACTIVATIONS`."""


def layer_norm(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, eps: float) -> np.ndarray:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last axis.

    The variance is taken around the mean. x [T, D], weight [D], bias [D] -> [T, D]. Ba, Kiros and Hinton, "Layer
    Normalization" (2016), section 3.
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    normed = centred / np.sqrt(variance + eps)
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def rms_norm(x: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
    """Return x / sqrt(mean(x^2) + eps) * weight over the last axis.

    x [T, D], weight [D] -> [T, D]. Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019), equation 4.
    """
    normed = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    return normed if weight is None else normed * weight


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return exp(s) / sum exp(s) over the last axis, or zeros if all of s is -inf or there is no s. Any shape.

    The maximum is subtracted first. This does not change the quotient, and no exponential overflows.
    """
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - np.maximum(largest, np.finfo(scores.dtype).min))     # -inf - -inf would be NaN
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / (total + (total == 0.0))      # 0 / 1 in place of 0 / 0


def entropy(p: np.ndarray) -> np.ndarray:
    """Return -sum p ln p over the last axis, where 0 ln 0 is 0: between 0 and ln n for n probabilities. Any shape.

    Shannon, "A Mathematical Theory of Communication" (1948), section 6.
    """
    return -(p * np.log(np.where(p > 0.0, p, 1.0))).sum(axis=-1)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """Rotate pairs (a, b) of the first r columns to (a cos - b sin, a sin + b cos); keep the other columns.

    x [B, H, T, d], cos, sin [B, T, r/2] -> [B, H, T, d]. Su et al., "RoFormer" (2021), equation 34. A pair is columns
    2i and 2i+1 if interleaved, otherwise columns i and i + r/2.
    """
    half = cos.shape[-1]
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (
        slice(0, half), slice(half, 2 * half))
    a, b, cos, sin = x[..., first], x[..., second], cos[:, None], sin[:, None]
    out = x.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return softmax(q k^T / sqrt d) v for each head of one sequence.

    q, k, v [H, T, d] -> [H, T, d]. Vaswani et al., "Attention Is All You Need" (2017), equation 1.
    """
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    return softmax(scores) @ v
