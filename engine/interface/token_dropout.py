"""ESM's token dropout: the embeddings of masked tokens are zero, and those of the others are scaled up.

    row of a token = 0 for the dropped token, else s * word[id] / (1 - dropped tokens / T)

s is `ModelConfig.embedding_scale`, and T counts the tokens of the sequence. Lin et al. 2023 (doi
10.1126/science.ade2574) trained with 12 % of the tokens masked, so s is 0.88.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backends.batch import Batch
from ..backends.interfaces import ObservingPlan, Plan
from ..base.stop import NEVER, Stop
from ..model.config import ModelConfig
from ..programs.observe import Observed


class _DroppingPlan:
    """A `Plan` that computes the embeddings of tokens itself, and passes them to the plan of the model.

    It embeds all sequences of every batch, also those without a dropped token, so that the bits of a sequence do not
    depend on the others.
    """

    def __init__(self, plan: Plan, config: ModelConfig, words: np.ndarray):
        self._plan, self._dropped = plan, config.dropped_id
        self._rows = words * np.float32(config.embedding_scale)
        self._rows[self._dropped] = 0

    @property
    def longest(self) -> int | None:
        """The most tokens of a sequence; None if there is no limit."""
        return self._plan.longest

    def forward(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return the token vectors of a batch, float32 [N, D], computed from `_embed` of it."""
        return self._plan.forward(self._embed(batch), stop)

    def _embed(self, batch: Batch) -> Batch:
        """Return a batch with embeddings in place of ids: s * word[id] / (1 - dropped / T), or 0 for the dropped id.

        A batch that has embeddings in place of ids stays as it is.
        """
        if batch.input_ids is None:
            return batch
        rows = self._rows[batch.input_ids]
        lengths = np.diff(batch.cu_seqlens)
        before = np.append(0, np.cumsum(batch.input_ids == self._dropped))      # dropped tokens before each token
        kept = lengths - np.diff(before[batch.cu_seqlens])      # tokens of each sequence that are not dropped
        if not np.array_equal(kept, lengths):
            # 1 - dropped / T; 1 for a sequence of dropped tokens alone, whose rows are zeros.
            shares = np.where(kept, kept / np.maximum(lengths, 1), 1.0).astype(np.float32)
            rows /= np.repeat(shares, lengths)[:, None]
        return replace(batch, input_ids=None, inputs_embeds=rows)


class _ObservingDroppingPlan(_DroppingPlan):
    """A `_DroppingPlan` over a plan that also returns hidden states and attention weights."""

    def __init__(self, plan: ObservingPlan, config: ModelConfig, words: np.ndarray):
        super().__init__(plan, config, words)
        self._observing = plan

    def observe(self, batch: Batch, observed: Observed, stop: Stop = NEVER) -> list[np.ndarray]:
        """Return the token vectors [N, D], then the arrays that `observed` describes."""
        return self._observing.observe(self._embed(batch), observed, stop)


def with_token_dropout(plan: Plan, config: ModelConfig, words: np.ndarray) -> Plan:
    """Return a plan with token dropout over the plan of a model that has a `dropped_id`. words: float32 [V, D]."""
    if isinstance(plan, ObservingPlan):
        return _ObservingDroppingPlan(plan, config, words)
    return _DroppingPlan(plan, config, words)
