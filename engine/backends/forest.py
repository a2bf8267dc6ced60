"""Keep the hypotheses of all requests as trees, and find the cache rows that no hypothesis needs any more.

Every decoder has a `Forest`. A node's `rows` are what this decoder stores for the hypothesis, such as numbers of cells.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from ..base.errors import InputError, shown
from .steps import Row

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
    """What the decoder stores for it."""

    @property
    def length(self) -> int:
        """Return the number of tokens from the start of the request to the end of this hypothesis."""
        return self.past + self.count


def path(node: Node[Rows] | None) -> list[Node[Rows]]:
    """Return the nodes from the root of the tree to this one; an empty list for None."""
    nodes = []
    while node is not None:
        nodes.append(node)
        node = node.parent
    return nodes[::-1]


class _Owner(weakref.ref[Any]):
    """A weak reference to the object that owns a request, which ends when this object dies.

    The callback of the reference is a function of C, so no Python code runs then, which a signal could interrupt.
    """

    __slots__ = ("request",)
    request: int


@dataclass(eq=False)
class _Request:
    """An open request and its hypotheses."""

    owner: _Owner | None
    """It is kept here because a weak reference that is freed calls nothing."""
    hypotheses: set[int] = field(default_factory=set)
    """The hypotheses that may become parents."""


class Forest(Generic[Rows]):
    """The hypotheses of all open requests, by number. A number is used once.

    Any thread may call `open`, `end` and `drop` at any time, also in a finalizer or a signal handler: they only write
    down what is wanted, in one step that nothing can interrupt. The other methods belong to the thread that has the
    decoder's turn, and `settle` does what was written down.
    """

    def __init__(self, vocab_size: int, longest: int | None):
        """vocab_size: V, below which all ids lie. longest: the most tokens of a hypothesis; None for no limit."""
        self._vocab_size, self._longest = vocab_size, longest
        self._nodes: dict[int, Node[Rows]] = {}
        self._requests: dict[int, _Request] = {}
        self._numbers, self._next_node = itertools.count(), 0
        self._ended: deque[int | _Owner] = deque()      # requests that `settle` ends, by number or by dead owner
        self._dropped: deque[int] = deque()             # hypotheses that `settle` drops

    def __len__(self) -> int:
        """Return how many hypotheses have rows, including hypotheses that only their descendants need."""
        return sum(1 for _ in self.nodes())

    def possible_parents(self) -> list[Rows]:
        """Return the rows of the hypotheses that may become parents."""
        return [node.rows for node in self._nodes.values()]

    @property
    def requests(self) -> list[int]:
        """Return the numbers of the open requests."""
        return list(self._requests)

    def nodes(self) -> Iterator[Node[Rows]]:
        """Yield each hypothesis that has rows, once."""
        seen: set[int] = set()
        for node in self._nodes.values():
            for member in path(node):
                if id(member) not in seen:
                    seen.add(id(member))
                    yield member

    def open(self, owner: object = None) -> int:
        """Begin a request and return its number.

        owner: the request ends when this object dies; None for a request that only `end` ends.
        """
        number, reference = next(self._numbers), None
        if owner is not None:
            reference = _Owner(owner, self._ended.append)
            reference.request = number
        self._requests[number] = _Request(reference)
        return number

    def end(self, request: int) -> None:
        """Let the next `settle` end a request; a request that is over already is left alone."""
        self._ended.append(request)

    def drop(self, hypotheses: Iterable[int]) -> None:
        """Let the next `settle` drop these hypotheses: they become no parents any more."""
        self._dropped.extend(hypotheses)

    def settle(self) -> list[Rows]:
        """Do what `end`, `drop` and dead owners asked for; return the rows of the hypotheses that become no parents."""
        freed: list[Rows] = []
        while self._dropped:        # an entry leaves its queue last, so that an interrupt in between loses nothing
            self._release(self._dropped[0], freed)
            self._dropped.popleft()
        while self._ended:
            ended = self._ended[0]
            number = ended.request if isinstance(ended, _Owner) else ended
            if number in self._requests:
                for hypothesis in list(self._requests[number].hypotheses):
                    self._release(hypothesis, freed)
                del self._requests[number]
            self._ended.popleft()
        return freed

    def repair(self) -> None:
        """Keep the hypotheses that both `_nodes` and an open request have, and drop the others.

        An exception, such as an interrupt, may have come between the changes of the two.
        """
        for request in list(self._requests.values()):
            request.hypotheses &= self._nodes.keys()
        wanted = {number for request in list(self._requests.values()) for number in request.hypotheses}
        self._nodes = {number: node for number, node in self._nodes.items() if number in wanted}

    def parents(self, rows: Sequence[Row]) -> list[Node[Rows] | None]:
        """Return the parent of each row; raises `InputError` for a row that cannot be computed."""
        if not rows:
            raise InputError("a step needs at least one row")
        return [self._parent(row) for row in rows]

    def _parent(self, row: Row) -> Node[Rows] | None:
        """Return the parent of a row, None for a whole prompt, after checking its request, tokens and length."""
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
            if row.parent not in self._requests[row.request].hypotheses:
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
        past = parent.length if parent else 0
        return self._add(Node(row.request, parent, past=past, count=len(row.tokens), rows=rows))

    def cut(self, hypothesis: int, length: int, request: int, cut: Callable[[Node[Rows], int], Rows]) -> int:
        """Add the first `length` tokens of a hypothesis, of any open request, to a request; return the new number.

        cut: returns the rows of the first tokens up to a node. Raises `InputError` for a hypothesis that has ended, and
        for a length that it does not have.
        """
        self.check(request)
        node = self._nodes.get(hypothesis)
        if node is None:
            raise InputError(f"hypothesis {shown(hypothesis)} has ended, or its request has, so it cannot be cut")
        if not 0 < length <= node.length:
            raise InputError(f"hypothesis {hypothesis} has {node.length:,} tokens, and cannot be cut to "
                             f"{shown(length)}")
        return self._add(Node(request, None, past=0, count=length, rows=cut(node, length)))

    def _add(self, node: Node[Rows]) -> int:
        """Give a node the next number, and put it among the possible parents of its request."""
        number, self._next_node = self._next_node, self._next_node + 1
        self._nodes[number] = node
        self._requests[node.request].hypotheses.add(number)
        return number

    def _release(self, hypothesis: int, freed: list[Rows]) -> None:
        """Remove a hypothesis from the possible parents, and append its rows to `freed`."""
        node = self._nodes.pop(hypothesis, None)
        if node is not None:        # it may have been dropped before
            self._requests[node.request].hypotheses.discard(hypothesis)
            freed.append(node.rows)
