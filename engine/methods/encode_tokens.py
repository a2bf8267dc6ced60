"""`Engine.encode_tokens`: a vector for each token of a text, for late interaction.

Khattab and Zaharia 2020 (arXiv 2004.12832), section 3. A query may be filled up with tokens such as [MASK]. Unless the
model's settings say otherwise, no token reads them, and they read the tokens of the query; each has a vector in the
result. `LateConfig` has the settings.

A model with one vector for each text may have vectors of tokens besides, by a head: BGE-M3 (Chen et al. 2024, arXiv
2402.03216, section 3.2). It reads queries as documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.arguments import flag
from ..base.errors import UnsupportedError
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..encoding.text_encoder import ROLE_PROMPTS, TextEncoder, role_prompt
from ..heads.runner import HeadRunner
from ..model.late_config import LateConfig
from ..text.sentences import Sentence, add_prompt, choose_prompt, read_sentences
from ..text.tokens import Tokens
from ..weights.modules import normalize
from .columns import fixed_lists, lists
from .method import EncodingModel, Method, check_role
from .workload import NUMBER_BYTES, Cost, Slice, Workload, head_logits, token_vectors


@dataclass(frozen=True)
class EncodeTokensOptions(Options):
    """The options of `Engine.encode_tokens` that say what is computed."""

    task: str | None = option("document", check_role)
    prompt_name: str | None = None
    prompt: str | None = None
    normalize_embeddings: bool = option(False, flag)


def _needs(model: EncodingModel) -> None:
    """Raise `UnsupportedError` for a model that was not trained to have vectors of tokens."""
    if "encode_tokens" not in model.heads:
        raise UnsupportedError("this model has one vector for each text, which encode returns; encode_tokens is "
                               "for folders of sentence-transformers' MultiVectorEncoder and of BGE-M3. "
                               'encode(..., output_value="token_embeddings") returns what is pooled')


class _LateVectors(Workload):
    """The workload of a model for late interaction: vectors of tokens, without tokens that the task skips."""

    def __init__(self, encoder: TextEncoder, late: LateConfig, inputs: Sequence[Sentence],
                 options: EncodeTokensOptions):
        width, tokenizer = encoder.token_width, encoder.tokenizer_of(late.limit(options.task, encoder.limit))
        super().__init__(token_vectors(encoder), inputs, cost=Cost(token=NUMBER_BYTES * width),
                         tokenize=lambda texts, stop: _expanded(tokenizer(list(texts), stop), late, options.task),
                         results=[np.zeros((0, 0), np.float32)] * len(inputs))      # for texts without tokens
        self._late, self._task = late, options.task
        # Vectors that have length 1 already are not scaled again, which would change their bits.
        self._scales = options.normalize_embeddings and not encoder.scales_tokens

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the vectors of each sequence, float32 [T', D'], without those of tokens that the task skips."""
        for number, vectors in zip(numbers, rows, strict=True):
            is_kept = _are_kept(part.tokens.input_ids[number], self._late, self._task)
            vectors = vectors if is_kept.all() else vectors[is_kept]
            self.results[part.places[number]] = normalize(vectors) if self._scales else vectors


class _HeadVectors(Workload):
    """The workload of a model with a head for vectors of tokens; a text without tokens has none."""

    def __init__(self, runner: HeadRunner, inputs: Sequence[Sentence], *, normalized: bool):
        width = runner.config.outputs
        super().__init__(head_logits(runner), inputs, cost=Cost(token=NUMBER_BYTES * width),
                         tokenize=lambda texts, stop: runner.encoder.tokens_or_unread(texts, stop=stop),
                         results=[np.zeros((0, width), np.float32)] * len(inputs))  # for texts without tokens
        self._scales = normalized and not runner.config.ends_with_normalize     # scaled twice, bits would change

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the vectors of each sequence, float32 [T', D']."""
        super().take(part, numbers, [normalize(row) for row in rows] if self._scales else rows)


def _expanded(tokens: Tokens, late: LateConfig, task: str | None) -> Tokens:
    """Return the tokens of queries, each padded to `late.expansion_length` tokens; those of documents unchanged.

    `Tokens.reads` then keeps all tokens from attending to the added ones, unless `late.attend` is set.
    """
    if task != "query" or late.expansion_length is None:
        return tokens
    sizes = [len(ids) for ids in tokens.input_ids]
    added_id = np.int32(late.expansion_id or 0)
    missing = [max(late.expansion_length - size, 0) for size in sizes]      # tokens to add to each query
    return replace(
        tokens, reads=None if late.attend else sizes,
        input_ids=[np.append(ids, np.full(n, added_id)) for ids, n in zip(tokens.input_ids, missing, strict=True)],
        token_type_ids=[np.append(types, np.zeros(n, np.int32))
                        for types, n in zip(tokens.token_type_ids, missing, strict=True)])


def _are_kept(ids: np.ndarray, late: LateConfig, task: str | None) -> np.ndarray:
    """Return, for the token ids of a text, which have a vector in the result: bool [T]."""
    is_kept = np.ones(len(ids), bool)
    if (task or "document") in late.skip_tasks and late.skip_ids:
        is_kept &= ~np.isin(ids, late.skip_ids)
    if task != "query" and late.keep_ids:
        is_kept &= np.isin(ids, late.keep_ids)
    return is_kept


def _prepare(model: EncodingModel, texts: Sequence[Sentence], options: EncodeTokensOptions) -> Workload:
    """Return the workload of a call, with the prompt of the call or of its task in front of each text."""
    encoder, prompt = model.text_encoder, options.prompt
    if prompt is None and options.prompt_name is None and options.task is not None:
        prompt = role_prompt(encoder.text, ROLE_PROMPTS[options.task])
    inputs = add_prompt(choose_prompt(encoder.text, prompt, options.prompt_name), texts)
    if encoder.text.late is None:
        return _HeadVectors(model.runner_of("encode_tokens"), inputs, normalized=options.normalize_embeddings)
    return _LateVectors(encoder, encoder.text.late, inputs, options)


ENCODE_TOKENS = Method(
    "encode_tokens", EncodeTokensOptions, _needs, lambda given, options: read_sentences(given), _prepare,
    with_role=lambda model, role, options, inputs: (model, {"task": role, **options}), streamed="tokens",
    columns=lambda rows: {"vectors": lists(rows, fixed_lists(np.concatenate(rows)))})
