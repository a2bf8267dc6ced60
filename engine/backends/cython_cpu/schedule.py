"""Which sequences are worked on together, and by whom: the policy in front of the native schedule.

Work is counted in tokens. A group is some whole sequences that go through all layers together, either a bundle, which
one thread does alone, or a group of all threads.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

BUNDLE = 192
"""Tokens of a bundle, about: enough rows to use a weight often while it is in cache, few enough to stay there."""

MIN_BUNDLE = 48
"""With fewer tokens a thread would wait for the weights; then all threads share them, each reading a part."""

IMBALANCE = 1.08
"""Bundles are taken when the busiest thread has at most this much more than its share."""


@dataclass(frozen=True)
class Schedule:
    """Groups in the order in which they are started."""

    bundles: bool
    """Whether each group is done by one thread (and threads take them from a queue) or by all of them."""
    sequences: np.ndarray
    """int64 [n, 3]: first token in the batch, T, first row in its group; group after group."""
    groups: np.ndarray
    """int64 [g, 2]: sequences and tokens of each group."""


def make_schedule(cu_seqlens: np.ndarray, threads: int, max_tokens: int) -> Schedule:
    """Group the sequences of a batch (int32 [B+1], at least one token), each at most `max_tokens` long."""
    lengths = np.diff(cu_seqlens)
    order = np.argsort(-lengths, kind="stable")
    sizes = lengths[order[: np.count_nonzero(lengths)]].tolist()
    bundles = _deal(sizes, threads)
    split = _worth_splitting(bundles, threads) and threads * bundles[0].tokens <= max_tokens
    groups = bundles if split else _fill(sizes, BUNDLE if threads == 1 else max_tokens)
    members = order[np.concatenate([group.members for group in groups])]
    rows = np.concatenate([np.cumsum([0, *(sizes[i] for i in group.members[:-1])]) for group in groups])
    return Schedule(
        bundles=split or threads == 1,
        sequences=np.stack([cu_seqlens[members], lengths[members], rows], axis=1).astype(np.int64),
        groups=np.array([(len(group.members), group.tokens) for group in groups], np.int64),
    )


@dataclass
class _Group:
    tokens: int
    members: list[int]

    def __lt__(self, other: _Group) -> bool:
        return self.tokens < other.tokens


def _deal(sizes: list[int], threads: int) -> list[_Group]:
    """A descending list dealt into as many bundles for each thread, about alike: each size to the lightest so far."""
    count = threads * -(-sum(sizes) // (threads * BUNDLE))
    bundles = [_Group(0, []) for _ in range(count)]
    for i, size in enumerate(sizes):
        lightest = bundles[0]
        lightest.tokens += size
        lightest.members.append(i)
        heapq.heapreplace(bundles, lightest)
    return sorted((bundle for bundle in bundles if bundle.members), reverse=True)


def _fill(sizes: list[int], budget: int) -> list[_Group]:
    """Neighbours of a descending list, taken together while they fit the budget."""
    groups = [_Group(0, [])]
    for i, size in enumerate(sizes):
        if groups[-1].members and groups[-1].tokens + size > budget:
            groups.append(_Group(0, []))
        groups[-1].tokens += size
        groups[-1].members.append(i)
    return groups


def _worth_splitting(bundles: list[_Group], threads: int) -> bool:
    """Whether a queue of these bundles keeps all threads busy to the end, with enough tokens for each."""
    loads = [0] * threads
    for bundle in bundles:
        heapq.heapreplace(loads, loads[0] + bundle.tokens)
    return min(loads) >= MIN_BUNDLE and max(loads) * threads <= IMBALANCE * sum(loads)
