"""The interfaces between the queue of a decoder and its works: work, sequence, group, outcome, and entry.

A sequence is all ids of one text so far, how many of them the model has read, and the number of the hypothesis with
these. A step reads the next n unread ids of some sequences, and asks for scores after none, the last or the last m of
them. So a part of a prompt, the next token, and a continuation to score are read in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from collections.abc import Sequence as List
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Row, Scores
from ..backends.wants import ALL, Want
from ..base.errors import EngineError
from ..base.stop import Stop
from ..queues.entry import Entry, OwnStop
from ..text.stops import StopText
from .encoder_decoder import SourceStepper
from .results import Echo, Token, TokenLogprob, logits_error

ROOM = 32
"""The array of a sequence grows by this number of ids at least, so that few tokens need a new array."""
_SAMPLE = 2**32
"""A part of an entry is one integer, id + 2^32 sample. The garbage collector would have to look at pairs."""


class DecoderWork:
    """Something that a caller wants a decoder to compute: a `StepWork`, or a `PassWork`."""

    known: Any = None
    """The results, if nothing has to be computed for them; otherwise None."""
    logprobs: List[list[TokenLogprob]] = ()
    """The log probabilities of the new tokens of each result so far, if they were asked for."""
    echo: Echo | None = None
    """The prompt that stands in front of each result, if that was asked for."""
    new_text: Callable[[], StopText] | None = None
    """Returns a text without tokens yet, which ends at a stop text; None without a tokenizer, or where a work makes no
    tokens."""

    def __init__(self) -> None:
        """Make a work that has not been submitted yet."""
        self.entry: DecoderEntry
        """Its place in the queue, which `DecoderEntry` sets."""
        self.waits = False
        """Whether it is in the schedule and has not entered yet."""

    @property
    def has_ended(self) -> bool:
        """Whether it has its results, or an error."""
        return self.entry.end is not None

    def reset(self) -> None:
        """Put it back to its beginning: `DecoderEntry.restart` calls this before its first step, and before it repeats.

        Its results are the same again, because a row has the same bits in any step.
        """
        self.waits = False


class PassWork(DecoderWork, ABC):
    """A work that needs one pass of the model, which it shares with no other work."""

    @abstractmethod
    def compute(self, stepper: SourceStepper, stop: Stop) -> Any:
        """Run the pass, and return the results. The thread with the queue's turn calls it, between two steps."""


class StepWork(DecoderWork, ABC):
    """A work whose sequences the model reads in steps, together with other works."""

    packed: Any = None
    """The source as `SourceStepper.open` takes it."""
    source: int = 0
    """The number of tokens of the source, all of which the encoder reads in the first step of the work."""
    cached: int = 0
    """The most tokens that it may need room for in the cache: for its longest sequence, or for all if it `reserves`."""
    tokens_in: int = 0
    """The number of tokens of the source and the prompt, for statistics."""
    takes_nan: bool = False
    """Whether scores that are NaN or infinite are a result of the work, and no error."""
    makes_tokens: bool = False
    """Whether the numbers that it gives before its end are new tokens, which statistics count."""
    reserves: bool = False
    """Whether all room that it may need is promised to it at once, because several hypotheses follow its prompt, or
    because one more pass follows its end."""
    cache_key: Hashable = ""
    """Its prompts share what they read with prompts of works with an equal key."""

    def __init__(self) -> None:
        """Make a work that has not begun."""
        super().__init__()
        self.number = -1
        """The number of its request, which `SourceStepper.open` returned; -1 before."""
        self.steps = 0
        """How many steps it was in since it began."""
        self.sequences: list[Sequence] = []
        """The sequences that `begin` has returned, while the first of them waits for room; empty after that."""
        self._users: dict[int, int] = {}
        """How many sequences have each hypothesis, by its number."""

    def reset(self) -> None:
        """Put it back to its beginning, without sequences and without a request."""
        super().reset()
        self.number, self.steps, self.sequences, self._users = -1, 0, [], {}

    @property
    def rows(self) -> int:
        """The most hypotheses that it has in a step from now on; 1 unless a subclass says more."""
        return 1

    @property
    def key(self) -> Hashable:
        """A value that works of one group have in common, so that their rows compute alike."""
        return type(self).__name__

    @abstractmethod
    def group(self, vocab_size: int) -> Group:
        """Return a new group for works with this key."""

    @abstractmethod
    def begin(self) -> list[Sequence]:
        """Return the first sequences."""

    def completed(self, results: Any, stepper: SourceStepper, stop: Stop) -> Any:
        """Return the results with what one more pass of the model adds; most works need none, and return them alone."""
        return results

    def ends(self, results: Any) -> int:
        """Return how many end tokens the results have, for statistics."""
        return 0

    def failure(self, sequence: Sequence) -> EngineError:
        """Return the error of this work if the model computes NaN for one of its sequences."""
        return logits_error()

    def use(self, hypothesis: int | None) -> None:
        """Count one more sequence that has a hypothesis."""
        if hypothesis is not None:
            self._users[hypothesis] = self._users.get(hypothesis, 0) + 1

    def move(self, before: int | None, after: int) -> bool:
        """Count that a sequence goes on from one hypothesis to another; return whether no sequence has `before` now.

        It is `use` and `drop` in one call, because every row of every step needs both.
        """
        users = self._users
        users[after] = 1        # a step gives each row a new hypothesis
        if before is None:
            return False
        others = users.pop(before) - 1
        if others:
            users[before] = others
        return not others

    def drop(self, hypothesis: int | None) -> bool:
        """Count one sequence less that has a hypothesis, and return whether no sequence has it any more."""
        if hypothesis is None:
            return False
        others = self._users.pop(hypothesis) - 1
        if others:
            self._users[hypothesis] = others
        return not others


class DecoderEntry(Entry):
    """A work of a decoder on its way through the queue.

    Its parts are the new tokens, each as one integer: sample * `_SAMPLE` + id. A work whose results are known without
    the model has ended when it is submitted.
    """

    __slots__ = ("alone", "entered", "pace", "results", "session", "skipped", "work")

    def __init__(self, number: int, work: DecoderWork, priority: int, owner: Hashable, stop: OwnStop, session: object,
                 pace: Any):
        """session: the session that the work belongs to, if there is one. pace: the limits that the session sets
        for the time of steps, a `Pace` of schedule.py, or None."""
        super().__init__(number, priority, owner, stop)
        self.work: Any = work if work.known is None else None
        """The work; None after its end."""
        self.session, self.pace = session, pace
        self.results: Any = work.known
        self.alone = False
        """Whether its rows have steps of their own, because a step with them and others raised an error."""
        self.entered = False        # whether it has entered before, so that its tokens are not counted once more
        self.skipped = 0
        """How many tokens will come once more, and are not given again, after a work began anew."""
        if work.known is None:
            work.entry = self
        else:
            self.end = True

    def tokens(self, begin: int, most: int | None = None) -> list[Token]:
        """Return the new tokens so far from number `begin` on, and no more than `most` of them; None for all."""
        end = None if most is None else begin + most
        return [Token(*divmod(part, _SAMPLE)) for part in self.parts[begin:end]]

    def restart(self) -> None:
        """Begin the work, for the first time or anew: then the tokens that its caller has are not given again."""
        self.work.reset()
        self.skipped = len(self.parts)

    def put(self, sample: int, token: int) -> bool:
        """Give a new token to the caller; return False, and give none, if it was given before the work began anew."""
        if self.skipped:
            self.skipped -= 1
            return False
        self.parts.append(sample * _SAMPLE + token)
        if self.bells:      # those of callers that wait for a token
            self.ring()
        return True


@dataclass(eq=False, slots=True)
class Sequence:
    """One text of a work that is in the queue."""

    work: StepWork
    ids: NDArray[np.int64]
    """[at least `length`]: all ids so far, then undefined values. The sequence owns it, unless it never appends."""
    length: int
    """The number of ids so far."""
    first_scored: int
    """The place of the first id after which scores are wanted."""
    wants: tuple[Want, ...] = ALL
    """The scores that are wanted after each id from `first_scored` on, such as the logits or the best words."""
    read: int = 0
    """How many ids the model has read."""
    hypothesis: int | None = None
    """The number by which the decoder knows the ids that it has read; None if it has read none."""
    goal: int = 0
    """The number of its ids for which cells are promised to it."""
    is_back: bool = False
    """Whether it has given way before, so that it comes back before new sequences enter."""

    @property
    def unread(self) -> int:
        """The number of ids that the model has not read."""
        return self.length - self.read

    def row(self, n: int) -> Row:
        """Return the row of a step that reads the next n ids."""
        read, first = self.read, self.first_scored
        end = read + n
        # How many of the ids to read are scored, from `first` on: max(0, end - max(first, read)), but faster.
        scored = 0 if first >= end else end - (first if first > read else read)
        return Row(self.work.number, self.hypothesis, self.ids[read:end], scored, self.wants)

    def append(self, token: int) -> None:
        """Add an id, after which scores are wanted; no earlier id is scored any more."""
        length = self.length
        if length == len(self.ids):
            self.ids = np.concatenate([self.ids, np.empty(max(length, ROOM), np.int64)])
        self.ids[length] = token
        self.first_scored, self.length = length, length + 1


@dataclass
class Outcome:
    """The tokens, results and errors that the groups make of the scores of a step."""

    tokens: list[tuple[StepWork, int, int]] = field(default_factory=list)
    """(work, sample, id) of each new token that is certain. A work that makes no tokens may give numbers of its own in
    their place: `LastLogits` gives (work, 0, index) of each prompt that has its logits."""
    done: dict[StepWork, Any] = field(default_factory=dict)
    """The results of the works that ended."""
    failed: dict[StepWork, EngineError] = field(default_factory=dict)
    """The errors of the works that cannot go on."""
    departed: list[Sequence] = field(default_factory=list)
    """Sequences that do not go on; their work may go on with others."""


class Group(ABC):
    """The works of a queue whose rows compute alike."""

    def __init__(self) -> None:
        """Begin a group without works."""
        self.works: set[StepWork] = set()
        self.live: list[Sequence] = []
        """The sequences of which each step reads one token."""

    def enter(self, work: StepWork) -> None:
        """Add a work, whose first sequence is read from the next step on."""
        self.works.add(work)

    def leave(self, work: StepWork) -> None:
        """Forget a work; it may have left before."""
        self.works.discard(work)
        self.live = [sequence for sequence in self.live if sequence.work is not work]

    def prepare(self, sequences: list[Sequence]) -> None:  # noqa: B027, because most groups have nothing to prepare
        """Set the `wants` of these sequences, which the next step reads; it is called before their rows are made."""

    @abstractmethod
    def advance(self, sequences: list[Sequence], rows: List[Row], scores: Scores, outcome: Outcome) -> None:
        """Continue sequences with their scores, and put tokens, results and errors into `outcome`.

        rows: the row of each sequence in the step. scores: those of these rows alone, in their order.
        """
