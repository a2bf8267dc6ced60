"""Decode the text of recordings that are encoded already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..backends.interfaces import Decoder
from ..backends.steps import Row
from ..base.errors import located
from ..base.stop import NEVER, Stop
from ..generation.encoder_decoder import SourceStepper
from ..generation.results import logits_error
from ..model.generation_config import GenerationConfig
from .alignment import token_times
from .segments import Cut


class AudioStepper(SourceStepper):
    """The steps of requests whose sources are the numbers of recordings that are encoded already."""

    def __init__(self, decoder: Decoder, vectors: Sequence[np.ndarray], places: Sequence[str], keep: bool = False,
                 stop: Stop = NEVER):
        """Take the vectors of recordings, and what a message calls each.

        keep: whether `times` will be called, after the requests are closed. stop: when the call has to stop.
        """
        super().__init__(decoder, stop=stop)
        self._vectors, self._keep, self.places = vectors, keep, places
        self._numbers: dict[int, int] = {}
        """The number of the recording of each open request."""
        self._ready: dict[int, int] = {}
        """The request of each recording whose cross-attention keys and values are kept, by its number."""

    def __enter__(self) -> AudioStepper:
        return self

    def __exit__(self, *_: object) -> None:
        for request in self._ready.values():
            self._decoder.close(request)

    def first_logits(self, start: int) -> np.ndarray:
        """Return the logits after the start token [recordings, V], and keep the cross-attention keys and values."""
        for number in range(len(self._vectors)):
            self._begin(number)
        scores = self._decoder.step([Row(request, None, np.array([start])) for request in self._ready.values()],
                                    self._stop)
        for place, finite in zip(self.places, scores.finite.tolist(), strict=True):
            with located(place):
                if not finite:
                    raise logits_error()
        return scores.logits

    def packed(self, source: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return a source, which is a number and needs no packing."""
        return source

    def open(self, source: NDArray[np.int64] | None, tokens: int = 0, waits: bool = True) -> int:
        """Begin a request for the recording whose number is in `source`."""
        assert source is not None
        number = int(source[0])
        if number not in self._ready:
            self._begin(number)
        request = self._ready.pop(number)
        self._numbers[request] = number
        return request

    def _begin(self, number: int) -> None:
        request, vectors = self._decoder.open(self), self._vectors[number]
        assert request is not None
        self._ready[number] = request       # at once, so that it ends with this object where the next line fails
        self._decoder.cache_sources([request], vectors, np.array([0, len(vectors)], np.int32), self._stop)

    def close(self, request: int) -> None:
        """End a request; if `times` will be called, keep its cross-attention keys and values."""
        number = self._numbers.pop(request, None)
        if self._keep and number is not None:
            self._ready[number] = request
        else:
            self._decoder.close(request)

    def times(self, number: int, prompt: list[int], cuts: list[Cut], config: GenerationConfig,
              positions: int) -> np.ndarray:
        """Return the positions at which the tokens of a recording's segments begin, and at which the last one ends.

        prompt: the tokens before the text, up to the token that asks for no timestamps. positions: the number of the
        encoder's positions that are audio; the silence of the padding follows them.
        """
        tokens = [*prompt, *(token for each in cuts for token in each.ids), config.eos_token_id[0]]
        heads = [(layer, head) for layer, head in config.alignment_heads]
        weights = self._decoder.attention_weights(self._ready[number], np.array(tokens), heads, self._stop)
        return token_times(weights, len(prompt) - 1, positions)
