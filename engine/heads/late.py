"""A vector for each token of a text, for late interaction: Khattab and Zaharia 2020 (arXiv 2004.12832), section 3.

A query may be filled up with tokens such as [MASK]. Unless the model's settings say otherwise, no token reads them, and
they read the tokens of the query; each has a vector in the result. `LateConfig` has the settings.

A model with one vector for each text may have vectors of tokens besides, by a head: BGE-M3 (Chen et al. 2024, arXiv
2402.03216, section 3.2). It reads queries as documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..base.stop import NEVER, Stop
from ..encoding.call import Call
from ..encoding.text_encoder import TextEncoder
from ..model.late_config import LateConfig
from ..text.sentences import Sentence, slices
from ..text.tokenizer import Tokens
from ..weights.modules import normalize
from .runner import HeadRunner


def encode_tokens(encoder: TextEncoder, late: LateConfig, texts: Sequence[Sentence], call: Call, *,
                  task: str | None, normalized: bool) -> list[np.ndarray]:
    """Return the token vectors of texts: float32 [T_i, D'] for each, of the width D' behind the model's last module.

    task: "query", "document" or None. normalized: scale each vector to length 1, whatever the model does.
    """
    token_vectors: list[np.ndarray] = [np.zeros((0, 0), np.float32)] * len(texts)
    for part in slices(texts):
        tokens = late_tokens(encoder, late, texts[part.start : part.stop], task, call.stop)
        for members, rows in encoder.token_vectors(tokens, call):
            for i, vectors in zip(members, rows, strict=True):
                token_vectors[part[i]] = late_vectors(encoder, late, tokens.input_ids[i], vectors, task, normalized)
            call.advance(len(members))
    return token_vectors


def late_tokens(encoder: TextEncoder, late: LateConfig, texts: Sequence[Sentence], task: str | None,
                stop: Stop = NEVER) -> Tokens:
    """Return the tokens of texts of a task, filled up: the first of three steps of `encode_tokens`.

    The second step is `TextEncoder.token_vectors`.
    """
    return expanded(encoder.tokenizer_of(late.limit(task, encoder.limit))(list(texts), stop), late, task)


def late_vectors(encoder: TextEncoder, late: LateConfig, ids: np.ndarray, vectors: np.ndarray, task: str | None,
                 normalized: bool) -> np.ndarray:
    """Return the vectors of a text, float32 [T', D'], of those of all its tokens [T, D'], whose ids are [T].

    normalized: scale each to length 1, unless `encoder` has done so.
    """
    kept = scored(ids, late, task)
    vectors = vectors if kept.all() else vectors[kept]
    return normalize(vectors) if normalized and not encoder.scales_tokens else vectors


def head_vectors(runner: HeadRunner, vectors: np.ndarray, normalized: bool) -> np.ndarray:
    """Return the vectors of a text's tokens that a head gave; normalized: as in `late_vectors`."""
    return normalize(vectors) if normalized and not runner.config.ends_with_normalize else vectors


def encode_tokens_by_head(runner: HeadRunner, texts: Sequence[Sentence], call: Call, *, normalized: bool
                          ) -> list[np.ndarray]:
    """Return the token vectors of texts that a head gives: float32 [T_i, D'] for each; arguments of `encode_tokens`."""
    token_vectors = [np.zeros((0, runner.config.outputs), np.float32)] * len(texts)
    for part in slices(texts):
        tokens = runner.encoder.tokens(texts[part.start : part.stop], stop=call.stop)
        for i, vectors in runner.logits(tokens, call):
            token_vectors[part[i]] = head_vectors(runner, vectors, normalized)
            call.advance(1)
    return token_vectors


def expanded(tokens: Tokens, late: LateConfig, task: str | None) -> Tokens:
    """Return the tokens of texts of a task, filled up, with the number of tokens of each text that are read."""
    if task != "query" or late.expansion_length is None:
        return tokens
    sizes = [len(ids) for ids in tokens.input_ids]
    fill = np.int32(late.expansion_id or 0)
    missing = [max(late.expansion_length - size, 0) for size in sizes]
    return replace(
        tokens, reads=None if late.attend else sizes,
        input_ids=[np.append(ids, np.full(n, fill)) for ids, n in zip(tokens.input_ids, missing, strict=True)],
        token_type_ids=[np.append(types, np.zeros(n, np.int32))
                        for types, n in zip(tokens.token_type_ids, missing, strict=True)])


def scored(ids: np.ndarray, late: LateConfig, task: str | None) -> np.ndarray:
    """Return which tokens of a text have a vector in the result: bool [T]."""
    kept = np.ones(len(ids), bool)
    if (task or "document") in late.skip_tasks and late.skip_ids:
        kept &= ~np.isin(ids, late.skip_ids)
    if task != "query" and late.keep_ids:
        kept &= np.isin(ids, late.keep_ids)
    return kept
