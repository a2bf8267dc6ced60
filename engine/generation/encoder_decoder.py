"""`SourceStepper`: the steps of one call, over the plans of a decoder and of an encoder that reads sources."""

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
from ..programs.observe import Head
from .top_k import Exp


class SourceStepper:
    """The requests of one call, and their steps; other calls may use the plans meanwhile.

    All sources that came since the last step are encoded together, when a row first needs one of them.
    """

    def __init__(self, decoder: Decoder, encoder: Plan | None = None, config: ModelConfig | None = None,
                 stop: Stop = NEVER):
        """Take a decoder's plan and, for a decoder that reads a source, an encoder's plan and configuration.

        stop: when the call has to stop. The requests end when this object dies.
        """
        self._decoder, self._encoder, self._config, self._stop = decoder, encoder, config, stop
        self._waiting: dict[int, Batch] = {}

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

    def open(self, source: Any, tokens: int = 0, waits: bool = True) -> int | None:
        """Begin a request and return its number.

        source: what `packed` returned. The next step with a row of this request encodes it, together with the sources
        of other new requests. tokens: the most tokens of its hypotheses together. waits: whether to wait while there is
        no room for them; if False, the result is None then. A caller that has requests open must not wait, because
        other callers may wait for these.
        """
        request = self._decoder.open(self, tokens, self._stop if waits else None)
        if request is not None and source is not None:
            self._waiting[request] = source
        return request

    def step(self, rows: Sequence[Row]) -> Scores:
        """Encode the sources that the rows need, and compute the step as `engine.backends.interfaces.Decoder` does."""
        self._encode(rows)
        return self._decoder.step(rows, self._stop)

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[Head]) -> NDArray[np.float32]:
        """Return weights of cross-attention, as `engine.backends.interfaces.Decoder` describes."""
        return self._decoder.attention_weights(request, tokens, heads, self._stop)

    def release(self, hypotheses: Iterable[int]) -> None:
        """Say that no later row has these parents."""
        self._decoder.release(hypotheses)

    def close(self, request: int) -> None:
        """End a request."""
        self._waiting.pop(request, None)
        self._decoder.close(request)

    def _encode(self, rows: Sequence[Row]) -> None:
        if not self._waiting or not any(row.request in self._waiting for row in rows):
            return
        assert self._encoder is not None
        waiting, self._waiting = self._waiting, {}
        try:
            batch = joined([*waiting.values()])
            vectors = self._encoder.forward(batch, self._stop)
            self._decoder.cache_sources([*waiting], vectors, batch.cu_seqlens, self._stop)
        except BaseException:
            self._waiting = waiting
            raise
