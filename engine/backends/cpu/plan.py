"""A model ready for the CPU kernels: weights packed once, then one native call per forward pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...base.errors import InputError
from ...base.stop import NEVER, Stop
from ...model.config import ModelConfig
from ...model.run_config import RunConfig
from ...programs import program_of
from ...programs.observe import Observed, attention_offsets, with_observed
from ..batch import Batch, lengths_of
from ..interfaces import refuse_decoder
from ..lock import new_turn
from .lowering import lower
from .native.native import Executor, Kernels
from .packer import Packer, product_of
from .schedule import make_schedule


class CpuPlan:
    """A model whose linear maps are in the plan's precision; everything else is float32.

    `forward` may be called from any thread; calls take turns.
    """

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        """Pack the weights, by name, and lower the program of an encoder; raises `UnsupportedError`."""
        refuse_decoder(config)
        self._run = run
        self._width = config.hidden_size
        self._product = product_of(kernels, run)
        self._program = program_of(config)
        self._packer = Packer(self._product, weights, run.max_tokens)
        self._executor = lower(self._program, self._product, self._packer, run.threads)
        self._packer.release()
        self._observing: tuple[Observed, Executor] | None = None
        """The last argument `observed` of `observe`, and the lowered program that fills its arrays."""
        self._turn = new_turn()

    @property
    def longest(self) -> int:
        """The most tokens of a sequence: those that the workspace holds."""
        return self._run.max_tokens

    def forward(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return token vectors, float32 [N, D]; raises `InputError` for a sequence longer than `max_tokens`.

        stop: is looked at between any two instructions, but at most every 50 ms.
        """
        return self._compute(batch, stop)[0]

    def observe(self, batch: Batch, observed: Observed, stop: Stop = NEVER) -> list[np.ndarray]:
        """Return the token vectors, then the arrays of `observed`; raises as `forward` does.

        The plan keeps the instructions and the workspace for the last value of `observed`; they share the weights.
        """
        return self._compute(batch, stop, observed)

    def _compute(self, batch: Batch, stop: Stop, observed: Observed | None = None) -> list[np.ndarray]:
        """Return the arrays that the program writes, with those of `observed` unless it is None."""
        assert observed is None or batch.keys is None       # no caller asks for both
        arrays = [np.empty((batch.tokens, self._width), np.float32)]
        if observed is not None:
            arrays += observed.arrays(batch.cu_seqlens, self._width)
        if batch.tokens == 0:
            return arrays
        longest = int(lengths_of(batch.cu_seqlens).max())
        if longest > self._run.max_tokens:
            raise InputError(f"a sequence of {longest} tokens exceeds max_batch_tokens={self._run.max_tokens}, which "
                             "bounds the workspace; load the model with a larger max_batch_tokens")
        schedule = make_schedule(batch.cu_seqlens, self._run.threads, self._run.max_tokens, self._product.bundle)
        offsets = keys = None
        if observed is not None or batch.keys is not None:
            numbers = schedule.numbers(batch.cu_seqlens)
            offsets = None if observed is None else attention_offsets(batch.cu_seqlens)[numbers]
            keys = None if batch.keys is None else batch.keys[numbers].astype(np.int64)
        with self._turn.take(stop):
            executor = self._executor if observed is None else self._observing_executor(observed)
            self._packer.fill_angles(batch.position_ids)
            executor.forward(schedule.sequences, schedule.groups, schedule.bundles, batch.input_ids,
                             batch.inputs_embeds, batch.position_ids, batch.token_type_ids, arrays,
                             weight_offsets=offsets, stop=stop, keys=keys)
        return arrays

    def _observing_executor(self, observed: Observed) -> Executor:
        """Return the lowered program that fills the arrays of `observed`, made anew unless it is that of the last call.

        The caller has the turn.
        """
        if self._observing is None or self._observing[0] != observed:
            self._observing = None      # frees the workspace of the other instructions first
            self._observing = observed, lower(with_observed(self._program, observed), self._product, self._packer,
                                        self._run.threads)
        return self._observing[1]
