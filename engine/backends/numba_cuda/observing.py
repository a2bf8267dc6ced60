"""Fill the arrays of `CudaPlan.observe` during a pass: hidden states, attention weights and their entropy.

Hidden states are copied from the device. Attention weights are computed on the host, in NumPy, by the definition of
the reference and from the queries and keys of the device: they are as large as all scores, and go to the host anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.stop import Stop
from ...programs.observe import attention_offsets
from ...programs.operations import Attend, Store
from ...weights.bfloat16 import from_bfloat16
from ..batch import Batch
from ..execute import Execution
from ..reference.attention import attention_weights
from ..reference.formulas import entropy
from ..reference.ops import ReferenceOps
from .bucket import BucketGroup
from .device import Device
from .support import FLOAT32, OPERAND, Layout
from .workspace import WorkspaceRows


class Observation:
    """The observed arrays of one batch, which a plan has filled during its passes, for one batch group at a time."""

    def __init__(self, device: Device, layouts: Mapping[str, Layout], weights: Mapping[str, np.ndarray],
                 batch: Batch, arrays: Sequence[np.ndarray], stop: Stop):
        """arrays: those of `Observed.arrays`; array 0 of the program is not among them. weights: `score_weights`."""
        self._device, self._layouts, self._weights = device, layouts, weights
        self._batch, self._arrays, self._stop = batch, arrays, stop
        self._offsets = attention_offsets(batch.cu_seqlens).tolist()
        self.group: BucketGroup | None = None
        """The group that the present pass computes."""

    def store(self, operation: Store, work: WorkspaceRows) -> None:
        """Copy the rows that an operation stores, the hidden states of the group's tokens, to their array."""
        assert self.group is not None
        rows, width = self._host(work.arrays[FLOAT32, operation.x]), self._layouts[operation.x].width
        self._arrays[operation.array - 1][self.group.tokens] = rows[:, :width]

    def attend(self, operation: Attend, work: WorkspaceRows) -> None:
        """Compute the weights and entropies of the observed heads of each sequence from its queries and keys.

        They lie side by side in the rows of one array of `work`, each head with the zeros of its `Layout`.
        """
        assert self.group is not None
        rows, column = self._host(work.arrays[OPERAND, operation.q]), 0
        heads = []
        for name in (operation.q, operation.k):
            layout = self._layouts[name]
            parts = rows[:, column : column + layout.columns].reshape(len(rows), layout.parts, layout.padded)
            heads.append(parts[:, :, : layout.width].swapaxes(0, 1)[None])      # [1, heads, N, d]
            column += layout.columns
        starts = self._batch.cu_seqlens.tolist()
        for b in range(self.group.first, self.group.last):
            first, last = (starts[i] - self.group.tokens.start for i in (b, b + 1))
            if first < last:
                q, k = (array[:, :, first:last] for array in heads)
                self._sequence(operation, q, k, b)

    def _sequence(self, operation: Attend, q: np.ndarray, k: np.ndarray, b: int) -> None:
        """Fill the part of sequence b of the arrays of an operation; q [1,H,T,d], k [1,G,T,d]."""
        keys = None if self._batch.keys is None else int(self._batch.keys[b])
        tokens, weight_range = (slice(*starts[b : b + 2])
                                for starts in (self._batch.cu_seqlens.tolist(), self._offsets))
        call = Execution(ReferenceOps(), self._weights, keys=keys).attention_call(q, k, k, operation)
        for each in operation.observed:
            self._stop.check()
            weights = attention_weights(call, b=0, h=each.head)
            if each.weights is not None:
                self._arrays[each.weights - 1][weight_range] = weights.ravel()
            if each.entropy is not None:
                self._arrays[each.entropy - 1][tokens] = entropy(weights)

    def _host(self, array: Any) -> np.ndarray:
        """Return the rows of the group's tokens as float32 on the host, when all launches before are done."""
        assert self.group is not None
        rows = self._device.download(array[: self.group.count])
        return from_bfloat16(rows) if rows.dtype == np.uint16 else rows
