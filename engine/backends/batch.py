"""Define the batch that backends compute on: the real tokens of all sequences in one array, without padding.

    sequence 0        sequence 1   sequence 2
    |a0 a1 a2 a3 a4|  |b0 b1|      |c0 c1 c2|      N = 10 tokens, B = 3 sequences
    cu_seqlens = [0, 5, 7, 10]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(eq=False, slots=True)
class Batch:
    """Packed tokens of B sequences; every array is C-contiguous and already checked against the model's limits.

    A sequence may be empty. Exactly one of `input_ids` and `inputs_embeds` is not None.
    """

    cu_seqlens: np.ndarray
    """int32 [B+1]: sequence b consists of the tokens cu_seqlens[b] to cu_seqlens[b+1] - 1."""
    input_ids: np.ndarray | None
    """int32 [N]: each id is below V."""
    inputs_embeds: np.ndarray | None
    """float32 [N, D]: vectors that replace the rows of the word table."""
    position_ids: np.ndarray
    """int32 [N]: each id is below P. A model without a position table ignores them."""
    token_type_ids: np.ndarray
    """int32 [N]: each id is below Y. A model without a token type table ignores them."""
    keys: np.ndarray | None = None
    """int32 [B]: tokens of sequence b attend to its first keys[b] tokens, at least 1 unless it is empty; None: to
    all. The tokens behind these, such as padding that is computed too, are queries but no keys."""

    @property
    def sequences(self) -> int:
        """Return B, the number of sequences, empty ones included."""
        return len(self.cu_seqlens) - 1

    @property
    def tokens(self) -> int:
        """Return N, the number of real tokens."""
        return int(self.cu_seqlens[-1])


def lengths_of(cu_seqlens: np.ndarray) -> np.ndarray:
    """Return the number of tokens of each sequence, [B]; `np.diff` gives the same, by ten times the bytecode."""
    return cu_seqlens[1:] - cu_seqlens[:-1]


def split_batch(batch: Batch) -> list[Batch]:
    """Return each sequence of a batch as a batch of its own, whose arrays are views.

    The batch must have ids, and no `keys`.
    """
    assert batch.input_ids is not None
    assert batch.keys is None
    return [Batch(np.array([0, end - start], np.int32), batch.input_ids[start:end], inputs_embeds=None,
                  position_ids=batch.position_ids[start:end], token_type_ids=batch.token_type_ids[start:end])
            for start, end in pairwise(batch.cu_seqlens.tolist())]


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Return one batch of all sequences of one or more batches, which must have ids, and no `keys`."""
    if len(batches) == 1:
        return batches[0]
    ids, starts = [], np.zeros(1, np.int32)
    for batch in batches:
        assert batch.input_ids is not None
        assert batch.keys is None
        ids.append(batch.input_ids)
        starts = np.concatenate([starts, starts[-1] + batch.cu_seqlens[1:]])        # behind the batches so far
    return Batch(starts, np.concatenate(ids), inputs_embeds=None,
                 position_ids=np.concatenate([batch.position_ids for batch in batches]),
                 token_type_ids=np.concatenate([batch.token_type_ids for batch in batches]))
