"""Works for scores: log probabilities of given continuations, the last logits of prompts, and all logits of texts.

They are scores of the model itself: no setting of a generation changes them, and `Scoring` divides logits by a
temperature only if its caller gives one. Each work has its group below it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from collections.abc import Sequence as List
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Row, Scores
from ..backends.wants import ALL, Want
from ..base.errors import EngineError
from .encoder_decoder import SourceStepper
from .lengths import Lengths, check_continuation
from .results import Request, decoder_ids, logits_error
from .top_k import log_sum_exp
from .works import Group, Outcome, Sequence, StepWork

Seen: TypeAlias = Callable[[NDArray[np.float32], NDArray[np.int64]], object]
"""A function of the caller that gets logits [n, V], and the ids [n] of the tokens that follow in these places."""


class Scoring(StepWork):
    """The work that computes log p(id | source, prompt, ids before it) of each id of a continuation."""

    def __init__(self, stepper: SourceStepper, request: Request, continuation: List[int], temperature: float = 1.0,
                 seen: Seen | None = None, lengths: Lengths | None = None):
        """Check a request and its continuation; raises `InputError` for wrong ids.

        Of the settings of a request, only its start token and its prefix count. temperature: logits are divided by it.
        seen: is called with the logits before that. Both need all logits; without them, the logits of the ids of the
        continuation are enough. lengths: the bounds of a model that is ready to run; None for those of the stepper.
        """
        super().__init__()
        source, prompt = decoder_ids(request)
        if lengths is None:
            ids = check_continuation(len(prompt), continuation, stepper.vocab_size, stepper.longest)
        else:
            ids = lengths.check_scored(source, prompt, continuation)
        self.cache_key = request.cache_key
        self.packed, self.tokens, self.prompt = stepper.packed(source), np.concatenate([prompt, ids]), len(prompt)
        self.temperature, self.seen, self.exp = temperature, seen, stepper.exp
        self.source, self.cached = 0 if source is None else len(source), len(self.tokens) - 1
        self.tokens_in, self.known = len(self.tokens) + self.source, None if len(ids) else []
        self.scores: list[float] = []
        """The log probabilities of the first tokens of the continuation."""
        self._shown = 0     # how many of them `seen` has got

    def reset(self) -> None:
        """Forget the scores."""
        super().reset()
        self.scores = []

    def show(self, logits: NDArray[np.float32], targets: NDArray[np.int64]) -> None:
        """Call `seen` with the last logits [n, V] and targets [n], whose scores were just added.

        Scores that come once more after a reset, which `seen` has had, are left out.
        """
        new = len(self.scores) - self._shown
        if self.seen is not None and new > 0:
            self._shown = len(self.scores)
            self.seen(logits[-new:], targets[-new:])

    @property
    def needs_logits(self) -> bool:
        """Whether a step must give all logits: `seen` gets them, and another temperature needs a sum over all words.

        Otherwise the log probability of each next id is enough.
        """
        return self.temperature != 1 or self.seen is not None

    @property
    def key(self) -> Hashable:
        """A value that the works of one group have in common."""
        return type(self).__name__, self.needs_logits

    def group(self, vocab_size: int) -> Group:
        """Return a new group for works with this key."""
        return _Scorings(self.needs_logits)

    def begin(self) -> list[Sequence]:
        """Return the prompt and the continuation, whose last token the model does not read."""
        make, wants = (Sequence, ALL) if self.needs_logits else (_Continuation, (Want(ids=self.tokens[-1:]),))
        return [make(self, self.tokens, length=len(self.tokens) - 1, first_scored=self.prompt - 1, wants=wants)]


@dataclass(eq=False, slots=True)
class _Continuation(Sequence):
    """A prompt and a continuation, after each scored id of which only the logit of the next id is wanted.

    Each place wants another id, so `row` makes the wants anew for each part that is read.
    """

    def row(self, n: int) -> Row:
        """Return the row of a step that reads the next n ids."""
        return row_with_next(self, n)


def row_with_next(sequence: Sequence, n: int, likely: int = 0) -> Row:
    """Return the row that reads the next n ids, and after each scored one of them wants the logit of the id behind it.

    It replaces `sequence.wants`. likely: how many of the likeliest words are wanted in each place, too. `sequence.ids`
    must have at least one id behind the length of the sequence.
    """
    places = range(max(sequence.first_scored, sequence.read) + 1, sequence.read + n + 1)
    sequence.wants = (tuple([Want(ids=sequence.ids[i : i + 1], likely=likely) for i in places])
                      or (Want(ids=sequence.ids[:1]),))     # a row that scores nothing has one want, too
    return Sequence.row(sequence, n)


class _Scorings(Group):
    """The group of `Scoring` works, all of which need all logits, or none of which does."""

    def __init__(self, needs_logits: bool) -> None:
        super().__init__()
        self._needs_logits = needs_logits

    def advance(self, sequences: list[Sequence], rows: List[Row], scores: Scores, outcome: Outcome) -> None:
        """Add the log probabilities of the tokens after the tokens that were read."""
        begin = 0       # the line of the scores at which the next sequence begins
        log_p = scores.chosen.given - scores.chosen.log_sum_exp.astype(np.float64)
        for sequence, row in zip(sequences, rows, strict=True):
            work, end = cast(Scoring, sequence.work), begin + row.scored
            if self._needs_logits:
                self._add(work, scores.logits[begin:end], sequence.read)
            else:
                work.scores += log_p[begin:end].tolist()
            begin = end
            if not sequence.unread:
                outcome.done[work] = work.scores
                outcome.departed.append(sequence)

    def _add(self, work: Scoring, logits: NDArray[np.float32], read: int) -> None:
        """Add the log probabilities of some ids. logits: [n, V] after the last n of the first `read` ids."""
        targets = work.tokens[read + 1 - len(logits) : read + 1]
        scaled = logits / np.float32(work.temperature)
        log_total = log_sum_exp(scaled, work.exp).astype(np.float64)
        work.scores += (scaled[np.arange(len(targets)), targets] - log_total).tolist()
        work.show(logits, targets)


@dataclass(eq=False, slots=True)
class _Prompt(Sequence):
    """One prompt of a `LastLogits`."""

    index: int = 0
    """Its number among the prompts of the work."""


class LastLogits(StepWork):
    """The work that computes some logits after each of several prompts: float32 [prompts, ids].

    A prompt has the same logits, to the last bit, alone and among any others. Before its end, the work gives the index
    of each prompt whose logits are in `scores`, as if it were a token (`Outcome.tokens`).
    """

    def __init__(self, prompts: List[NDArray[np.int64]], ids: List[int] | slice, packed: Any = None, source: int = 0,
                 names: List[str] = ()):
        """ids: of the logits; slice(None) for all. packed, source: the source of the prompts, and its tokens.

        names: what a message calls each prompt; empty where the caller names the work as a whole.
        """
        super().__init__()
        self.prompts, self.ids, self.packed, self.source, self.names = prompts, ids, packed, source, names
        self.cached = max(map(len, prompts), default=0)
        self.scores: list[NDArray[np.float32] | None] = [None] * len(prompts)
        """The logits of each prompt. `reset` keeps them: they come again with the same bits, and may be read by now."""
        self.missing = len(prompts)
        """The number of prompts without logits."""

    def reset(self) -> None:
        """Begin with all prompts again."""
        super().reset()
        self.missing = len(self.prompts)

    @property
    def rows(self) -> int:
        """The number of prompts whose logits are missing."""
        return self.missing

    def group(self, vocab_size: int) -> Group:
        """Return a new group for works with this key."""
        return _LastLogits()

    def begin(self) -> list[Sequence]:
        """Return one sequence for each prompt, after whose last id alone scores are wanted."""
        wants = ALL if isinstance(self.ids, slice) else (Want(ids=np.array(self.ids, np.int64)),)
        return [_Prompt(self, ids, length=len(ids), first_scored=len(ids) - 1, index=i, wants=wants)
                for i, ids in enumerate(self.prompts)]

    def failure(self, sequence: Sequence) -> EngineError:
        """Return the error of a prompt whose logits are NaN or infinite, with the name of the prompt in its message."""
        return logits_error(self.names[cast(_Prompt, sequence).index] if self.names else "")


class _LastLogits(Group):
    """The group of `LastLogits` works."""

    def advance(self, sequences: list[Sequence], rows: List[Row], scores: Scores, outcome: Outcome) -> None:
        """Keep the logits of prompts, each of which comes here once, when its last token has been read.

        `scores.logits` has a line for each prompt that wants all logits; `scores.chosen.given` has the wanted logits of
        all other prompts, one after the other.
        """
        lines, begin = iter(scores.logits), 0
        for sequence in cast(List[_Prompt], sequences):
            work = cast(LastLogits, sequence.work)
            if isinstance(work.ids, slice):
                logits = next(lines)[work.ids]
            else:
                end = begin + len(work.ids)
                logits = scores.chosen.given[begin:end]
                begin = end
            work.scores[sequence.index] = logits.copy()
            work.missing -= 1
            outcome.tokens.append((work, 0, sequence.index))
            if not work.missing:
                outcome.done[work] = np.array(work.scores)
            outcome.departed.append(sequence)


class AllLogits(StepWork):
    """The work that computes all logits after each token of a text, float32 [n, V], also if they are NaN."""

    takes_nan = True

    def __init__(self, ids: NDArray[np.int64], vocab_size: int, packed: Any = None, source: int = 0):
        """ids: [n]: those of the text. packed, source: its packed source, and the number of tokens of that."""
        super().__init__()
        self.tokens, self.packed, self.source, self.cached = ids, packed, source, len(ids)
        self.scores = np.empty((len(ids), vocab_size), np.float32)

    def group(self, vocab_size: int) -> Group:
        """Return a new group for works with this key."""
        return _AllLogits()

    def begin(self) -> list[Sequence]:
        """Return one sequence, the text, after each of whose tokens scores are wanted."""
        return [Sequence(self, self.tokens, length=len(self.tokens), first_scored=0)]


class _AllLogits(Group):
    """The group of `AllLogits` works."""

    def advance(self, sequences: list[Sequence], rows: List[Row], scores: Scores, outcome: Outcome) -> None:
        """Keep the logits of the tokens that were read."""
        begin = 0       # the row of scores.logits at which the logits of the next sequence begin
        for sequence, row in zip(sequences, rows, strict=True):
            work, n = cast(AllLogits, sequence.work), row.scored
            work.scores[sequence.read - n : sequence.read] = scores.logits[begin : begin + n]
            begin += n
            if not sequence.unread:
                outcome.done[work] = work.scores
                outcome.departed.append(sequence)
