"""Compute linear maps, and feed-forward networks of two or three linear maps."""

from __future__ import annotations

import numpy as np

from ..backends.ops_interface import Ops
from ..model.bits import FASTEST
from .arguments import Arguments, activation_name


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, activation: str | None = None,
           residual: np.ndarray | None = None, backend: str | None = None, threads: int | None = None,
           bits: str = FASTEST) -> np.ndarray:
    """Return activation(x weight^T + bias) + residual: [...,N].

    x [...,K], weight [N,K], bias [N], residual [...,N] with the leading axes of x. activation: None, "gelu",
    "gelu_tanh", "relu" or "silu", which are the functions of these names. Raises `InputError`.
    """
    arguments = Arguments(backend)
    x = arguments.array("x", x, "... K")
    weight = arguments.array("weight", weight, "N K")
    bias = arguments.optional("bias", bias, "N")
    residual = arguments.optional("residual", residual, "... N")
    activation = None if activation is None else activation_name(activation)
    return apply_linear(arguments.ops(threads, bits), x, weight, bias, activation, residual)


def ffn(x: np.ndarray, up: np.ndarray, down: np.ndarray, *, up_bias: np.ndarray | None = None,
        down_bias: np.ndarray | None = None, gate: np.ndarray | None = None, gate_bias: np.ndarray | None = None,
        activation: str = "gelu", residual: np.ndarray | None = None, backend: str | None = None,
        threads: int | None = None, bits: str = FASTEST) -> np.ndarray:
    """Return a feed-forward network's output: down(activation(up(x))) + residual, or the gated form if `gate` is given.

    The gated form is down(activation(gate(x)) * up(x)) + residual: GEGLU with "gelu", SwiGLU with "silu". Each map is x
    W^T + b. x [...,D], up [F,D], gate [F,D], down [O,F], up_bias [F], gate_bias [F], down_bias [O], residual [...,O]
    with the leading axes of x. The result is [...,O]. activation: "gelu", "gelu_tanh", "relu" or "silu". Vaswani et al.
    (2017), equation 2; gated form: Shazeer, arXiv:2002.05202, section 2. Raises `InputError`.
    """
    arguments = Arguments(backend)
    x = arguments.array("x", x, "... D")
    up = arguments.array("up", up, "F D")
    up_bias = arguments.optional("up_bias", up_bias, "F")
    gate = arguments.optional("gate", gate, "F D")
    gate_bias = arguments.optional("gate_bias", gate_bias, "F")
    down = arguments.array("down", down, "O F")
    down_bias = arguments.optional("down_bias", down_bias, "O")
    residual = arguments.optional("residual", residual, "... O")
    activation = activation_name(activation)
    ops = arguments.ops(threads, bits)
    hidden = apply_linear(ops, x, up, up_bias, activation if gate is None else None)
    if gate is not None:
        hidden = ops.gate(activation, apply_linear(ops, x, gate, gate_bias), hidden)
    return apply_linear(ops, hidden, down, down_bias, residual=residual)


def apply_linear(ops: Ops, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None,
                 activation: str | None = None, residual: np.ndarray | None = None) -> np.ndarray:
    """Compute `linear` for checked arguments: x [...,K], weight [N,K], bias [N], residual [...,N] -> [...,N]."""
    N, K = weight.shape
    shape = (*x.shape[:-1], N)
    if x.size * N == 0:
        return np.empty(shape, x.dtype)
    rows = None if residual is None else residual.reshape(-1, N)
    return ops.linear(x.reshape(-1, K), weight, bias, activation, rows).reshape(shape)
