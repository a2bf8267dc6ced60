"""What a session asks of a request that it computes: its sequences, and the group of rows that reads their scores."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Hashable
from collections.abc import Sequence as List
from dataclasses import dataclass, field
from typing import Any

from ..backends.steps import Row, Scores
from ..base.errors import EngineError
from .encoder_decoder import SourceStepper
from .results import logits_error
from .sequences import Sequence


class Holder(weakref.ref[Any]):
    """A weak reference to whoever waits for a request, whose death ends the request.

    Its callback is a function of C, so no Python code runs then, which a signal could interrupt.
    """

    __slots__ = ("number",)
    number: int


@dataclass(eq=False)
class Entry:
    """The place of a request in the order of a session."""

    number: int
    """Requests are counted from 0 in the order in which they came."""
    priority: int
    owner: str
    deadline: float
    """The `time.monotonic()` at which this request ends; 0 for none."""
    holder: Holder


class Work(ABC):
    """A request that is checked, and what has become of it."""

    packed: Any = None
    """The source as `SourceStepper.open` takes it."""
    source: int = 0
    """Tokens of the source, all of which the encoder reads in one step, the first of the request."""
    cached: int = 0
    """The most tokens of all hypotheses of the request together."""
    tokens_in: int = 0
    """Tokens of the source and the prompt, for statistics."""
    most_scored: int | None = None
    """The most tokens after which a step gives scores; None for `schedule.SCORED_CHUNK`."""
    takes_nan: bool = False
    """Whether scores that are NaN or infinite are a result of the request, and no error."""

    def __init__(self) -> None:
        self.entry: Entry
        self.number = -1
        """The number that `SourceStepper.open` gave; -1 before."""
        self.waits = self.ended = False
        """Whether it waits until it enters, and whether it has ended."""
        self._users: dict[int, int] = {}
        """How many sequences have each hypothesis."""

    @property
    def rows(self) -> int:
        """Return the most hypotheses from now on: one, for a request that reads one text and chooses nothing."""
        return 1

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Return what the requests of one group have in common: rows that compute alike."""

    @abstractmethod
    def group(self, vocab_size: int) -> Group:
        """Return a new group for requests with this key."""

    @abstractmethod
    def begin(self) -> list[Sequence]:
        """Return the first sequences."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has to be computed for `results()`."""
        return False

    def results(self) -> Any:
        """Return the result of a request for which nothing has to be computed."""
        return None

    def completed(self, results: Any, stepper: SourceStepper) -> Any:
        """Return the results with what one more pass of the model adds."""
        return results

    def ends(self, results: Any) -> int:
        """Return how many end tokens the results have, for statistics."""
        return 0

    def made(self, results: Any) -> int:
        """Return how many new tokens the results have, for the share of the owner."""
        return 0

    def failure(self, sequence: Sequence) -> EngineError:
        """Return the error of this request if the model computes NaN for one of its sequences."""
        return logits_error()

    def use(self, hypothesis: int | None) -> None:
        """Count one more sequence that has a hypothesis."""
        if hypothesis is not None:
            self._users[hypothesis] = self._users.get(hypothesis, 0) + 1

    def move(self, before: int | None, after: int) -> bool:
        """Count that a sequence goes on to a new hypothesis, and return whether no sequence has the old one any more.

        It is what `use` and `drop` do, in one call for each row of each step.
        """
        users = self._users
        users[after] = 1
        if before is None:
            return False
        left = users.pop(before) - 1
        if left:
            users[before] = left
        return not left

    def drop(self, hypothesis: int | None) -> bool:
        """Count one less, and return whether no sequence has the hypothesis any more."""
        if hypothesis is None:
            return False
        left = self._users.pop(hypothesis) - 1
        if left:
            self._users[hypothesis] = left
        return not left


@dataclass
class Outcome:
    """What a group made of the scores of a step."""

    tokens: list[tuple[Work, int, int]] = field(default_factory=list)
    """(request, sample, id) of each new token that is certain."""
    done: dict[Work, Any] = field(default_factory=dict)
    """The results of the requests that ended."""
    failed: dict[Work, EngineError] = field(default_factory=dict)
    """The errors of the requests that cannot go on."""
    begun: list[Sequence] = field(default_factory=list)
    """New sequences with unread ids."""
    left: list[Sequence] = field(default_factory=list)
    """Sequences that do not go on, of requests that do."""


class Group(ABC):
    """The requests in a session whose rows compute alike."""

    def __init__(self) -> None:
        self.works: set[Work] = set()
        self.live: list[Sequence] = []
        """The sequences of which each step reads one token."""

    def enter(self, work: Work) -> None:
        """Let a request enter."""
        self.works.add(work)

    def leave(self, work: Work) -> None:
        """Forget a request."""
        self.works.discard(work)
        self.live = [sequence for sequence in self.live if sequence.work is not work]

    def prepare(self, sequences: list[Sequence]) -> None:  # noqa: B027, because most groups have nothing to prepare
        """Say how many of the best logits each of these sequences wants, which the next step reads to their ends."""

    @abstractmethod
    def advance(self, sequences: list[Sequence], rows: List[Row], scores: Scores, outcome: Outcome) -> None:
        """Continue sequences with their scores. rows: what the step read of each."""
