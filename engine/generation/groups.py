"""Generations, and the groups of them whose rows compute alike, whatever else their settings are.

A group has one search, greedy or with beams, one number of best tokens to look at, and needs all logits or does not.
All other settings belong to a row: temperature, filters, seeds, penalties, end tokens and limits. No row is padded to
more best tokens than it asks for, because NumPy's sums over more columns have other bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Sequence as List
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Row, Scores
from ..base.stop import Stop
from ..model.generation_config import GREEDY_BELOW, GenerationConfig
from ..text.incremental import IncrementalText
from ..text.stops import StopText
from .encoder_decoder import SourceStepper
from .logit_changes import Change, Processor, Removal
from .prefixes import BLOCK, cells_of
from .processors import followers_of, processors_of
from .results import FinishReason, Generated, Request, forced_first, score_of
from .sampling import Filters
from .texts import Texts
from .top_k import Exp
from .works import ROOM, Group, Outcome, Sequence, StepWork

MOST_TOP = 128
"""The engine asks for at most this number of best tokens for the sake of tokens that are always removed, or of top_k;
above it, it asks for all logits."""
ALL = -1
"""Stands for all samples of a request, which share the prompt."""
_RULES = ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "eos_token_id", "min_new_tokens",
          "min_length", "suppress_tokens", "begin_suppress_tokens", "return_timestamps", "no_timestamps_token_id",
          "max_initial_timestamp_index")
"""The settings that rules are made of, beside the penalty and the forced first token."""


@dataclass(eq=False, slots=True)
class Path(Sequence):
    """A hypothesis of a generation."""

    sample: int = ALL
    """The number of the sample that it belongs to; ALL before the model has read the prompt."""
    total: float = 0.0
    """The sum of the log probabilities of its new tokens."""
    numbers: Callable[[], float] | None = None
    """Returns the next uniform number of a sample that is drawn."""
    text: StopText | None = None
    """The text of its new tokens, of a request with stop texts."""

    def fork(self) -> Path:
        """Return a hypothesis with the same ids, of which the model has read the same."""
        self.work.use(self.hypothesis)
        return Path(self.work, self.ids.copy(), length=self.length, first_scored=self.first_scored, best=self.best,
                    read=self.read, hypothesis=self.hypothesis, sample=self.sample, total=self.total,
                    text=None if self.text is None else self.text.fork())


class Generation(StepWork):
    """A request to generate that the model can compute."""

    makes_tokens = True

    def __init__(self, request: Request, source: NDArray[np.int64] | None, packed: Any, prompt: NDArray[np.int64],
                 limit: int, vocab_size: int, make: Callable[[Generation, int], Group],
                 uniforms: NDArray[np.float64] | None = None, exp: Exp = np.exp,
                 new_text: Callable[[], IncrementalText] | None = None) -> None:  # fmt: skip
        """source, prompt: ids [S], or None, and [P]. packed: the source as `SourceStepper.open` takes it.

        limit: the most tokens of a result, prompt included. make: returns a new group for this request and others like
        it. uniforms: the numbers to draw with, [samples, n]. exp: e^x of scores. new_text: returns the text of no
        tokens yet; None without a tokenizer.
        """
        super().__init__()
        self._make = make
        self.request, self.config, self.cache_key = request, request.config, request.cache_key
        self.source_ids, self.packed, self.prompt, self.limit = source, packed, prompt, limit
        self.uniforms, self.exp = uniforms, exp
        config = self.config
        least = max(config.min_new_tokens, config.min_length - len(prompt))     # new tokens that a result has at least
        self.new_text = None if new_text is None else partial(_text_of_none, new_text, config.stop_strings,
                                                              config.include_stop, least)
        self.beams, self.samples = config.num_beams, 1 if config.num_beams > 1 else config.num_return_sequences
        self.reserves = self.rows > 1 or bool(request.heads)
        self.draws = config.do_sample and config.temperature >= GREEDY_BELOW
        """Whether tokens are drawn; otherwise every sample takes the best token."""
        self.ends_at = frozenset(() if config.ignore_eos else config.eos_token_id)
        self.forced_ends = sorted(set(config.forced_eos_token_id))
        self.first = len(prompt) + len(forced_first(config, len(prompt)))
        """The number of ids before the first one that a result shows: of the prompt and a forced first token."""
        self.rules = _rules(config, vocab_size, exp)
        n = config.encoder_no_repeat_ngram_size     # a result may not have n ids in a row that the source has
        self.followers = followers_of(prompt if source is None else source, n) if n else {}
        self.renormalizes = config.renormalize_logits and bool(self.rules) and self.beams > 1
        wanted = self.candidates if self.beams > 1 else config.top_k if self.draws else 1
        self.width = min(wanted, vocab_size)
        """The number of best tokens of a row that the search looks at; 0 is all of them."""
        always = sum(getattr(rule, "most", 0) for rule in self.rules)       # by rules with a fixed set of tokens
        only_removals = all(rule.removes_only for rule in self.rules)
        self.needs_logits = (self.renormalizes or not only_removals or not self.width or self.width + always > MOST_TOP)
        """True if a step must give all logits, to change scores or for many best tokens: by this request alone."""
        self.finished: list[Generated | None] = []
        """The result of each sample, or the best finished results of a beam search, best first."""
        self.source = 0 if source is None else len(source)
        self.tokens_in = self.source + len(prompt)
        # The model does not read the last token. Weights of cross-attention need one more pass over a whole result.
        self.cached = self._cached(limit - 1) + (BLOCK * cells_of(limit) if request.heads else 0)

    def _cached(self, most: int) -> int:
        """Return the tokens of the cells that hypotheses of this many tokens may take."""
        if not self.reserves:
            return most
        shared = len(self.prompt) // BLOCK      # cells of the prompt; all others may be of one hypothesis alone
        # Beams that part inside a cell copy it, while their parents still have theirs.
        return BLOCK * (shared + self.rows * (cells_of(most) - shared) + self.rows - 1)

    def reset(self) -> None:
        """Forget the results."""
        super().reset()
        self.finished = [None] * self.samples if self.beams == 1 else []

    @property
    def candidates(self) -> int:
        """Return the number of candidates of a beam search; each of its rows has up to V of them."""
        return max(2, 1 + len(self.ends_at)) * self.beams

    @property
    def rows(self) -> int:
        return max(self.beams, self.samples)

    @property
    def key(self) -> Hashable:
        """Return the search, and what it looks at: requests with equal ones compute in one group."""
        return self.beams, self.draws, self.width, self.candidates if self.beams > 1 else 0, self.needs_logits

    def group(self, vocab_size: int) -> Group:
        return self._make(self, vocab_size)

    def begin(self) -> list[Sequence]:
        """Return the prompt with the forced first token, which all hypotheses share."""
        ids = np.empty(self.first + ROOM, np.int64)
        ids[: len(self.prompt)] = self.prompt
        ids[len(self.prompt) : self.first] = forced_first(self.config, len(self.prompt))
        return [Path(self, ids, length=self.first, first_scored=self.first - 1,
                     best=None if self.needs_logits else self.width,
                     text=self.new_text() if self.new_text is not None and self.config.stop_strings else None)]

    def completed(self, results: Any, stepper: SourceStepper, stop: Stop) -> Any:
        """Return the results with the weights of cross-attention, if the request wants them."""
        heads, completed = self.request.heads, []
        if not heads:
            return results
        before = [*self.prompt.tolist(), *forced_first(self.config, len(self.prompt))]
        for result in results:
            # The row of a token has the weights of the step that read it and chose the next one: none for the last id.
            tokens = np.array([*before, *result.ids[:-1]], np.int64)
            weights = stepper.attention_weights(self.number, tokens, heads, stop)[:, len(before) - 1 :]
            weights = weights[:, : len(result.ids)]
            completed.append(replace(result, attentions=dict(zip(heads, weights, strict=True))))
        return completed

    def ends(self, results: Any) -> int:
        """Return how many of the results ended with an end token."""
        return sum(result.ended for result in results)

    def result(self, path: Path, last: int, score: float, text: StopText | None) -> Generated:
        """Return a hypothesis with one more token at its end as a result. score, text: of all its tokens."""
        ids = path.ids[self.first : path.length].tolist()
        if last in self.ends_at:
            return self._generated(ids, score, "stop", path.text)
        found = text is not None and text.found is not None
        return self._generated([*ids, last], score, "stop" if found else "length", text)

    def forbidden(self, path: Path) -> Generated:
        """Return a hypothesis, after which no token is allowed, as a result."""
        score = score_of(path.total, path.length - len(self.prompt), self.config.length_penalty)
        return self._generated(path.ids[self.first : path.length].tolist(), score, "forbidden", path.text)

    def _generated(self, ids: list[int], score: float, reason: FinishReason, text: StopText | None) -> Generated:
        return Generated(ids, score, reason, text=None if text is None else text.whole(),
                         stop_text=None if text is None else text.found,
                         seed=self.config.seed if self.draws and self.uniforms is None else None)

    def must_end(self, path: Path) -> bool:
        """Return whether the next token is a forced end token."""
        return bool(self.forced_ends) and path.length == self.limit - 1


def _text_of_none(text: Callable[[], IncrementalText], stops: tuple[str, ...], include: bool, least: int) -> StopText:
    return StopText(text(), stops, include, least)


class Slots:
    """The filters of requests in arrays. Each request has a slot, which is reused after its end."""

    def __init__(self) -> None:
        self._filters = Filters.of([GenerationConfig()])
        self._free = [0]
        self._places: dict[StepWork, int] = {}

    def enter(self, work: StepWork, config: GenerationConfig) -> None:
        """Write the settings of a request into a free slot."""
        if not self._free:
            size = len(self._filters.top_p)
            self._filters = self._filters[np.arange(2 * size) % size]       # twice as many, the old ones first
            self._free = [*range(2 * size - 1, size - 1, -1)]
        slot = self._places[work] = self._free.pop()
        for name, value in vars(Filters.of([config])).items():
            getattr(self._filters, name)[slot] = value[0]

    def leave(self, work: StepWork) -> None:
        """Free the slot of a request."""
        self._free.append(self._places.pop(work))

    def of(self, works: Iterable[StepWork]) -> Filters:
        """Return the filters of rows of these requests."""
        places = self._places
        return self._filters[np.array([places[work] for work in works], np.intp)]


class PathGroup(Group):
    """A group of generations. A subclass says which tokens follow."""

    def __init__(self, like: Generation, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size, self.width, self.needs_logits, self.exp = vocab_size, like.width, like.needs_logits, like.exp
        self._ruled = self._forced = 0
        """The number of requests with rules, and the number of requests with a forced end token."""
        self._changes: list[tuple[list[int], list[Change]]] = []
        """The changes of the scores of this step, and the rows that have them."""
        self._prepared: list[Path] = []     # the hypotheses that `_changes` belong to

    def enter(self, work: StepWork) -> None:
        self._count(work, 1)
        super().enter(work)

    def leave(self, work: StepWork) -> None:
        if work in self.works:
            self._count(work, -1)
        super().leave(work)

    def _count(self, work: StepWork, sign: int) -> None:
        """Count a request (sign 1), or count it no longer (-1), among those with rules and with a forced end token."""
        generation = cast(Generation, work)
        self._ruled += sign * bool(generation.rules)
        self._forced += sign * bool(generation.forced_ends)

    def must_end(self, paths: List[Path]) -> list[int]:
        """Return the places of the hypotheses whose next token is a forced end token."""
        if not self._forced:
            return []
        return [i for i, path in enumerate(paths) if cast(Generation, path.work).must_end(path)]

    def prepare(self, sequences: list[Sequence]) -> None:
        """Find the changes of the scores, and ask for one more best token for each that the changes can remove."""
        paths = cast(list[Path], sequences)
        self._prepared, self._changes = paths, self._changes_of(paths) if self._ruled else []
        if self._ruled and not self.needs_logits:
            for path in paths:
                path.best = self.width
            for rows, changes in self._changes:
                # A group does without all logits only if no rule makes other changes than removals.
                most = min(self.width + sum(cast(Removal, change).most for change in changes), self.vocab_size)
                for row in rows:
                    paths[row].best = most

    def advance(self, sequences: list[Sequence], rows: List[Row], scores: Scores, outcome: Outcome) -> None:
        """Continue hypotheses with the scores of their last tokens."""
        paths = cast(list[Path], sequences)
        if paths is not self._prepared:     # a shorter list, because hypotheses with NaN have left
            self._changes = self._changes_of(paths) if self._ruled else []
        self.live = cast(list[Sequence], self.choose(paths, scores, outcome))

    @abstractmethod
    def choose(self, paths: list[Path], scores: Scores, outcome: Outcome) -> list[Path]:
        """Return the hypotheses that go on, those of a request side by side; put tokens and results into outcome."""

    def changed(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores [R,V] of all tokens with the changes of this step."""
        if self._changes:
            scores = scores.copy()
        for rows, changes in self._changes:
            part = scores if len(rows) == len(scores) else scores[rows]
            for change in changes:
                change.apply(part)
            if part is not scores:
                scores[rows] = part
        return scores

    def removed(self, ids: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return which tokens [R,k] are removed, or None. A group that does without all logits has only removals."""
        if not self._changes:
            return None
        removed = np.zeros(ids.shape, bool)
        for rows, changes in self._changes:
            ids_of_part = ids[rows]
            removed[rows] = np.logical_or.reduce([cast(Removal, change).removes(ids_of_part) for change in changes])
        return removed

    def _changes_of(self, paths: list[Path]) -> list[tuple[list[int], list[Change]]]:
        """Return the changes of the scores of hypotheses, and the rows of those with equal rules."""
        by_rules: dict[tuple[Processor, ...], list[int]] = {}
        for i, path in enumerate(paths):
            rules = cast(Generation, path.work).rules
            if rules:
                by_rules.setdefault(rules, []).append(i)
        changes_of = []
        for rules, rows in by_rules.items():
            texts = Texts.of((path.ids, path.length, len(work.prompt), work.config.repetition_penalty, work.followers)
                             for path, work in ((paths[i], cast(Generation, paths[i].work)) for i in rows))
            changes = [change for change in (rule.change(texts) for rule in rules) if change is not None]
            if changes:
                changes_of.append((rows, changes))
        return changes_of


def _rules(config: GenerationConfig, vocab_size: int, exp: Exp) -> tuple[Processor, ...]:
    """Return the processors of the settings. Requests with equal rules (of any penalty) share them."""
    rules = {name: getattr(config, name) for name in _RULES}
    if config.ignore_eos or not (rules["min_new_tokens"] or rules["min_length"] or rules["bad_words_ids"]
                                 or rules["return_timestamps"]):
        rules["eos_token_id"] = ()        # only these rules look at it
    forced = config.begin_suppress_tokens and config.forced_bos_token_id is not None    # only that rule looks at it
    return _shared_rules(config.repetition_penalty != 1, bool(forced), vocab_size, tuple(rules.items()), exp)


@lru_cache(64)
def _shared_rules(penalty: bool, forced: bool, vocab_size: int, rules: tuple[tuple[str, Any], ...], exp: Exp
                  ) -> tuple[Processor, ...]:
    """Return the processors of these rules. penalty, forced: whether there is one; they do not look at its value."""
    config = GenerationConfig(**dict(rules), repetition_penalty=2.0 if penalty else 1.0,
                              forced_bos_token_id=0 if forced else None)
    return tuple(processors_of(config, vocab_size, exp=exp))
