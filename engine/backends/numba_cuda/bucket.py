"""Divide a batch into passes of a few fixed shapes, so that a pass can be recorded once and replayed.

A batch group holds whole sequences. Its number of tokens is rounded up to a bucket, of which there are eight for each
power of two, and the number of entries of attention's work list to a power of two. The added tokens and entries belong
to no sequence, and their results are never read. All integers of a pass lie in one array, which one copy uploads:

    |input_ids |position_ids |token_type_ids |cu_seqlens |tiles |
    |tokens    |tokens       |tokens         |tiles + 2  |3 tiles|
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from ...base.errors import InputError
from ..batch import Batch

LEAST_TOKENS = 16
"""The tokens of the smallest bucket."""


def round_tokens(tokens: int) -> int:
    """Round a number of tokens up to its bucket: at most an eighth more, at least `LEAST_TOKENS`, and monotonic."""
    if tokens <= LEAST_TOKENS:
        return LEAST_TOKENS
    step = 1 << (tokens.bit_length() - 4)       # an eighth of the power of two that `tokens` reaches
    return -(-tokens // step) * step


@dataclass(frozen=True)
class BucketGroup:
    """Whole sequences that one pass computes: sequences `first` to `last` - 1 of a batch."""

    first: int
    last: int
    tokens: slice
    """The group's tokens in the batch."""
    longest: int
    """Number of tokens of the longest sequence."""

    @property
    def count(self) -> int:
        """Return the number of tokens in the group."""
        return int(self.tokens.stop - self.tokens.start)


def groups(batch: Batch, max_tokens: int) -> list[BucketGroup]:
    """Divide a batch into groups of up to `max_tokens` tokens, in order; no group is without tokens.

    Each group holds as many sequences as fit. Raises `InputError` for a sequence longer than `max_tokens`.
    """
    lengths = np.diff(batch.cu_seqlens)
    if lengths.max(initial=0) > max_tokens:
        raise InputError(f"a sequence of {lengths.max()} tokens exceeds max_batch_tokens={max_tokens}, which limits "
                         "the memory used on the device; load the model with a larger max_batch_tokens")
    made, first = [], 0
    starts = batch.cu_seqlens.tolist()
    while first < batch.sequences:
        last = int(np.searchsorted(batch.cu_seqlens, starts[first] + max_tokens, side="right")) - 1
        if starts[first] < starts[last]:
            made.append(BucketGroup(first, last, slice(starts[first], starts[last]), int(lengths[first:last].max())))
        first = last
    return made


@dataclass(frozen=True)
class Shape:
    """The size of a recorded pass: its largest number of tokens, and of entries of attention's work list."""

    tokens: int
    tiles: int
    tile_rows: int
    """Largest number of queries of an entry."""
    embeds: bool
    """True if the pass starts from `inputs_embeds`."""

    def views(self, array: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return views of an array: input_ids, position_ids, token_type_ids, cu_seqlens and tiles.

        Their shapes are [tokens] three times, [tiles + 2] (see `_sizes`) and [tiles, 3]. The array is int32 with at
        least `size` elements, on the host or on the device.
        """
        sizes = self._sizes
        ends = list(accumulate(sizes))
        ids, positions, types, cu_seqlens, tiles = (array[end - n : end] for n, end in zip(sizes, ends, strict=True))
        return ids, positions, types, cu_seqlens, tiles.reshape(self.tiles, 3)

    @property
    def _sizes(self) -> tuple[int, ...]:
        # The numbers of elements of the views. cu_seqlens has a 0, then the end of each sequence, of which there are at
        # most `tiles`, then the end of an empty sequence.
        return self.tokens, self.tokens, self.tokens, self.tiles + 2, 3 * self.tiles

    @property
    def size(self) -> int:
        """Return the number of elements of the array with all integers."""
        return sum(self._sizes)


def largest_shape(max_tokens: int) -> Shape:
    """Return a shape that no group of up to `max_tokens` tokens exceeds; a work list entry has at least one token."""
    return Shape(round_tokens(max_tokens), _power_of_two(max_tokens), tile_rows=1, embeds=False)


def stage(batch: Batch, group: BucketGroup, tile_rows: int, staging: np.ndarray) -> Shape:
    """Write a group's integers into `staging`, int32, and return the shape of the pass.

    An entry of the work list is a sequence, the first of up to `tile_rows` of its queries, and the number of its tokens
    that are keys. The entries of long sequences come first, so that those of short ones fill the gaps at the end. Added
    entries are of an empty sequence.
    """
    cu_seqlens = np.unique(batch.cu_seqlens[group.first : group.last + 1]) - group.tokens.start  # without empty ones
    all_lengths = np.diff(batch.cu_seqlens[group.first : group.last + 1])       # with those of empty sequences
    lengths = all_lengths[all_lengths > 0]
    counts = -(-lengths // tile_rows)       # entries of each sequence
    N, n = int(cu_seqlens[-1]), int(counts.sum())       # tokens and entries, without the added ones
    shape = Shape(round_tokens(N), _power_of_two(n), tile_rows, batch.input_ids is None)
    ids, positions, types, own_seqlens, tiles = shape.views(staging)
    for target, source in ((ids, batch.input_ids), (positions, batch.position_ids), (types, batch.token_type_ids)):
        target[:] = 0
        if source is not None:
            target[:N] = source[group.tokens]
    own_seqlens[:] = N
    own_seqlens[: len(cu_seqlens)] = cu_seqlens
    order = np.argsort(-lengths, kind="stable")
    tiles[:] = shape.tiles, 0, 0    # added entries name the last sequence of cu_seqlens, which has no tokens
    tiles[:n, 0] = np.repeat(order, counts[order])
    first_entry = np.cumsum(counts[order]) - counts[order]      # of each sequence
    tiles[:n, 1] = (np.arange(n) - np.repeat(first_entry, counts[order])) * tile_rows
    keys = lengths if batch.keys is None else batch.keys[group.first : group.last][all_lengths > 0]
    tiles[:n, 2] = keys[tiles[:n, 0]]
    return shape


def _power_of_two(n: int) -> int:
    """Return the least power of two that is at least n."""
    return 1 << (n - 1).bit_length()
