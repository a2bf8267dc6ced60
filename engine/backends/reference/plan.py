"""Run a whole forward pass in NumPy, one sequence after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ...architectures import program_of
from ...batch import Batch
from ...config import ModelConfig
from ...errors import TimedOut
from ...program import Embed, Store
from ...quantize import widen
from ..execute import Execution
from ..functional import Ops


class ReferencePlan:
    """A plan as `engine.backends.Plan` describes it. All arithmetic is done in the given dtype, float32 or float64."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, np.ndarray], dtype: type[np.floating], ops: Ops):
        self.program = program_of(config)
        self.width = config.hidden_size
        self.dtype = dtype
        self.weights = {name: np.asarray(widen(weights, name), dtype) for name in self.program.parameters}
        self.ops = ops

    def forward(self, batch: Batch, deadline: float = 0.0) -> np.ndarray:
        """Return token vectors, float32 [N, D]; raise `TimedOut` between two sequences if the deadline has passed."""
        return self.forward_unrounded(batch, deadline).astype(np.float32)

    def forward_unrounded(self, batch: Batch, deadline: float = 0.0) -> np.ndarray:
        """Return token vectors [N, D] in the plan's own dtype."""
        out = np.empty((batch.tokens, self.width), self.dtype)
        for start, end in pairwise(batch.cu_seqlens.tolist()):
            if deadline and time.monotonic() > deadline:
                raise TimedOut
            if start < end:
                out[start:end] = self.sequence(batch, slice(start, end))
        return out

    def sequence(self, batch: Batch, tokens: slice) -> np.ndarray:
        """Return the token vectors [T, D] of one sequence; `tokens` are its rows in the batch."""
        execution = Execution(self.ops, self.weights, batch.position_ids[tokens][None])
        buffers: dict[str, np.ndarray] = {}
        out = np.empty(0, self.dtype)
        for operation in self.program.operations:
            if isinstance(operation, Embed):
                buffers[operation.out] = self.embed(operation, batch, tokens)[None]
            elif isinstance(operation, Store):
                out = buffers[operation.x][0]
            else:
                execution.run([operation], buffers)
        return out

    def embed(self, operation: Embed, batch: Batch, tokens: slice) -> np.ndarray:
        """Return the sum of the tables' rows [T, D], or of the caller's embeddings and the other tables' rows."""

        if batch.inputs_embeds is not None:
            x = batch.inputs_embeds[tokens].astype(self.dtype)
        else:
            assert operation.word is not None
            assert batch.input_ids is not None
            x = self.weights[operation.word.name][batch.input_ids[tokens]]
        for table, ids in ((operation.position, batch.position_ids), (operation.token_type, batch.token_type_ids)):
            if table is not None:
                x = x + self.weights[table.name][ids[tokens]]
        return x
