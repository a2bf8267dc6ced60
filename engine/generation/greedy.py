"""Continue each hypothesis with one token: the best one (greedy search), or a random one (sampling)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Scores
from ..base.errors import InputError, shown
from ..model.generation_config import GREEDY_BELOW, GenerationConfig
from .paths import Children
from .results import Generated, Request, score_of
from .sampling import draw, kept, stream_of_numbers
from .search import Outcome, Search
from .top_k import Exp, best, log_sum_exp, without

ALL = -1
"""Stands for all samples of a request."""


class SingleSearch(Search):
    """Greedy search of, or sampling for, all requests with one `GenerationConfig`.

    The samples of a request share its prompt: the first step has one row for all of them.
    """

    def __init__(self, config: GenerationConfig, vocab_size: int, exp: Exp = np.exp) -> None:
        self.draws = config.do_sample and config.temperature >= GREEDY_BELOW
        """Whether tokens are drawn; otherwise every sample takes the best token."""
        super().__init__(config, vocab_size, config.top_k if self.draws else 1, exp)
        self.samples = np.zeros(0, np.int64)
        """int64 [R]: the sample of each row; ALL for a prompt that the model has not read, and so for all samples."""
        self.numbers: dict[tuple[int, int], Callable[[], float]] = {}
        """The uniform numbers of each live sample, by (number of the request, sample)."""
        self.results: dict[int, list[Generated | None]] = {}
        """The results of each request so far."""

    def add(self, request: Request, owner: int, source: NDArray[np.int64] | None, prompt: NDArray[np.int64],
            limit: int) -> None:  # fmt: skip
        """Begin a request, all samples of it."""
        n = self.config.num_return_sequences
        if self.draws:
            for sample in range(n):
                if request.uniforms is None:
                    self.numbers[owner, sample] = stream_of_numbers(self.config.seed, source, prompt, sample).random
                else:
                    self.numbers[owner, sample] = _given(request.uniforms, n, sample).__next__
        self.samples = np.append(self.samples, ALL)
        self.results[owner] = [None] * n
        super().add(request, owner, source, prompt, limit)

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Keep these rows alone, which are all rows of some requests, and forget the other requests."""
        super().keep(rows)
        live, self.samples = {*self.paths.owners.tolist()}, self.samples[rows]
        self.results = {owner: results for owner, results in self.results.items() if owner in live}
        self.numbers = {pair: numbers for pair, numbers in self.numbers.items() if pair[0] in live}

    def choose(self, scores: Scores, outcome: Outcome) -> Children:
        """Return the live rows after this step."""
        paths, rows, samples = self.paths, np.arange(len(self.paths)), self.samples
        new = samples == ALL
        if new.any():
            n = self.config.num_return_sequences
            rows = np.repeat(rows, np.where(new, n, 1))
            samples = np.where(new[rows], np.arange(len(rows)) - np.searchsorted(rows, rows), samples[rows])
        ids, log_p, dead = self._next(scores, rows, samples)
        totals = paths.totals[rows] + log_p
        ended = dead | self.ends[ids]
        over = ended | (paths.lengths + 1 >= paths.limits)[rows]
        children = zip(paths.owners[rows].tolist(), samples.tolist(), ids.tolist(), ended.tolist(), strict=True)
        outcome.tokens += [(owner, sample, token) for owner, sample, token, last in children if not last]
        if not over.any():      # as after most steps
            self.samples = samples
            return Children(rows, ids, totals)
        for i in np.flatnonzero(over).tolist():
            row = int(rows[i])
            if dead[i]:
                result = self.result(row)
            else:
                length = int(paths.lengths[row] + 1 - paths.prompts[row])
                result = self.result(row, int(ids[i]), score_of(float(totals[i]), length, self.config.length_penalty))
            self._end(int(paths.owners[row]), int(samples[i]), result, outcome)
        live = ~over
        self.samples = samples[live]
        return Children(rows[live], ids[live], totals[live])

    def _next(
        self, scores: Scores, rows: NDArray[np.intp], samples: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
        """Return the next token of each child, its log probability under the model, and where all tokens are removed.

        rows, samples: [children]: the row and the sample of each child.
        """
        ids: NDArray[np.int64] | None = None
        if self.needs_logits:
            values, log_total = scores.logits, log_sum_exp(scores.logits, self.exp)
            if self.changes:
                values = scores.logits.copy()
                for change in self.changes:
                    change.apply(values)
            if self.width:
                values, ids = best(values, self.width)
        else:
            values, ids, log_total = scores.top.values, scores.top.ids, scores.top.log_sum_exp
            removed = self.removed(ids)
            if removed is not None:
                values, ids = without(values, ids, removed, self.width)
        dead = values.max(axis=1) == -np.inf
        if dead.any():
            values = np.where(dead[:, None], np.float32(0), values)
        tokens = self._drawn(values, ids, rows, samples) if ids is None or self.draws else ids[rows, 0]
        if self.needs_logits:
            chosen = scores.logits[rows, tokens]
        elif not self.draws:
            chosen = values[rows, 0]
        else:
            chosen = scores.top.values[rows, (scores.top.ids[rows] == tokens[:, None]).argmax(axis=1)]
        log_p = chosen - log_total.astype(np.float64)[rows]
        ends = self.forced_ends()
        if ends is not None:
            tokens = np.where(ends[rows], min(self.config.forced_eos_token_id), tokens)
            log_p[ends[rows]] = 0
            dead = dead & ~ends
        return tokens, log_p, dead[rows]

    def _drawn(
        self, values: NDArray[np.float32], ids: NDArray[np.int64] | None, rows: NDArray[np.intp],
        samples: NDArray[np.int64],
    ) -> NDArray[np.int64]:  # fmt: skip
        """Return a token for each child, drawn with the next number of its sample."""
        x, ids = kept(values, self.config, ids, self.exp)
        owners = self.paths.owners[rows].tolist()
        u = np.array([self.numbers[pair]() for pair in zip(owners, samples.tolist(), strict=True)])
        columns = draw(x if len(rows) == len(x) else x[rows], u, self.exp)
        return columns if ids is None else ids[rows, columns]

    def _end(self, owner: int, sample: int, result: Generated, outcome: Outcome) -> None:
        """Keep the result of a sample; the request is done with the last one."""
        results = self.results[owner]
        results[sample] = result
        self.numbers.pop((owner, sample), None)
        complete = [r for r in results if r is not None]
        if len(complete) == len(results):
            outcome.done[owner] = complete
            del self.results[owner]


def _given(uniforms: object, samples: int, sample: int) -> Iterator[float]:
    """Yield the numbers of a sample that the request gives."""
    try:
        array = np.asarray(uniforms, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"uniforms must be numbers, a row for each sample: {error}") from error
    if array.ndim != 2 or len(array) != samples or not ((array >= 0) & (array < 1)).all():
        raise InputError(f"uniforms must be {samples} rows of numbers in [0, 1), not {shown(uniforms)}")
    yield from array[sample].tolist()
    raise InputError(f"uniforms must have a number for each token, but its rows have only {array.shape[1]}")
