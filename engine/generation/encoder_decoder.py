"""Encode the sources of requests for a decoder: a `Stepper` made of an encoder's plan and a decoder's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..backends.interfaces import DecoderPlan, Plan
from ..backends.steps import Row, Scores, Top
from ..base.errors import InputError, UnsupportedError
from ..base.stop import Stop
from ..encoding.packing import pack
from ..model.config import ModelConfig
from ..programs.observe import Head


class SourceStepper:
    """A `engine.backends.steps.Stepper` for the requests of one call; other calls may use the plans meanwhile.

    All sources that came since the last step are encoded together, when a row first needs one of them.
    """

    def __init__(self, decoder: DecoderPlan, encoder: Plan | None = None, config: ModelConfig | None = None,
                 stop: Stop | None = None):
        """Take a decoder's plan and, for a decoder that reads a source, an encoder's plan and configuration.

        stop: when the call has to stop. The requests end when this object dies.
        """
        self._decoder, self._encoder, self._config = decoder, encoder, config
        self._stop = stop or Stop()
        self._waiting: dict[int, NDArray[np.int64]] = {}

    @property
    def vocab_size(self) -> int:
        """Return V."""
        return self._decoder.vocab_size

    @property
    def longest(self) -> int | None:
        """Return the most tokens of a hypothesis; None if there is no limit."""
        return self._decoder.longest

    def open(self, source: NDArray[np.int64] | None, tokens: int = 0, waits: bool = True) -> int | None:
        """See `Stepper`; raises `InputError` for a source that the encoder cannot read."""
        if self._encoder is None and source is not None:
            raise UnsupportedError("this model has no encoder, so a request has a prompt and no source")
        if self._encoder is not None and (source is None or not len(source)):
            raise InputError("this model has an encoder, so a request needs a source of at least one token")
        if source is not None and self._config is not None:
            pack(self._config, [source], None, None, None)      # checks the ids and the length
        request = self._decoder.open(self, tokens, self._stop if waits else None)
        if request is not None and source is not None:
            self._waiting[request] = source
        return request

    def step(self, rows: Sequence[Row]) -> Scores:
        """See `Stepper`."""
        self._encode(rows)
        return self._decoder.step(rows, self._stop)

    def step_top(self, rows: Sequence[Row], k: int) -> Top:
        """See `Stepper`."""
        self._encode(rows)
        return self._decoder.step_top(rows, k, self._stop)

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[Head]) -> NDArray[np.float32]:
        """See `Stepper`."""
        return self._decoder.attention_weights(request, tokens, heads, self._stop)

    def release(self, hypotheses: Iterable[int]) -> None:
        """See `Stepper`."""
        self._decoder.release(hypotheses)

    def close(self, request: int) -> None:
        """See `Stepper`."""
        self._waiting.pop(request, None)
        self._decoder.close(request)

    def _encode(self, rows: Sequence[Row]) -> None:
        if not self._waiting or not any(row.request in self._waiting for row in rows):
            return
        assert self._encoder is not None
        assert self._config is not None
        waiting, self._waiting = self._waiting, {}
        batch, _ = pack(self._config, list(waiting.values()), None, None, None)
        try:
            vectors = self._encoder.forward(batch, self._stop)
            self._decoder.cache_sources([*waiting], vectors, batch.cu_seqlens, self._stop)
        except BaseException:
            self._waiting = waiting
            raise
