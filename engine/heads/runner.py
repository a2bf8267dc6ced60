"""`HeadRunner`: run the steps of a head on the token vectors of an encoder: gather rows, then compute on these alone.

Every step computes each row by itself, in one order, so no bit of a result depends on the other texts of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..backends.batch import lengths_of
from ..backends.ops_interface import Ops
from ..base.errors import InputError, UnsupportedError
from ..base.functions import tanh
from ..base.lazy import lazy
from ..base.ranges import ranges
from ..base.stop import Stop
from ..encoding.call import PLAIN, Call
from ..encoding.text_encoder import TextEncoder
from ..encoding.vector_encoder import Packed, VectorEncoder
from ..model.head import HeadConfig, HeadLinear, HeadNorm, HeadNormalize, Mean, Step
from ..queues.work import Work
from ..text.tokens import Tokens
from ..uncertainty.probabilities import probabilities
from ..weights.calibration import Calibration
from ..weights.head import Head
from ..weights.modules import normalize, sigmoid, softmax

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "identity": lambda x: x,
    "tanh": tanh,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "sigmoid": sigmoid,
    "softmax": softmax,
}
"""Functions that NumPy computes here: functions of logits [n, labels], and `tanh`, which backends lack."""
LOGITS_AT_A_TIME = 2**24
"""The most logits that are computed at a time (64 MiB), unless one sequence has more."""
MAXIMA_AT_A_TIME = 2**21
"""The most maxima that are computed at a time, unless one sequence has more; two arrays of them are alive together."""


class HeadRunner:
    """One head, with the encoder whose vectors it reads. Several threads may use it at once."""

    def __init__(self, head: Head, encoder: VectorEncoder, ops: Ops, words: Callable[[], np.ndarray],
                 calibration: Calibration | None = None):
        """encoder: its vectors are the input. ops: computes the steps. words: returns the word table, float32 [V, E],
        which is the weight of a tied step. calibration: that of the logits; None for a head that is not calibrated.
        """
        self.config: HeadConfig = head.config
        self.calibration = calibration
        self.vector_encoder = encoder
        """Computes the vectors that the head reads, of texts or of images."""
        self.ops = ops
        self._weights, self._words = head.weights, words

    @property
    def encoder(self) -> TextEncoder:
        """The `vector_encoder` of a model of texts; raises `UnsupportedError` for a model of images."""
        if not isinstance(self.vector_encoder, TextEncoder):
            raise UnsupportedError("this model reads images, and no texts")
        return self.vector_encoder

    def logits(self, tokens: Tokens, call: Call = PLAIN, asked: Sequence[np.ndarray] | None = None) -> Work:
        """Return the work, for the queue, whose results are the logits of sequences; None for one without logits.

        Logits are float32 [rows, outputs], for the rows of the sequence that the head reads, or [1, outputs] of a head
        with one result for each sequence. asked: the positions to read in each sequence, for a head of rows "asked".
        """
        most = None     # the most sequences of a batch
        if asked is not None:       # bound the logits of a batch, as if each sequence had as many as the longest
            tokens = replace(tokens, asked=[*asked])
            most = max(1, LOGITS_AT_A_TIME // (self.config.outputs * max(1, *map(len, asked))))
        return self.vector_encoder.work(self._compute_logits, tokens, call, most)

    def _compute_logits(self, packed: Packed, stop: Stop) -> list[np.ndarray | None]:
        """Return the logits of each sequence of a batch, None for one without. The queue calls it for `logits`."""
        tokens, batch, _ = packed
        vectors = self.vector_encoder.vectors(batch, stop)
        places: list[np.ndarray | None] = [None] * len(tokens.input_ids) if tokens.asked is None else [*tokens.asked]
        if self.config.passed_id is not None:       # the head reads the last token that has not this id
            places = [last_other(ids, self.config.passed_id) for ids in tokens.input_ids]
        rows, ends = gather(vectors, batch.cu_seqlens, self.config.rows, places, self.config.passed_rows)
        return [logits if len(logits) else None for logits in self._run_in_slices(rows, ends)]

    def _run_in_slices(self, rows: np.ndarray, ends: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the logits of each sequence, float32 [rows, outputs]. rows, ends: as `gather` returns them.

        At most `LOGITS_AT_A_TIME` are computed at a time: 1,000 rows of 250,000 logits would take a gigabyte.
        """
        most = max(1, LOGITS_AT_A_TIME // self.config.outputs)
        for part in ranges(lengths_of(ends).tolist(), most):
            start, end = ends[part.start], ends[part.stop]
            logits, ends_of_part = self._run(rows[start:end], ends[part.start : part.stop + 1] - start)
            yield from (logits[first:last] for first, last in pairwise(ends_of_part.tolist()))

    def _run(self, rows: np.ndarray, ends: np.ndarray, steps: Sequence[Step] | None = None
             ) -> tuple[np.ndarray, np.ndarray]:
        """Return (results of the steps [M', D'], where the results of each sequence end [B+1]).

        rows: float32 [M, D]. ends: [B+1]: where the rows of each sequence end, from 0 on. steps: None for all of them.
        """
        for step in self.config.steps if steps is None else steps:
            if isinstance(step, HeadLinear):
                rows = self._run_linear(step, rows)
            elif isinstance(step, HeadNorm):
                rows = self.ops.layer_norm(rows, self._weights[f"{step.name}.weight"],
                                           self._weights.get(f"{step.name}.bias"), step.eps)
            elif isinstance(step, HeadNormalize):
                rows = normalize(rows)
            else:
                assert isinstance(step, Mean)
                rows, ends = mean(rows, ends)
        return rows, ends

    def maxima(self, vectors: np.ndarray, ends: np.ndarray) -> Iterator[np.ndarray]:
        """Yield for each sequence the maximum of each output over its rows: float32 [outputs], -inf without rows.

        vectors: float32 [M, D]. ends: [B+1]: where the rows of each sequence end. No array [M, outputs] is made: the
        last step is a GEMM that keeps the largest number of each column. It must be one (`ends_in_a_product`).
        """
        rows = self._run(vectors, ends, self.config.steps[:-1])[0]
        most = max(1, MAXIMA_AT_A_TIME // self.config.outputs)
        parts = [rows[start:end] for start, end in pairwise(ends.tolist())]
        for first in range(0, len(parts), most):
            yield from self.ops.column_maxima(parts[first : first + most], self._columns)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the calibrated probabilities of classes, float64 [n, K], by logits [n, K].

        For logits [n, 1] of a single label, they are the probabilities [n, 2] of "no" and "yes".
        """
        assert self.calibration is not None
        return probabilities(logits, self.calibration.temperature, self.calibration.bias)

    @property
    def ends_in_a_product(self) -> bool:
        """Whether the last step is a linear map without activation, so that `maxima` can be called."""
        last = self.config.steps[-1]
        return isinstance(last, HeadLinear) and last.activation == "identity"

    @lazy
    def _columns(self) -> Any:
        """The packed weight and bias of the last step, for `Ops.column_maxima`."""
        step = self.config.steps[-1]
        assert isinstance(step, HeadLinear)
        return self.ops.columns(self._weight(step), self._weights.get(f"{step.name}.bias"))

    def words(self, vectors: np.ndarray) -> np.ndarray:
        """Return the outputs of all steps for token vectors [M, D], each row by itself: float32 [M, outputs]."""
        return self._run(vectors, np.array([0, len(vectors)]))[0]

    def numbers(self, vectors: np.ndarray) -> np.ndarray:
        """Return one number for each token, float32 [N], by all steps but the last, `Scatter`, which needs the ids.

        vectors: float32 [N, D]: those of the encoder; D = 1 if the encoder computes the numbers itself.
        """
        return self._run(vectors, np.array([0, len(vectors)]), self.config.steps[:-1])[0][:, 0]

    def _run_linear(self, step: HeadLinear, rows: np.ndarray) -> np.ndarray:
        """Return a linear step of rows [M, in]: [M, size]; NumPy computes activations that backends lack."""
        by_numpy = step.activation in FUNCTIONS and step.activation != "relu"       # backends have relu
        bias = self._weights.get(f"{step.name}.bias")
        product = self.ops.linear(np.ascontiguousarray(rows), self._weight(step), bias,
                                  activation=None if by_numpy else step.activation, residual=None)
        return FUNCTIONS[step.activation](product) if by_numpy else product

    def _weight(self, step: HeadLinear) -> np.ndarray:
        """Return the weight of a linear step, float32 [size, in]: its own, or the word table if it is tied."""
        return self._words() if step.tied else self._weights[f"{step.name}.weight"]


def last_other(ids: np.ndarray, passed: int) -> np.ndarray:
    """Return the position of the last id that is not `passed`, int64 [1]: 0 if all are, as in transformers.

    Without ids the result is empty, int64 [0].
    """
    others = np.flatnonzero(np.asarray(ids) != passed)
    return others[-1:] if len(others) else np.arange(len(ids))[:1]


def gather(vectors: np.ndarray, cu_seqlens: np.ndarray, rows: str,
           asked: Sequence[np.ndarray | None], passed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return (the rows [M, D] of token vectors [N, D] that a head reads, where the rows of each sequence end [B+1]).

    A sequence without tokens has no rows. The rows "first_two" and "first_mean" are [B, 2 D]; they are those of images,
    which have at least two tokens.

    cu_seqlens: [B+1]: where the tokens of each sequence end. rows: one of `engine.model.head.ROWS`. passed: for
    "first_mean", `HeadConfig.passed_rows`. asked: the positions of every sequence, for "asked", and for "last" if any
    sequence reads another token than its last; otherwise all None.
    """
    starts, ends = cu_seqlens[:-1].astype(np.int64), cu_seqlens[1:].astype(np.int64)
    if rows == "all":
        return vectors, np.append(0, ends)
    if rows == "first_two":
        return np.concatenate([vectors[starts], vectors[starts + 1]], axis=1), np.arange(len(ends) + 1)
    if rows == "first_mean":
        means = [vectors[start + 1 + passed : end].mean(axis=0) for start, end in zip(starts, ends, strict=True)]
        return np.concatenate([vectors[starts], np.array(means)], axis=1), np.arange(len(ends) + 1)
    if rows == "rest":
        places = [np.arange(start + 1, end) for start, end in zip(starts, ends, strict=True)]
    elif rows == "asked" or (rows == "last" and any(positions is not None for positions in asked)):
        places = [start + np.asarray(positions, np.int64) for start, positions in zip(starts, asked, strict=True)]
    else:
        places = [np.array([start if rows == "first" else end - 1])[: end - start]      # empty for an empty sequence
                  for start, end in zip(starts, ends, strict=True)]
    return vectors[np.concatenate([np.zeros(0, np.int64), *places])], np.append(0, np.cumsum([*map(len, places)]))


def mean(rows: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (the mean of the rows of each sequence, where the mean of each sequence ends [B+1]).

    rows: float32 [M, D]. ends: [B+1]: where the rows of each sequence end. A sequence without rows has no mean.
    """
    means = [rows[start:end].sum(axis=0) / np.float32(end - start) for start, end in pairwise(ends.tolist())
             if start < end]
    counts = np.minimum(lengths_of(ends), 1)
    return np.array(means, np.float32).reshape(len(means), rows.shape[1]), np.append(0, np.cumsum(counts))


def top(scores: Sequence[float] | np.ndarray, k: int | None) -> list[int]:
    """Return the indices of the k largest scores, the largest first, equal ones in their order; k: None for all."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    return [int(i) for i in order[:k]]


def check_choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return the value of an argument (name), which must be one of the allowed texts; raises `InputError`."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r:.80}")
    return value
