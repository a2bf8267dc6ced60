"""Encode sentences with a plan: tokenize, pack, compute, pool. `Engine.encode` and the methods beside it call this."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.batch import Batch
from ..backends.interfaces import Plan, PoolingPlan
from ..backends.ops_interface import Ops
from ..base.arguments import flag, is_one_of
from ..base.errors import InputError, UnsupportedError, shown
from ..base.lazy import lazy
from ..base.stop import NEVER, Stop
from ..model.config import ModelConfig
from ..model.precision import canonical_name
from ..model.text_config import TextConfig
from ..queues.model_queue import ModelQueue
from ..queues.work import Job, Pieces, Work
from ..text.sentences import Sentence, add_prompt, slices
from ..text.tokenizer import Tokenizer, Tokens, gathered
from ..weights.modules import SENTENCE, TOKENS, Module, normalize, run_modules, widths_after
from .call import PLAIN, Call
from .packing import InputShape, pack
from .pooling import pool
from .vector_precision import PRECISIONS

OUTPUTS = ("sentence_embedding", "token_embeddings", None)
"""Values of `output_value`."""


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
        self._threads, self._queue = threads, queue or ModelQueue(max_tokens)
        self._modules, self._token_modules, self._ops = modules, token_modules, ops
        self._tokenizers: dict[int | None, Tokenizer] = {}

    @property
    def width(self) -> int:
        """The number of dimensions of a sentence's vector."""
        return min(self._whole_width, self._text.truncate_dim or self._whole_width)

    @property
    def _whole_width(self) -> int:
        """The dimensions of a sentence's vector before it is truncated; modules of both kinds may change them."""
        tokens = widths_after(self._token_modules, self._config.hidden_size, TOKENS)[TOKENS]
        return widths_after(self._modules, len(self._text.pooling) * tokens, SENTENCE)[SENTENCE]

    def encode(self, texts: list[Sentence], prompt: str, call: Call, *, output_value: str | None,
               normalize_embeddings: bool, truncate_dim: int | None) -> Any:
        """Return vectors [n, D'], a list of n arrays [T_i, D], or a list of n dictionaries, as `output_value` says."""
        truncate_dim = min(truncate_dim or self.width, self._whole_width)
        vectors = np.empty((len(texts), truncate_dim), np.float32)
        rows: list[Any] = [None] * len(texts)
        for part in slices(add_prompt(prompt, texts)):
            tokens = self.tokens(texts[part.start : part.stop], prompt, call.stop)
            if output_value == "sentence_embedding":
                for members, pooled in self.pooled(tokens, call):
                    vectors[[part[i] for i in members]] = self.finished(pooled, truncate_dim, normalize_embeddings)
                    call.advance(len(members))
                continue
            for members, token_rows in self.token_vectors(tokens, call):
                for i, row in zip(members, token_rows, strict=True):
                    rows[part[i]] = row
                    if output_value is None:
                        skip = 0 if tokens.skips is None else tokens.skips[i]
                        pooled = pool(row, np.array([0, len(row)]), self._text.pooling, skip)
                        [vector] = self.finished(pooled, truncate_dim, normalize_embeddings)
                        rows[part[i]] = self._features(tokens, i, row, vector)
                call.advance(len(members))
        return vectors if output_value == "sentence_embedding" else rows

    def tokens(self, texts: Sequence[Sentence], prompt: str = "", stop: Stop = NEVER) -> Tokens:
        """Return the tokens of texts with a prompt in front of each, which is the first of three steps of `encode`.

        All are tokenized at once: `slices` bounds the memory.
        """
        read = self.tokenizer(add_prompt(prompt, texts)[:], stop)
        if not prompt or self._text.include_prompt:
            return read
        return replace(read, skips=[self.tokenizer.prompt_length(prompt)] * len(texts))

    def pooled(self, tokens: Tokens, call: Call = PLAIN) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yield (indices of sequences, their pooled vectors, float32 [B, width]) for each batch: the second step.

        The sequences of all calls at the time are computed together, which changes no bit.
        """
        return self.computed(self._compute_pooled, tokens, call)

    def _compute_pooled(self, pieces: Pieces, stop: Stop) -> np.ndarray:
        tokens, batch, _ = self.batch_of(pieces)
        return self._pool(batch, 0 if tokens.skips is None else np.array(tokens.skips), stop)

    def finished(self, pooled: np.ndarray, truncate_dim: int | None = None, normalize_embeddings: bool = False
                 ) -> np.ndarray:
        """Return the vectors of sentences, float32 [n, D'], of what pooling gave: the third step.

        truncate_dim: as in `Engine.encode`.
        """
        vectors = run_modules(self._modules, pooled, SENTENCE, self._ops)
        vectors = (normalize(vectors) if self._text.normalize else vectors)[:, : truncate_dim or self.width]
        return normalize(vectors) if normalize_embeddings else vectors

    def token_vectors(self, tokens: Tokens, call: Call = PLAIN) -> Iterator[tuple[list[int], list[np.ndarray]]]:
        """Yield (indices of sequences, the vectors of their tokens, float32 [T_i, D']) for each batch.

        The vectors are those that pooling reads, after the modules of tokens; each is a view of the whole batch.
        """
        return self.computed(self._compute_token_vectors, tokens, call)

    def _compute_token_vectors(self, pieces: Pieces, stop: Stop) -> list[np.ndarray]:
        _, batch, form = self.batch_of(pieces)
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
        if self._uses_token_types:
            given["token_type_ids"] = (tokens.token_type_ids, 0)
        return {name: _padded(rows, value) for name, (rows, value) in given.items()}

    def _features(self, tokens: Tokens, i: int, vectors: np.ndarray, pooled: np.ndarray) -> dict[str, np.ndarray]:
        """Return a dictionary of a sequence, as sentence-transformers for output_value=None, without padding."""
        ids = tokens.input_ids[i]
        types = {"token_type_ids": tokens.token_type_ids[i]} if self._uses_token_types else {}
        return {"input_ids": ids, "attention_mask": np.ones_like(ids), **types, "token_embeddings": vectors,
                "sentence_embedding": pooled}

    def computed(self, job: Job, tokens: Tokens, call: Call, most: int | None = None
                 ) -> Iterator[tuple[list[int], Any]]:
        """Yield (indices of sequences, their rows) for each batch, as the queue of the model computes them.

        job: reads the sequences by `batch_of`. most: the most sequences of a batch, beside the limit of the call.
        """
        self._check_longest(tokens)
        limits = [limit for limit in (call.batch_size, most) if limit is not None]
        work = Work(job, [len(ids) for ids in tokens.input_ids], tokens, min(limits, default=None))
        return self._queue.rows(work, call.stop)

    def batch_of(self, pieces: Pieces) -> tuple[Tokens, Batch, InputShape]:
        """Return the tokens of a batch of the queue, which may be of several calls, and what a plan reads of them."""
        tokens = gathered([(work.data, numbers) for work, numbers in pieces])
        types = tokens.token_type_ids if self._uses_token_types else None
        batch, form = pack(self._config, tokens.input_ids, token_type_ids=types)
        reads = tokens.reads
        if reads is not None and any(n < len(ids) for n, ids in zip(reads, tokens.input_ids, strict=True)):
            batch = replace(batch, keys=np.array(reads, np.int32))
        return tokens, batch, form

    def _check_longest(self, tokens: Tokens) -> None:
        """Raise `InputError` for a text with more tokens than the plan computes at a time, by how the text begins."""
        most = self._plan.longest
        if most is None:
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
        if isinstance(self._plan, PoolingPlan) and not self._token_modules:
            return self._plan.pool(batch, self._text.pooling, skip, stop)
        return pool(self._token_vectors(batch, stop), batch.cu_seqlens, self._text.pooling, skip)

    def _token_vectors(self, batch: Batch, stop: Stop) -> np.ndarray:
        """Return the vectors that pooling reads: those of the plan after the modules of tokens, [N, D']."""
        stop.check()
        return run_modules(self._token_modules, self._plan.forward(batch, stop), TOKENS, self._ops)

    @property
    def _uses_token_types(self) -> bool:
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


def check_options(backend: str, *, output_value: Any, precision: Any, convert_to_tensor: Any, device: Any, pool: Any,
                  chunk_size: Any) -> None:
    """Raise for options of sentence-transformers that `Engine.encode` does not support; the message has an alternative.

    Raises `InputError` for an unknown value, and `UnsupportedError` for one that sentence-transformers supports.
    """
    if not is_one_of(output_value, OUTPUTS):
        raise InputError(f"output_value must be one of {', '.join(map(repr, OUTPUTS))}, not {shown(output_value)}")
    if precision is not None and not (isinstance(precision, str) and canonical_name(precision) in PRECISIONS):
        raise UnsupportedError(f"encode returns vectors in {', '.join(PRECISIONS)}, not precision={shown(precision)}. "
                               "Engine.load(..., precision=...) chooses the precision of the computation")
    if precision is not None and canonical_name(precision) != "float32" and output_value != "sentence_embedding":
        raise UnsupportedError(f"precision={shown(precision)} is for the vectors of sentences alone, not for "
                               f"output_value={shown(output_value)}")
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
