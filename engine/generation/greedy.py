"""`SingleGroup`: the group that continues each hypothesis with one token: the best one (greedy search), or one that a
random number draws (sampling)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..backends.choice import choose
from ..backends.steps import Scores, Words
from ..backends.wants import Changes, Want
from ..base.errors import InputError
from .groups import ALL, Generation, Path, PathGroup, logprob_of
from .results import Generated, score_of
from .sampling import stream_of_numbers
from .top_k import log_sum_exp
from .works import Outcome, StepWork


class SingleGroup(PathGroup):
    """Requests with greedy search, or requests with sampling.

    The samples of a request share its prompt: the first step has one row for all of them.
    """

    def __init__(self, example: Generation, vocab_size: int) -> None:
        """example, vocab_size: as for `PathGroup`."""
        super().__init__(example, vocab_size)
        self._exhausted: set[Generation] = set()
        """The requests that need another random number, and have used up the numbers of their callers (`uniforms`)."""

    def leave(self, work: StepWork) -> None:
        """Forget a request; it may have left before."""
        super().leave(work)
        self._exhausted.discard(cast(Generation, work))

    def make_choice(self, path: Path, changes: Changes | None) -> Want:
        """Return how the next token of a hypothesis is chosen; sampling uses up one random number of each sample."""
        if not self.draws:
            return super().make_choice(path, changes)
        return Want(draw=cast(Generation, path.work).draw, likely=self.likely, numbers=self._next_numbers(path),
                    changes=changes)

    def _next_numbers(self, path: Path) -> tuple[float, ...]:
        """Take the next number of each sample that is drawn from the scores of a hypothesis.

        If a request has used up the random numbers of its caller (`uniforms`), this returns zeros and notes
        it as exhausted, and `choose` makes an error of it.
        """
        work = cast(Generation, path.work)
        if not path.numbers:    # the model has just read the prompt, which all samples share
            path.numbers = [_numbers_of(work, sample) for sample in range(work.samples)]
        try:
            return tuple([number() for number in path.numbers])
        except StopIteration:
            self._exhausted.add(work)
            return (0.0,) * len(path.numbers)

    def choose(self, paths: list[Path], scores: Scores, outcome: Outcome) -> list[Path]:
        """Return the hypotheses that go on; tokens, results and errors go into `outcome`. Path i has row i."""
        children, rows = self._children(paths)
        tokens, log_p, scored_log_p, dead = self._next_tokens(paths, children, rows, scores)
        for work in self._exhausted & {cast(Generation, path.work) for path in paths} if self._exhausted else ():
            assert work.uniforms is not None
            outcome.failed[work] = InputError("uniforms must have a number for each token, but its rows have only "
                                              f"{work.uniforms.shape[1]}")
        live, likely = [], self.likely_tokens(scores)
        for path, row, token, token_log_p, token_scored_log_p, is_dead in zip(
                children, *(column.tolist() for column in (rows, tokens, log_p, scored_log_p, dead)), strict=True):
            work = cast(Generation, path.work)
            if work in outcome.failed:
                continue
            ended, total = is_dead or token in work.ends_at, path.total + token_log_p
            if not ended:
                if self.tells_log_p:
                    work.note(path.sample, path.length - work.first, logprob_of(token, token_scored_log_p, likely[row]))
                outcome.tokens.append((work, path.sample, token))
                if path.text is not None:
                    path.text.add(token)
                if path.length + 1 < work.limit and (path.text is None or path.text.found is None):
                    path.append(token)
                    path.total = total
                    live.append(path)
                    continue
            if is_dead:
                result = work.result_of_forbidden(path)
            else:
                new = path.length + 1 - len(work.prompt)
                result = work.result(path, token, score_of(total, new, work.config.length_penalty), path.text)
            if self.tells_log_p:
                result = replace(result, logprobs=tuple(work.logprobs[path.sample][: len(result.ids)]))
            _end(path, result, outcome)
        return live

    def _children(self, paths: list[Path]) -> tuple[list[Path], NDArray[np.intp]]:
        """Return (the hypotheses that get a next token, the row of the scores of each).

        A path goes on as itself; a prompt that was just read becomes a hypothesis for each sample, all with its row.
        """
        if ALL not in [path.sample for path in paths]:      # as in most steps
            return paths, np.arange(len(paths))
        children, rows = [], []
        for i, path in enumerate(paths):
            if path.sample != ALL:
                children.append(path)
                rows.append(i)
                continue
            work = cast(Generation, path.work)
            samples, numbers = [path, *(path.fork() for _ in range(work.samples - 1))], path.numbers
            for sample, child in enumerate(samples):
                child.sample, child.numbers = sample, numbers[sample : sample + 1]
            children += samples
            rows += [i] * len(samples)
        return children, np.array(rows, np.intp)

    def _next_tokens(self, paths: list[Path], children: list[Path], rows: NDArray[np.intp], scores: Scores
                     ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Return (tokens, log_p, scored_log_p, dead), each [children].

        tokens: the next ids. log_p: their log probabilities under the model, as `Generated.score` adds them: 0 for a
        forced token. scored_log_p: the same with the bits of `Scored`, for results that tell them. dead: whether no
        token is allowed.

        paths: the hypothesis of each row of the scores, R of them. children, rows: as `_children` returns them.
        """
        if self.needs_logits:
            logits = self.logits(scores)
            words, log_total = self._choose_from_logits(paths, logits), log_sum_exp(logits, self.exp)
        else:
            words, log_total = scores.chosen.drawn if self.draws else scores.chosen.best, scores.chosen.log_sum_exp
        if not self.draws:      # words of rows become words of children; drawn words are of children already
            words = words[rows]
        # `Generated.score` is of the model's own logits of the tokens, without the rules and the filters.
        log_p = scored_log_p = words.own - log_total.astype(np.float64)[rows]
        if self.needs_logits and self.tells_log_p:
            scored_log_p = words.own - scores.chosen.log_sum_exp.astype(np.float64)[rows]
        tokens, dead = words.ids.copy(), np.isneginf(words.values)
        if forced := self.must_end(children):
            scored_log_p, log_p_of_rows = scored_log_p.copy(), self.log_p_of_forced(paths, scores)
            for i in forced:
                tokens[i], log_p[i], dead[i] = cast(Generation, children[i].work).forced_ends[0], 0, False
                scored_log_p[i] = log_p_of_rows[int(rows[i])][0] if log_p_of_rows else 0
        return tokens, log_p, scored_log_p, dead

    def _choose_from_logits(self, paths: list[Path], logits: NDArray[np.float32]) -> Words:
        """Choose the next words of hypotheses from all their logits [R, V]; `Words.own` has the unchanged logits."""
        wants = [replace(path.choice, changes=None) for path in paths]      # `apply_rules` makes the changes
        found = choose(self.apply_rules(paths, logits), wants)
        words = found.drawn if self.draws else found.best
        own = np.repeat(logits, [len(want.numbers) or 1 for want in wants], axis=0)     # one line for each word
        return replace(words, own=own[np.arange(len(own)), words.ids])


def _numbers_of(work: Generation, sample: int) -> Callable[[], float]:
    """Return a function that returns a sample's next number, by the seed or from `uniforms`; it raises `StopIteration`
    where these end."""
    if work.uniforms is not None:
        return iter(work.uniforms[sample].tolist()).__next__
    number = work.first_sample + sample
    return stream_of_numbers(work.config.seed, work.source_ids, work.prompt, number).random


def _end(path: Path, result: Generated, outcome: Outcome) -> None:
    """Keep the result of a sample, whose hypothesis ends; with the last sample, put all results into `outcome.done`."""
    work = cast(Generation, path.work)
    work.finished[path.sample] = result
    outcome.departed.append(path)
    if all(finished is not None for finished in work.finished):
        outcome.done[work] = list(work.finished)
