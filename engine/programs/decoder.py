"""Transformer decoders: the order of the operations in a layer, and the programs around the layers.

A decoder is up to two programs, whose inputs and results are arrays of the caller:

    step     the logits of the tokens that the caller picks, from the ids of all new tokens; each layer keeps its keys
             and values for later steps
    cross    the keys and values of each layer's cross-attention, from the vectors of the encoder, once for each source

A step has two parts: `vectors_program`, the vectors of all new tokens, and `head_program`, from picked ones to logits.

A decoder without cross-attention, whose `memory_size` is 0, has the layers of an encoder (`encoder.py`), and reads keys
from its cache. Buffers: x y z residual sums, h the norm of one, q the heads of queries, c their context, p picked rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..model.config import ModelConfig
from .encoder import encoder, linear_part
from .operations import Attend, Buffer, Linear, LinearPart, Operation, Pick, Store
from .program import Program

LOGITS = "logits"
"""The name of the buffer of the logits, and the prefix of their parameters' names unless these are the word table."""


def step_program(config: ModelConfig) -> Program:
    """Return the program from the ids of new tokens to the logits of the tokens that the caller picks.

    It joins the two parts of a step: a Pick replaces the Store of the vectors, and writes the input of the head.
    """
    vectors, head = vectors_program(config), head_program(config)
    *operations, last = vectors.operations
    [(picked, _)] = head.inputs
    assert isinstance(last, Store)
    return Program((*operations, Pick(last.x, picked), *head.operations), vectors.inputs)


def vectors_program(config: ModelConfig) -> Program:
    """Return the program that computes the vectors of new tokens; it reads the arrays that the cross program writes."""
    if not config.memory_size:
        return Program(tuple(encoder(config)))
    return Program(tuple(encoder(config, _cross_attention)), tuple(cross_buffers(config)))


def cross_program(config: ModelConfig) -> Program | None:
    """Return the program from an encoder's vectors [S, memory_size] to keys and values [S, G * d] of each layer.

    The arrays are the keys and values of layer 0, then of layer 1 and so on. None for a decoder without
    cross-attention. Vaswani et al. (arXiv 1706.03762), section 3.2.3: keys and values come from the encoder's output.
    """
    if not config.memory_size:
        return None
    operations: list[Operation] = []
    heads, width = config.kv_heads, config.kv_heads * config.head_width
    for layer in range(config.num_layers):
        keys, values = (linear_part(config, layer, f"cross.{name}", buffer, width, heads)
                        for name, buffer in (("key", "k"), ("value", "v")))
        operations += [Linear("x", (keys, values), layer=layer), Store("k", layer, array=2 * layer),
                       Store("v", layer, array=2 * layer + 1)]
    return Program(tuple(operations), (("x", Buffer(config.memory_size)),))


def head_program(config: ModelConfig) -> Program:
    """Return the program from the vectors p [n, D] of picked tokens to their logits [n, logits_width]."""
    weight = "embeddings.word" if config.logits == "tied" else f"{LOGITS}.weight"
    bias = f"{LOGITS}.bias" if config.logits_bias else None
    product = Linear("p", (LinearPart(weight, bias, LOGITS, config.logits_width),), scale=config.logits_scale)
    store = Store(LOGITS, top=True, softcap=config.logits_softcap)      # top: callers may ask for the best words alone
    return Program((product, store), (("p", Buffer(config.hidden_size)),))


def cross_buffers(config: ModelConfig) -> Iterator[tuple[str, Buffer]]:
    """Yield the name and shape of each array that the cross program writes, in order."""
    for layer in range(config.num_layers):
        for name in "kv":
            yield cross_name(layer, name), Buffer(config.kv_heads * config.head_width, config.kv_heads)


def cross_name(layer: int, name: str) -> str:
    """Return the name of the buffer of a layer's keys ("k") or values ("v") of the source."""
    return f"cross.{layer}.{name}"


def _cross_attention(config: ModelConfig, layer: int, x: str, residual: str, out: str) -> Iterator[Operation]:
    """Yield the operations of out = residual + W_o attention(W_q x, source). Vaswani et al., section 3.2.3.

    x, residual, out: names of buffers. The keys and values of the source are inputs of the program.
    """
    H, d = config.num_heads, config.head_width
    yield Linear(x, (linear_part(config, layer, "cross.query", "q", H * d, H),), layer=layer)
    scale = 1 / math.sqrt(d) if config.attention_scale is None else config.attention_scale
    keys, values = (cross_name(layer, name) for name in "kv")
    yield Attend("q", keys, values, out="c", scale=scale, layer=layer, keys="cross")
    yield Linear("c", (linear_part(config, layer, "cross.output", out, config.hidden_size),), residual=residual,
                 layer=layer)
