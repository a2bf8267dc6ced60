"""Define the interface between a model that runs step by step and the search that drives it.

A hypothesis is a path in a tree of tokens. Each row of a step adds one hypothesis below its parent:

    request 0    [prompt] -- h0 --+-- h2 -- h5        a row (parent h0, one token) made h2
                                  +-- h3              h2 and h3 share the cache rows of h0: nothing is copied
    request 1    [prompt] -- h1 ----- h4

The model computes the logits after the last token of each row. The same row gives the same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..programs.observe import Head


@dataclass(frozen=True)
class Row:
    """One row of a step: new tokens of one hypothesis."""

    request: int
    """The number that `Stepper.open` returned."""
    parent: int | None
    """The hypothesis that the tokens follow; None if they are the whole prompt of the request."""
    tokens: NDArray[np.int64]
    """[n], n at least 1: the ids of the new tokens."""
    every: bool = False
    """True asks for the logits after each of the tokens, instead of only after the last one."""


@dataclass(frozen=True)
class Scores:
    """The result of `Stepper.step` for R rows."""

    hypotheses: NDArray[np.int64]
    """[R]: a new number for each row, to be the parent of later rows."""
    logits: NDArray[np.float32]
    """[R, V]: the logits after the last token of each row. A row with `every` has one line for each of its tokens."""


@dataclass(frozen=True)
class Top:
    """The result of `Stepper.step_top` for R rows."""

    hypotheses: NDArray[np.int64]
    """[R]: a new number for each row, to be the parent of later rows."""
    values: NDArray[np.float32]
    """[R, k]: the k largest logits after the last token of each row, best first, the lowest id first among equals."""
    ids: NDArray[np.int64]
    """[R, k]: the token ids of `values`."""
    log_sum_exp: NDArray[np.float32]
    """[R]: log(sum(exp(logits))) over all V logits. The log probability of a token is its value minus this number."""


@dataclass(frozen=True)
class CacheStatistics:
    """What a decoder holds at the moment."""

    open_requests: int
    """Requests that are computed, or are about to be."""
    waiting_calls: int
    """Calls that wait for another call's pass to end, or for room in the cache."""
    cache_tokens: int
    """Tokens whose keys and values are in the cache."""
    cache_bytes: int
    """Bytes of the cache, free rows and the keys and values of sources included."""


class Stepper(Protocol):
    """A model with a cache of keys and values, which computes one step for rows of many requests at once."""

    @property
    def vocab_size(self) -> int:
        """V, the number of logits of a row."""

    @property
    def longest(self) -> int | None:
        """The most tokens that a hypothesis may have, prompt included; None if there is no limit."""

    def open(self, source: NDArray[np.int64] | None, tokens: int, waits: bool) -> int | None:
        """Begin a request and return its number.

        source: [S], the ids that an encoder reads; None if the model has no encoder. The next step with a row of this
        request encodes its source, together with the sources of other new requests.
        tokens: the most tokens of its hypotheses together. waits: whether to wait while there is no room for them; if
        False, the result is None then. A caller that has requests open must not wait, because other callers may wait
        for these.
        """

    def step(self, rows: Sequence[Row]) -> Scores:
        """Compute the logits after each row, and add one hypothesis for each row."""

    def step_top(self, rows: Sequence[Row], k: int) -> Top:
        """Compute the k largest logits of each row without writing an array [R, V]. No row may set `every`."""

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[Head]) -> NDArray[np.float32]:
        """Return the weights of cross-attention [heads, n, S] for the first n tokens of a request; add no hypothesis.

        The source of the request must be known: a step with one of its rows came before. heads: pairs (layer, head),
        both from 0. Raises `InputError` for a model without cross-attention, or without one of the heads.
        """

    def release(self, hypotheses: Iterable[int]) -> None:
        """Say that no later row has these parents. A cache row is freed when no other hypothesis needs it.

        It never fails, also in a finalizer or a signal handler; `close` neither.
        """

    def close(self, request: int) -> None:
        """End a request: release all its hypotheses, and its source."""
