"""A vector for each token of a text, for late interaction: Khattab and Zaharia 2020 (arXiv 2004.12832), section 3.

A query may be filled up with tokens such as [MASK]. Unless the model's settings say otherwise, no token reads them, and
they read the tokens of the query; each has a vector in the result. `LateConfig` has the settings.

A model with one vector for each text may have vectors of tokens besides, by a head: BGE-M3 (Chen et al. 2024, arXiv
2402.03216, section 3.2). It reads queries as documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ..base.stop import NEVER, Stop
from ..encoding import TextEncoder
from ..model.late_config import LateConfig
from ..text.sentences import Sentence, slices
from ..text.tokenizer import Tokens
from ..weights.modules import normalize
from .runner import HeadRunner


def encode_tokens(encoder: TextEncoder, late: LateConfig, texts: Sequence[Sentence], *, task: str | None,
                  normalized: bool = False, batch_size: int | None = None, stop: Stop = NEVER,
                  advance: Callable[[int], None] = lambda count: None) -> list[np.ndarray]:
    """Return the token vectors of texts: float32 [T_i, D'] for each.

    task: "query", "document" or None. normalized: scale each vector to length 1, whatever the model does. advance:
    called with the number of texts that are done.
    """
    tokenizer = encoder.tokenizer_of(late.limit(task, encoder.limit))
    found: list[np.ndarray] = [np.zeros((0, 0), np.float32)] * len(texts)
    for part in slices(texts):
        tokens, keys = expanded(tokenizer(texts[part.start : part.stop], stop), late, task)
        for members, batch, _ in encoder.micro_batches(tokens, batch_size, keys):
            vectors = encoder.token_vectors(batch, stop)
            vectors = normalize(vectors) if normalized else vectors
            for i, (start, end) in zip(members, pairwise(batch.cu_seqlens.tolist()), strict=True):
                kept = scored(tokens.input_ids[i], late, task)
                found[part[i]] = vectors[start:end] if kept.all() else vectors[start:end][kept]
            advance(len(members))
    return found


def encode_tokens_by_head(runner: HeadRunner, texts: Sequence[Sentence], *, normalized: bool = False,
                          batch_size: int | None = None, stop: Stop = NEVER,
                          advance: Callable[[int], None] = lambda count: None) -> list[np.ndarray]:
    """Return the token vectors of texts that a head gives: float32 [T_i, D'] for each; arguments of `encode_tokens`."""
    found = [np.zeros((0, runner.config.outputs), np.float32)] * len(texts)
    for part in slices(texts):
        tokens = runner.encoder.tokenizer(texts[part.start : part.stop], stop)
        for i, vectors in runner.logits(tokens, batch_size=batch_size, stop=stop):
            found[part[i]] = normalize(vectors) if normalized else vectors
            advance(1)
    return found


def expanded(tokens: Tokens, late: LateConfig, task: str | None) -> tuple[Tokens, np.ndarray]:
    """Return the tokens of texts of a task, filled up, and how many tokens of each text are read: int64 [n]."""
    sizes = np.array([len(ids) for ids in tokens.input_ids], np.int64)
    if task != "query" or late.expansion_length is None:
        return tokens, sizes
    fill = np.int32(late.expansion_id or 0)
    missing = np.maximum(late.expansion_length - sizes, 0)
    filled = Tokens([np.append(ids, np.full(n, fill)) for ids, n in zip(tokens.input_ids, missing, strict=True)],
                    [np.append(types, np.zeros(n, np.int32))
                     for types, n in zip(tokens.token_type_ids, missing, strict=True)])
    return filled, sizes + missing if late.attend else sizes


def scored(ids: np.ndarray, late: LateConfig, task: str | None) -> np.ndarray:
    """Return which tokens of a text have a vector in the result: bool [T]."""
    kept = np.ones(len(ids), bool)
    if (task or "document") in late.skip_tasks and late.skip_ids:
        kept &= ~np.isin(ids, late.skip_ids)
    if task != "query" and late.keep_ids:
        kept &= np.isin(ids, late.keep_ids)
    return kept
