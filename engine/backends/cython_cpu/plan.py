"""A model made ready for the CPU kernels: weights packed once, then one native call per forward pass."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping

import numpy as np

from ...batch import Batch
from ...config import ModelConfig, RunConfig
from ...errors import InputError
from .native import Encoder, Kernels
from .pack import Packer, allocate
from .schedule import make_schedule

PRECISIONS = ("float32", "bfloat16", "int8")


class CythonPlan:
    """`forward` may be called from any thread; calls take turns. Its linear maps are in the plan's precision; all else
    is float32."""

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        self._run = run
        self._width = config.hidden_size
        self._encoder = _pack(kernels, config, weights, run)
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


def _pack(kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Encoder:
    packer = Packer(kernels, config, weights, run.precision)
    layers = [packer.layer(i) for i in range(config.num_layers)]
    word, position, token_type = map(packer.table, ("embeddings.word", "embeddings.position", "embeddings.token_type"))
    norm = packer.norm("embeddings.norm") if config.embedding_norm else None
    return Encoder(kernels, layers, word, position, token_type, norm, D=config.hidden_size,
                   H=config.num_heads, d=config.head_width, threads=run.threads, allocate=allocate)
