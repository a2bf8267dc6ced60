"""Compute norms, softmax and activations, which handle every row or every number separately."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.arguments import renamed_arguments
from ..base.errors import InputError, shown
from ..model.bits import FASTEST
from .arguments import Arguments, contiguous, number


def layer_norm(x: np.ndarray, weight: np.ndarray | None = None, bias: np.ndarray | None = None, *, eps: float = 1e-5,
               backend: str | None = None, threads: int | None = None, bits: str = FASTEST) -> np.ndarray:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last axis of x [...,D]: the same shape.

    weight, bias [D]; None for ones and zeros. Ba, Kiros and Hinton, arXiv:1607.06450, section 3. Raises `InputError`.
    """
    arguments = Arguments(backend)
    x = arguments.array("x", x, "... D")
    weight = arguments.optional("weight", weight, "D")
    bias = arguments.optional("bias", bias, "D")
    eps = number("eps", eps, least=0)
    ops = arguments.ops(threads, bits)
    return ops.layer_norm(_rows(x), weight, bias, eps).reshape(x.shape) if x.size else np.empty_like(x)


def rms_norm(x: np.ndarray, weight: np.ndarray | None = None, *, eps: float = 1e-6, backend: str | None = None,
             threads: int | None = None, bits: str = FASTEST) -> np.ndarray:
    """Return x / sqrt(mean(x^2) + eps) * weight over the last axis of x [...,D]: the same shape.

    weight [D]; None for ones. Zhang and Sennrich, arXiv:1910.07467, equation 4. Raises `InputError`.
    """
    arguments = Arguments(backend)
    x = arguments.array("x", x, "... D")
    weight = arguments.optional("weight", weight, "D")
    eps = number("eps", eps, least=0)
    ops = arguments.ops(threads, bits)
    return ops.rms_norm(_rows(x), weight, eps).reshape(x.shape) if x.size else np.empty_like(x)


@renamed_arguments
def softmax(x: np.ndarray, *, axis: int = -1, backend: str | None = None, threads: int | None = None,
            bits: str = FASTEST) -> np.ndarray:
    """Return exp(x) / sum(exp(x)) over one axis of x, by default the last one: the same shape.

    An input of -inf gives 0, and a row that has only -inf gives zeros. A row that holds NaN becomes NaN. Raises
    `InputError`.
    """
    arguments = Arguments(backend)
    x = arguments.array("x", x, "... N")
    order = [*range(x.ndim)]        # of the axes, with the axis of the softmax moved to the end
    try:
        order.append(order.pop(axis))
    except (TypeError, IndexError, OverflowError) as error:
        raise InputError(f"axis must be an int from {-x.ndim} to {x.ndim - 1}, not {shown(axis)}") from error
    ops = arguments.ops(threads, bits)
    if x.size == 0:
        return np.empty_like(x)
    moved = x.transpose(*order)
    inverse = np.argsort(order).tolist()        # moves the axes back
    return contiguous(ops.softmax(_rows(moved)).reshape(moved.shape).transpose(*inverse))


def gelu(x: np.ndarray, *, approximate: str = "none", backend: str | None = None, threads: int | None = None,
         bits: str = FASTEST) -> np.ndarray:
    """Return x Phi(x), where Phi is the normal distribution function: x of any shape, the same shape.

    approximate: "none", or "tanh" for x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, which some models are trained
    with. Hendrycks and Gimpel, arXiv:1606.08415, section 2. Raises `InputError`.
    """
    if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
        raise InputError(f"approximate must be 'none' or 'tanh', not {shown(approximate)}")
    return _activate("gelu" if approximate == "none" else "gelu_tanh", x, backend, threads, bits)


def relu(x: np.ndarray, *, backend: str | None = None, threads: int | None = None, bits: str = FASTEST) -> np.ndarray:
    """Return max(x, 0): x of any shape, the same shape. Raises `InputError`."""
    return _activate("relu", x, backend, threads, bits)


def silu(x: np.ndarray, *, backend: str | None = None, threads: int | None = None, bits: str = FASTEST) -> np.ndarray:
    """Return x / (1 + exp(-x)): x of any shape, the same shape.

    Hendrycks and Gimpel, arXiv:1606.08415, section 2; also called swish. Raises `InputError`.
    """
    return _activate("silu", x, backend, threads, bits)


def _activate(activation: str, x: Any, backend: str | None, threads: int | None, bits: str) -> np.ndarray:
    """Check x of any shape, and apply a function of `engine.model.config.ACTIVATIONS` on the chosen backend."""
    arguments = Arguments(backend)
    x = arguments.floats("x", x)
    ops = arguments.ops(threads, bits)
    return ops.activate(activation, x if x.ndim else x.reshape(1)).reshape(x.shape) if x.size else np.empty_like(x)


def _rows(x: Any) -> Any:
    """Reshape [...,D] to [M,D], with M and D at least 1."""
    return x.reshape(-1, x.shape[-1])
