"""Decode the text of recordings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.interfaces import Decoder
from ..base.stop import NEVER, Stop
from ..generation.encoder_decoder import SourceStepper
from ..generation.scoring import LastLogits
from ..model.generation_config import GenerationConfig
from .alignment import token_times
from .segments import Cut


class AudioStepper(SourceStepper):
    """The steps of requests whose sources are the numbers of windows of recordings.

    Several requests may read a window one after the other. Its keys and values stay until `forget`.
    """

    def __init__(self, decoder: Decoder, vectors: Callable[[np.ndarray], np.ndarray], positions: int,
                 stop: Stop = NEVER):
        """vectors: returns the vectors of the encoder [S, D] for the features of a window. positions: their number S.

        stop: when all requests have to stop.
        """
        super().__init__(decoder, stop=stop)
        self._vectors, self._positions = vectors, positions
        self._features: list[Callable[[], np.ndarray]] = []
        """Functions that return the features of each window, which the encoder reads once."""
        self._numbers: dict[int, int] = {}
        """The window of each open request."""
        self._ready: dict[int, int] = {}
        """The request of each window whose cross-attention keys and values are kept, by its number."""

    def __enter__(self) -> AudioStepper:
        return self

    def __exit__(self, *_: object) -> None:
        for request in self._ready.values():
            self._decoder.close(request)

    def add(self, features: Callable[[], np.ndarray]) -> int:
        """Return the number of a new window. features: returns those of the window, [channels, 3000]."""
        self._features.append(features)
        return len(self._features) - 1

    def first_logits(self, number: int, start: int) -> LastLogits:
        """Return the request for all logits [1,V] after the start token, the first request for a window."""
        return LastLogits([np.array([start])], ids=slice(None), packed=np.array([number]), source=self._positions)

    def packed(self, source: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return a source, which is a number and needs no packing."""
        return source

    def open(self, source: Any, tokens: int = 0, stop: Stop | None = None) -> int | None:
        """Begin a request for the window whose number is in `source`, with its keys and values if they are kept."""
        number = int(source[0])
        request = self._ready.pop(number, None)
        if request is None:
            request = super().open(number, tokens=0, stop=stop)     # without a count: this cache has no bound
            assert request is not None
        self._numbers[request] = number
        return request

    def _cache_sources(self, sources: dict[int, Any]) -> None:
        """Let the encoder read windows one by one, and the decoder keep their keys and values."""
        for request, number in sources.items():
            vectors = self._vectors(self._features[number]())
            self._decoder.cache_sources([request], vectors, np.array([0, len(vectors)], np.int32), self._stop)

    def close(self, request: int) -> None:
        """End a request, and keep the cross-attention keys and values of its window."""
        number = self._numbers.pop(request, None)
        if number is not None and request not in self._waiting:     # the encoder has read the window
            self._ready[number] = request
        else:
            super().close(request)

    def forget(self, number: int) -> None:
        """Free the cross-attention keys and values of a window, which no request reads any more."""
        self._decoder.close(self._ready.pop(number))

    def times(self, number: int, prompt: list[int], cuts: list[Cut], config: GenerationConfig,
              positions: int) -> np.ndarray:
        """Return the positions at which the tokens of a window's segments begin, and at which the last one ends.

        prompt: the tokens before the text, up to the token that asks for no timestamps. positions: the number of the
        encoder's positions that are audio; the silence of the padding follows them.
        """
        tokens = [*prompt, *(token for each in cuts for token in each.ids), config.eos_token_id[0]]
        heads = [(layer, head) for layer, head in config.alignment_heads]
        weights = self._decoder.attention_weights(self._ready[number], np.array(tokens), heads, self._stop)
        return token_times(weights, len(prompt) - 1, positions)
