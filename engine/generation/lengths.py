"""`Lengths`: how many tokens a prompt, a source and a text to score may have; checks.py and scoring.py ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..base.errors import ContextTooLong, InputError
from ..model.config import ModelConfig
from ..model.generation_config import GenerationConfig, check_length, ids_array
from .results import forced_first

_PADS_HAVE_NO_POSITION = ("m2m_100",)
"""Families whose decoder gives positions only to tokens other than the pad token."""


@dataclass(frozen=True)
class Bound:
    """The most tokens that one part of a request may have."""

    part: str
    """The name of the part in a message, such as "the prompt"."""
    positions: int | None
    """The most tokens by the model's positions; None if they set no limit."""
    together: int | None = None
    """max_batch_tokens, for a source, which one step reads, and for a prompt of a model whose table of distances ends
    there; None for any other part."""
    verb: str = "reads"
    """The verb of the message: what the model does with the part."""
    advice: str = ""
    """The end of the message about too many tokens for the model's positions: what else the user can do."""

    @property
    def most(self) -> int | None:
        """The most tokens; None if there is no limit."""
        return min((limit for limit in (self.positions, self.together) if limit is not None), default=None)

    def check(self, tokens: int, at_least: bool = False) -> None:
        """Raise `InputError` for too many tokens. at_least: whether the part may have more than these."""
        check_length(self.part, tokens, self.positions, self.verb, at_least, self.advice)
        if self.together is not None and tokens > self.together:
            raise ContextTooLong(f"{self.part} has {'at least ' * at_least}{tokens:,} tokens, but max_batch_tokens="
                                 f"{self.together} bounds it; shorten it, or load the model with a larger "
                                 "max_batch_tokens")


class Lengths:
    """The bounds of the requests to a model that is ready to run."""

    def __init__(self, decoder: ModelConfig, encoder: ModelConfig | None, longest: int | None, together: int):
        """longest: the most tokens of a hypothesis, as the decoder's plan says. together: max_batch_tokens."""
        self._encoder, self._longest, self._vocab_size = encoder, longest, decoder.vocab_size
        # A table of biases by distance ends at max_batch_tokens. Then `longest` is this number.
        table = None if longest == decoder.longest_sequence else longest
        self.prompt = Bound("the prompt", decoder.longest_sequence, table)
        self.source = Bound("the source", encoder.longest_sequence if encoder else None, together)
        self.scored = Bound("the text", None if longest is None else longest + 1, verb="scores")
        """The bound of a text that is scored from its second token on; the model does not read the last token."""
        self.target = replace(self.scored, part="the target", positions=longest)    # after a prompt of a token or more
        self._pad = decoder.pad_token_id if decoder.family in _PADS_HAVE_NO_POSITION else None      # None: allowed

    @property
    def advice(self) -> str:
        """The end of a message about too many tokens for the model's positions: what else the user can do."""
        return self.prompt.advice

    def name_long_context(self, longest: int) -> None:
        """Let messages name the option of the load with which the model reads up to this number of tokens."""
        advice = f", or load the model with long_context=True (--long-context), with which it reads {longest:,} tokens"
        self.prompt, self.scored, self.target = (replace(bound, advice=advice)
                                                 for bound in (self.prompt, self.scored, self.target))

    def check(self, source: NDArray[np.int64] | None, prompt: NDArray[np.int64], config: GenerationConfig) -> None:
        """Raise `InputError` for the source or the prompt of a request to generate that is too long."""
        self._check_inputs(source, prompt)
        # The model reads the forced tokens behind the prompt as if they were of it.
        self.prompt.check(len(prompt) + len(forced_first(config, len(prompt))))

    def check_scored(self, source: NDArray[np.int64] | None, prompt: NDArray[np.int64], continuation: Sequence[int]
                     ) -> NDArray[np.int64]:
        """Return the ids of a continuation, int64 [n]; raises `InputError` for a request that cannot be scored."""
        self._check_inputs(source, prompt)
        self.prompt.check(len(prompt))
        ids = check_continuation(len(prompt), continuation, self._vocab_size, self._longest, self.advice)
        self._check_pads("a target", ids[:-1])      # the model does not read the last token
        return ids

    def _check_inputs(self, source: NDArray[np.int64] | None, prompt: NDArray[np.int64]) -> None:
        """Raise `InputError` for a source that is too long, or for a prompt that has a token without a position."""
        if self._encoder is not None and source is not None and len(source):
            self.source.check(len(source))
        self._check_pads("a prompt", prompt)

    def _check_pads(self, what: str, ids: NDArray[np.int64]) -> None:
        """Raise `InputError` for the pad token in a text of a family that gives it no position of its own.

        The reason: in transformers, it depends on how many tokens one call reads whether later positions count it.
        """
        if self._pad is not None and (ids == self._pad).any():
            raise InputError(f"{what} has the id {self._pad} of the pad token, to which this family of models gives no "
                             "position; leave it out")


def check_continuation(prompt: int, ids: Sequence[int], vocab_size: int, longest: int | None, advice: str = ""
                       ) -> NDArray[np.int64]:
    """Return the ids of a continuation, int64 [n]; raises `InputError` for wrong ids, and for too many.

    prompt: the number of tokens before it. longest: the most tokens that the model reads; it never reads the last one
    of the continuation. advice: the end of a message about too many tokens.
    """
    array = ids_array("a continuation", ids)
    if array.size and array.max() >= vocab_size:
        raise InputError(f"a continuation has the id {array.max()}, but the model has {vocab_size} tokens")
    check_length("the prompt with its continuation", prompt + len(array), None if longest is None else longest + 1,
                 "scores", advice=advice)
    return array
