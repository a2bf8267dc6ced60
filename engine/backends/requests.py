"""Define `Requests`, the base class of decoders, which opens and ends requests and lets one call at a time compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from ..base.stop import NEVER, Stop
from .forest import Forest, Node, Rows
from .lock import TornMark, new_turn

Result = TypeVar("Result")


class Requests(ABC, Generic[Rows]):
    """The requests of a decoder, and the turns of the calls that compute them.

    A turn after one that an exception has torn begins with a repair, which keeps what the open requests need and frees
    everything else.
    """

    def __init__(self, forest: Forest[Rows]) -> None:
        self._forest = forest
        self._sources: dict[int, Any] = {}
        """The keys and values of the source of each request that has one."""
        self._turn, self._mark = new_turn(), TornMark()

    def open(self, owner: object = None) -> int:
        """Begin a request and return its number, as `engine.backends.interfaces.Decoder` describes."""
        self._settle_if_free()      # so that the memory of what has ended is free for it
        return self._forest.open(owner)

    def cut(self, hypothesis: int, length: int, request: int) -> int:
        """Let a request have the first tokens of a hypothesis, as `engine.backends.interfaces.Decoder` describes."""
        return self._in_turn(NEVER, lambda: self._forest.cut(hypothesis, length, request, self._cut_rows))

    def release(self, hypotheses: Iterable[int]) -> None:
        """Note that these hypotheses become no parents; the next turn frees their keys and values."""
        self._forest.drop(hypotheses)

    def close(self, request: int) -> None:
        """End a request; its memory is freed at once unless a call has the turn, and in the next turn otherwise."""
        self._forest.end(request)
        self._settle_if_free()

    def _in_turn(self, stop: Stop, compute: Callable[[], Result]) -> Result:
        """Return the result of `compute`, which has the turn, after `_settle`; raises what `stop` raises."""
        def run() -> Result:
            self._settle()
            return compute()

        with self._turn.take(stop):
            return self._mark.run(run, self._repair)

    def _settle_if_free(self) -> None:
        """Free what has ended, unless a call has the turn; the next turn then does it."""
        with self._turn.take_if_free() as taken:
            if taken:
                self._mark.run(self._settle, self._repair)

    def _repair(self) -> None:
        """Make the forest and the rows consistent again, after an exception has ended a turn in the middle."""
        self._forest.repair()
        self._repair_rows()

    def _settle(self) -> None:
        """Free the rows and the sources of requests and hypotheses that have ended."""
        self._free_rows(self._forest.settle())
        for request in self._sources.keys() - set(self._forest.requests):
            del self._sources[request]

    @abstractmethod
    def _cut_rows(self, node: Node[Rows], length: int) -> Rows:
        """Return the rows of the first `length` tokens from the start of the request to the end of a node."""

    def _free_rows(self, rows: list[Rows]) -> None:
        """Free the rows of hypotheses that become no parents any more, except for what others share."""

    def _repair_rows(self) -> None:
        """Free all rows but those of the hypotheses that may become parents."""
