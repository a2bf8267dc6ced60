"""Choose words by logits in NumPy, as `wants.py` defines it: for the reference and for callers with all logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.functions import exp, log
from .step_checks import finite_rows
from .steps import Chosen, Row, Scores, Words
from .wants import Changes, Draw, LineWants, Want


def choose(logits: NDArray[np.floating], wants: Sequence[Want]) -> Chosen:
    """Choose words by the logits [L, V] of L lines, as each line's want says; computed in the dtype of the logits."""
    log_sum_exp = np.empty(len(wants), np.float32)
    best, likely, given, drawn = _WordLists(), _WordLists(), [np.zeros(0, np.float32)], _WordLists()
    for i, (x, want) in enumerate(zip(logits, wants, strict=True)):
        highest = x[x.argmax()]     # NaN, if a logit is NaN
        with np.errstate(invalid="ignore"):     # inf and NaN give NaN
            log_sum_exp[i] = highest + log(exp(x - highest).sum())
        s = change_logits(x, want.changes)
        if want.best:
            best.add(best_of(s, want.best), s, x)
        if want.likely:
            likely.add(best_of(x, want.likely), x, x)
        if want.ids is not None:
            given.append(x[want.ids].astype(np.float32))
        if want.draw is not None:
            drawn.add(drawn_of(s, want.draw, want.numbers), s, x)
    return Chosen(log_sum_exp, best.words(), likely.words(), np.concatenate(given), drawn.words())


def scores_of(rows: Sequence[Row], wanted: LineWants, hypotheses: NDArray[np.int64], lines: NDArray[np.floating]
              ) -> Scores:
    """Return the scores of a step. lines: all logits [scored tokens, V]. wanted: the rows' wants. hypotheses: [R]."""
    lines = lines.astype(np.float32)
    wants_all = np.repeat([row.wants_logits for row in rows], [row.scored for row in rows])     # of each line
    logits, chosen = lines[wants_all], choose(lines[~wants_all], wanted.wants)
    return Scores(hypotheses, finite_rows(rows, logits, chosen.log_sum_exp), logits, chosen)


def change_logits(logits: NDArray[np.floating], changes: Changes | None) -> NDArray[np.floating]:
    """Return the logits [V] of a line after its penalty, addends and allowed set, in their dtype; a copy if changed."""
    if changes is None:
        return logits
    s, dtype = logits.copy(), logits.dtype.type
    if changes.seen is not None:
        seen = changes.seen.mask()
        penalty = dtype(np.float32(changes.penalty))
        s[seen] = np.where(s[seen] < 0, s[seen] * penalty, s[seen] / penalty)
    if changes.addends is not None:
        s[changes.addends.ids] += changes.addends.values
    if changes.allowed is not None:
        s[~changes.allowed.mask()] = -np.inf
    return s


def best_of(s: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the ids [k] of the k largest numbers of s [V], best first, the lowest id first among equals.

    k is at most V. NaN is never chosen: where fewer than k numbers are left without it, -1 fills the end.
    """
    if k == 1 and not np.isnan(highest := s[s.argmax()]):     # finding the maximum takes a tenth of the time of sorting
        return np.array([(s == highest).argmax()])
    ids = np.argsort(-s, kind="stable")[:k]     # NaN comes last
    return np.where(np.isnan(s[ids]), -1, ids)


def drawn_of(s: NDArray[np.floating], draw: Draw, numbers: Sequence[float]) -> NDArray[np.int64]:
    """Return the id that each of the numbers in [0, 1) draws from the changed logits s [V]: [numbers].

    It is -1 unless the largest logit is finite: none is NaN or inf, and not all are -inf.
    """
    if not np.isfinite(s[s.argmax()]):
        return np.full(len(numbers), -1)
    ids, y = keep_words(s, draw)
    sums = np.cumsum(exp(y - y.max()), dtype=np.float64)
    return ids[np.searchsorted(sums, np.array(numbers) * sums[-1], side="right")]


def keep_words(s: NDArray[np.floating], draw: Draw) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Return the ids [n], ascending, of the words that a draw keeps of changed logits s [V], and their s / temperature.

    At least one logit must be above -inf.
    """
    y = s / s.dtype.type(np.float32(draw.temperature))
    ids = np.flatnonzero(y > -np.inf)
    if draw.min_p:      # the words of min_p do not depend on the others
        kept_by_min_p = y >= y.max() + s.dtype.type(np.float32(draw.log_min_p))
    if 0 < draw.top_k < len(ids) or draw.top_p < 1:
        ids = ids[np.argsort(-s[ids], kind="stable")[: draw.top_k or None]]
    if draw.top_p < 1:
        sums = np.cumsum(exp(y[ids] - y[ids[0]]), dtype=np.float64)
        ids = ids[: 1 + (sums[:-1] < draw.top_p * sums[-1]).sum()]      # the first word, and each with less before it
    if draw.min_p:
        ids = ids[kept_by_min_p[ids]]
    ids = np.sort(ids)
    return ids, y[ids]


class _WordLists:
    """Collects the chosen words of lines, one line after the other, and concatenates them."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]] = [
            (np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32))]

    def add(self, ids: NDArray[np.int64], s: NDArray[np.floating], x: NDArray[np.floating]) -> None:
        """Append the words of a line with changed logits s [V] and own logits x [V]; an id of -1 has logits of -inf."""
        is_word = ids >= 0
        values, own = (np.where(is_word, numbers[ids], -np.inf).astype(np.float32) for numbers in (s, x))
        self._parts.append((ids, values, own))

    def words(self) -> Words:
        """Return the words of all lines."""
        return Words(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
