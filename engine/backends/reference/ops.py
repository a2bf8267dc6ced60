"""The operations of a transformer encoder, each as its formula says, in the precision of its arguments.

Slow and obvious on purpose: the kernels are judged against these.
Letters: T tokens of one sequence, D model width, H heads, d head width, F feed-forward width.
"""

from __future__ import annotations

import math

import numpy as np


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """x W^T + b.

    x [T, in], weight [out, in], bias [out] -> [T, out]
    """
    return x @ weight.T + bias


def gelu(x: np.ndarray) -> np.ndarray:
    """x Phi(x), where Phi(x) = (1 + erf(x / sqrt 2)) / 2 is the normal distribution function. Any shape.

    Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2. Phi is evaluated as erfc(-x / sqrt 2) / 2,
    which loses no digits to cancellation where x is far below zero.
    """
    phi = [0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x.ravel().tolist()]
    return x * np.array(phi, x.dtype).reshape(x.shape)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2: the approximation given in the same section. Any shape."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0). Any shape."""
    return np.maximum(x, 0.0)


ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu}
"""By the names of `engine.config.ACTIVATIONS`."""


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; the variance is taken around the mean.

    x [T, D], weight [D], bias [D] -> [T, D]. Ba, Kiros and Hinton, "Layer Normalization" (2016), section 3.
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight + bias


def softmax(scores: np.ndarray) -> np.ndarray:
    """exp(s) / sum exp(s) over the last axis, which is not empty. Any shape.

    The maximum is subtracted first: that changes nothing but the range, and no exponential overflows.
    """
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """softmax(q k^T / sqrt d) v for each head of one sequence.

    q, k, v [H, T, d] -> [H, T, d]. Vaswani et al., "Attention Is All You Need" (2017), equation 1.
    """
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    return softmax(scores) @ v
