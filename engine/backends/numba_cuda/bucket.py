"""How a batch becomes passes of a few fixed shapes, so that a pass can be recorded once and replayed.

A group is some whole sequences. Its tokens are rounded up to a bucket, of which there are eight for each doubling, and
the entries of attention's work list to a power of two; what is added belongs to no sequence and is never read.
All the integers of a pass lie in one array, which is copied to the device at once:

    |input_ids |position_ids |token_type_ids |cu_seqlens |tiles |
    |tokens    |tokens       |tokens         |tiles + 2  |2 tiles|
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from ...batch import Batch
from ...errors import InputError

LEAST_TOKENS = 16


def round_tokens(tokens: int) -> int:
    """The bucket of so many tokens: at most an eighth more, at least `LEAST_TOKENS`, never falling as tokens grow."""
    if tokens <= LEAST_TOKENS:
        return LEAST_TOKENS
    step = 1 << (tokens.bit_length() - 4)
    return -(-tokens // step) * step


@dataclass(frozen=True)
class Group:
    """Whole sequences that are worked on together: numbers `first` to `last` of a batch, the last excluded."""

    first: int
    last: int
    tokens: slice
    """Of the batch."""
    longest: int
    """Tokens of the longest of them."""

    @property
    def count(self) -> int:
        """How many tokens they have."""
        return int(self.tokens.stop - self.tokens.start)


def groups(batch: Batch, max_tokens: int) -> list[Group]:
    """The batch in groups of up to `max_tokens`, each as many sequences as fit, in order; none without tokens.

    Raises `InputError` for a sequence longer than that.
    """
    lengths = np.diff(batch.cu_seqlens)
    if lengths.max(initial=0) > max_tokens:
        raise InputError(f"a sequence of {lengths.max()} tokens exceeds max_tokens={max_tokens}, which bounds the "
                         "memory taken on the device; load the model with a larger max_tokens")
    found, first = [], 0
    starts = batch.cu_seqlens.tolist()
    while first < batch.sequences:
        last = int(np.searchsorted(batch.cu_seqlens, starts[first] + max_tokens, side="right")) - 1
        if starts[first] < starts[last]:
            found.append(Group(first, last, slice(starts[first], starts[last]), int(lengths[first:last].max())))
        first = last
    return found


@dataclass(frozen=True)
class Shape:
    """What a recorded pass is good for: up to so many tokens, and entries of attention's work list."""

    tokens: int
    tiles: int
    tile_rows: int
    """Queries of such an entry."""
    embeds: bool
    """Whether it starts from `inputs_embeds`."""

    def views(self, array: Any) -> tuple[Any, Any, Any, Any, Any]:
        """input_ids, position_ids, token_type_ids [tokens], cu_seqlens [tiles + 2] and tiles [tiles, 2] of an array.

        It is int32 of at least `size` elements, on the host or on the device.
        """
        parts = (self.tokens, self.tokens, self.tokens, self.tiles + 2, 2 * self.tiles)
        ends = list(accumulate(parts))
        ids, positions, types, cu_seqlens, tiles = (array[end - n : end] for n, end in zip(parts, ends, strict=True))
        return ids, positions, types, cu_seqlens, tiles.reshape(self.tiles, 2)

    @property
    def size(self) -> int:
        """Elements of the array of all the integers."""
        return 3 * self.tokens + 3 * self.tiles + 2


def largest_shape(max_tokens: int) -> Shape:
    """A shape that no group of up to `max_tokens` exceeds: an entry of the work list has a token at least."""
    return Shape(round_tokens(max_tokens), _power_of_two(max_tokens), tile_rows=1, embeds=False)


def stage(batch: Batch, group: Group, tile_rows: int, staging: np.ndarray) -> Shape:
    """Write a group's integers into `staging`, int32, and return the shape of the pass.

    An entry of the work list is a sequence and the first of up to `tile_rows` of its queries. Those of long sequences
    come first, so that short ones fill the gaps at the end; those added name a sequence without tokens.
    """
    cu_seqlens = np.unique(batch.cu_seqlens[group.first : group.last + 1]) - group.tokens.start  # without empty ones
    lengths = np.diff(cu_seqlens)
    counts = -(-lengths // tile_rows)
    N, n = int(cu_seqlens[-1]), int(counts.sum())
    shape = Shape(round_tokens(N), _power_of_two(n), tile_rows, batch.input_ids is None)
    ids, positions, types, own_seqlens, tiles = shape.views(staging)
    for target, source in ((ids, batch.input_ids), (positions, batch.position_ids), (types, batch.token_type_ids)):
        target[:] = 0
        if source is not None:
            target[:N] = source[group.tokens]
    own_seqlens[:] = N
    own_seqlens[: len(cu_seqlens)] = cu_seqlens
    order = np.argsort(-lengths, kind="stable")
    tiles[:] = shape.tiles, 0
    tiles[:n, 0] = np.repeat(order, counts[order])
    before = np.cumsum(counts[order]) - counts[order]
    tiles[:n, 1] = (np.arange(n) - np.repeat(before, counts[order])) * tile_rows
    return shape


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
