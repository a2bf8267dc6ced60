"""`Engine.encode_tokens`: a vector for each token of a text, for late interaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag, is_one_of
from ..base.errors import InputError, UnsupportedError, shown
from ..base.stop import NEVER, Stop
from ..encoding.text_encoder import ROLE_PROMPTS, TextEncoder, role_prompt
from ..heads.late import late_tokens, late_vectors
from ..heads.runner import HeadRunner
from ..model.late_config import LateConfig
from ..text.sentences import Sentence, add_prompt, choose_prompt, read_sentences
from ..weights.modules import normalize
from .columns import fixed_lists, lists
from .method import EncodingModel, Method, Options, option
from .workload import Bound, Slice, Workload, head_logits, token_vectors


def _role(name: str, value: Any) -> str | None:
    if value is not None and not is_one_of(value, ROLE_PROMPTS):
        raise InputError(f'{name} must be "query", "document" or None, not {shown(value)}')
    return value


@dataclass(frozen=True)
class EncodeTokensOptions(Options):
    """The options of `Engine.encode_tokens` that say what is computed."""

    task: str | None = option("document", _role)
    prompt_name: str | None = None
    prompt: str | None = None
    normalize_embeddings: bool = option(False, flag)


def _needs(model: EncodingModel) -> None:
    if "encode_tokens" not in model.heads:
        raise UnsupportedError("this model has one vector for each text, which encode returns; encode_tokens is "
                               "for folders of sentence-transformers' MultiVectorEncoder and of BGE-M3. "
                               'encode(..., output_value="token_embeddings") returns what is pooled')


class _LateVectors(Workload):
    """Vectors that the encoder gives, without those of the tokens that the task leaves out."""

    def __init__(self, encoder: TextEncoder, late: LateConfig, inputs: Sequence[Sentence],
                 options: EncodeTokensOptions):
        width = encoder.token_width
        super().__init__(token_vectors(encoder), inputs,
                         lambda texts, stop: late_tokens(encoder, late, texts, options.task, stop),
                         [np.zeros((0, 0), np.float32)] * len(inputs), bytes_of_token=4 * width)
        self._late, self._options = late, options

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the vectors of the tokens that count."""
        options = self._options
        super().take(part, numbers, [
            late_vectors(self._late, part.tokens.input_ids[i], row, options.task, options.normalize_embeddings)
            for i, row in zip(numbers, rows, strict=True)])

    def bound(self) -> Bound:
        """Return how much the call computes at most, with what queries are filled up with."""
        found, filled = super().bound(), self._late.expansion_length if self._options.task == "query" else None
        return Bound(found.sequences, found.tokens + (filled or 0) * found.sequences)


class _HeadVectors(Workload):
    """Vectors that a head gives; none for a text without tokens."""

    def __init__(self, runner: HeadRunner, inputs: Sequence[Sentence], *, normalized: bool):
        width = runner.config.outputs
        super().__init__(head_logits(runner), inputs, lambda texts, stop: runner.encoder.tokens(texts, stop=stop),
                         [np.zeros((0, width), np.float32)] * len(inputs), bytes_of_token=4 * width)
        self._normalized = normalized

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the vectors of each sequence."""
        super().take(part, numbers, [normalize(row) for row in rows] if self._normalized else rows)


def _prepare(model: EncodingModel, texts: Sequence[Sentence], options: EncodeTokensOptions) -> Workload:
    encoder, prompt = model.text_encoder, options.prompt
    if prompt is None and options.prompt_name is None and options.task is not None:
        prompt = role_prompt(encoder.text, ROLE_PROMPTS[options.task])
    inputs = add_prompt(choose_prompt(encoder.text, prompt, options.prompt_name), texts)
    if encoder.text.late is None:
        return _HeadVectors(model.runner_of("encode_tokens"), inputs, normalized=options.normalize_embeddings)
    return _LateVectors(encoder, encoder.text.late, inputs, options)


ENCODE_TOKENS = Method(
    "encode_tokens", EncodeTokensOptions, _needs, lambda given, options: read_sentences(given), _prepare,
    streamed="tokens", columns=lambda rows: {"vectors": lists(rows, fixed_lists(np.concatenate(rows)))})
