"""A model ready for the CPU kernels: weights packed once, then one native call per forward pass."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping

import numpy as np

from ...architectures import program_of
from ...batch import Batch
from ...config import ModelConfig, RunConfig
from ...errors import EngineError, InputError
from .lowering import lower
from .native import Kernels
from .schedule import make_schedule


class CythonPlan:
    """A model whose linear maps are in the plan's precision; everything else is float32.

    `forward` may be called from any thread; calls take turns.
    """

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        self._run = run
        self._width = config.hidden_size
        product = kernels.product(run.precision)
        self._executor = lower(program_of(config), product, weights, run.threads)
        self._turn = threading.RLock()
        self._running = False
        _PLANS.add(self)

    def forward(self, batch: Batch, deadline: float = 0.0) -> np.ndarray:
        """Return token vectors, float32 [N, D]; raises `InputError` for a sequence longer than `max_tokens`.

        deadline: time.monotonic() at which to stop with `TimedOut`; 0 for none.
        """
        out = np.empty((batch.tokens, self._width), np.float32)
        if batch.tokens == 0:
            return out
        longest = int(np.diff(batch.cu_seqlens).max())
        if longest > self._run.max_tokens:
            raise InputError(f"a sequence of {longest} tokens exceeds max_tokens={self._run.max_tokens}, which bounds "
                             f"the workspace; load the model with a larger max_tokens")
        schedule = make_schedule(batch.cu_seqlens, self._run.threads, self._run.max_tokens)
        with self._turn:
            # A thread that has the turn already comes back here only from a signal handler.
            if self._running:
                raise EngineError("the engine was called from a signal handler that interrupted a call of the same "
                                  "engine; let the handler set a flag, and call the engine afterwards")
            self._running = True
            try:
                self._executor.forward(schedule.sequences, schedule.groups, schedule.bundles, batch.input_ids,
                                       batch.inputs_embeds, batch.position_ids, batch.token_type_ids, out, deadline)
            finally:
                self._running = False
        return out


_PLANS: weakref.WeakSet[CythonPlan] = weakref.WeakSet()


def _free_turns() -> None:
    """Free all turns in a forked child: the thread that held one does not exist there."""
    for plan in _PLANS:
        plan._turn, plan._running = threading.RLock(), False


os.register_at_fork(after_in_child=_free_turns)

