"""Define the rows that a search asks of a decoder in a step, and the scores that it gets.

A hypothesis is a path in a tree of tokens. Each row of a step adds one hypothesis below its parent:

    request 0    [prompt] -- h0 --+-- h2 -- h5        a row (parent h0, one token) made h2
                                  +-- h3              h2 and h3 share the cache rows of h0: nothing is copied
    request 1    [prompt] -- h1 ----- h4

Each row says what it wants after its tokens: some or all logits, the best words, or words drawn by given numbers, after
changes of the logits. `wants.py` has the formulas, and `LineWants` the arrays in which native code reads the wants of
all rows. One step computes rows of all kinds together, and reads each weight once. The same row gives the same bits in
any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .wants import ALL, Want


@dataclass(frozen=True)
class Row:
    """One row of a step: the new tokens of one hypothesis, and the wants of the logits after them."""

    request: int
    """The number that `Decoder.open` returned."""
    parent: int | None
    """The hypothesis that the tokens follow; None if they are the whole prompt of the request."""
    tokens: NDArray[np.int64]
    """[n], n at least 1: the ids of the new tokens."""
    scored: int = 1
    """How many of the last tokens have a want, from 0 to n; 0 only caches the keys and values of the tokens."""
    wants: tuple[Want, ...] = ALL
    """One want for each of these tokens, or one that holds for all. Either all of them are for all logits, or none is:
    `step_checks` refuses a mixture, so that the first one tells."""

    @property
    def wants_logits(self) -> bool:
        """Return whether the row wants all logits."""
        return self.wants[0].logits

    @property
    def lines(self) -> tuple[Want, ...]:
        """Return the want of each scored token."""
        return self.wants if len(self.wants) == self.scored else self.wants * self.scored


@dataclass(frozen=True)
class Words:
    """Chosen words of some lines, one line after the other, in arrays [n]."""

    ids: NDArray[np.int64]
    """The ids; -1 where a line has no word to choose."""
    values: NDArray[np.float32]
    """The changed logits; -inf for -1."""
    own: NDArray[np.float32]
    """The model's own logits; -inf for -1."""

    def __getitem__(self, places: slice | NDArray[Any]) -> Words:
        """Return some of the words."""
        return Words(self.ids[places], self.values[places], self.own[places])


@dataclass(frozen=True)
class Chosen:
    """The words and logits of the L lines of a step that do not want all logits; a line is a scored token of a row."""

    log_sum_exp: NDArray[np.float32]
    """[L]: log(sum(exp(x))) over the model's own V logits x. The log probability of a token is its own logit minus
    this number."""
    best: Words
    """The best words of each line, best first."""
    likely: Words
    """The likely words of each line, best first; their values are the model's own logits."""
    given: NDArray[np.float32]
    """The own logits of the ids of each line."""
    drawn: Words
    """The drawn words of each line, one for each number."""


@dataclass(frozen=True)
class Scores:
    """The result of a step of R rows. The lines of its arrays follow the order of the rows and of their tokens."""

    hypotheses: NDArray[np.int64]
    """[R]: a new number for each row, to be the parent of later rows."""
    finite: NDArray[np.bool_]
    """[R]: False for a row with logits that are NaN or infinite, of which the caller makes an error of its request."""
    logits: NDArray[np.float32]
    """[M, V]: the lines of rows that want all logits."""
    chosen: Chosen
    """The other lines."""

    def split(self, parts: Sequence[Sequence[Row]]) -> list[Scores]:
        """Return the scores of each part of the step's rows, which the parts hold in order. Arrays are views."""
        if len(parts) == 1:
            return [self]
        zero = np.zeros(7, np.int64)        # `_sizes` of no rows
        sizes = [np.sum([_sizes(row) for row in rows], axis=0) if rows else zero for rows in parts]
        ends = np.cumsum([zero, *sizes], axis=0).tolist()       # where each part ends in the 7 kinds of arrays
        return [self._select(list(map(slice, begin, end))) for begin, end in pairwise(ends)]

    def of(self, rows: Sequence[Row], stays: Sequence[bool]) -> Scores:
        """Return the scores of some rows. rows: all rows of the step. stays: whether each row is among them."""
        return self._select([np.repeat(np.array(stays), sizes) for sizes in zip(*map(_sizes, rows), strict=True)])

    def _select(self, places: Sequence[slice | NDArray[np.bool_]]) -> Scores:
        """Return a part of the scores. places: which entries of each kind of array, in the order of `_sizes`."""
        rows, written, lines, best, likely, given, drawn = places
        chosen = Chosen(self.chosen.log_sum_exp[lines], self.chosen.best[best], self.chosen.likely[likely],
                        self.chosen.given[given], self.chosen.drawn[drawn])
        return Scores(self.hypotheses[rows], self.finite[rows], self.logits[written], chosen)


def _sizes(row: Row) -> tuple[int, ...]:
    """Return how many entries a row has in each kind of array of `Scores`: 1 hypothesis, the lines of all logits, the
    other lines, and the best, likely, given and drawn words of these lines.
    """
    if row.wants_logits:
        return 1, row.scored, 0, 0, 0, 0, 0
    if len(row.wants) == 1:     # one want for all lines, as nearly always
        return 1, 0, row.scored, *(row.scored * count for count in _counts(row.wants[0]))
    return 1, 0, row.scored, *map(sum, zip(*map(_counts, row.wants), strict=True))


def _counts(want: Want) -> tuple[int, int, int, int]:
    """Return how many best, likely, given and drawn words a line with this want has."""
    return want.best, want.likely, 0 if want.ids is None else len(want.ids), len(want.numbers)


@dataclass(frozen=True)
class CacheStatistics:
    """How much the cache of a decoder holds at the moment."""

    cache_tokens: int
    """Tokens that the cells in use have room for, 16 each, kept ones included; the reference has no cells, and counts
    tokens."""
    cache_bytes: int
    """Bytes of the cache, free rows and the keys and values of sources included."""
