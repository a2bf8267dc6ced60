"""`TextEncoder`: encode sentences with a plan: tokenize, pack, compute, pool. `Engine.encode` and its like call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.interfaces import Plan
from ..backends.ops_interface import Ops
from ..base.arguments import flag
from ..base.errors import InputError, UnsupportedError, shown
from ..base.lazy import lazy
from ..base.stop import NEVER, Stop
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from ..queues.model_queue import ModelQueue
from ..queues.work import Pieces
from ..text.sentences import Sentence, add_prompt
from ..text.tokenizer import Tokenizer
from ..text.tokens import Tokens, merge_tokens
from ..weights.modules import Module
from .packing import pack_rows
from .unread import UnreadText, may_wait, read_all
from .vector_encoder import Packed, VectorEncoder

ROLE_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The names of prompts for `encode_query` and `encode_document`, which use the first one that the model has."""


class TextEncoder(VectorEncoder):
    """Encodes sentences with one plan; it tokenizes and pools as the model's text configuration says.

    Several threads may use it at once. The arguments of its methods have been checked.
    """

    def __init__(self, config: ModelConfig, text: TextConfig, plan: Plan, threads: int, max_tokens: int,
                 modules: tuple[Module, ...] = (), token_modules: tuple[Module, ...] = (), ops: Ops | None = None,
                 queue: ModelQueue | None = None):
        """threads: for the tokenizer. max_tokens: the most tokens of a batch. modules, token_modules: the layers that
        change vectors after and before pooling, which `ops` computes.

        queue: that of the model; None to make one for this encoder alone.
        """
        super().__init__(config, plan, max_tokens, pooling=text.pooling, normalize=text.normalize,
                         truncate_dim=text.truncate_dim, modules=modules, token_modules=token_modules, ops=ops,
                         queue=queue)
        self.text, self._threads = text, threads
        self._tokenizers: dict[int | None, Tokenizer] = {}

    @property
    def vocab_size(self) -> int:
        """The number of token ids that the model knows."""
        return self._config.vocab_size

    def tokens(self, texts: Sequence[Sentence], prompt: str = "", stop: Stop = NEVER) -> Tokens:
        """Return the tokens of texts with a prompt in front of each, the first of three steps of `Engine.encode`.

        All are tokenized at once; the caller bounds the memory by `Workload.parts`.
        """
        read = self.tokenizer(add_prompt(prompt, texts)[:], stop)
        if not prompt or self.text.include_prompt:
            return read
        return replace(read, skips=[self.tokenizer.prompt_length(prompt)] * len(texts))

    def tokens_or_unread(self, texts: Sequence[Sentence], prompt: str = "", stop: Stop = NEVER) -> Tokens:
        """Return the tokens of texts like `tokens`, but leave a single short text unread until its batch is computed.

        The thread that computes the batch tokenizes all its unread texts at once. A text that `_check_longest` might
        refuse is read at once, because its length has to be known before.
        """
        if not self._fits_any_text or not may_wait(self.tokenizer, texts):
            return self.tokens(texts, prompt, stop)
        skips = None
        if prompt and not self.text.include_prompt:
            skips = [self.tokenizer.prompt_length(prompt)] * len(texts)
        return UnreadText(self.tokenizer, add_prompt(prompt, texts)[0], skips)

    @lazy
    def _fits_any_text(self) -> bool:
        """Whether the plan computes any text that the tokenizer has truncated, so that it refuses none."""
        return self._plan.longest is None or self.tokenizer.limit <= self._plan.longest

    def tokenize(self, texts: list[Sentence], *, whole: bool = False) -> dict[str, np.ndarray]:
        """Return the arguments of `Engine.forward` for these texts: int64 [n,T], padded on the right.

        whole: whether to leave texts whole that are longer than the model reads.
        """
        tokens = (self._whole_tokenizer if whole else self.tokenizer)(texts)
        unpadded = {"input_ids": (tokens.input_ids, self._config.pad_token_id),      # (rows, value of padding)
                    "attention_mask": ([np.ones(len(ids)) for ids in tokens.input_ids], 0)}
        if self.uses_token_types:
            unpadded["token_type_ids"] = (tokens.token_type_ids, 0)
        return {name: _pad_right(rows, value) for name, (rows, value) in unpadded.items()}

    def _pack(self, pieces: Pieces) -> tuple[int, Packed]:
        """Return (number of tokens, batch) of texts of one or more calls, for the queue; unread texts are read here."""
        read_all([work.data for work, _ in pieces])
        tokens = merge_tokens([(work.data, numbers) for work, numbers in pieces])
        types = tokens.token_type_ids if self.uses_token_types else None
        batch, form = pack_rows(self._config, tokens.input_ids, types)
        reads = tokens.reads        # a batch without `keys` is one in which all tokens read all tokens
        if reads is not None and any(n < len(ids) for n, ids in zip(reads, tokens.input_ids, strict=True)):
            batch = replace(batch, keys=np.array(reads, np.int32))
        return batch.tokens, Packed(tokens, batch, form)

    def _check_longest(self, tokens: Tokens, lengths: Sequence[int]) -> None:
        """Raise `InputError`, which shows its start, for a text with more tokens than the plan computes at a time."""
        most = self._plan.longest
        if most is None or max(lengths, default=0) <= most or isinstance(tokens, UnreadText):
            return
        for ids in tokens.input_ids:
            if len(ids) > most:
                start = shown(self.tokenizer.decode(ids[:20].tolist()))
                raise InputError(f"the text that begins with {start} has {len(ids):,} tokens, and "
                                 f"max_batch_tokens={most} bounds what is computed together; shorten the text, or load "
                                 "the model with a larger max_batch_tokens")

    @property
    def uses_token_types(self) -> bool:
        """Whether the model reads the text of a pair that each token belongs to."""
        return self._config.token_types > 1 and self.text.feeds_token_types

    @lazy
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, made at the first use, because calls with token ids need no package but NumPy."""
        return Tokenizer(self.text, self._config.longest_sequence, self._threads)

    @lazy
    def _whole_tokenizer(self) -> Tokenizer:
        """The model's tokenizer without any limit on the length of texts."""
        return Tokenizer(replace(self.text, max_seq_length=None, max_characters=None), max_tokens=None,
                         threads=self._threads)

    @property
    def limit(self) -> int | None:
        """The most tokens of a text by the model's text settings; None for no limit."""
        return self.text.max_seq_length

    def tokenizer_of(self, limit: int | None) -> Tokenizer:
        """Return the tokenizer that truncates texts to `limit` tokens, and to the longest sequence of the model.

        limit: replaces `TextConfig.max_seq_length`; None for the longest sequence of the model alone.
        """
        if limit == self.limit:
            return self.tokenizer
        if limit not in self._tokenizers:
            self._tokenizers[limit] = Tokenizer(replace(self.text, max_seq_length=limit),
                                                self._config.longest_sequence, self._threads)
        return self._tokenizers[limit]


def check_options(backend: str, *, convert_to_tensor: Any, device: Any, pool: Any, chunk_size: Any) -> None:
    """Refuse options of sentence-transformers that `Engine.encode` does not support; the message has an alternative.

    Raises `InputError` for an unknown value, and `UnsupportedError` for a value that sentence-transformers supports.
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


def role_prompt(text: TextConfig, names: Sequence[str]) -> str:
    """Return the model's prompt of the first of these names that it has, or "" if it has none of them."""
    return next((text.prompts[name] for name in names if name in text.prompts), "")


def _pad_right(rows: list[np.ndarray], value: int) -> np.ndarray:
    """Return rows of numbers as int64 [n,T], with `value` behind the shorter ones."""
    padded = np.full((len(rows), max(map(len, rows), default=0)), value, np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded
