"""A model ready for the CPU kernels: weights packed once, then one native call per forward pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...architectures import program_of
from ...architectures.taps import Taps, pairs_before, tapped
from ...batch import Batch
from ...config import ModelConfig, RunConfig
from ...errors import InputError
from .. import refuse_decoder
from ..turns import Turn
from .lowering import lower
from .native import Executor, Kernels
from .panels import Packer
from .schedule import make_schedule


class CythonPlan:
    """A model whose linear maps are in the plan's precision; everything else is float32.

    `forward` may be called from any thread; calls take turns.
    """

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        refuse_decoder(config)
        self._run = run
        self._width = config.hidden_size
        self._product = kernels.product(run.precision)
        self._program = program_of(config)
        self._packer = Packer(self._product, weights, run.max_tokens)
        self._executor = lower(self._program, self._product, self._packer, run.threads)
        self._packer.release()
        self._tapped: tuple[Taps, Executor] | None = None
        self._turn = Turn()

    def forward(self, batch: Batch, deadline: float = 0.0) -> np.ndarray:
        """Return token vectors, float32 [N, D]; raises `InputError` for a sequence longer than `max_tokens`.

        deadline: time.monotonic() at which to stop with `TimedOut`; 0 for none.
        """
        return self._compute(batch, None, deadline)[0]

    def tap(self, batch: Batch, taps: Taps, deadline: float = 0.0) -> list[np.ndarray]:
        """Return the token vectors, then the arrays of `taps`; raises as `forward` does.

        The plan keeps the instructions and the workspace of the last taps; the packed weights are the same.
        """
        return self._compute(batch, taps, deadline)

    def _compute(self, batch: Batch, taps: Taps | None, deadline: float) -> list[np.ndarray]:
        """Return the arrays that the program writes, or the program with `taps`."""
        arrays = [np.empty((batch.tokens, self._width), np.float32)]
        if taps is not None:
            arrays += taps.arrays(batch.cu_seqlens, self._width)
        if batch.tokens == 0:
            return arrays
        longest = int(np.diff(batch.cu_seqlens).max())
        if longest > self._run.max_tokens:
            raise InputError(f"a sequence of {longest} tokens exceeds max_tokens={self._run.max_tokens}, which bounds "
                             f"the workspace; load the model with a larger max_tokens")
        schedule = make_schedule(batch.cu_seqlens, self._run.threads, self._run.max_tokens, self._product.bundle)
        pairs = None
        if taps is not None:
            members = np.searchsorted(batch.cu_seqlens, schedule.sequences[:, 0], side="right") - 1
            pairs = pairs_before(batch.cu_seqlens)[members]
        with self._turn.take():
            executor = self._executor if taps is None else self._tapped_executor(taps)
            executor.forward(schedule.sequences, schedule.groups, schedule.bundles, batch.input_ids,
                             batch.inputs_embeds, batch.position_ids, batch.token_type_ids, arrays, pairs, deadline)
        return arrays

    def _tapped_executor(self, taps: Taps) -> Executor:
        if self._tapped is None or self._tapped[0] != taps:
            self._tapped = None     # frees the workspace of the other taps first
            self._tapped = taps, lower(tapped(self._program, taps), self._product, self._packer,
                                        self._run.threads)
        return self._tapped[1]
