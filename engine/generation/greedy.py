"""Continue each hypothesis with one token: the best one (greedy search), or a random one (sampling)."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import Scores
from ..base.errors import InputError
from .groups import ALL, Generation, Path, PathGroup, Slots
from .results import Generated, score_of
from .sampling import draw, kept, stream_of_numbers
from .top_k import best, log_sum_exp, without
from .works import Outcome, StepWork


class SingleGroup(PathGroup):
    """Greedy search of requests, or sampling for them.

    The samples of a request share its prompt: the first step has one row for all of them.
    """

    def __init__(self, like: Generation, vocab_size: int) -> None:
        super().__init__(like, vocab_size)
        self.draws, self.slots = like.draws, Slots()

    def enter(self, work: StepWork) -> None:
        super().enter(work)
        self.slots.enter(work, cast(Generation, work).config)

    def leave(self, work: StepWork) -> None:
        if work in self.works:
            self.slots.leave(work)
        super().leave(work)

    def choose(self, paths: list[Path], scores: Scores, outcome: Outcome) -> list[Path]:
        """Return the hypotheses that go on after this step."""
        children, rows = self._children(paths)
        tokens, log_p, dead = self._next([path.work for path in paths], children, rows, scores, outcome)
        live = []
        for path, token, token_log_p, is_dead in zip(children, tokens.tolist(), log_p.tolist(), dead.tolist(),
                                                     strict=True):
            work = cast(Generation, path.work)
            if work in outcome.failed:
                continue
            ended, total = is_dead or token in work.ends_at, path.total + token_log_p
            if not ended:
                outcome.tokens.append((work, path.sample, token))
                if path.text is not None:
                    path.text.add(token)
                if path.length + 1 < work.limit and (path.text is None or path.text.found is None):
                    path.append(token)
                    path.total = total
                    live.append(path)
                    continue
            if is_dead:
                result = work.forbidden(path)
            else:
                new = path.length + 1 - len(work.prompt)
                result = work.result(path, token, score_of(total, new, work.config.length_penalty), path.text)
            _end(path, result, outcome)
        return live

    def _children(self, paths: list[Path]) -> tuple[list[Path], NDArray[np.intp]]:
        """Return a hypothesis for each sample, and the row of its scores: a prompt that was read has all samples."""
        if ALL not in [path.sample for path in paths]:      # as in most steps
            return paths, np.arange(len(paths))
        children, rows = [], []
        for i, path in enumerate(paths):
            if path.sample != ALL:
                children.append(path)
                rows.append(i)
                continue
            work = cast(Generation, path.work)
            samples = [path, *(path.fork() for _ in range(work.samples - 1))]
            for sample, child in enumerate(samples):
                child.sample = sample
                if self.draws:
                    child.numbers = (
                        iter(work.uniforms[sample].tolist()).__next__ if work.uniforms is not None else
                        stream_of_numbers(work.config.seed, work.source_ids, work.prompt, sample).random)
            children += samples
            rows += [i] * len(samples)
        return children, np.array(rows, np.intp)

    def _next(self, works: list[StepWork], children: list[Path], rows: NDArray[np.intp], scores: Scores,
              outcome: Outcome) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
        """Return the next token of each child, its log probability under the model, and where all tokens are removed.

        works: the request of each of the R rows of the scores. rows: [children]: the row of each child; a prompt that
        was just read has one row, and a child for each sample.
        """
        ids: NDArray[np.int64] | None = None    # [R, n], of values [R, n]; None: of all V tokens, as with width 0
        if self.needs_logits:
            values, log_total = self.changed(scores.logits), log_sum_exp(scores.logits, self.exp)
            if self.width:
                values, ids = best(values, self.width)
        else:
            values, ids, log_total = scores.top.values, scores.top.ids, scores.top.log_sum_exp
            removed = self.removed(ids)
            if removed is not None:
                values, ids = without(values, ids, removed, self.width)
            elif values.shape[1] > self.width:
                values, ids = values[:, : self.width], ids[:, : self.width]
        dead = values.max(axis=1) == -np.inf
        if dead.any():      # draw any token, which `choose` does not keep: a row of -inf has no probabilities
            values = np.where(dead[:, None], np.float32(0), values)
        tokens = (ids[rows, 0] if ids is not None and not self.draws
                  else self._drawn(values, ids, works, children, rows, outcome))
        # The model's own logits of the tokens, without the changes and the filters, for `Generated.score`.
        if self.needs_logits:
            chosen = scores.logits[rows, tokens]
        elif not self.draws:
            chosen = values[rows, 0]
        else:
            chosen = scores.top.values[rows, (scores.top.ids[rows] == tokens[:, None]).argmax(axis=1)]
        log_p = chosen - log_total.astype(np.float64)[rows]
        dead = dead[rows]
        for i in self.must_end(children):
            tokens[i], log_p[i], dead[i] = cast(Generation, children[i].work).forced_ends[0], 0, False
        return tokens, log_p, dead

    def _drawn(self, values: NDArray[np.float32], ids: NDArray[np.int64] | None, works: list[StepWork],
               children: list[Path], rows: NDArray[np.intp], outcome: Outcome) -> NDArray[np.int64]:  # fmt: skip
        """Return a token for each child, drawn with the next number of its sample; the others are as in `_next`."""
        x, ids = kept(values, self.slots.of(works), ids, self.exp)
        numbers = []
        for child in children:
            assert child.numbers is not None
            try:
                numbers.append(child.numbers())
            except StopIteration:
                work = cast(Generation, child.work)
                assert work.uniforms is not None
                outcome.failed[work] = InputError("uniforms must have a number for each token, but its rows have only "
                                                  f"{work.uniforms.shape[1]}")
                numbers.append(0.0)
        columns = draw(x if len(rows) == len(x) else x[rows], np.array(numbers), self.exp)
        return columns if ids is None else ids[rows, columns]


def _end(path: Path, result: Generated, outcome: Outcome) -> None:
    """Keep the result of a sample; the request is done with the last one."""
    work = cast(Generation, path.work)
    work.finished[path.sample] = result
    outcome.left.append(path)
    if all(one is not None for one in work.finished):
        outcome.done[work] = list(work.finished)
