"""Draw tokens: the temperature, the filters top-k, top-p and min-p, and random numbers that do not depend on a batch.

    x_i = logit_i / temperature
    top_k   keeps the k tokens with the largest x
    top_p   keeps a token if the tokens before it, best first, have less than top_p of the probability of all kept ones
    min_p   keeps a token if its probability is at least min_p times the probability of the best one

The token is the first one, in the order of the ids, at which the cumulative probability of the kept tokens passes a
number u that is uniform in [0, 1). A request draws the number u of each step from the generator Philox (Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3", 2011), four numbers from each block of it. The key is the hash of seed,
source and prompt, and the counter is (1 + step // 4, 0, 0, sample).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.functions import log
from ..model.generation_config import GenerationConfig
from .top_k import Exp, parts


def stream_of_numbers(seed: int, source: NDArray[np.int64] | None, prompt: NDArray[np.int64], sample: int
                      ) -> np.random.Generator:
    """Return the generator of the uniform numbers of one sample of a request."""
    hashed = [f"{seed} {-1 if source is None else len(source)} {len(prompt)}".encode()]
    hashed += [np.asarray(ids, "<i8").tobytes() for ids in (source, prompt) if ids is not None]
    key = int.from_bytes(hashlib.blake2b(b" ".join(hashed), digest_size=16).digest(), "little")
    # A counter has 256 bits in four words; NumPy adds 1 to the lowest one before each block of four numbers.
    return np.random.Generator(np.random.Philox(key=key, counter=sample << 192))


@dataclass(frozen=True)
class Filters:
    """How tokens are drawn in each of R rows: arrays [R]."""

    temperature: NDArray[np.float32]
    top_p: NDArray[np.float64]
    """1 for none."""
    log_min_p: NDArray[np.float32]
    """The logarithm of min_p; -inf for none."""

    @classmethod
    def of(cls, configs: Iterable[GenerationConfig]) -> Filters:
        """Return the filters of rows with these settings."""
        rows = [(config.temperature, config.top_p, float(log(config.min_p)) if config.min_p else -np.inf)
                for config in configs]
        temperature, top_p, log_min_p = (np.array(column) for column in zip(*rows, strict=True))
        return cls(temperature.astype(np.float32), top_p.astype(np.float64), log_min_p.astype(np.float32))

    def __getitem__(self, rows: Any) -> Filters:
        """Return the filters of some of the rows."""
        return Filters(self.temperature[rows], self.top_p[rows], self.log_min_p[rows])


def kept(scores: NDArray[np.float32], filters: Filters, ids: NDArray[np.int64] | None = None, exp: Exp = np.exp
         ) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """Return x = logit / temperature of the tokens that the filters keep, and -inf for others: [R, n].

    scores: logits [R, n]. With ids [R, n], they are the top_k best tokens of each row, best first, and -inf for fewer;
    without ids they are the scores of all V tokens. Also returns the ids [R, n], ascending in each row where x is
    above -inf, or None if n is V and x[r, i] belongs to token i.
    """
    x = scores / filters.temperature[:, None]
    by_top_p, by_min_p = filters.top_p < 1, filters.log_min_p > -np.inf
    for part in parts(*x.shape):        # slices of rows
        chosen = by_top_p[part]
        if chosen.all():
            _filter_top_p(x[part], filters.top_p[part], exp)
        elif chosen.any():
            copied = x[part][chosen]
            _filter_top_p(copied, filters.top_p[part][chosen], exp)
            x[part][chosen] = copied
        if by_min_p[part].any():
            top = x[part].max(axis=1, keepdims=True)
            x[part][x[part] < top + filters.log_min_p[part, None]] = -np.inf        # p < min_p * best p, in logarithms
    if ids is not None:
        order = np.argsort(ids, axis=1, kind="stable")
        x, ids = np.take_along_axis(x, order, axis=1), np.take_along_axis(ids, order, axis=1)
    return x, ids


def draw(x: NDArray[np.float32], u: NDArray[np.float64], exp: Exp = np.exp) -> NDArray[np.int64]:
    """Return the first column of each row at which the probabilities softmax(x) add up to more than u in [0, 1): [R].

    x: [R, n], with at least one value above -inf in each row.
    """
    columns = np.empty(len(x), np.int64)
    for part in parts(*x.shape):
        cumulative = np.cumsum(exp(x[part] - x[part].max(axis=1, keepdims=True)), axis=1, dtype=np.float64)
        columns[part] = (cumulative <= (u[part] * cumulative[:, -1])[:, None]).sum(axis=1)
    return columns


def _filter_top_p(x: NDArray[np.float32], top_p: NDArray[np.float64], exp: Exp) -> None:
    """Set the tokens that top_p [R] removes to -inf in x [R, n]; the best token stays, the first among equals."""
    values = -np.sort(-x, axis=1)
    with np.errstate(invalid="ignore"):     # a row of -inf gives NaN, and keeps its first token
        cumulative = np.cumsum(exp(values - values[:, :1]), axis=1, dtype=np.float64)
    better = cumulative[:, :-1]     # for each token but the best: the sum over the tokens before it
    count = 1 + (better < top_p[:, None] * cumulative[:, -1:]).sum(axis=1, keepdims=True)       # of tokens that stay
    last = np.take_along_axis(values, count - 1, axis=1)        # the value of the last token that stays
    count -= (x > last).sum(axis=1, keepdims=True)      # how many tokens of this value stay: the first ones
    equal = x == last
    x[(x < last) | (equal & (np.cumsum(equal, axis=1) > count))] = -np.inf
