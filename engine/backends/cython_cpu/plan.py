"""A model made ready for the CPU kernels: weights packed once, then one native call per forward pass."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Mapping

import numpy as np

from ...batch import Batch
from ...config import ModelConfig, RunConfig
from ...errors import InputError
from .native import Encoder, Kernels, NormWeights, PackedLinear
from .schedule import make_schedule

ACTIVATIONS = {"gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
"""As enum Activation in table.pxd."""


def allocate(n: int) -> np.ndarray:
    """n zeroed floats, page-aligned, on huge pages where the system grants them; a forked child has its own copy."""
    memory = mmap.mmap(-1, max(1, n) * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.float32, n)


class CythonPlan:
    """`forward` may be called from any thread; calls take turns."""

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        self._run = run
        self._width = config.hidden_size
        self._encoder = _pack(kernels, config, weights, run.threads)
        self._turn = threading.Lock()
        _PLANS.add(self)

    def forward(self, batch: Batch) -> np.ndarray:
        """Token vectors, float32 [N, D]; raises `InputError` for a sequence longer than `max_tokens`."""
        out = np.empty((batch.tokens, self._width), np.float32)
        if batch.tokens == 0:
            return out
        longest = int(np.diff(batch.cu_seqlens).max())
        if longest > self._run.max_tokens:
            raise InputError(f"a sequence of {longest} tokens exceeds max_tokens={self._run.max_tokens}, which bounds "
                             f"the workspace; load the model with a larger max_tokens")
        plan = make_schedule(batch.cu_seqlens, self._run.threads, self._run.max_tokens)
        with self._turn:
            self._encoder.forward(plan.sequences, plan.groups, plan.bundles, batch.input_ids, batch.inputs_embeds,
                                  batch.position_ids, batch.token_type_ids, out)
        return out


_PLANS: weakref.WeakSet[CythonPlan] = weakref.WeakSet()


def _free_turns() -> None:
    """In a forked child nobody holds a turn: whoever did, did not come along."""
    for plan in _PLANS:
        plan._turn = threading.Lock()


os.register_at_fork(after_in_child=_free_turns)


def _pack(kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], threads: int) -> Encoder:
    layers = [_pack_layer(kernels, config, weights, f"layers.{i}.") for i in range(config.num_layers)]
    word, position, token_type = (weights.get(f"embeddings.{name}") for name in ("word", "position", "token_type"))
    norm = _norm(config, weights, "embeddings.norm") if config.embedding_norm else None
    return Encoder(kernels, layers, word, position, token_type, norm, D=config.hidden_size,
                   H=config.num_heads, d=config.head_width, threads=threads, allocate=allocate)


def _pack_layer(kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], prefix: str) -> tuple:
    """(qkv, output, attention norm, up, down, ffn norm), as the native encoder takes them."""
    return (
        _pack_heads(kernels, config, weights, prefix + "attention."),
        _pack_output(kernels, config, weights, prefix + "attention.output"),
        _norm(config, weights, prefix + "attention.norm"),
        _linear(kernels, weights, prefix + "ffn.up", ACTIVATIONS[config.activation]),
        _linear(kernels, weights, prefix + "ffn.down"),
        _norm(config, weights, prefix + "ffn.norm"),
    )


def _padded(n: int, kernels: Kernels) -> int:
    return -(-n // kernels.VL) * kernels.VL


def _norm(config: ModelConfig, weights: Mapping[str, np.ndarray], name: str) -> NormWeights:
    return NormWeights(weights[name + ".weight"], weights[name + ".bias"], config.norm_eps)


def _linear(kernels: Kernels, weights: Mapping[str, np.ndarray], name: str, activation: int = 0) -> PackedLinear:
    return _pack_matrix(kernels, weights[name + ".weight"], weights[name + ".bias"], activation)


def _pack_matrix(kernels: Kernels, weight: np.ndarray, bias: np.ndarray, activation: int = 0) -> PackedLinear:
    """weight [N,K], bias [N], with N padded by zeros."""
    N = _padded(len(bias), kernels)
    padded_bias = np.zeros(N, np.float32)
    padded_bias[: len(bias)] = bias
    packed = PackedLinear(kernels, allocate(N * weight.shape[1]), padded_bias, activation)
    packed.fill(weight)
    return packed


def _pack_heads(kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], prefix: str) -> PackedLinear:
    """Queries, keys and values as one map of 3*H heads, each of d columns padded to a whole number of vectors."""
    H, d, D = config.num_heads, config.head_width, config.hidden_size
    dp = _padded(d, kernels)
    bias = np.zeros((3, H, dp), np.float32)
    packed_weights = allocate(bias.size * D)
    for i, name in enumerate(("query", "key", "value")):
        bias[i, :, :d] = weights[f"{prefix}{name}.bias"].reshape(H, d)
    packed = PackedLinear(kernels, packed_weights, bias.reshape(-1))
    for i, name in enumerate(("query", "key", "value")):
        for h, head in enumerate(weights[f"{prefix}{name}.weight"].reshape(H, d, D)):
            packed.fill(head, (i * H + h) * dp)
    return packed


def _pack_output(kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], name: str) -> PackedLinear:
    """The map back from the padded heads [H*dp] to [D]."""
    H, d, D = config.num_heads, config.head_width, config.hidden_size
    weight = np.zeros((D, H, _padded(d, kernels)), np.float32)
    weight[:, :, :d] = weights[name + ".weight"].reshape(D, H, d)
    return _pack_matrix(kernels, weight.reshape(D, -1), weights[name + ".bias"])
