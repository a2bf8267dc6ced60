"""`BeamGroup`: search with beams, as transformers 5 does (`generation/utils.py: _beam_search`).

A request has up to num_beams = W live beams, and begins with one. In each step

1. the candidates are the max(2, 1 + end tokens) * W best continuations of all its beams, by the sum of the log
   probabilities; equal sums go by beam, then by token id;
2. a candidate ends if its token is an end token or completes a stop text, or if it has its greatest length. One that
   ends and is among the first W candidates is finished, with the score sum / new_tokens^length_penalty; the W best
   finished ones are kept;
3. the first W candidates that do not end are the new live beams;
4. the request ends if no beam is live, or if W results are finished and the stopping rule holds (`GenerationConfig`).

There is one difference: where the settings leave fewer than W candidates, transformers fills up with copies of score
-1e9 and may return them; here there are fewer beams, and maybe fewer results than num_return_sequences.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import replace
from itertools import compress, islice, repeat
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Scores
from ..text.stops import StopText
from .groups import Generation, Path, PathGroup, logprob_of
from .results import Generated, TokenLogprob, score_of
from .top_k import best, log_sum_exp
from .works import Outcome

Candidate: TypeAlias = tuple[int, int, float, StopText | None, tuple[TokenLogprob, ...]]
"""(row, token, total, text, logprobs): the row of a beam in the step, and a token that may continue it. The other three
are of the beam with this token: the sum of its log probabilities, its text (None without stop texts), and the log
probabilities of its new tokens (empty unless results tell them)."""


class BeamGroup(PathGroup):
    """Beam searches with equally many beams and candidates."""

    def __init__(self, example: Generation, vocab_size: int) -> None:
        """example, vocab_size: as for `PathGroup`."""
        super().__init__(example, vocab_size)
        self.beams, self.candidates = example.beams, example.candidates

    def choose(self, paths: list[Path], scores: Scores, outcome: Outcome) -> list[Path]:
        """Return the live beams after this step; the results and tokens of requests that end go into `outcome`. paths:
        the live beams before it, side by side for each request; path i has row i of the scores."""
        runs, W = _runs(paths), self.beams
        first = np.array([begin for _, begin, _ in runs])
        counts = np.array([count for _, _, count in runs])
        # Each of these four arrays is [requests, candidates].
        sums, rows, tokens, model_log_p = self._candidates(paths, scores, first, counts)
        live, likely = cast(list[Path], []), self.likely_tokens(scores)
        for (work, begin, count), *columns in zip(runs, rows.tolist(), tokens.tolist(), sums.tolist(),
                                                  model_log_p.tolist(), strict=True):
            parents = paths[begin : begin + count]
            new = parents[0].length + 1 - len(work.prompt)      # new tokens of each beam, after this step
            is_full = parents[0].length + 1 >= work.limit
            of_rows, next_tokens, totals, _ = columns
            best_go_on = len(totals) >= W and totals[W - 1] > -np.inf and work.ends_at.isdisjoint(next_tokens[:W])
            may_end = not best_go_on or is_full or len(work.finished) == W
            if not may_end and parents[0].text is None and not self.tells_log_p:
                # In this usual case no candidate can end, so the first W candidates are the new beams.
                going_on: list[Candidate] = [*islice(zip(of_rows, next_tokens, totals, repeat(None), repeat(())), W)]
                live += _continue_beams(paths, begin, parents, going_on, outcome)
                continue
            candidates = [(row, token, total, _text_after(paths[row], token),
                           (*paths[row].logprobs, logprob_of(token, log_p, likely[row])) if self.tells_log_p else ())
                          for row, token, total, log_p in zip(*columns, strict=True) if total > -np.inf]
            beams = _finish_ended(work, paths, candidates, new, is_full)
            if beams and not _is_over(work, beams[0][2], new):
                live += _continue_beams(paths, begin, parents, beams, outcome)
            else:
                _end(work, parents, outcome)
        return live

    def _candidates(self, paths: list[Path], scores: Scores, first: NDArray[np.intp], counts: NDArray[np.intp]
                    ) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.int64], NDArray[np.float64]]:
        """Return (sums, rows, tokens, the model's log probabilities) of each request's best candidates, best first.

        Each is [requests, candidates]; a sum of -inf stands for no candidate. first, counts: [requests]: the first row
        of each request, and the number of its rows.
        """
        values, ids, model_log_p = self._log_probabilities(paths, scores)
        sums = values + np.array([path.total for path in paths])[:, None]
        R, k = sums.shape
        beams = int(counts.max())
        if len(first) * beams > R:  # some requests have fewer beams: pad these with beams whose sums are -inf
            beam = np.arange(R) - np.repeat(first, counts)      # the number of each row in its request
            padded = np.full((len(first), beams, k), -np.inf)
            padded[np.repeat(np.arange(len(first)), counts), beam] = sums
            sums = padded
        sums = sums.reshape(len(first), beams * k)
        order = np.argsort(-sums, axis=1, kind="stable")[:, : self.candidates]
        # A number in `order` is beam * k + place. The row of a padded beam may lie behind the last row, so bound it.
        rows = np.minimum(first[:, None] + order // k, R - 1)
        columns = rows, order % k
        return np.take_along_axis(sums, order, axis=1), rows, ids[columns], model_log_p[columns]

    def _log_probabilities(self, paths: list[Path], scores: Scores
                           ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Return (changed log probabilities, ids, the model's log probabilities) of each row's best tokens: [R, k].

        The third array is valid only if results tell log probabilities (`self.tells_log_p`). A row whose next token is
        forced has its forced end tokens in place of its best tokens, each with the changed log probability 0.
        """
        values, ids, model_log_p = self._best_tokens(paths, scores)
        forced = self.must_end(paths)
        if not forced:
            return values, ids, model_log_p
        values, ids, model_log_p = values.copy(), ids.copy(), model_log_p.copy()
        of_forced = self.log_p_of_forced(paths, scores)
        for i in forced:
            ends = cast(Generation, paths[i].work).forced_ends[: values.shape[1]]
            values[i] = -np.inf
            values[i, : len(ends)] = 0
            ids[i, : len(ends)] = ends
            if of_forced:
                model_log_p[i, : len(ends)] = of_forced[i][: len(ends)]
        return values, ids, model_log_p

    def _best_tokens(self, paths: list[Path], scores: Scores
                     ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the arrays of `_log_probabilities` as if no token were forced.

        They come from all logits if the requests need them, and otherwise from the best words of the step.
        """
        model_log_p: NDArray[np.float64]
        totals = scores.chosen.log_sum_exp.astype(np.float64)[:, None]
        if self.needs_logits:
            own_logits = self.logits(scores)
            changed = self.apply_rules(paths, own_logits - log_sum_exp(own_logits, self.exp)[:, None])
            # As in transformers, these requests are renormalized in every step, even if no rule changed their scores:
            # another log-sum-exp of log probabilities can change their last bits.
            rows = [i for i, path in enumerate(paths) if cast(Generation, path.work).renormalizes]
            if rows:
                logits = changed[rows]
                changed[rows] = logits - log_sum_exp(logits, self.exp)[:, None]
            top, ids = best(changed, self.width)
            values = model_log_p = top.astype(np.float64)
            if self.tells_log_p:
                model_log_p = np.take_along_axis(own_logits, ids, axis=1) - totals
        else:
            words = scores.chosen.best
            ids = words.ids.reshape(-1, self.width)
            values = model_log_p = words.values.reshape(-1, self.width) - totals
            if self.tells_log_p:
                model_log_p = words.own.reshape(-1, self.width) - totals
        return values, ids, model_log_p


def _text_after(path: Path, token: int) -> StopText | None:
    """Return a new text, that of a beam with one more token; None for a request without stop texts."""
    if path.text is None:
        return None
    text = path.text.fork()
    text.add(token)
    return text


def _continue_beams(paths: list[Path], begin: int, parents: list[Path], beams: list[Candidate], outcome: Outcome
                    ) -> list[Path]:
    """Return the new live beams of a request, and put its old beams without a child into `outcome.departed`.

    parents: its old beams, which are paths[begin : begin + len(parents)]. beams: one candidate for each new beam, best
    first. The last child of a beam is the old object itself, which grows; its other children are forked before that.
    """
    last = {row: i for i, (row, *_) in enumerate(beams)}        # the index of the last child of each row
    children = []
    for i, (row, token, total, text, logprobs) in enumerate(beams):
        child = paths[row] if last[row] == i else paths[row].fork()
        child.append(token)
        child.total, child.text, child.logprobs = total, text, logprobs
        children.append(child)
    if len(last) < len(parents):
        outcome.departed += [path for row, path in enumerate(parents, begin) if row not in last]
    return children


def _finish_ended(work: Generation, paths: list[Path], candidates: list[Candidate], new: int, is_full: bool
                  ) -> list[Candidate]:
    """Finish each of the first W candidates that ends; return the first W of all candidates that do not end.

    candidates: of one request, best first. new: the number of their new tokens. is_full: whether that is the limit.
    """
    W = work.beams
    ends = [is_full or token in work.ends_at or (text is not None and text.found is not None)
            for _, token, _, text, _ in candidates]
    for candidate in compress(candidates[:W], ends):
        _finish(work, paths, candidate, new)
    return [candidate for candidate, end in zip(candidates, ends, strict=True) if not end][:W]


def _end(work: Generation, parents: list[Path], outcome: Outcome) -> None:
    """Put the results and the tokens of a request into `outcome`. parents: its beams before this step."""
    if not work.finished:  # every continuation is forbidden
        work.finished = [*sorted((work.result_of_forbidden(path) for path in parents), key=_best_first)]
    results = cast(list[Generated], work.finished)[: work.config.num_return_sequences]
    for logprobs, result in zip(work.logprobs, results, strict=False):
        logprobs[:] = result.logprobs or ()
    outcome.done[work] = results
    outcome.tokens += [(work, i, token) for i, result in enumerate(results) for token in result.ids]


def _finish(work: Generation, paths: list[Path], candidate: Candidate, new: int) -> None:
    """Put the result of a candidate that ends into `work.finished`, which keeps the W best results, best first.

    paths: those of the step, by row. new: the number of new tokens of the candidate.
    """
    row, token, total, text, logprobs = candidate
    score = score_of(total, new, work.config.length_penalty)
    finished = cast(list[Generated], work.finished)
    if len(finished) == work.beams:
        if score <= finished[-1].score:
            return
        del finished[-1]
    result = work.result(paths[row], token, score, text)
    if work.config.logprobs is not None:
        result = replace(result, logprobs=logprobs[: len(result.ids)])
    insort(finished, result, key=_best_first)


def _best_first(result: Generated) -> float:
    """Return the key that sorts results by descending score."""
    return -result.score


def _is_over(work: Generation, total: float, new: int) -> bool:
    """Return whether a request ends. total, new: the sum of the log probabilities of its best live beam, and the
    number of the new tokens of that beam."""
    config, finished = work.config, cast(list[Generated], work.finished)
    if len(finished) < work.beams:
        return False
    if config.early_stopping is True:
        return True
    penalty = config.length_penalty
    # "never" compares the best score that the beam can still reach: with a penalty above 0, at the greatest length.
    length = work.limit - len(work.prompt) if config.early_stopping == "never" and penalty > 0 else new
    return score_of(total, length, penalty) <= finished[-1].score


def _runs(paths: list[Path]) -> list[tuple[Generation, int, int]]:
    """Return (request, its first row, the number of its rows) of each request, whose rows are side by side."""
    runs: list[tuple[Generation, int, int]] = []
    for i, path in enumerate(paths):
        if runs and runs[-1][0] is path.work:
            runs[-1] = runs[-1][0], runs[-1][1], runs[-1][2] + 1
        else:
            runs.append((cast(Generation, path.work), i, 1))
    return runs
