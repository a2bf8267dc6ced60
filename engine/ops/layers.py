"""Compute attention with its projections, or a whole encoder layer, from a mapping of names to weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.execute import Execution
from ..base.arguments import flag
from ..base.errors import InputError, shown
from ..model.bits import FASTEST
from ..model.config import ModelConfig
from ..programs.encoder import layer_of
from ..programs.operations import Attend, Norm
from .arguments import Arguments, activation_name, integer, number
from .attention import attention
from .linear import apply_linear

_PROJECTIONS = ("query", "key", "value", "output")

_LAYER_SHAPES = {
    "attention.query.weight": "H*d D", "attention.query.bias": "H*d", "attention.key.weight": "G*d D",
    "attention.key.bias": "G*d", "attention.value.weight": "G*e D", "attention.value.bias": "G*e",
    "attention.output.weight": "D H*e", "attention.output.bias": "D", "attention.norm.weight": "D",
    "attention.norm.bias": "D", "ffn.up.weight": "F D", "ffn.up.bias": "F", "ffn.gate.weight": "F D",
    "ffn.gate.bias": "F", "ffn.down.weight": "D F", "ffn.down.bias": "D", "ffn.norm.weight": "D", "ffn.norm.bias": "D",
}
"""Shapes of a layer's weights, by name, in the order in which they are checked."""


def multi_head_attention(x: np.ndarray, weights: Mapping[str, np.ndarray], memory: np.ndarray | None = None, *,
                         num_heads: int, num_kv_heads: int | None = None, residual: np.ndarray | None = None,
                         backend: str | None = None, threads: int | None = None, bits: str = FASTEST, **options: Any
                         ) -> np.ndarray:
    """Compute attention with its four projections, and add a residual: [B,T,O].

    The result is output(attention(query(x), key(memory), value(memory))) + residual, where query, key, value and output
    are linear maps x W^T + b. Queries come from x [B,T,D]. Keys and values come from memory [B,S,M], or from x if
    memory is None. residual [B,T,O], or None.
    num_heads: H. num_kv_heads: G, which divides H; None for H.
    weights: arrays by these names. Their shapes determine the head widths d and e, and H*d need not be D:
        query.weight   [H*d,D]      key.weight    [G*d,M]      value.weight  [G*e,M]      output.weight  [O,H*e]
        query.bias     [H*d]        key.bias      [G*d]        value.bias    [G*e]        output.bias    [O]
    Any bias may be absent. options: the options of `attention`, for scores [B,H,T,S].

    Vaswani et al. (2017), section 3.2.2. Raises `InputError`, and the errors that `attention` raises.
    """
    _check_names(weights, [f"{name}.weight" for name in _PROJECTIONS], [f"{name}.bias" for name in _PROJECTIONS])
    H = integer("num_heads", num_heads, least=1)
    G = H if num_kv_heads is None else integer("num_kv_heads", num_kv_heads, least=1)
    arguments = Arguments(backend)
    x = arguments.array("x", x, "B T D")
    source, width = (x, "D") if memory is None else (arguments.array("memory", memory, "B S M"), "M")
    w: dict[str, Any] = {}
    for name, shape in (("query", "H*d D"), ("key", f"G*d {width}"), ("value", f"G*e {width}"), ("output", "O H*e")):
        w[f"{name}.weight"] = arguments.array(f"{name}.weight", weights[f"{name}.weight"], shape)
        w[f"{name}.bias"] = arguments.optional(f"{name}.bias", weights.get(f"{name}.bias"), shape.split()[0])
    residual = arguments.optional("residual", residual, "B T O")
    _check_head_counts(arguments.sizes, H, G)
    ops = arguments.ops(threads, bits)
    q, k, v = (apply_linear(ops, inputs, w[f"{name}.weight"], w[f"{name}.bias"])
               .reshape(*inputs.shape[:2], heads, len(w[f"{name}.weight"]) // heads).transpose(0, 2, 1, 3)
               for name, inputs, heads in (("query", x, H), ("key", source, G), ("value", source, G)))
    heads = attention(q, k, v, backend=backend, threads=threads, bits=bits, **options).transpose(0, 2, 1, 3)
    joined = heads.reshape(*x.shape[:2], arguments.sizes["H*e"])
    return apply_linear(ops, joined, w["output.weight"], w["output.bias"], residual=residual)


def encoder_layer(x: np.ndarray, weights: Mapping[str, np.ndarray], *, num_heads: int, num_kv_heads: int | None = None,
                  pre_norm: bool = False, norm: str = "layer_norm", activation: str = "gelu", eps: float = 1e-5,
                  backend: str | None = None, threads: int | None = None, bits: str = FASTEST, **options: Any
                  ) -> np.ndarray:
    """Compute a transformer layer, x [B,T,D] -> [B,T,D]: attention and a feed-forward network, each with a residual.

    Post-norm, as in BERT: x = norm(x + attention(x)), then norm(x + ffn(x)); Vaswani et al. (2017), section 3.1.
    pre_norm, as in T5, LLaMA and ModernBERT: x = x + attention(norm(x)), then x + ffn(norm(x)); Xiong et al.,
    arXiv:2002.04745. A pre-norm model has one more norm after its last layer.

    weights: arrays by these names, which are the names in an .npz without "layers.{i}.":
        attention.*       as for `multi_head_attention`, with D in place of M and O
        attention.norm.weight, .bias, ffn.norm.weight, .bias      [D]
        ffn.up.weight     [F,D]      ffn.gate.weight   [F,D]      ffn.down.weight   [D,F]
        ffn.up.bias       [F]        ffn.gate.bias     [F]        ffn.down.bias     [D]
    Any bias may be absent. With ffn.gate.weight the feed-forward network is gated, see `ffn`.
    norm: "layer_norm", or "rms_norm", which has no bias. eps: the epsilon of both norms (1e-12 in BERT).
    activation: as for `ffn`. options: the options of `attention`; kv_lengths is for padded sequences.

    Raises `InputError`, and the errors that `attention` raises.
    """
    if not isinstance(norm, str) or norm not in ("layer_norm", "rms_norm"):
        raise InputError(f"norm must be 'layer_norm' or 'rms_norm', not {shown(norm)}")
    activation = activation_name(activation)
    _check_layer_names(weights, norm)
    H = integer("num_heads", num_heads, least=1)
    G = H if num_kv_heads is None else integer("num_kv_heads", num_kv_heads, least=1)
    arguments = Arguments(backend)
    x = arguments.array("x", x, "B T D")
    w = {name: arguments.array(name, weights[name], shape) for name, shape in _LAYER_SHAPES.items() if name in weights}
    sizes = arguments.sizes
    _check_head_counts(sizes, H, G)
    eps = number("eps", eps, least=0)
    config = ModelConfig("layer", hidden_size=sizes["D"], num_layers=1, num_heads=H, num_kv_heads=G,
                         head_width=sizes["H*d"] // H, ffn_size=sizes["F"], activation=activation,
                         gated="ffn.gate.weight" in w, norm=norm.removesuffix("_norm"),
                         norm_place="pre" if flag("pre_norm", pre_norm) else "post")
    # The eps is set here and not in the ModelConfig, because a model needs an eps above 0 and a single layer does not.
    operations = [replace(operation, eps=eps) if isinstance(operation, Norm) else operation
                  for operation in layer_of(config, 0)]
    if x.size == 0:
        return np.empty_like(x)

    def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, operation: Attend) -> np.ndarray:
        return attention(q, k, v, backend=backend, threads=threads, bits=bits, **options)

    ops = arguments.ops(threads, bits)
    execution = Execution(ops, {f"layers.0.{name}": array for name, array in w.items()}, attend=attend)
    buffers = {"x": x}
    execution.run(operations, buffers)
    return buffers["x"]


def _check_head_counts(sizes: Mapping[str, int], H: int, G: int) -> None:
    """Raise unless the rows of the projections are whole heads, of one width for queries and keys.

    sizes: by the letters of `_LAYER_SHAPES`, such as H*d for the rows of query.weight.
    """
    if H % G:
        raise InputError(f"num_kv_heads={G} must divide num_heads={H}")
    for name, rows, count, heads in (("query", "H*d", H, "num_heads"), ("key", "G*d", G, "num_kv_heads"),
                                     ("value", "G*e", G, "num_kv_heads")):
        if sizes[rows] == 0 or sizes[rows] % count:
            raise InputError(f"{name}.weight must have a multiple of {heads}={count} rows, not {sizes[rows]}")
    for first, second, H_size, G_size in (("query.weight rows", "key.weight rows", sizes["H*d"], sizes["G*d"]),
                                          ("output.weight columns", "value.weight rows", sizes["H*e"], sizes["G*e"])):
        if H_size * G != G_size * H:
            raise InputError(f"{first}, {H_size}, and {second}, {G_size}, must be {H} and {G} heads of one width")


def _check_layer_names(weights: Mapping[str, np.ndarray], norm: str) -> None:
    """Raise `InputError` for weights of a layer that lack a name, or have an unknown one."""
    maps = [f"attention.{name}" for name in _PROJECTIONS] + ["ffn.up", "ffn.down"]
    norms = ["attention.norm", "ffn.norm"]
    with_bias = [*maps, "ffn.gate", *(norms if norm == "layer_norm" else [])]
    _check_names(weights, [f"{name}.weight" for name in maps + norms],
                 ["ffn.gate.weight", *(f"{name}.bias" for name in with_bias)])
    if "ffn.gate.bias" in weights and "ffn.gate.weight" not in weights:
        raise InputError("weights have ffn.gate.bias without ffn.gate.weight")


def _check_names(weights: Any, required: list[str], optional: list[str]) -> None:
    """Raise one error that lists all names that are missing or unknown."""
    if not isinstance(weights, Mapping):
        raise InputError(f"weights must be a mapping from names to arrays, not {type(weights).__name__}")
    known = [*required, *optional]
    problems = [f"lack {name}" for name in required if name not in weights]
    problems += [f"have an unknown {shown(name)}" for name in weights if name not in known]
    if problems:
        raise InputError(f"weights {', '.join(problems)}; known are {', '.join(known)}")
