"""The requests for a window beside that for its text: its first logits, and the times of its tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.stop import Stop
from ..generation.encoder_decoder import KeptSource, SourceStepper
from ..generation.scoring import LastLogits
from ..generation.works import PassWork
from ..model.generation_config import GenerationConfig
from .alignment import token_times
from .segments import Cut


def first_logits(window: KeptSource, start: int, positions: int) -> LastLogits:
    """Return the work that computes all logits [1,V] after the start token: the first request for a window.

    start: the id of that token. positions: the number of the encoder's vectors of the window.
    """
    return LastLogits([np.array([start])], ids=slice(None), packed=window, source=positions)


class TokenTimes(PassWork):
    """The work that finds the positions at which the tokens of a window's segments begin, and the last one ends."""

    def __init__(self, window: KeptSource, prompt: list[int], cuts: list[Cut], config: GenerationConfig,
                 positions: int):
        """prompt: the tokens before the text, up to the token that asks for no timestamps. cuts: the segments.

        config: has the alignment heads and the end token. positions: how many of the encoder's positions are audio.
        """
        super().__init__()
        self._window, self._prompt, self._positions = window, prompt, positions
        self._tokens = np.array([*prompt, *(token for each in cuts for token in each.ids), config.eos_token_id[0]])
        self._heads = [(layer, head) for layer, head in config.alignment_heads]

    def compute(self, stepper: SourceStepper, stop: Stop) -> Any:
        """Return the positions as `token_times` does, by the weights of cross-attention of one pass."""
        request = stepper.open(self._window)
        try:
            weights = stepper.attention_weights(request, self._tokens, self._heads, stop)
        finally:
            stepper.close(request)
        return token_times(weights, len(self._prompt) - 1, self._positions)
