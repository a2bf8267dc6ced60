"""Encode sentences with a plan: tokenize, pack, compute, pool. `Engine.encode` and the methods beside it call this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..backends.batch import Batch
from ..backends.interfaces import Plan, PoolingPlan
from ..backends.ops_interface import Ops
from ..base.arguments import flag
from ..base.errors import InputError, UnsupportedError, shown
from ..base.lazy import lazy
from ..base.stop import NEVER, Stop
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from ..queues.model_queue import ModelQueue
from ..queues.work import Job, Pieces, Work
from ..text.sentences import Sentence, add_prompt
from ..text.tokenizer import Tokenizer, Tokens, gathered
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
from .packing import pack_rows
from .pooling import pool
from .unread import UnreadText, may_wait, read_all


class Packed(NamedTuple):
    """A batch of the queue, as jobs read it."""

    tokens: Tokens
    batch: Batch
    form: InputShape


class TextEncoder:
    """Encodes sentences with one plan; it tokenizes and pools as the model's text configuration says.

    Several threads may use it at once. The arguments of its methods have been checked.
    """

    def __init__(self, config: ModelConfig, text: TextConfig, plan: Plan, threads: int, max_tokens: int,
                 modules: tuple[Module, ...] = (), token_modules: tuple[Module, ...] = (), ops: Ops | None = None,
                 queue: ModelQueue | None = None):
        """modules, token_modules: what changes vectors after and before pooling, which `ops` computes.

        queue: of the model; None for one of this encoder alone.
        """
        self._config, self._text, self._plan = config, text, plan
        # Asked once: to look for the methods of a protocol takes 2 % of the time of a short text.
        self._pooling_plan = plan if isinstance(plan, PoolingPlan) and not token_modules else None
        self._threads = threads
        self.queue = queue or ModelQueue(max_tokens)
        """Computes the works of all calls."""
        self._modules, self._token_modules, self._ops = modules, token_modules, ops
        self._tokenizers: dict[int | None, Tokenizer] = {}

    @property
    def text(self) -> TextConfig:
        """How the model reads texts."""
        return self._text

    @property
    def vocab_size(self) -> int:
        """The number of token ids that the model knows."""
        return self._config.vocab_size

    @property
    def width(self) -> int:
        """The number of dimensions of a sentence's vector."""
        return min(self.whole_width, self._text.truncate_dim or self.whole_width)

    @lazy
    def whole_width(self) -> int:
        """The dimensions of a sentence's vector before it is truncated; modules of both kinds may change them."""
        return widths_after(self._modules, len(self._text.pooling) * self.token_width, SENTENCE)[SENTENCE]

    @lazy
    def token_width(self) -> int:
        """The dimensions of a token's vector that pooling reads."""
        return widths_after(self._token_modules, self._config.hidden_size, TOKENS)[TOKENS]

    def tokens(self, texts: Sequence[Sentence], prompt: str = "", stop: Stop = NEVER) -> Tokens:
        """Return the tokens of texts with a prompt in front of each, the first of three steps of `Engine.encode`.

        All are tokenized at once: `Workload.parts` bounds the memory.
        """
        read = self.tokenizer(add_prompt(prompt, texts)[:], stop)
        if not prompt or self._text.include_prompt:
            return read
        return replace(read, skips=[self.tokenizer.prompt_length(prompt)] * len(texts))

    def unread(self, texts: Sequence[Sentence], prompt: str = "", stop: Stop = NEVER) -> Tokens:
        """Return what `tokens` returns; one short text is tokenized when it is computed, with those of other calls."""
        if not self._reads_late or not may_wait(self.tokenizer, texts):
            return self.tokens(texts, prompt, stop)
        skips = None
        if prompt and not self._text.include_prompt:
            skips = [self.tokenizer.prompt_length(prompt)] * len(texts)
        return UnreadText(self.tokenizer, add_prompt(prompt, texts)[0], skips)

    @lazy
    def _reads_late(self) -> bool:
        """Whether no text of the tokenizer is longer than what the plan computes at a time."""
        return self._plan.longest is None or self.tokenizer.limit <= self._plan.longest

    def sentence_vectors(self, tokens: Tokens, call: Call = PLAIN) -> Work:
        """Return the work whose rows are the vectors of sequences, float32 [whole_width]: the second step.

        The queue computes the sequences of all calls at the time together, which changes no bit.
        """
        return self.work(self._compute_sentence_vectors, tokens, call)

    def _compute_sentence_vectors(self, packed: Packed, stop: Stop) -> np.ndarray:
        tokens, batch, _ = packed
        return self.after_pooling(self._pool(batch, 0 if tokens.skips is None else np.array(tokens.skips), stop))

    def after_pooling(self, pooled: np.ndarray) -> np.ndarray:
        """Return the vectors of sentences, float32 [n, whole_width], of what pooling gave."""
        vectors = run_modules(self._modules, pooled, SENTENCE, self._ops)
        return normalize(vectors) if self._text.normalize else vectors

    def finished(self, vectors: np.ndarray, truncate_dim: int | None = None, normalize_embeddings: bool = False
                 ) -> np.ndarray:
        """Return vectors of sentences, float32 [n, whole_width], as a caller wants them, float32 [n, D']: the third
        step.

        truncate_dim: how many of the first dimensions to keep; None for all. normalize_embeddings: whether to scale
        vectors to length 1. Vectors that the model scales to length 1 are scaled again only if they are truncated after
        it, because a second division changes last bits.
        """
        kept = vectors[:, : truncate_dim or self.width]
        if not normalize_embeddings:
            return kept
        has_length_1 = self._text.normalize or ends_with_normalize(self._modules, SENTENCE)
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
        _, batch, form = packed
        rows = form.unpack(self._token_vectors(batch, stop))
        assert isinstance(rows, list)
        return rows

    def tokenize(self, texts: list[Sentence], *, whole: bool = False) -> dict[str, np.ndarray]:
        """Return the arguments of `Engine.forward` for these texts: int64 [n,T], padded on the right.

        whole: whether to leave texts whole that are longer than what the model reads.
        """
        tokens = (self._whole_tokenizer if whole else self.tokenizer)(texts)
        given = {"input_ids": (tokens.input_ids, self._config.pad_token_id),
                 "attention_mask": ([np.ones(len(ids)) for ids in tokens.input_ids], 0)}
        if self.uses_token_types:
            given["token_type_ids"] = (tokens.token_type_ids, 0)
        return {name: _padded(rows, value) for name, (rows, value) in given.items()}

    def work(self, job: Job, tokens: Tokens, call: Call, most: int | None = None) -> Work:
        """Return the work of the sequences of a call for the queue; raises `InputError` for one that is too long.

        job: reads what `_pack` returns. most: the most sequences of a batch, beside the limit of the call.
        """
        lengths = tokens.lengths
        self._check_longest(tokens, lengths)
        if call.batch_size is not None:
            most = call.batch_size if most is None else min(most, call.batch_size)
        return Work(job, lengths, tokens, most, pack=self._pack)

    def _pack(self, pieces: Pieces) -> tuple[int, Packed]:
        """Return the number of tokens of a batch of the queue, which may be of several calls, and what a job reads."""
        read_all([work.data for work, _ in pieces])
        tokens = gathered([(work.data, numbers) for work, numbers in pieces])
        types = tokens.token_type_ids if self.uses_token_types else None
        batch, form = pack_rows(self._config, tokens.input_ids, types)
        reads = tokens.reads
        if reads is not None and any(n < len(ids) for n, ids in zip(reads, tokens.input_ids, strict=True)):
            batch = replace(batch, keys=np.array(reads, np.int32))
        return batch.tokens, Packed(tokens, batch, form)

    def _check_longest(self, tokens: Tokens, lengths: Sequence[int]) -> None:
        """Raise `InputError` for a text with more tokens than the plan computes at a time, by how the text begins."""
        most = self._plan.longest
        if most is None or max(lengths, default=0) <= most or isinstance(tokens, UnreadText):
            return
        for ids in tokens.input_ids:
            if len(ids) > most:
                start = shown(self.tokenizer.decode(ids[:20].tolist()))
                raise InputError(f"the text that begins with {start} has {len(ids):,} tokens, and "
                                 f"max_batch_tokens={most} bounds what is computed together; shorten the text, or load "
                                 "the model with a larger max_batch_tokens")

    def vectors(self, batch: Batch, stop: Stop) -> np.ndarray:
        """Return the token vectors of a batch: float32 [N, D]."""
        stop.check()
        return self._plan.forward(batch, stop)

    def _pool(self, batch: Batch, skip: int | np.ndarray, stop: Stop) -> np.ndarray:
        """Return one vector for each sequence [B, width], pooled by the plan if it can, otherwise here."""
        if self._pooling_plan is not None:
            return self._pooling_plan.pool(batch, self._text.pooling, skip, stop)
        return pool(self._token_vectors(batch, stop), batch.cu_seqlens, self._text.pooling, skip)

    def _token_vectors(self, batch: Batch, stop: Stop) -> np.ndarray:
        """Return the vectors that pooling reads: those of the plan after the modules of tokens, [N, D']."""
        stop.check()
        return run_modules(self._token_modules, self._plan.forward(batch, stop), TOKENS, self._ops)

    @property
    def uses_token_types(self) -> bool:
        """Whether the model reads the text of a pair that each token belongs to."""
        return self._config.token_types > 1 and self._text.feeds_token_types

    @lazy
    def tokenizer(self) -> Tokenizer:
        # Made at the first use, so that token ids need nothing but NumPy.
        return Tokenizer(self._text, self._config.longest_sequence, self._threads)

    @lazy
    def _whole_tokenizer(self) -> Tokenizer:
        return Tokenizer(replace(self._text, max_seq_length=None, max_characters=None), max_tokens=None,
                         threads=self._threads)

    @property
    def limit(self) -> int | None:
        """The most tokens of a text by the model's text settings; None for no limit."""
        return self._text.max_seq_length

    def tokenizer_of(self, limit: int | None) -> Tokenizer:
        """Return the tokenizer that truncates to another limit than the model's, or to no limit but the table's."""
        if limit == self.limit:
            return self.tokenizer
        if limit not in self._tokenizers:
            self._tokenizers[limit] = Tokenizer(replace(self._text, max_seq_length=limit),
                                                self._config.longest_sequence, self._threads)
        return self._tokenizers[limit]


def check_options(backend: str, *, convert_to_tensor: Any, device: Any, pool: Any, chunk_size: Any) -> None:
    """Raise for options of sentence-transformers that `Engine.encode` does not support; the message has an alternative.

    Raises `InputError` for an unknown value, and `UnsupportedError` for one that sentence-transformers supports.
    """
    if convert_to_tensor is False and device is pool is chunk_size is None:
        return
    if flag("convert_to_tensor", convert_to_tensor):
        raise UnsupportedError("there are no tensors here, only NumPy arrays; pass the result to torch.from_numpy")
    here = "cuda" if backend == "cuda" else "cpu"
    if device is not None and str(device) not in (here, f"{here}:0"):
        raise UnsupportedError(f"this engine computes on the device {here!r}, not on {shown(device)}; Engine.load(..., "
                               "backend=...) chooses the device, and one engine uses all CPUs that the process may use")
    for name, value in (("pool", pool), ("chunk_size", chunk_size)):
        if value is not None:
            raise UnsupportedError(f"{name} is for a pool of processes, and there is none; leave {name} out, because "
                                   "one engine uses all CPUs that the process may use")


ROLE_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The names of the prompts of `encode_query` and `encode_document`; the first that the model has is used."""


def role_prompt(text: TextConfig, names: Sequence[str]) -> str:
    """Return the first of the model's prompts that has one of these names, or "" when it has none of them."""
    return next((text.prompts[name] for name in names if name in text.prompts), "")


def _padded(rows: list[np.ndarray], value: int) -> np.ndarray:
    padded = np.full((len(rows), max(map(len, rows), default=0)), value, np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded
