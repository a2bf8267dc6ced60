"""`SourceStepper`: the steps of one session, over the plans of a decoder and of an encoder that reads sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.batch import Batch, joined
from ..backends.interfaces import Decoder, Plan
from ..backends.steps import Row, Scores
from ..base.errors import InputError, UnsupportedError
from ..base.functions import exp
from ..base.stop import NEVER, Stop
from ..encoding.packing import pack
from ..model.config import ModelConfig
from ..programs.observe import AttentionHead
from .top_k import Exp


class SourceStepper:
    """The requests of one session, and their steps; other calls may use the plans meanwhile.

    A source is encoded in the first step that has a row of its request, together with the other sources of that step.
    """

    def __init__(self, decoder: Decoder, encoder: Plan | None = None, config: ModelConfig | None = None,
                 stop: Stop = NEVER):
        """Take a decoder's plan and, for a decoder that reads a source, an encoder's plan and configuration.

        stop: when all requests have to stop. They end when this object dies.
        """
        self._decoder, self._encoder, self._config, self._stop = decoder, encoder, config, stop
        self._waiting: dict[int, Batch] = {}        # the sources that are not encoded yet, by request

    @property
    def vocab_size(self) -> int:
        """Return V."""
        return self._decoder.vocab_size

    @property
    def longest(self) -> int | None:
        """Return the most tokens of a hypothesis; None if there is no limit."""
        return self._decoder.longest

    @property
    def exp(self) -> Exp:
        """Return e^x of scores, with the bits of the decoder."""
        return exp if self._decoder.portable else np.exp

    def packed(self, source: NDArray[np.int64] | None) -> Any:
        """Return a source [S] as `open` takes it: as the encoder reads it. Raises an error if it cannot read it."""
        if self._encoder is None and source is not None:
            raise UnsupportedError("this model has no encoder, so a request has a prompt and no source")
        if self._encoder is not None and (source is None or not len(source)):
            raise InputError("this model has an encoder, so a request needs a source of at least one token")
        return None if self._config is None else pack(self._config, [source])[0]

    def open(self, source: Any, tokens: int = 0, stop: Stop | None = None) -> int | None:
        """Begin a request and return its number.

        source: what `packed` returned. tokens: the most tokens of its hypotheses together. stop: wait until there is
        room for them; without it, the result is None while there is none. A caller that has requests open must not
        wait: another caller with open requests may wait for the room of these.
        """
        request = self._decoder.open(self, tokens, stop)
        if request is not None and source is not None:
            self._waiting[request] = source
        return request

    def step(self, rows: Sequence[Row]) -> Scores:
        """Encode the sources that the rows need, and compute the step as `engine.backends.interfaces.Decoder` does."""
        self._encode(rows)
        return self._decoder.step(rows, self._stop)

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[AttentionHead]
                          ) -> NDArray[np.float32]:
        """Return weights of cross-attention, as `engine.backends.interfaces.Decoder` describes."""
        return self._decoder.attention_weights(request, tokens, heads, self._stop)

    def release(self, hypotheses: Iterable[int]) -> None:
        """Say that no later row has these parents."""
        self._decoder.release(hypotheses)

    def close(self, request: int) -> None:
        self._waiting.pop(request, None)
        self._decoder.close(request)

    def _encode(self, rows: Sequence[Row]) -> None:
        if self._waiting:
            needed = {row.request: self._waiting[row.request] for row in rows if row.request in self._waiting}
            if needed:
                self._cache_sources(needed)
                for request in needed:
                    del self._waiting[request]

    def _cache_sources(self, sources: dict[int, Any]) -> None:
        """Let the encoder read the sources of requests, and the decoder keep their keys and values."""
        assert self._encoder is not None
        batch = joined([*sources.values()])
        vectors = self._encoder.forward(batch, self._stop)
        self._decoder.cache_sources([*sources], vectors, batch.cu_seqlens, self._stop)
