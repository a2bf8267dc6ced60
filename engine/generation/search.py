"""Define a search: it names the rows of the next step for its requests, and takes the scores of these rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Row, Scores, Top
from ..model.generation_config import GenerationConfig
from .logit_changes import Change, Removal
from .paths import Children, Paths
from .processors import NoRepeatOfSource, processors_of
from .results import Generated, Request, score_of
from .top_k import Exp

MOST_TOP = 128
"""The engine asks for at most this number of best tokens for the sake of tokens that are always removed, or of top_k;
above it, it asks for all logits."""


@dataclass
class Outcome:
    """The outcome of a step of a search."""

    tokens: list[tuple[int, int, int]] = field(default_factory=list)
    """(number of the request, sample, id) of each new token that is certain."""
    done: dict[int, list[Generated]] = field(default_factory=dict)
    """The results of the requests that ended, by the number of the request."""
    failed: set[int] = field(default_factory=set)
    """The numbers of the requests that ended because the model computed NaN for a hypothesis of theirs."""
    released: list[int] = field(default_factory=list)
    """Hypotheses of requests that go on, which will not be parents any more."""


def forced_first(config: GenerationConfig, prompt: int) -> list[int]:
    """Return the tokens that follow a prompt of this number of tokens without a choice, and that no result shows."""
    first = config.forced_bos_token_id
    return [first] if first is not None and prompt == 1 else []


class Search(ABC):
    """The search of all requests with one `GenerationConfig`. A subclass says which tokens follow."""

    def __init__(self, config: GenerationConfig, vocab_size: int, width: int, exp: Exp) -> None:
        self.config, self.vocab_size, self.exp = config, vocab_size, exp
        self.width = min(width, vocab_size)
        """The number of best tokens of a row that the search looks at; 0 is all of them."""
        self.paths = Paths()
        self.processors = processors_of(config, vocab_size, exp)
        always = sum(getattr(processor, "most", 0) for processor in self.processors)
        only_removals = all(processor.removes_only for processor in self.processors)
        self.needs_logits = not only_removals or not self.width or self.width + always > MOST_TOP
        """True if the step must give all logits; it does not change, whatever else is in the batch."""
        self.ends = np.zeros(vocab_size, bool)
        """bool [V]: which tokens are end tokens."""
        self.ends[list(config.eos_token_id)] = True
        self.changes: list[Change] = []
        """The changes of this step."""
        self.removals: list[Removal] = []
        """The changes that are removals: all of them, unless the search needs all logits."""

    def add(self, request: Request, owner: int, source: NDArray[np.int64] | None, prompt: NDArray[np.int64],
            limit: int) -> None:  # fmt: skip
        """Begin a request. owner: its number in the model; limit: its most tokens, prompt included."""
        for processor in self.processors:
            if isinstance(processor, NoRepeatOfSource):
                processor.add(owner, prompt if source is None else source)
        forced = np.array(forced_first(self.config, len(prompt)), np.int64)
        self.paths.add(owner, np.concatenate([prompt, forced]), len(prompt), limit)

    def rows(self) -> list[Row]:
        """Return the rows of the next step, and prepare the changes of their scores."""
        self._prepare()
        best = min(self.width + sum(removal.most for removal in self.removals), self.vocab_size)
        return self.paths.rows(None if self.needs_logits else best)

    def _prepare(self) -> None:
        self.changes = [c for c in (processor.change(self.paths) for processor in self.processors) if c is not None]
        self.removals = [change for change in self.changes if isinstance(change, Removal)]

    def advance(self, scores: Scores, outcome: Outcome) -> None:
        """Continue each request with the scores of the rows that `rows` returned; add certain tokens to the outcome."""
        if not scores.finite.all():
            scores = self._without_failed(scores, outcome)
            if not len(self.paths):
                return
            self._prepare()
        paths, hypotheses = self.paths, scores.hypotheses
        children = self.choose(scores, outcome)
        # Lists, because a step of few rows touches less memory with them than with functions of NumPy.
        goes_on, kept = [owner not in outcome.done for owner in paths.owners.tolist()], {*children.rows.tolist()}
        parents = {parent for parent, on in zip(paths.parents.tolist(), goes_on, strict=True) if on and parent >= 0}
        outcome.released += parents
        outcome.released += [number for i, number in enumerate(hypotheses.tolist()) if goes_on[i] and i not in kept]
        paths.step(children, hypotheses)

    def _without_failed(self, scores: Scores, outcome: Outcome) -> Scores:
        """End the requests of rows with NaN, and return the scores of the other rows."""
        owners = self.paths.owners
        outcome.failed |= {*owners[~scores.finite].tolist()}
        rows = np.flatnonzero([owner not in outcome.failed for owner in owners.tolist()])
        self.keep(rows)
        top = scores.top
        lines = rows if self.needs_logits else rows[:0], rows[:0] if self.needs_logits else rows
        return Scores(scores.hypotheses[rows], scores.finite[rows], scores.logits[lines[0]],
                      Top(top.values[lines[1]], top.ids[lines[1]], top.log_sum_exp[lines[1]]))

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Keep these rows alone, which are all rows of some requests, and forget the other requests."""
        self.paths.keep(rows)

    @abstractmethod
    def choose(self, scores: Scores, outcome: Outcome) -> Children:
        """Return the children that go on; put new tokens and results into outcome."""

    def removed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return which of these tokens [R, k] are removed; None if there is no removal."""
        masks = [removal.removes(ids) for removal in self.removals]
        return np.logical_or.reduce(masks) if masks else None

    def result(self, row: int, last: int | None = None, score: float | None = None) -> Generated:
        """Return a row as a result. last: its last token, if it is new; score: of both, if there is a new token."""
        start, end = int(self.paths.prompts[row]), int(self.paths.lengths[row])
        if score is None:
            score = score_of(float(self.paths.totals[row]), end - start, self.config.length_penalty)
        ids = self.paths.tokens[row, start + len(forced_first(self.config, start)) : end].tolist()
        ended = last in self.config.eos_token_id
        return Generated(ids if last is None or ended else [*ids, last], score, ended)

    def forced_ends(self) -> NDArray[np.bool_] | None:
        """Return the rows whose next token is a forced end token: bool [R]; None if there are none."""
        if not self.config.forced_eos_token_id:
            return None
        ends = self.paths.lengths == self.paths.limits - 1
        return ends if ends.any() else None
