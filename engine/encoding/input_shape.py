"""`InputShape`: where the real tokens of a batch are in the caller's arrays or lists; it packs and unpacks them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..backends.batch import lengths_of


@dataclass(eq=False, slots=True)
class InputShape:
    """The shape of the caller's input, padding included, and which of its tokens are real."""

    starts: np.ndarray
    """int64 [B+1]: sequence b consists of the tokens starts[b] to starts[b+1] - 1."""
    shape: tuple[int, int] | None
    """(B, T) for an array; None for a list of sequences."""
    real: np.ndarray | None = None
    """bool [B*T]: True for each token that is not padding; None when all tokens are real."""

    @property
    def cu_seqlens(self) -> np.ndarray:
        """The boundaries of the sequences, counted in real tokens only: int32 [B+1]."""
        return (self.starts if self.real is None else counts_before(self.real)[self.starts]).astype(np.int32)

    def pack(self, values: np.ndarray, dtype: type[np.generic] = np.int32) -> np.ndarray:
        """Return the rows of `values` [B*T, ...] that belong to real tokens, [N, ...], as a C-contiguous array."""
        return np.ascontiguousarray(values if self.real is None else values[self.real], dtype)

    def unpack(self, tokens: np.ndarray) -> np.ndarray | list[np.ndarray]:
        """Return token vectors [N, D], or numbers [N], in the caller's form, with zeros for padding.

        That is an array [B, T, D] or [B, T], or a list of views [T_i, D] or [T_i].
        """
        if self.real is not None:
            padded = np.zeros((len(self.real), *tokens.shape[1:]), tokens.dtype)
            padded[self.real] = tokens
            tokens = padded
        if self.shape is None:
            return [tokens[start:end] for start, end in pairwise(self.starts.tolist())]
        return tokens.reshape(*self.shape, *tokens.shape[1:])

    def unpack_weights(self, weights: np.ndarray) -> np.ndarray | list[np.ndarray]:
        """Return the attention weights of each sequence in the caller's form.

        weights: a flat array with [T,T] of each sequence, one after the other; T counts real tokens. The result is an
        array [B,T,T], or a list of arrays [T_i,T_i], with zeros for padding.
        """
        sizes = lengths_of(self.cu_seqlens).astype(np.int64)
        ends = np.cumsum(sizes * sizes)
        blocks = [weights[end - n * n : end].reshape(n, n)
                  for n, end in zip(sizes.tolist(), ends.tolist(), strict=True)]
        if self.real is not None:
            for b, (start, end) in enumerate(pairwise(self.starts.tolist())):
                places = np.flatnonzero(self.real[start:end])
                padded = np.zeros((end - start, end - start), weights.dtype)
                padded[np.ix_(places, places)] = blocks[b]
                blocks[b] = padded
        if self.shape is None:
            return blocks
        B, T = self.shape
        return np.stack(blocks) if B else np.zeros((0, T, T), weights.dtype)

    def place(self, token: int) -> tuple[int, int]:
        """Return (sequence, position in the sequence) of a token, both counted from 0."""
        sequence = int(np.searchsorted(self.starts, token, side="right")) - 1
        return sequence, token - int(self.starts[sequence])

    def for_tokens(self, values: np.ndarray) -> np.ndarray:
        """Repeat the value of each sequence [B] for all its tokens, padding included: [B*T]."""
        return values.repeat(lengths_of(self.starts))

    def real_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the index of each sequence's first real token and the index after its last one: int64 [B] each.

        They are equal for a sequence without real tokens.
        """
        if self.real is None:
            return self.starts[:-1], self.starts[1:]
        before = counts_before(self.real)[self.starts]      # [B+1]: real tokens before each sequence, then all of them
        places = np.append(np.flatnonzero(self.real), 0)    # of real tokens; the 0 is for sequences without any
        has_real = before[1:] > before[:-1]
        return (np.where(has_real, places[before[:-1]], self.starts[:-1]),
                np.where(has_real, places[before[1:] - 1] + 1, self.starts[:-1]))


def counts_before(flags: np.ndarray) -> np.ndarray:
    """Return, for each index from 0 to n, the number of flags [n] that are True before it: int64 [n+1]."""
    counts = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=counts[1:])
    return counts
