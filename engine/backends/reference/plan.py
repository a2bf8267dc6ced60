"""Run a whole forward pass in NumPy, one sequence after the other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ...base.stop import NEVER, Stop
from ...model.config import ModelConfig
from ...programs import program_of
from ...programs.observe import Observed, attention_offsets, with_observed
from ...programs.operations import Attend, Embed, Store
from ...programs.program import Program
from ...weights.quantize import widen
from ..batch import Batch
from ..execute import Execution, heads_of
from ..ops_interface import Ops
from .attention import attention_weights
from .formulas import entropy


class ReferencePlan:
    """A plan whose arithmetic is all in the given dtype, float32 or float64; see `interfaces.Plan`."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, np.ndarray], dtype: type[np.floating], ops: Ops):
        """Convert the weights to the dtype. ops: the single operations that compute the program."""
        self.program = program_of(config)
        self.width = config.hidden_size
        self.dtype = dtype
        self.weights = {name: np.asarray(widen(weights, name, parameter), dtype)
                        for name, parameter in self.program.parameters.items()}
        self.ops = ops

    @property
    def longest(self) -> None:
        """The most tokens of a sequence: there is no limit, because sequences are computed one at a time."""
        return None

    def forward(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return token vectors, float32 [N, D]; `stop` is looked at between two operations."""
        return self.forward_unrounded(batch, stop).astype(np.float32)

    def forward_unrounded(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return token vectors [N, D] in the plan's own dtype."""
        return self._run(self.program, batch, [], stop)

    def observe(self, batch: Batch, observed: Observed, stop: Stop = NEVER) -> list[np.ndarray]:
        """Return the token vectors [N, D], then the arrays of `observed`; see `interfaces.ObservingPlan`."""
        return [array.astype(np.float32) for array in self.observe_unrounded(batch, observed, stop)]

    def observe_unrounded(self, batch: Batch, observed: Observed, stop: Stop = NEVER) -> list[np.ndarray]:
        """Return the arrays of `observe` in the plan's own dtype."""
        arrays = observed.arrays(batch.cu_seqlens, self.width, self.dtype)
        return [self._run(with_observed(self.program, observed), batch, arrays, stop), *arrays]

    def _run(self, program: Program, batch: Batch, arrays: list[np.ndarray], stop: Stop) -> np.ndarray:
        """Return array 0 of a program, the token vectors, and fill `arrays`, the others that it writes."""
        arrays = [np.empty((batch.tokens, self.width), self.dtype), *arrays]
        offsets = attention_offsets(batch.cu_seqlens).tolist()
        for (start, end), weight_range in zip(pairwise(batch.cu_seqlens.tolist()), pairwise(offsets), strict=True):
            if start < end:
                self._sequence(program, batch, slice(start, end), slice(*weight_range), arrays, stop)
        return arrays[0]

    def _sequence(self, program: Program, batch: Batch, tokens: slice, weight_range: slice,
                  arrays: list[np.ndarray], stop: Stop) -> None:
        """Run one sequence. weight_range: its part of each array of attention weights; tokens: of all other arrays."""
        keys = None
        if batch.keys is not None:
            b = np.searchsorted(batch.cu_seqlens, tokens.start, "right") - 1        # the number of this sequence
            keys = int(batch.keys[b])
        execution = Execution(self.ops, self.weights, batch.position_ids[tokens][None], keys=keys)
        buffers: dict[str, np.ndarray] = {}
        for operation in program.operations:
            stop.check()
            if isinstance(operation, Embed):
                buffers[operation.out] = self.embed(operation, batch, tokens)[None]
            elif isinstance(operation, Store):
                arrays[operation.array][tokens] = buffers[operation.x][0]
            else:
                execution.run([operation], buffers)
            if isinstance(operation, Attend) and operation.observed:
                q, k, v = heads_of(operation, buffers)
                call = execution.attention_call(q, k, v, operation)
                for each in operation.observed:
                    weights = attention_weights(call, b=0, h=each.head)
                    if each.weights is not None:
                        arrays[each.weights][weight_range] = weights.ravel()
                    if each.entropy is not None:
                        arrays[each.entropy][tokens] = entropy(weights)

    def embed(self, operation: Embed, batch: Batch, tokens: slice) -> np.ndarray:
        """Return the sum of the tables' rows [T, D], or of the caller's embeddings and the other tables' rows."""
        if batch.inputs_embeds is not None:
            x = batch.inputs_embeds[tokens].astype(self.dtype)
        else:
            assert operation.word is not None
            assert batch.input_ids is not None
            x = self.weights[operation.word.name][batch.input_ids[tokens]] * self.dtype(operation.scale)
        return add_positions(operation, self.weights, x, batch.position_ids[tokens], batch.token_type_ids[tokens])


def add_positions(operation: Embed, weights: Mapping[str, np.ndarray], x: np.ndarray, position_ids: np.ndarray,
                  token_type_ids: np.ndarray) -> np.ndarray:
    """Return x [T, D] plus the rows of the tables of positions and token types, where the operation has them."""
    for table, ids in ((operation.position, position_ids), (operation.token_type, token_type_ids)):
        if table is not None:
            x = x + weights[table.name][ids]
    return x
