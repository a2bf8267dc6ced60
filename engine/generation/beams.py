"""Search with beams, as transformers 5 does (`generation/utils.py: _beam_search`).

A request has up to num_beams = W live beams, and begins with one. In each step

1. the candidates are the max(2, 1 + end tokens) * W best continuations of all its beams, by the sum of the log
   probabilities; equal sums go by beam, then by token id;
2. a candidate ends if its token is an end token, or if it has its greatest length. One that ends and is among the first
   W candidates is finished, with the score sum / new_tokens^length_penalty; the W best finished ones are kept;
3. the first W candidates that do not end are the new live beams;
4. the request ends if no beam is live, or if W results are finished and the stopping rule holds (`GenerationConfig`).

There is one difference: where the settings leave fewer than W candidates, transformers fills up with copies of score
-1e9 and may return them; here there are fewer beams, and maybe fewer results than num_return_sequences.
"""

from __future__ import annotations

from bisect import insort

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Scores
from ..model.generation_config import GenerationConfig
from .paths import Children
from .results import Generated, score_of
from .search import Outcome, Search
from .top_k import Exp, best, log_sum_exp


class BeamSearch(Search):
    """The beam search of all requests with one `GenerationConfig`."""

    def __init__(self, config: GenerationConfig, vocab_size: int, exp: Exp = np.exp) -> None:
        self.candidates = max(2, 1 + len(set(config.eos_token_id))) * config.num_beams
        """The number of candidates of a request; each of its rows has up to V of them."""
        super().__init__(config, vocab_size, self.candidates, exp)
        if config.renormalize_logits and self.processors:
            self.needs_logits = True
        self.finished: dict[int, list[Generated]] = {}
        """The best finished results of each request, best first."""

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Keep these rows alone, which are all rows of some requests, and forget the other requests."""
        super().keep(rows)
        live = {*self.paths.owners.tolist()}
        self.finished = {owner: results for owner, results in self.finished.items() if owner in live}

    def choose(self, scores: Scores, outcome: Outcome) -> Children:
        """Return the live beams after this step."""
        W, paths = self.config.num_beams, self.paths
        owners, first, counts = _requests(paths.owners)
        sums, rows, tokens = self._candidates(scores, first, counts)
        new = paths.lengths[first] + 1 - paths.prompts[first]
        full = paths.lengths[first] + 1 >= paths.limits[first]
        ends = self.ends[tokens] | full[:, None]
        waits = np.array([len(self.finished.get(owner, ())) < W for owner in owners])
        # Nothing ends, and there are W candidates: they are the live beams.
        plain = waits & (sums[:, :W] > -np.inf).all(axis=1) & ~ends[:, :W].any(axis=1) & (sums.shape[1] >= W)
        live = [(rows[plain, :W].ravel(), tokens[plain, :W].ravel(), sums[plain, :W].ravel())]
        for b in np.flatnonzero(~plain).tolist():
            found = [*zip(rows[b].tolist(), tokens[b].tolist(), sums[b].tolist(), strict=True)]
            found = found[: int((sums[b] > -np.inf).sum())]
            finished = self.finished.setdefault(owners[b], [])
            for (row, token, total), end in zip(found[:W], ends[b].tolist(), strict=False):
                if end:
                    self._finish(finished, row, token, score_of(total, int(new[b]), self.config.length_penalty))
            beams = [candidate for candidate, end in zip(found, ends[b].tolist(), strict=False) if not end][:W]
            most = int(paths.limits[first[b]] - paths.prompts[first[b]])
            if beams and not self._is_over(finished, beams[0][2], int(new[b]), most):
                at, ids, totals = zip(*beams, strict=True)
                live.append((np.array(at), np.array(ids), np.array(totals)))
                continue
            if not finished:  # every continuation is forbidden
                ended = [self.result(row) for row in range(first[b], first[b] + counts[b])]
                finished = sorted(ended, key=lambda result: -result.score)
            results = outcome.done[owners[b]] = finished[: self.config.num_return_sequences]
            outcome.tokens += [(owners[b], i, token) for i, result in enumerate(results) for token in result.ids]
            del self.finished[owners[b]]
        return Children(*(np.concatenate(columns) for columns in zip(*live, strict=True)))

    def _candidates(
        self, scores: Scores, first: NDArray[np.intp], counts: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.int64]]:
        """Return the sums, rows and tokens of the best candidates of each request, best first: [requests, candidates].

        first, counts: the first row of each request, and the number of its rows. A sum of -inf stands for no candidate.
        """
        values, ids = self._log_probabilities(scores)
        sums = values + self.paths.totals[:, None]
        R, k = sums.shape
        beams = int(counts.max())
        if len(first) * beams > R:  # some requests have fewer beams
            slot = np.arange(R) - np.repeat(first, counts)
            padded = np.full((len(first), beams, k), -np.inf)
            padded[np.repeat(np.arange(len(first)), counts), slot] = sums
            sums = padded
        sums = sums.reshape(len(first), beams * k)
        order = np.argsort(-sums, axis=1, kind="stable")[:, : self.candidates]
        rows = np.minimum(first[:, None] + order // k, R - 1)
        return np.take_along_axis(sums, order, axis=1), rows, ids[rows, order % k]

    def _log_probabilities(self, scores: Scores) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the changed log probabilities of the best tokens of each row, and their ids: [R, k]."""
        if self.needs_logits:
            changed = scores.logits - log_sum_exp(scores.logits, self.exp)[:, None]
            for change in self.changes:
                change.apply(changed)
            # Also where nothing changed: other requests of the batch decide whether there are changes.
            if self.config.renormalize_logits and self.processors:
                changed -= log_sum_exp(changed, self.exp)[:, None]
            top, ids = best(changed, self.width)
            values = top.astype(np.float64)
        else:
            ids = scores.top.ids
            values = scores.top.values - scores.top.log_sum_exp.astype(np.float64)[:, None]
            removed = self.removed(ids)
            if removed is not None:
                values[removed] = -np.inf
        ends = self.forced_ends()
        if ends is not None:
            eos = sorted(set(self.config.forced_eos_token_id))[: values.shape[1]]
            ids = ids.copy()
            values[ends] = -np.inf
            values[ends, : len(eos)] = 0
            ids[ends, : len(eos)] = eos
        return values, ids

    def _finish(self, finished: list[Generated], row: int, token: int, score: float) -> None:
        """Put a finished result among the best ones, if it is one of them."""
        if len(finished) == self.config.num_beams:
            if score <= finished[-1].score:
                return
            del finished[-1]
        insort(finished, self.result(row, token, score), key=lambda result: -result.score)

    def _is_over(self, finished: list[Generated], total: float, new: int, most: int) -> bool:
        """Return whether a request ends whose best live beam has this sum, and `new` of its `most` new tokens."""
        if len(finished) < self.config.num_beams:
            return False
        if self.config.early_stopping is True:
            return True
        penalty = self.config.length_penalty
        length = most if self.config.early_stopping == "never" and penalty > 0 else new
        return score_of(total, length, penalty) <= finished[-1].score


def _requests(owners: NDArray[np.int64]) -> tuple[list[int], NDArray[np.intp], NDArray[np.intp]]:
    """Return the numbers of the requests, the first row of each, and the number of its rows."""
    ends = np.append(np.flatnonzero(owners[1:] != owners[:-1]) + 1, len(owners))
    counts = ends.copy()
    counts[1:] -= ends[:-1]
    first = ends - counts
    return owners[first].tolist(), first, counts
