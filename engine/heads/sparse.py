"""Compute sparse vectors over the vocabulary, as SPLADE (Formal et al. 2021, arXiv 2109.10086 and 2107.05720).

    v[w] = max over the tokens t of log(1 + relu(logit[t, w])), or the sum over them

Special tokens count as tokens. log(1 + relu(x)) never decreases, so the maximum is computed of the logits, and the
logarithm of V numbers for each text. Other models have a number for each token of a text, and none for other words:

    v[w] = max over the tokens t with the id w of number[t]

The number is that of the token in a table (SparseStaticEmbedding), or relu(weight x + bias) of its vector x (BGE-M3:
Chen et al. 2024, arXiv 2402.03216, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MethodType
from typing import Any, TypeAlias, overload

import numpy as np

from ..base.arguments import positive_int_or_none
from ..base.errors import InputError, shown
from ..base.functions import log1p
from ..base.install import needs_package
from ..base.stop import Stop
from ..encoding.call import PLAIN, Call
from ..encoding.vector_encoder import Packed
from ..model.head import Scatter
from ..queues.work import Work
from ..text.tokens import Tokens
from .runner import LOGITS_AT_A_TIME, HeadRunner

Nonzeros: TypeAlias = tuple[np.ndarray, np.ndarray]
"""(ids of the words of a text in increasing order, int32 [n]; their numbers, float32 [n])."""

NOTHING: Nonzeros = np.zeros(0, np.int32), np.zeros(0, np.float32)
"""The words and the numbers of a text without tokens."""


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """Sparse vectors of n texts over a vocabulary of V words, in compressed rows (CSR), as scipy's csr_array has them.

    Row i has the numbers values[indptr[i] : indptr[i+1]] at the words indices[indptr[i] : indptr[i+1]].
    """

    indices: np.ndarray
    """int32 [nonzeros]: the ids of words, in increasing order within a row."""
    values: np.ndarray
    """float32 [nonzeros], not 0."""
    indptr: np.ndarray
    """int64 [n+1]."""
    shape: tuple[int, int]
    """(n, V)."""
    tokens: Callable[[int], str] = field(repr=False, default=str)
    """Returns the text of a word's token by its id."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for a pickle, which has the texts of the words that occur in place of a tokenizer."""
        words = {number: self.tokens(number) for number in np.unique(self.indices).tolist()}
        return vars(self) | {"tokens": words.__getitem__}

    def __len__(self) -> int:
        return self.shape[0]

    @overload
    def __getitem__(self, row: int) -> SparseVectors: ...
    @overload
    def __getitem__(self, row: slice) -> SparseVectors: ...
    def __getitem__(self, row: int | slice) -> SparseVectors:
        """Return one row, or consecutive rows, as sparse vectors."""
        if not isinstance(row, (int, np.integer, slice)):
            raise InputError(f"rows are chosen by a number or a slice, not {shown(row)}")
        if not isinstance(row, slice) and not -len(self) <= row < len(self):
            raise IndexError(f"there are {len(self)} vectors, and no row {row}")
        rows = range(len(self))[row if isinstance(row, slice) else slice(row % len(self), row % len(self) + 1)]
        if rows.step != 1:
            raise InputError(f"rows must be consecutive, not {shown(row)}")
        start, stop = rows.start, max(rows.stop, rows.start)        # a slice may stop before it starts: then no row
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        return SparseVectors(self.indices[first:last], self.values[first:last], self.indptr[start : stop + 1] - first,
                             (len(rows), self.shape[1]), self.tokens)

    def __iter__(self) -> Iterator[SparseVectors]:
        return (self[i] for i in range(len(self)))

    def to_dense(self) -> np.ndarray:
        """Return the vectors with all their zeros: float32 [n, V]."""
        dense = np.zeros(self.shape, np.float32)
        dense[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = self.values
        return dense

    toarray = to_dense
    """The name that scipy has for `to_dense`."""

    def to_scipy(self) -> Any:
        """Return the vectors as a `scipy.sparse.csr_array` of float32 [n, V], which shares the arrays of this object.

        Raises `PackageMissing` if scipy is not installed.
        """
        with needs_package("scipy", "to_scipy"):
            from scipy.sparse import csr_array
        return csr_array((self.values, self.indices, self.indptr), shape=self.shape)

    def decode(self, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Return (word, number) of the top_k (None: all) words of each row, the largest first, equal ones by id."""
        top_k = positive_int_or_none("top_k", top_k)
        decoded = []
        for row in self:
            best = np.argsort(-row.values, kind="stable")[:top_k]
            decoded.append([(self.tokens(int(row.indices[i])), float(row.values[i])) for i in best])
        return decoded

    def dot(self, other: SparseVectors) -> np.ndarray:
        """Return the dot product of each row with each row of other sparse vectors: float32 [n, m].

        The products of a pair are added in the order of the words, so that no result depends on other pairs.
        """
        check_sparse(self, other)
        result = np.zeros((len(self), len(other)), np.float32)
        dense = np.zeros(self.shape[1], np.float32)     # one row of `self` at a time
        for i, row in enumerate(self):
            dense[row.indices] = row.values
            with np.errstate(invalid="ignore", over="ignore"):      # numbers of large weights may be infinite
                products = other.values * dense[other.indices]
            for j in range(len(other)):
                terms = products[other.indptr[j] : other.indptr[j + 1]]
                # Words of one row alone are left out, so that a.dot(b) and b.dot(a) add the same terms.
                result[i, j] = terms[terms != 0].sum()
            dense[row.indices] = 0
        return result


def check_sparse(a: Any, b: Any) -> None:
    """Raise `InputError` unless a and b are sparse vectors over equally many words."""
    for one in (a, b):
        if not isinstance(one, SparseVectors):
            raise InputError("sparse vectors are compared with sparse vectors of encode_sparse, not with "
                             f"{type(one).__name__} {shown(one, 60)}")
    if a.shape[1] != b.shape[1]:
        raise InputError(f"sparse vectors over {a.shape[1]:,} and over {b.shape[1]:,} words cannot be compared; "
                         "compare vectors of one model")


def sparse_rows(runner: HeadRunner, tokens: Tokens, call: Call = PLAIN) -> Work:
    """Return the work, for the queue, whose results are the `Nonzeros` of sequences: `encode_sparse`'s second step,
    after `TextEncoder.tokens`."""
    job = MethodType(_compute_sparse, runner)       # equal for all calls, so that the queue can join them in a batch
    return runner.encoder.work(job, tokens, call)


def _compute_sparse(runner: HeadRunner, packed: Packed, stop: Stop) -> list[Nonzeros]:
    """Return the words of each sequence of a batch, and their numbers. The queue calls it for `sparse_rows`."""
    config, scatter = runner.config, runner.config.steps[-1]
    tokens, batch, _ = packed
    vectors = runner.encoder.vectors(batch, stop)
    ends = batch.cu_seqlens.astype(np.int64)
    if isinstance(scatter, Scatter):        # the head gives each token a number; a word has the largest of its tokens
        numbers = runner.numbers(vectors)
        return [_largest_by_id(ids, numbers[start:end], scatter.skip_ids)
                for ids, (start, end) in zip(tokens.input_ids, pairwise(ends.tolist()), strict=True)]
    fused = config.sparse_pooling == "max" and runner.ends_in_a_product
    pooled = runner.maxima(vectors, ends) if fused else _pool_logits(runner, vectors, ends, config.sparse_pooling)
    return [_nonzeros(row, config.sparse_pooling, config.sparse_activation) for row in pooled]


def sparse_vectors(runner: HeadRunner, rows: Sequence[Nonzeros]) -> SparseVectors:
    """Return the words and the numbers of texts as one object, the last of three steps of `encode_sparse`.

    rows: one for each text, as `largest` returns them; `NOTHING` for a text without tokens.
    """
    sizes = np.array([len(indices) for indices, _ in rows], np.int64)
    # NOTHING is put in front so that the arrays have the right type even without rows.
    indices = np.concatenate([NOTHING[0], *(indices for indices, _ in rows)])
    values = np.concatenate([NOTHING[1], *(values for _, values in rows)])
    starts = np.append(np.int64(0), np.cumsum(sizes))
    return SparseVectors(indices, values, starts, (len(rows), runner.config.outputs), runner.encoder.tokenizer.token)


def _largest_by_id(ids: np.ndarray, numbers: np.ndarray, skip_ids: Sequence[int]) -> Nonzeros:
    """Return the different ids of tokens [T], and the largest number of each, without ids to skip and without zeros."""
    if not len(ids):
        return NOTHING
    order = np.argsort(ids, kind="stable")      # equal ids become neighbours, for reduceat
    indices, starts = np.unique(ids[order], return_index=True)
    values = np.maximum.reduceat(numbers[order], starts)
    kept = (values != 0) & ~np.isin(indices, skip_ids)
    return indices[kept], values[kept]


def _pool_logits(runner: HeadRunner, vectors: np.ndarray, ends: np.ndarray, pooling: str) -> Iterator[np.ndarray]:
    """Yield for each sequence the maximum of the logits of each word, or the sum of their `weights_of`: float32 [V].

    vectors: float32 [N, D], of the tokens of all sequences. ends: [B+1]: where the tokens of each sequence end.
    pooling: "max" or "sum". At most `LOGITS_AT_A_TIME` logits are computed at a time, so that a sequence may be spread
    over several parts; its rows are added in their order.
    """
    activation = runner.config.sparse_activation
    most = max(1, LOGITS_AT_A_TIME // runner.config.outputs)
    sequence = 0
    total: np.ndarray | None = None
    for first in range(0, max(1, len(vectors)), most):
        last = min(first + most, len(vectors))
        logits = runner.words(vectors[first:last])
        while sequence < len(ends) - 1:
            start, end = max(first, int(ends[sequence])), min(last, int(ends[sequence + 1]))
            if start < end:
                rows = logits[start - first : end - first]
                if pooling == "max":
                    best = rows.max(axis=0)
                    total = best if total is None else np.maximum(total, best)
                else:
                    for row in rows:
                        total = (0 if total is None else total) + weights_of(row, activation)
            if ends[sequence + 1] > last:       # the other rows of the sequence are in the next part
                break
            yield np.zeros(runner.config.outputs, np.float32) if total is None else total
            sequence, total = sequence + 1, None


def _nonzeros(numbers: np.ndarray, pooling: str, activation: str) -> Nonzeros:
    """Return the words of a text with numbers [V] above 0; those of pooling "max" are logits, and "sum" has weights."""
    indices = np.flatnonzero(numbers > 0)
    values = np.ascontiguousarray(numbers[indices])
    return indices, weights_of(values, activation) if pooling == "max" else values


def largest(indices: np.ndarray, values: np.ndarray, most: int | None) -> Nonzeros:
    """Return the `most` words of a text with the largest absolute numbers, and these numbers; None for all words.

    indices, values: [n]: the ids in increasing order, and their numbers.
    """
    if most is not None and len(values) > most:
        kept = np.sort(np.argsort(-np.abs(values), kind="stable")[:most])
        indices, values = indices[kept], values[kept]
    return indices.astype(np.int32, copy=False), values


def weights_of(logits: np.ndarray, activation: str) -> np.ndarray:
    """Return log(1 + relu(x)), or for "log1p_relu" log(1 + log(1 + relu(x))): float32 of the shape of the logits."""
    weights = np.maximum(logits, np.float32(0))
    nonzero = weights != 0       # compute only these, because most are 0; NaN is among them
    weights[nonzero] = log1p(log1p(weights[nonzero])) if activation == "log1p_relu" else log1p(weights[nonzero])
    return weights
