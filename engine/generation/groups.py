"""`Generation`, a request to generate as a work of the queue, and `PathGroup`, the generations that compute alike.

`checks.py` makes the generations; `SingleGroup` (greedy.py) and `BeamGroup` (beams.py) are the groups. A group has one
search, one number of best tokens to look at, and needs all logits or does not. All other settings belong to a row:
temperature, filters, seeds, penalties, end tokens and limits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Sequence as List
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..backends.choice import change_logits
from ..backends.steps import Row, Scores
from ..backends.wants import ALL as ALL_LOGITS
from ..backends.wants import GREEDY, Changes, Draw, Want
from ..base.stop import Stop
from ..model.generation_config import GREEDY_BELOW
from ..text.incremental import IncrementalText
from ..text.stops import StopText
from .encoder_decoder import SourceStepper
from .prefixes import BLOCK, cells_of
from .processors import Follower, Rules, followers_of
from .results import Echo, FinishReason, Generated, Request, TokenLogprob, forced_first, score_of
from .scoring import row_with_next
from .top_k import Exp
from .works import ROOM, Group, Outcome, Sequence, StepWork

MOST_TOP = 128
"""Above this number of candidates, a beam search asks for all logits."""
ALL = -1
"""Stands for all samples of a request, which share the prompt."""


@dataclass(eq=False, slots=True)
class Path(Sequence):
    """A hypothesis of a generation: its ids so far, their score, and how the next token is chosen."""

    sample: int = ALL
    """The number of the sample that it belongs to; ALL before the model has read the prompt."""
    total: float = 0.0
    """The sum of the log probabilities of its new tokens."""
    numbers: list[Callable[[], float]] = field(default_factory=list)
    """One function for each sample that is drawn from its scores: it returns the sample's next uniform number."""
    follower: Follower | None = None
    """Makes the changes that the rules ask for from the ids so far; None without rules."""
    choice: Want = GREEDY[0]
    """How its next token is chosen."""
    prepared: int = 0
    """The `length` for which `choice` was made: a step that is computed once more must not draw a number twice."""
    text: StopText | None = None
    """The text of its new tokens, of a request with stop texts."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The log probabilities of the new tokens of a beam, if its request wants them."""

    def fork(self) -> Path:
        """Return a copy, which shares the keys and values of the ids that the model has read.

        The fields that are not named keep their defaults. `prepared` 0 lets `prepare` make a choice for its next token;
        `SingleGroup` gives it the `numbers` of its sample; and `goal` and `is_back` are of hypotheses that may give
        way, which no hypothesis of a work that forks does (`StepWork.reserves`).
        """
        self.work.use(self.hypothesis)
        return Path(self.work, self.ids.copy(), length=self.length, first_scored=self.first_scored, wants=self.wants,
                    read=self.read, hypothesis=self.hypothesis, sample=self.sample, total=self.total,
                    follower=self.follower and self.follower.fork(), text=self.text and self.text.fork(),
                    logprobs=self.logprobs)


@dataclass(eq=False, slots=True)
class _EchoedPath(Path):
    """The prompt of a request with echo and logprobs, whose own ids have log probabilities, too.

    Its first rows read all ids but the last one, and want the logits of the id after each; the row that reads the last
    id then wants the first new token.
    """

    def row(self, n: int) -> Row:
        """Return the row of a step that reads the next n ids; until the prompt is scored, it wants each next id."""
        work = cast(Generation, self.work)      # `super()` fails in a dataclass with slots
        return row_with_next(self, n, work.likely) if self.reads_prompt else Sequence.row(self, n)

    @property
    def reads_prompt(self) -> bool:
        """Whether some ids of the prompt have no log probability yet; `ids[:length]` lacks its last id until then."""
        return self.length < cast(Generation, self.work).first


class Generation(StepWork):
    """A request to generate that the model can compute."""

    makes_tokens = True

    def __init__(self, request: Request, source: NDArray[np.int64] | None, packed: Any, prompt: NDArray[np.int64],
                 limit: int, rules: Rules, make: Callable[[Generation, int], Group],
                 uniforms: NDArray[np.float64] | None = None, exp: Exp = np.exp,
                 new_text: Callable[[], IncrementalText] | None = None) -> None:  # fmt: skip
        """Take a request that `checks.py` has checked, and derive all that does not change while it is computed.

        source: the ids that the encoder reads, [S]; None for a model without an encoder.
        packed: the source as `SourceStepper.open` takes it.
        prompt: the ids that the decoder reads first.
        limit: the most tokens of a result, prompt included.
        rules: how the settings of the request change logits.
        make: returns a new group for this request and others with the same `key`.
        uniforms: the numbers to draw with, [samples, n]; None to make them from the seed.
        exp: the exponential function of the backend, so that probabilities have its bits.
        new_text: returns a text of no tokens yet; None without a tokenizer.
        """
        super().__init__()
        self.request, self.config, self.cache_key = request, request.config, request.cache_key
        self.source_ids, self.packed, self.prompt, self.limit = source, packed, prompt, limit
        self.rules, self.uniforms, self.exp, self._make = rules, uniforms, exp, make
        self.source = 0 if source is None else len(source)
        self.tokens_in = self.source + len(prompt)
        self._set_search()
        self._set_tokens(new_text)
        self._set_scores(rules.vocab_size)
        self._set_results()

    def _set_search(self) -> None:
        """Set how many hypotheses there are, how they choose tokens, and the room that they need."""
        config = self.config
        self.beams, self.samples = config.num_beams, 1 if config.num_beams > 1 else config.num_return_sequences
        self.first_sample = 0
        """The index, in the request, of the first sample of this work: more than 0 only after `apart`.

        Sample i of this work draws the numbers of sample `first_sample` + i of the request.
        """
        self.draws = config.do_sample and config.temperature >= GREEDY_BELOW
        """Whether tokens are drawn; otherwise every sample takes the best token."""
        self.draw = Draw(config.temperature, config.top_k, config.top_p, config.min_p) if self.draws else None
        """How they are drawn."""
        self.reserves = self._reserves()
        self.cached = self._most_cached()

    def _set_tokens(self, new_text: Callable[[], IncrementalText] | None) -> None:
        """Set where the new tokens of a result begin and end, and which ones the source forbids."""
        config, size = self.config, len(self.prompt)
        least = max(config.min_new_tokens, config.min_length - size)        # new tokens that a result has at least
        self.new_text = None if new_text is None else (
            lambda: StopText(new_text(), config.stop_strings, config.include_stop, least))
        self.ends_at = frozenset(() if config.ignore_eos else config.eos_token_id)
        """The end tokens: a result ends before one."""
        self.forced_ends = sorted(set(config.forced_eos_token_id))
        """The end tokens of which one must be the last token, at the limit; none: any token may be."""
        self.first = size + len(forced_first(config, size))
        """The number of ids before the first one that a result shows: of the prompt and a forced first token."""
        n = config.encoder_no_repeat_ngram_size     # a result may not have n ids in a row that the source has
        source = self.prompt if self.source_ids is None else self.source_ids
        self.followers = followers_of(source, n, self.rules.vocab_size) if n else {}
        """The runs of n ids of the source, as `followers_of` returns them."""

    def _set_scores(self, vocab_size: int) -> None:
        """Set what a step must give for each row: the best tokens, the likely ones, or all logits. vocab_size: V."""
        config, rules = self.config, self.rules
        self.renormalizes = config.renormalize_logits and bool(rules) and self.beams > 1
        """Whether a beam search makes the probabilities sum to 1 again after the rules have changed them."""
        self.width = min(self.candidates, vocab_size) if self.beams > 1 else 1
        """The number of best tokens of a row that the search looks at, if it draws none."""
        # A step can change logits itself. Log probabilities, which beam search penalizes, are changed after the step.
        changes_log_p = self.beams > 1 and (rules.penalizes or self.renormalizes)
        self.needs_logits = changes_log_p or rules.timestamps is not None or self.width > MOST_TOP
        """Whether a step must give all logits of the rows of this request."""
        self.likely = min(config.logprobs or 0, vocab_size)
        """The number of likely tokens that results list for each place."""
        self.wants = self._wants(vocab_size)
        """What a step gives for a row without rules and without a random draw."""

    def _set_results(self) -> None:
        """Set `echo` and `logprobs`, with which results begin, and `known`, the results, if none has a new token."""
        config, prompt = self.config, self.prompt
        self.finished: list[Generated | None] = []
        """The result of each sample, or the best finished results of a beam search, best first."""
        if config.logprobs is not None:     # `reset` keeps them: a stream reads them, and a repetition has equal ones
            self.logprobs = [[] for _ in range(config.num_return_sequences)]
        if config.echo:
            first = [] if config.logprobs is None else [TokenLogprob(int(prompt[0]), logprob=None)]
            self.echo = Echo(prompt.tolist(), self.request.text, first)
        self.scores_prompt = self.echo is not None and config.logprobs is not None and len(prompt) > 1
        """Whether the ids of the prompt need log probabilities, too."""
        if self.limit == len(prompt) and not self.scores_prompt:
            self.known = self._results_without_tokens()

    def apart(self) -> List[Generation]:
        """Return one work for each sample, to be submitted in place of this work. They make the same samples.

        A server submits these, because each frees its row and its cells as soon as its sample ends, and this work would
        keep all of them to its end. Call it before this work has entered a queue.

        They are shallow copies, which share the request, the rules and the echo: the work that reads the prompt first
        fills the echo. `reset` makes anew what else a computation changes. The keys and values of the prompt are
        computed once for all of them; those of the source, which an encoder reads, once for each.
        """
        if self.samples == 1 or self.known is not None:
            return [self]
        works, config = [], replace(self.config, num_return_sequences=1)
        for sample in range(self.samples):
            work = copy(self)
            work.config, work.samples, work.first_sample = config, 1, self.first_sample + sample
            work.uniforms = None if self.uniforms is None else self.uniforms[sample : sample + 1]
            work.reserves = work._reserves()
            work.cached = work._most_cached()
            if config.logprobs is not None:
                work.logprobs = [[]]
            works.append(work)
        return works

    def _reserves(self) -> bool:
        """Return whether all its room is promised at once (`StepWork.reserves`)."""
        return self.rows > 1 or bool(self.request.heads)

    def _wants(self, vocab_size: int) -> tuple[Want, ...]:
        """Return the `wants` of a row without rules and without a random draw. `PathGroup.prepare` makes all others."""
        if not self.needs_logits:
            return (Want(best=self.width, likely=self.likely),)
        if self.config.logprobs is None:
            return ALL_LOGITS
        # Ask for the logits of all ids by their ids: then the step also gives the log-sum-exp with which `score` works.
        return (Want(ids=np.arange(vocab_size), likely=self.likely),)

    def _results_without_tokens(self) -> list[Generated]:
        """Return the results of a request whose limit allows no new token: one empty result for each sample."""
        empty = self._make_result([], score=0.0, reason="length", text=None)
        result = empty if self.config.logprobs is None else replace(empty, logprobs=())
        return [result] * self.config.num_return_sequences

    def _most_cached(self) -> int:
        """Return the most tokens that it may need room for in the cache (`StepWork.cached`)."""
        most = self.limit - 1       # the model does not read the last token
        if not self.reserves:
            return most
        shared = len(self.prompt) // BLOCK      # full cells of the prompt, which all hypotheses share
        copies = self.rows - 1      # a half-full cell is copied for each fork, while the parent still has its own
        one_more_pass = cells_of(self.limit) if self.request.heads else 0       # for weights of cross-attention
        return BLOCK * (shared + self.rows * (cells_of(most) - shared) + copies + one_more_pass)

    def reset(self) -> None:
        """Forget the results, and all that `StepWork.reset` forgets."""
        super().reset()
        self.finished = [None] * self.samples if self.beams == 1 else []

    @property
    def candidates(self) -> int:
        """How many of the best continuations a beam search looks at in a step, over all beams, as in transformers.

        Even if the end tokens of each beam are all among them, `beams` others are left.
        """
        return max(2, 1 + len(self.ends_at)) * self.beams

    @property
    def rows(self) -> int:
        """The most hypotheses that the request has in one step."""
        return max(self.beams, self.samples)

    @property
    def key(self) -> Hashable:
        """A value that requests of one group have in common: the search, and which scores it reads."""
        candidates = self.candidates if self.beams > 1 else 0
        return self.beams, self.draws, self.width, candidates, self.needs_logits, self.config.logprobs

    def group(self, vocab_size: int) -> Group:
        """Return a new group for works with this key."""
        return self._make(self, vocab_size)

    def begin(self) -> list[Sequence]:
        """Return one hypothesis: the prompt with the forced first token, from which all others fork."""
        ids = np.empty(self.first + ROOM, np.int64)
        ids[: len(self.prompt)] = self.prompt
        ids[len(self.prompt) : self.first] = forced_first(self.config, len(self.prompt))
        follower = Follower(self.rules, len(self.prompt), self.followers) if self.rules else None
        text = self.new_text() if self.new_text is not None and self.config.stop_strings else None
        if self.scores_prompt:      # without the last id, which `after_prompt` adds; `row` makes the wants
            return [_EchoedPath(self, ids, length=self.first - 1, first_scored=0, follower=follower, text=text,
                                wants=(Want(ids=ids[1:2], likely=self.likely),))]
        return [Path(self, ids, length=self.first, first_scored=self.first - 1, follower=follower, text=text,
                     wants=self.wants)]

    def completed(self, results: Any, stepper: SourceStepper, stop: Stop) -> Any:
        """Return the results with the weights of cross-attention, if the request wants them."""
        heads, completed = self.request.heads, []
        if not heads:
            return results
        prefix = [*self.prompt.tolist(), *forced_first(self.config, len(self.prompt))]
        for result in results:
            # The weights [heads, tokens, S] of a token are those of the step that read it and chose the next one.
            tokens = np.array([*prefix, *result.ids[:-1]], np.int64)
            weights = stepper.attention_weights(self.number, tokens, heads, stop)[:, len(prefix) - 1 :]
            weights = weights[:, : len(result.ids)]     # no row for a result without ids
            completed.append(replace(result, attentions=dict(zip(heads, weights, strict=True))))
        return completed

    def note(self, sample: int, place: int, logprob: TokenLogprob) -> None:
        """Keep the log probability of the new token `place` (from 0) of a sample, unless it is there already."""
        if place == len(self.logprobs[sample]):
            self.logprobs[sample].append(logprob)

    def note_prompt(self, path: Path, lines: Iterable[tuple[float, tuple[TokenLogprob, ...]]]) -> None:
        """Keep the log probabilities of ids of the prompt, unless they are there already.

        lines: (log probability, likely tokens) of each id that follows one that the last step has read; the last line
        is that of the id at place `path.read`.
        """
        assert self.echo is not None
        known, listed = self.echo.logprobs, [*lines]
        for place, (log_p, top) in enumerate(listed, path.read + 1 - len(listed)):
            if place == len(known):
                known.append(logprob_of(int(path.ids[place]), log_p, top))

    def after_prompt(self, path: Path, outcome: Outcome) -> list[Path]:
        """Return the paths to go on with when all ids of the prompt have log probabilities.

        There is none if the request wants no new tokens: then this puts its results into `outcome`.
        """
        if self.limit == self.first:
            outcome.departed.append(path)
            outcome.done[self] = self._results_without_tokens()
            return []
        path.append(int(self.prompt[-1]))       # `begin` left it out
        path.wants = self.wants
        return [path]

    def ends(self, results: Any) -> int:
        """Return how many of the results ended with an end token."""
        return sum(result.ended for result in results)

    def result(self, path: Path, last: int, score: float, text: StopText | None) -> Generated:
        """Return the result of a hypothesis (`path`) that ends with one more token, `last`.

        score: of all its tokens with `last`. text: their text, `last` included; None for a request without stop texts.
        An end token is neither among the ids of the result nor in its text.
        """
        ids = path.ids[self.first : path.length].tolist()
        if last in self.ends_at:
            return self._make_result(ids, score, "stop", path.text)
        has_stop_text = text is not None and text.found is not None
        return self._make_result([*ids, last], score, "stop" if has_stop_text else "length", text)

    def result_of_forbidden(self, path: Path) -> Generated:
        """Return the result of a hypothesis after which the rules allow no token."""
        score = score_of(path.total, path.length - len(self.prompt), self.config.length_penalty)
        return self._make_result(path.ids[self.first : path.length].tolist(), score, "forbidden", path.text)

    def _make_result(self, ids: list[int], score: float, reason: FinishReason, text: StopText | None) -> Generated:
        """Return a result with these new ids and this text; with the seed if its numbers have drawn them."""
        return Generated(ids, score, reason, text=None if text is None else text.whole(),
                         stop_text=None if text is None else text.found,
                         seed=self.config.seed if self.draws and self.uniforms is None else None)

    def must_end(self, path: Path) -> bool:
        """Return whether the next token is a forced end token."""
        return bool(self.forced_ends) and path.length == self.limit - 1


def _reads_prompt(path: Path) -> bool:
    """Return whether a path is an echoed prompt, some of whose ids have no log probability yet."""
    return isinstance(path, _EchoedPath) and path.reads_prompt


def logprob_of(token: int, log_p: float, top: tuple[TokenLogprob, ...]) -> TokenLogprob:
    """Return the log probability of a token, rounded to float32 as in `Scored`. top: the likely tokens in its place."""
    return TokenLogprob(token, float(np.float32(log_p)), top)


class PathGroup(Group):
    """A group of generations with one `Generation.key`. The method `choose` of a subclass says which tokens follow."""

    def __init__(self, example: Generation, vocab_size: int) -> None:
        """example: any of the works that will enter, all of which have the same `Generation.key`. vocab_size: V."""
        super().__init__()
        self.vocab_size, self.width, self.needs_logits = vocab_size, example.width, example.needs_logits
        self.exp, self.draws, self.likely = example.exp, example.draws, example.likely
        self.tells_log_p = example.config.logprobs is not None
        """Whether results tell the log probabilities of their tokens."""
        self._ruled_count = self._forced_count = self._echoed_count = 0
        """The number of requests with rules, of those with a forced end token, and of those that score prompts."""

    def enter(self, work: StepWork) -> None:
        """Let a request enter."""
        self._count(work, sign=1)
        super().enter(work)

    def leave(self, work: StepWork) -> None:
        """Forget a request; it may have left before."""
        if work in self.works:
            self._count(work, sign=-1)
        super().leave(work)

    def _count(self, work: StepWork, sign: int) -> None:
        """Add sign (1 or -1) to the count of each rare kind of requests that this work belongs to.

        In a group without requests of a kind, each step skips what only these need.
        """
        generation = cast(Generation, work)
        self._ruled_count += sign * bool(generation.rules)
        self._forced_count += sign * bool(generation.forced_ends)
        self._echoed_count += sign * generation.scores_prompt

    def must_end(self, paths: List[Path]) -> list[int]:
        """Return the indices of the paths whose next token is a forced end token."""
        if not self._forced_count:
            return []
        return [i for i, path in enumerate(paths) if cast(Generation, path.work).must_end(path)]

    def prepare(self, sequences: list[Sequence]) -> None:
        """Set the `choice` of each path, and the `wants` of its next row, by which the step chooses the next token.

        Where the step gives all logits, the group chooses by `choice` afterwards.
        """
        tells_forced = self._forced_count and self.tells_log_p and not self.needs_logits
        if not self._ruled_count and not self.draws and not tells_forced:     # all have the wants of `Generation.begin`
            return
        for path in cast(list[Path], sequences):
            if path.prepared == path.length or (self._echoed_count and _reads_prompt(path)):
                continue
            changes = None if path.follower is None else path.follower.follow(path.ids, path.length)
            path.choice, path.prepared = self.make_choice(path, changes), path.length
            if not self.needs_logits:
                path.wants = (path.choice,)
            if tells_forced and (work := cast(Generation, path.work)).must_end(path):
                path.wants = (replace(path.choice, ids=np.array(work.forced_ends)),)

    def log_p_of_forced(self, paths: List[Path], scores: Scores) -> dict[int, NDArray[np.float64]]:
        """Return, for each path that must end, the model's log probabilities [n] of its n forced end tokens, one of
        which it will get.

        Keys are indices in `paths`; each path has one line of the scores. Empty unless results tell log probabilities.
        """
        log_p, begin = {}, 0
        for place in self.must_end(paths) if self.tells_log_p else ():
            ends = cast(Generation, paths[place].work).forced_ends
            if self.needs_logits:
                logits = self.logits(scores)[place, ends]
            else:       # `given` is flat: the ids that `prepare` asked for, of all these paths one after the other
                logits, begin = scores.chosen.given[begin : begin + len(ends)], begin + len(ends)
            log_p[place] = logits - scores.chosen.log_sum_exp[place].astype(np.float64)
        return log_p

    def logits(self, scores: Scores) -> NDArray[np.float32]:
        """Return all logits [R, V] of a step for requests that need them; `Generation._wants` says in which field."""
        return scores.chosen.given.reshape(-1, self.vocab_size) if self.tells_log_p else scores.logits

    def make_choice(self, path: Path, changes: Changes | None) -> Want:
        """Return how the next token of a hypothesis is chosen, from logits with these changes."""
        return Want(best=self.width, likely=self.likely, changes=changes)

    def advance(self, sequences: list[Sequence], rows: List[Row], scores: Scores, outcome: Outcome) -> None:
        """Continue hypotheses with the scores of their last tokens, and keep in `live` the hypotheses that go on.

        A path that is an echoed prompt chooses no token yet: its scores are noted, and once the prompt is read it goes
        on in the next step (`read_prompts`).
        """
        paths, read_prompts = cast(list[Path], sequences), cast(list[Path], [])
        if self._echoed_count and any(map(_reads_prompt, paths)):
            paths, scores, read_prompts = self._note_prompts(paths, rows, scores, outcome)
        self.live = cast(list[Sequence], [*(self.choose(paths, scores, outcome) if paths else ()), *read_prompts])

    def _note_prompts(self, paths: list[Path], rows: List[Row], scores: Scores, outcome: Outcome
                      ) -> tuple[list[Path], Scores, list[Path]]:
        """Note the log probabilities of the tokens of prompts that this step has read.

        Returns (the other hypotheses, their scores, the hypotheses whose prompt is now read to its end). The next step
        chooses the first token of the last kind.
        """
        read_prompts: list[Path] = []
        reads_prompt = [*map(_reads_prompt, paths)]
        of_prompts = scores.of(rows, reads_prompt)
        log_p = of_prompts.chosen.given - of_prompts.chosen.log_sum_exp.astype(np.float64)
        lines = iter([*zip(log_p.tolist(), self.likely_tokens(of_prompts), strict=True)])   # one for each scored token
        for path, row in compress(zip(paths, rows, strict=True), reads_prompt):
            work = cast(Generation, path.work)
            work.note_prompt(path, [*islice(lines, row.scored)])
            if not path.unread:
                read_prompts += work.after_prompt(path, outcome)
        chooses = [not reads for reads in reads_prompt]
        return [*compress(paths, chooses)], scores.of(rows, chooses), read_prompts

    @abstractmethod
    def choose(self, paths: list[Path], scores: Scores, outcome: Outcome) -> list[Path]:
        """Return the hypotheses that go on, side by side for each request; put tokens and results into `outcome`."""

    def likely_tokens(self, scores: Scores) -> List[tuple[TokenLogprob, ...]]:
        """Return the likely tokens of each line of the scores, the likeliest first; () if results list none."""
        if not self.likely:
            return [()] * (len(scores.logits) + len(scores.chosen.log_sum_exp))
        words, log_total = scores.chosen.likely, scores.chosen.log_sum_exp.astype(np.float64)
        log_p = (words.values.reshape(-1, self.likely) - log_total[:, None]).astype(np.float32)
        return [tuple(map(TokenLogprob, *line))
                for line in zip(words.ids.reshape(-1, self.likely).tolist(), log_p.tolist(), strict=True)]

    def apply_rules(self, paths: List[Path], scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores [R, V] of all tokens, changed by the rules of each path; `scores` itself without rules.

        The changes of this step are in `path.choice`, where `prepare` has put them.
        """
        if not self._ruled_count:
            return scores
        scores = scores.copy()
        for path, line in zip(paths, scores, strict=True):
            if path.follower is not None:
                line[:] = change_logits(line, path.choice.changes)
                work = cast(Generation, path.work)
                if work.rules.timestamps is not None:
                    new_ids = path.ids[len(work.prompt) : path.length]
                    work.rules.timestamps.apply(line, new_ids)
        return scores
