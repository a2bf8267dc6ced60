"""Divide the sequences of a batch into groups that go through all layers together, and choose who computes each group.

A batch group holds whole sequences, and its size is counted in tokens. Either each group is a bundle, which one thread
computes alone, or all threads compute each group together. The native schedule then runs the groups.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

MIN_BUNDLE = 48
"""Minimum number of tokens for each thread when it runs bundles.

With fewer tokens a thread would wait for the weights. Then all threads share each group and the reading of weights.
"""

IMBALANCE = 1.08
"""Bundles are used if the busiest thread has at most this multiple of the mean number of tokens per thread."""


class PassSchedule(NamedTuple):
    """The groups of a batch, in the order in which they are started."""

    bundles: bool
    """True: one thread computes each group, which it fetches from a queue; so it is wherever there is one thread.
    False: all threads share each group."""
    sequences: np.ndarray
    """int64 [n, 3]: first token in the batch, number of tokens T, first row in its group; ordered by group."""
    groups: np.ndarray
    """int64 [g, 2]: number of sequences and number of tokens of each group."""

    def numbers(self, cu_seqlens: np.ndarray) -> np.ndarray:
        """Return the number in the batch of each scheduled sequence, int64 [n]; empty sequences are not scheduled."""
        return np.searchsorted(cu_seqlens, self.sequences[:, 0], side="right") - 1


def make_schedule(cu_seqlens: np.ndarray, threads: int, max_tokens: int, bundle: int) -> PassSchedule:
    """Group the sequences of a batch (int32 [B+1], at least one token), each with at most `max_tokens` tokens.

    bundle: the approximate number of tokens in a bundle, which the kernels state. A bundle has enough rows to use a
    weight often while it is in cache, and few enough to stay in cache themselves.
    """
    starts = cu_seqlens.tolist()
    lengths = [end - start for start, end in pairwise(starts)]
    order = sorted((b for b, length in enumerate(lengths) if length), key=lengths.__getitem__, reverse=True)
    sizes = [lengths[b] for b in order]
    groups, in_bundles = [], False
    if sum(sizes) >= threads * MIN_BUNDLE:      # fewer tokens do not keep all threads busy
        groups = _spread_over_bundles(sizes, threads, bundle)      # the largest one first
        # Each thread has memory for the largest bundle, and all of it together may be no more than that of max_tokens.
        in_bundles = _keep_threads_busy(groups, threads) and threads * groups[0].tokens <= max_tokens
    if not in_bundles:
        groups = _group_in_order(sizes, bundle if threads == 1 else max_tokens)
    sequences = [(starts[order[i]], sizes[i], row) for group in groups
                 for i, row in zip(group.members, group.rows(sizes), strict=True)]
    return PassSchedule(
        bundles=in_bundles or threads == 1,
        sequences=np.array(sequences, np.int64),
        groups=np.array([(len(group.members), group.tokens) for group in groups], np.int64),
    )


def schedule_of_single_tokens(count: int, threads: int) -> PassSchedule:
    """Return the schedule of `count` sequences of one token each, as one group, so that weights are read once."""
    places, lengths = np.arange(count), np.ones(count, np.int64)
    return PassSchedule(bundles=threads == 1, sequences=np.column_stack([places, lengths, places]),
                        groups=np.array([[count, count]]))


@dataclass
class _Group:
    """Whole sequences that go through the layers together; groups are ordered by their tokens, for the heap."""

    tokens: int
    members: list[int]
    """Indexes in the list of sizes."""

    def rows(self, sizes: Sequence[int]) -> Iterator[int]:
        """Return the first row in the group of each member."""
        return accumulate((sizes[i] for i in self.members[:-1]), initial=0)

    def __lt__(self, other: _Group) -> bool:
        return self.tokens < other.tokens


def _spread_over_bundles(sizes: list[int], threads: int, bundle: int) -> list[_Group]:
    """Distribute sizes, in descending order, over bundles of similar size: about `bundle` tokens, or less.

    Each size goes to the smallest bundle so far. The number of bundles is a multiple of `threads`.
    """
    count = threads * -(-sum(sizes) // (threads * bundle))
    bundles = [_Group(0, []) for _ in range(count)]     # a heap: the smallest is bundles[0]
    for i, size in enumerate(sizes):
        smallest = bundles[0]
        smallest.tokens += size
        smallest.members.append(i)
        heapq.heapreplace(bundles, smallest)
    return sorted((bundle for bundle in bundles if bundle.members), reverse=True)


def _group_in_order(sizes: list[int], budget: int) -> list[_Group]:
    """Put consecutive sizes, in descending order, into one group as long as their sum is at most `budget` tokens."""
    groups = [_Group(0, [])]
    for i, size in enumerate(sizes):
        if groups[-1].members and groups[-1].tokens + size > budget:
            groups.append(_Group(0, []))
        groups[-1].tokens += size
        groups[-1].members.append(i)
    return groups


def _keep_threads_busy(bundles: list[_Group], threads: int) -> bool:
    """Return True if a queue of these bundles keeps all threads busy to the end, with enough tokens for each."""
    loads = [0] * threads       # tokens of each thread, a heap: the next bundle goes to the thread with the fewest
    for bundle in bundles:
        heapq.heapreplace(loads, loads[0] + bundle.tokens)
    return min(loads) >= MIN_BUNDLE and max(loads) * threads <= IMBALANCE * sum(loads)
