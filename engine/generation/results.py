"""A request to generate, and its results: the dataclasses that users get, and what queue and search share of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..base.errors import WeightsError
from ..base.functions import power
from ..model.generation_config import GenerationConfig, ids_array
from ..programs.observe import AttentionHead


class TokenLogprob(NamedTuple):
    """The log probability of a token in its place, under the model itself."""

    id: int
    logprob: float | None
    """ln p of the token, given those before it, with the bits of `Scored.log_probabilities`; None for the first token
    of a prompt that `echo` puts in front."""
    top: tuple[TokenLogprob, ...] = ()
    """The likeliest tokens in this place, as many as `logprobs` asks for, the likeliest first."""
    text: str | None = None
    """The text that the token adds, with U+FFFD for bytes that are no character; None without a tokenizer."""
    bytes: bytes | None = None
    """The text as bytes in UTF-8, also where they are no whole character."""


FinishReason: TypeAlias = Literal["stop", "length", "forbidden"]


@dataclass(frozen=True)
class Request:
    """One text to generate."""

    source: Sequence[int] | NDArray[np.integer] | None = None
    """The ids that the encoder reads; None for a model without an encoder."""
    prompt: Sequence[int] | NDArray[np.integer] | None = None
    """The first ids of the decoder; None, for a model with an encoder, is its start token."""
    config: GenerationConfig = field(default_factory=GenerationConfig)
    uniforms: Sequence[Sequence[float]] | None = None
    """Numbers in [0, 1) to draw with, in place of numbers from the seed: a row for each sample, with one number for
    each token that is drawn."""
    heads: tuple[AttentionHead, ...] = ()
    """The heads of cross-attention, as pairs (layer, head) from 0, whose weights each result shall have."""
    cache_key: str = ""
    """The prompt shares its keys and values in the cache only with prompts of requests with an equal key."""
    text: str | None = None
    """The text that became the prompt, for `echo`; None for ids."""


def decoder_ids(request: Request) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Return the source of a request, if it has one, and the first tokens of its decoder: int64 [S] and [P]."""
    source = None if request.source is None else ids_array("source", request.source)
    prompt = None if request.prompt is None else ids_array("prompt", request.prompt)
    return source, request.config.prompt(prompt, source is not None)


def forced_first(config: GenerationConfig, prompt: int) -> list[int]:
    """Return the tokens that follow a prompt of this number of tokens without a choice, and that no result shows."""
    first = config.forced_bos_token_id
    return [first] if first is not None and prompt == 1 else []


@dataclass(frozen=True)
class Echo:
    """The prompt of a request with `echo`, with which each of its results begins."""

    ids: list[int]
    text: str | None
    """The text of the prompt as the caller gave it; None for ids."""
    logprobs: list[TokenLogprob]
    """The log probabilities of the ids that the model has read so far, if they were asked for; the list grows."""


@dataclass(frozen=True)
class Generated:
    """One result of a request."""

    ids: list[int]
    """The new tokens, without the forced first token and the end token; `echo` puts those of the prompt in front."""
    score: float
    """sum(log p(token)) / n^length_penalty over the n new tokens, a forced first token and the end token included.

    p is the model's own probability in greedy search and sampling. A beam search ranks by the changed log
    probabilities (processors.py), so its score adds those. Forced tokens add 0 in both.
    """
    finish_reason: FinishReason
    """Why it ended: "stop" for an end token or a stop text, "length" for its greatest length, and "forbidden" where no
    token was allowed."""
    text: str | None = None
    """The text of `ids`, where a tokenizer made it; without the stop text, unless `include_stop` keeps it."""
    stop_text: str | None = None
    """The stop text that ended it. Then `ids` has all tokens that were made, also what came after the stop text in the
    last one."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    """The log probability of each token of `ids`, if they were asked for."""
    seed: int | None = None
    """The seed of its random numbers, if its tokens were drawn."""
    echoed: int = 0
    """How many of `ids`, and of `logprobs`, are those of the prompt, which `echo` puts in front of the new tokens."""
    attentions: dict[AttentionHead, NDArray[np.float32]] = field(default_factory=dict, repr=False, compare=False)
    """By (layer, head), weights of cross-attention [n,S]: row i has the weights of the S source tokens in the step that
    chose ids[i]. Each row sums to 1. They are left out of comparisons with ==."""

    @property
    def ended(self) -> bool:
        """Whether an end token came, which `ids` leaves out."""
        return self.finish_reason == "stop" and self.stop_text is None


@dataclass(frozen=True)
class Scored:
    """The log probabilities of given tokens under a model."""

    log_probabilities: NDArray[np.float32]
    """[n]: ln p of each token, given the tokens before it; the first token of a prompt has none and is left out."""

    @property
    def total(self) -> float:
        """The log probability, ln p, of all tokens together."""
        return float(self.log_probabilities.sum(dtype=np.float64))


@dataclass(frozen=True)
class Token:
    """A new token of a request, as its ticket gives it as soon as it is certain: in a beam search, at its end.

    Together the tokens of a sample are the ids of its result.
    """

    sample: int
    """The place of the result among the results of the request."""
    id: int


def logits_error(name: str = "") -> WeightsError:
    """Return the error of a request for which the model computed logits that are NaN or infinite.

    name: what the message calls the request; "" where its caller names it.
    """
    return WeightsError(f"{name}{': ' * bool(name)}the model computed logits that are NaN or infinite: its weights are "
                        "damaged, or its precision is too low")


def score_of(total: float, new_tokens: int, length_penalty: float) -> float:
    """Return total / new_tokens^length_penalty; 0 for no tokens."""
    return total / float(power(new_tokens, length_penalty)) if new_tokens else 0.0
