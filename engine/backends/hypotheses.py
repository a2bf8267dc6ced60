"""The hypotheses of all requests as trees: their parents, and the cache rows that no hypothesis needs any more.

Every decoder keeps such a `Forest`, with whatever it stores for a hypothesis as the node's `rows`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, shown
from ..model.config import ModelConfig
from ..programs.observe import Head
from .steps import Row, Top

Rows = TypeVar("Rows")


@dataclass(eq=False)
class Node(Generic[Rows]):
    """One hypothesis: the tokens of one row of a step, after those of its parent."""

    request: int
    parent: Node[Rows] | None
    past: int
    """The number of tokens before its own."""
    count: int
    """The number of its own tokens."""
    rows: Rows
    held: bool = True
    """Whether it may still become a parent."""
    children: int = 0

    @property
    def length(self) -> int:
        """Return the number of tokens from the start of the request to the end of this hypothesis."""
        return self.past + self.count


def path(node: Node[Rows] | None) -> list[Node[Rows]]:
    """Return the nodes from the first of a request to this one; none for None."""
    nodes = []
    while node is not None:
        nodes.append(node)
        node = node.parent
    return nodes[::-1]


class Forest(Generic[Rows]):
    """The hypotheses of all open requests, by number. A number is used once."""

    def __init__(self, vocab_size: int, longest: int | None):
        """Take the vocabulary's size V, below which all ids lie, and the most tokens of a hypothesis."""
        self._vocab_size, self._longest = vocab_size, longest
        self._nodes: dict[int, Node[Rows]] = {}
        self._requests: dict[int, set[int]] = {}
        self._next_request = self._next_node = 0

    def __len__(self) -> int:
        """Return how many hypotheses have rows, including hypotheses that only their descendants need."""
        return sum(1 for _ in self.nodes())

    def nodes(self) -> Iterator[Node[Rows]]:
        """Yield each hypothesis that has rows, once."""
        seen: set[int] = set()
        for node in self._nodes.values():
            for member in path(node):
                if id(member) not in seen:
                    seen.add(id(member))
                    yield member

    def open(self) -> int:
        """Begin a request and return its number."""
        number, self._next_request = self._next_request, self._next_request + 1
        self._requests[number] = set()
        return number

    def parents(self, rows: Sequence[Row]) -> list[Node[Rows] | None]:
        """Return the parent of each row; raises `InputError` for a row that cannot be computed."""
        if not rows:
            raise InputError("a step needs at least one row")
        return [self._parent(row) for row in rows]

    def _parent(self, row: Row) -> Node[Rows] | None:
        self.check(row.request)
        tokens = row.tokens
        if not isinstance(tokens, np.ndarray) or tokens.dtype != np.int64 or tokens.ndim != 1 or not len(tokens):
            raise InputError(f"the tokens of a row must be int64 [n], n at least 1, not {shown(tokens)}")
        # Most rows have one token, for which NumPy's minimum takes longer than all the rest.
        low, high = (tokens[0], tokens[0]) if len(tokens) == 1 else (tokens.min(), tokens.max())
        if low < 0 or high >= self._vocab_size:
            raise InputError(f"token ids must be from 0 to {self._vocab_size - 1:,}, not {low:,} to {high:,}")
        parent = None
        if row.parent is not None:
            if row.parent not in self._requests[row.request]:
                raise InputError(f"hypothesis {shown(row.parent)} is not one of request {row.request} that may become "
                                 "a parent")
            parent = self._nodes[row.parent]
        length = len(tokens) + (parent.length if parent else 0)
        if self._longest is not None and length > self._longest:
            raise InputError(f"a hypothesis of {length:,} tokens is longer than the model's {self._longest:,} "
                             "positions")
        return parent

    def check(self, request: int) -> None:
        """Raise `InputError` unless a request is open."""
        if request not in self._requests:
            raise InputError(f"no request has the number {shown(request)}; open one first")

    def add(self, row: Row, parent: Node[Rows] | None, rows: Rows) -> int:
        """Add the hypothesis of a row, and return its number."""
        number, self._next_node = self._next_node, self._next_node + 1
        self._nodes[number] = Node(row.request, parent, parent.length if parent else 0, len(row.tokens), rows)
        self._requests[row.request].add(number)
        if parent is not None:
            parent.children += 1
        return number

    def release(self, hypotheses: Iterable[int]) -> list[Rows]:
        """Note that these become no parents, and return the rows that no hypothesis needs any more."""
        freed = []
        for number in hypotheses:
            node = self._nodes.pop(number, None)
            if node is None:
                raise InputError(f"no hypothesis has the number {shown(number)}, or it was released before")
            self._requests[node.request].discard(number)
            node.held = False
            while node is not None and not node.held and not node.children:
                freed.append(node.rows)
                node = node.parent
                if node is not None:
                    node.children -= 1
        return freed

    def close(self, request: int) -> list[Rows]:
        """End a request, and return the rows of its hypotheses."""
        self.check(request)
        freed = self.release(list(self._requests[request]))
        del self._requests[request]
        return freed


def check_vectors(vectors: np.ndarray, width: int) -> None:
    """Raise `InputError` unless these are an encoder's vectors that a decoder of this memory_size reads."""
    if not width:
        raise InputError("this decoder reads no encoder, so its requests have no source")
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise InputError(f"the vectors of sources must be [N, {width}], not {list(vectors.shape)}")


def check_sources(rows: Sequence[Row], known: Container[int]) -> None:
    """Raise `InputError` if the source of a row's request is not known yet."""
    for row in rows:
        if row.request not in known:
            raise InputError(f"request {row.request} has no source; give its vectors to cache_sources first")


def check_heads(heads: Sequence[Head], config: ModelConfig | None) -> None:
    """Raise `InputError` unless these are heads of a decoder's cross-attention; config: None if it has none."""
    if config is None:
        raise InputError("this decoder has no cross-attention, so it gives no weights of it")
    for layer, head in heads:
        if not (0 <= layer < config.num_layers and 0 <= head < config.num_heads):
            raise InputError(f"cross-attention has {config.num_layers} layers with {config.num_heads} heads; "
                             f"{shown((layer, head))} is no pair (layer, head) of them")


def top_of(hypotheses: NDArray[np.int64], logits: np.ndarray, k: int) -> Top:
    """Return the k best of each row of logits, best first, the lowest id first among equals."""
    check_k(k, logits.shape[1])
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(logits, ids, 1)
    total = np.exp(logits - values[:, :1]).sum(axis=1)
    return Top(hypotheses, values, ids, (values[:, 0] + np.log(total)).astype(np.float32))


def check_k(k: int, vocab_size: int) -> None:
    """Raise `InputError` unless k logits can be chosen."""
    if not 1 <= k <= vocab_size:
        raise InputError(f"k must be from 1 to {vocab_size:,}, the size of the vocabulary, not {k}")
