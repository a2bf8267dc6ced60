"""A batch as the backends see it: the real tokens of all sequences, end to end, with no padding.

    sequence 0        sequence 1   sequence 2
    |a0 a1 a2 a3 a4|  |b0 b1|      |c0 c1 c2|      N = 10 tokens, B = 3 sequences
    cu_seqlens = [0, 5, 7, 10]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Batch:
    """Packed tokens; every array is C-contiguous and already checked against the model's limits.

    A sequence may be empty. Exactly one of `input_ids` and `inputs_embeds` is given.
    """

    cu_seqlens: np.ndarray
    """int32 [B+1]: sequence b is the tokens cu_seqlens[b] to cu_seqlens[b+1]."""
    input_ids: np.ndarray | None
    """int32 [N], each below V."""
    inputs_embeds: np.ndarray | None
    """float32 [N, D]: stands in for the rows of the word table."""
    position_ids: np.ndarray
    """int32 [N], each below P; unused by a model without a position table."""
    token_type_ids: np.ndarray
    """int32 [N], each below Y; unused by a model without a token type table."""

    @property
    def sequences(self) -> int:
        """B: the number of sequences, empty ones included."""
        return len(self.cu_seqlens) - 1

    @property
    def tokens(self) -> int:
        """N: the number of real tokens."""
        return int(self.cu_seqlens[-1])
