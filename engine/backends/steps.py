"""Define what a search asks of a model that runs step by step, and what it gets.

A hypothesis is a path in a tree of tokens. Each row of a step adds one hypothesis below its parent:

    request 0    [prompt] -- h0 --+-- h2 -- h5        a row (parent h0, one token) made h2
                                  +-- h3              h2 and h3 share the cache rows of h0: nothing is copied
    request 1    [prompt] -- h1 ----- h4

Each row says which scores it wants. One step computes rows of all kinds together, and reads each weight once. The same
row gives the same bits in any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Row:
    """One row of a step: new tokens of one hypothesis, and the scores that are wanted after them."""

    request: int
    """The number that `Decoder.open` returned."""
    parent: int | None
    """The hypothesis that the tokens follow; None if they are the whole prompt of the request."""
    tokens: NDArray[np.int64]
    """[n], n at least 1: the ids of the new tokens."""
    scored: int = 1
    """After how many of the last tokens scores are wanted, from 0 to n: a row of a later token needs no others."""
    best: int | None = None
    """None asks for all V logits; k, at least 1, for the k largest."""


@dataclass(frozen=True)
class Top:
    """The k largest logits of some lines; a line is one scored token of a row."""

    values: NDArray[np.float32]
    """[K, k]: the k largest logits of each line, best first, the lowest id first among equals."""
    ids: NDArray[np.int64]
    """[K, k]: the token ids of `values`."""
    log_sum_exp: NDArray[np.float32]
    """[K]: log(sum(exp(logits))) over all V logits. The log probability of a token is its value minus this number."""


@dataclass(frozen=True)
class Scores:
    """The result of a step of R rows. The lines of its arrays follow the order of the rows and of their tokens."""

    hypotheses: NDArray[np.int64]
    """[R]: a new number for each row, to be the parent of later rows."""
    finite: NDArray[np.bool_]
    """[R]: False for a row with logits that are NaN or infinite, of which the caller makes an error of its request."""
    logits: NDArray[np.float32]
    """[M, V]: the lines of rows that want all logits."""
    top: Top
    """The lines of rows that want the best logits: as many as the row wants that wants most."""

    def split(self, parts: Sequence[Sequence[Row]]) -> list[Scores]:
        """Return the scores of each part of the rows, which follow each other; of the best, as many as the part wants.

        Arrays are views.
        """
        if len(parts) == 1:
            return [self]
        scores, row, line, chosen = [], 0, 0, 0
        for rows in parts:
            last_row = row + len(rows)
            last_line = line + sum(each.scored for each in rows if each.best is None)
            last_chosen = chosen + sum(each.scored for each in rows if each.best is not None)
            best, k = slice(chosen, last_chosen), max((each.best or 0 for each in rows), default=0)
            top = Top(self.top.values[best, :k], self.top.ids[best, :k], self.top.log_sum_exp[best])
            scores.append(Scores(self.hypotheses[row:last_row], self.finite[row:last_row], self.logits[line:last_line],
                                 top))
            row, line, chosen = last_row, last_line, last_chosen
        return scores

    def of(self, rows: Sequence[Row], stays: Sequence[bool]) -> Scores:
        """Return the scores of some of the rows. rows: of the step; stays: for each, whether it is one of them."""
        kept, lines = np.array(stays), np.array([row.scored for row in rows])
        wants_all = np.array([row.best is None for row in rows])
        written, chosen = (np.repeat(kept[kind], lines[kind]) for kind in (wants_all, ~wants_all))
        top = Top(self.top.values[chosen], self.top.ids[chosen], self.top.log_sum_exp[chosen])
        return Scores(self.hypotheses[kept], self.finite[kept], self.logits[written], top)


@dataclass(frozen=True)
class CacheStatistics:
    """What a decoder holds at the moment."""

    cache_tokens: int
    """Tokens that the cells in use have room for, 16 each; the reference has no cells, and counts tokens."""
    cache_bytes: int
    """Bytes of the cache, free rows and the keys and values of sources included."""
