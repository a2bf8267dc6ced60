"""`VectorEncoder`: compute vectors with a plan; the part of `TextEncoder` and `ImageEncoder` that both share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..backends.batch import Batch
from ..backends.interfaces import Plan, PoolingPlan
from ..backends.ops_interface import Ops
from ..base.lazy import lazy
from ..base.stop import Stop
from ..model.config import ModelConfig
from ..queues.model_queue import ModelQueue
from ..queues.work import Job, Pieces, Work
from ..text.tokens import Tokens
from ..weights.modules import (
    SENTENCE,
    TOKENS,
    Module,
    ends_with_normalize,
    normalize,
    run_modules,
    widths_after,
)
from .call import PLAIN, Call
from .input_shape import InputShape
from .pooling import pool


class Packed(NamedTuple):
    """A batch of the queue, the input of its jobs."""

    tokens: Tokens
    """The inputs of the sequences, which may be of several calls."""
    batch: Batch
    form: InputShape
    """Converts results of the batch to one array for each sequence."""


class VectorEncoder(ABC):
    """Computes the vectors of sequences, and of their tokens, with one plan. Several threads may use it at once."""

    def __init__(self, config: ModelConfig, plan: Plan, max_tokens: int, *, pooling: tuple[str, ...],
                 normalize: bool = False, truncate_dim: int | None = None, modules: tuple[Module, ...] = (),
                 token_modules: tuple[Module, ...] = (), ops: Ops | None = None, queue: ModelQueue | None = None):
        """max_tokens: the most tokens of a batch. pooling: the modes, whose results are concatenated. normalize:
        whether vectors are scaled to length 1. truncate_dim: how many of the first dimensions are kept; None for all.
        modules, token_modules: the layers that change vectors after and before pooling, which `ops` computes. queue:
        that of the model; None to make one for this encoder alone.
        """
        self._config, self._plan = config, plan
        self._pooling, self._normalize, self._truncate_dim = pooling, normalize, truncate_dim
        # Once here, because isinstance with a protocol in each call would take 2 % of the time of a short text.
        self._pooling_plan = plan if isinstance(plan, PoolingPlan) and not token_modules else None
        self.queue = queue or ModelQueue(max_tokens)
        """Computes the works of all calls."""
        self._modules, self._token_modules, self._ops = modules, token_modules, ops

    @property
    def width(self) -> int:
        """The number of dimensions of a sentence's vector, after it is truncated."""
        return min(self.whole_width, self._truncate_dim or self.whole_width)

    @lazy
    def whole_width(self) -> int:
        """The number of dimensions of a sentence's vector before it is truncated: after the modules of tokens (in
        `token_width`), pooling, whose modes are concatenated, and the modules of sentences."""
        return widths_after(self._modules, len(self._pooling) * self.token_width, SENTENCE)[SENTENCE]

    @lazy
    def token_width(self) -> int:
        """The number of dimensions of a token's vector that pooling reads."""
        return widths_after(self._token_modules, self._config.hidden_size, TOKENS)[TOKENS]

    def sentence_vectors(self, tokens: Tokens, call: Call = PLAIN) -> Work:
        """Return the work whose rows are the vectors of sequences, float32 [whole_width] each: the second of three
        steps of `Engine.encode`.

        The queue computes the sequences of concurrent calls together, which changes no bit.
        """
        return self.work(self._compute_sentence_vectors, tokens, call)

    def _compute_sentence_vectors(self, packed: Packed, stop: Stop) -> np.ndarray:
        """Return a vector for each sequence of a batch, float32 [B, whole_width], before it is truncated.

        The queue calls it for the works of `sentence_vectors`.
        """
        tokens, batch, _ = packed
        skip = 0 if tokens.skips is None else np.array(tokens.skips)    # tokens of prompts, which pooling leaves out
        return self.after_pooling(self._pool(batch, skip, stop))

    def after_pooling(self, pooled: np.ndarray) -> np.ndarray:
        """Return the vectors of sentences, float32 [n, whole_width], from the vectors that pooling gave."""
        vectors = run_modules(self._modules, pooled, SENTENCE, self._ops)
        return normalize(vectors) if self._normalize else vectors

    def finished(self, vectors: np.ndarray, truncate_dim: int | None = None, normalize_embeddings: bool = False
                 ) -> np.ndarray:
        """Truncate and normalize vectors of sentences, float32 [n, whole_width] to [n, D']: the third of three steps of
        `Engine.encode`.

        truncate_dim: how many of the first dimensions to keep; None for `width`. normalize_embeddings: whether to scale
        vectors to length 1. Vectors that the model has scaled to length 1 are scaled again only if they are truncated
        here, because a second division would change last bits.
        """
        kept = vectors[:, : truncate_dim or self.width]
        if not normalize_embeddings:
            return kept
        has_length_1 = self._normalize or ends_with_normalize(self._modules, SENTENCE)
        return kept if has_length_1 and kept.shape == vectors.shape else normalize(kept)

    @property
    def scales_tokens(self) -> bool:
        """Whether the modules of tokens scale the vectors of `token_vectors` to length 1."""
        return ends_with_normalize(self._token_modules, TOKENS)

    def token_vectors(self, tokens: Tokens, call: Call = PLAIN) -> Work:
        """Return the work whose rows are the vectors of the tokens of sequences, float32 [T_i, D'].

        The vectors are those that pooling reads, after the modules of tokens; each row is a view of a whole batch.
        """
        return self.work(self._compute_token_vectors, tokens, call)

    def _compute_token_vectors(self, packed: Packed, stop: Stop) -> list[np.ndarray]:
        """Return the token vectors of each sequence of a batch. The queue calls it for the works of `token_vectors`."""
        _, batch, form = packed
        rows = form.unpack(self._token_vectors(batch, stop))
        assert isinstance(rows, list)
        return rows

    def work(self, job: Job, tokens: Tokens, call: Call, most: int | None = None) -> Work:
        """Return the work of the sequences of a call for the queue; raises `InputError` for one that is too long.

        job: the function that the queue calls with each `Packed` batch. most: the most sequences of a batch, beside the
        batch_size of the call; None for no such limit.
        """
        lengths = tokens.lengths
        self._check_longest(tokens, lengths)
        if call.batch_size is not None:
            most = call.batch_size if most is None else min(most, call.batch_size)
        return Work(job, lengths, tokens, most, pack=self._pack)

    @abstractmethod
    def _pack(self, pieces: Pieces) -> tuple[int, Packed]:
        """Return (number of tokens, batch) of sequences of one call or several, for the queue."""

    @abstractmethod
    def _check_longest(self, tokens: Tokens, lengths: Sequence[int]) -> None:
        """Raise `InputError` if one of the lengths of sequences is more than the plan computes at a time."""

    def vectors(self, batch: Batch, stop: Stop) -> np.ndarray:
        """Return the token vectors of a batch: float32 [N, D]."""
        stop.check()
        return self._plan.forward(batch, stop)

    def _pool(self, batch: Batch, skip: int | np.ndarray, stop: Stop) -> np.ndarray:
        """Return one vector for each sequence [B, width], pooled by the plan if it is a `PoolingPlan`, else here."""
        if self._pooling_plan is not None:
            return self._pooling_plan.pool(batch, self._pooling, skip, stop)
        return self.pooled(self._token_vectors(batch, stop), batch.cu_seqlens, skip)

    def pooled(self, vectors: np.ndarray, cu_seqlens: np.ndarray, skip: int | np.ndarray) -> np.ndarray:
        """Return one vector for each sequence [B, width], from the vectors [N, D] of tokens; the arguments are those of
        `pool`."""
        return pool(vectors, cu_seqlens, self._pooling, skip)

    def _token_vectors(self, batch: Batch, stop: Stop) -> np.ndarray:
        """Return the vectors that pooling reads: those of the plan after the modules of tokens, [N, D']."""
        return run_modules(self._token_modules, self.vectors(batch, stop), TOKENS, self._ops)
