"""Let a decoder write what is said in sounds that are encoded already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .backends import DecoderPlan
from .generation.settings import GenerationConfig
from .generation.steps import Row
from .segments import Cut
from .sources import SourceStepper
from .words import token_times


class SoundStepper(SourceStepper):
    """A `engine.generation.steps.Stepper` whose sources are the numbers of sounds that are encoded already."""

    def __init__(self, decoder: DecoderPlan, vectors: Sequence[np.ndarray], keep: bool = False):
        """keep: whether `times` will be called, after the requests are closed."""
        super().__init__(decoder)
        self._vectors, self._keep = vectors, keep
        self._numbers: dict[int, int] = {}
        """The number of the sound of each request that is open."""
        self._ready: dict[int, int] = {}
        """Requests of sounds whose keys and values are computed, by the number of the sound."""

    def __enter__(self) -> SoundStepper:
        return self

    def __exit__(self, *_: object) -> None:
        for request in self._ready.values():
            self._decoder.close(request)

    def first_logits(self, start: int) -> np.ndarray:
        """Return the logits after the start token [sounds, V], and keep what was computed of the sounds."""
        for number in range(len(self._vectors)):
            self._ready[number] = self._begin(number)
        scores = self._decoder.step([Row(request, None, np.array([start])) for request in self._ready.values()])
        return scores.logits

    def open(self, source: NDArray[np.int64] | None) -> int:
        """Begin a request for the sound of the number in `source`."""
        assert source is not None
        number = int(source[0])
        request = self._ready.pop(number) if number in self._ready else self._begin(number)
        self._numbers[request] = number
        return request

    def _begin(self, number: int) -> int:
        request, vectors = self._decoder.open(), self._vectors[number]
        self._decoder.remember([request], vectors, np.array([0, len(vectors)], np.int32))
        return request

    def close(self, request: int) -> None:
        """End a request, or keep what was computed of its sound for `times`."""
        number = self._numbers.pop(request)
        if self._keep:
            self._ready[number] = request
        else:
            self._decoder.close(request)

    def times(self, number: int, prompt: list[int], cuts: list[Cut], config: GenerationConfig,
              positions: int) -> np.ndarray:
        """Return the positions at which the tokens of segments of a sound begin, and at which the last one ends.

        prompt: the tokens before the text, up to the one that asks for no timestamps. positions: how many of the
        encoder's positions are sound, and not the silence behind it.
        """
        tokens = [*prompt, *(token for each in cuts for token in each.ids), config.eos_token_id[0]]
        heads = [(layer, head) for layer, head in config.alignment_heads]
        weights = self._decoder.attention_weights(self._ready[number], np.array(tokens), heads)
        return token_times(weights, len(prompt) - 1, positions)
