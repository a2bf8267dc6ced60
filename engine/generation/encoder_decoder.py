"""`SourceStepper`: the steps of a model that generates. It encodes sources with the encoder's plan, if there is one,
before the decoder's plan computes a step. `StepQueue` calls it, in the thread that has the queue's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..backends.batch import Batch, join_batches
from ..backends.interfaces import Decoder, Plan
from ..backends.steps import Row, Scores
from ..base.errors import InputError, UnsupportedError
from ..base.functions import exp
from ..base.stop import NEVER, Stop
from ..encoding.packing import pack
from ..model.config import ModelConfig
from ..programs.observe import AttentionHead
from .top_k import Exp


class KeptSource:
    """A source that several works read, one after the other, such as a window of a recording.

    The decoder keeps its keys and values to the end of its `with` block, or as long as this object lives.
    """

    __slots__ = ("__weakref__", "close", "era", "request", "vectors")

    def __init__(self, vectors: Callable[[Stop], NDArray[np.float32]]):
        """vectors: computes the encoder's output [S, D], for S positions of the source; its argument ends it early."""
        self.vectors = vectors
        self.request = -1
        """The number of the decoder's request that has the keys and values; -1 before the first step."""
        self.era: object = None     # the `_Era` of the stepper that opened the request
        self.close: Callable[[], object] = lambda: None     # ends the request, once there is one

    def __enter__(self) -> KeptSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Source = Batch | KeptSource | None
"""The source of a request: the packed batch of one text, or a kept source; None for a model without an encoder."""


class _Era:
    """The owner of the requests that a stepper opens between two resets. When it dies, the decoder ends them."""


class SourceStepper:
    """The requests of the queue of a model, and their steps.

    A source is encoded in the first step that has a row of its request, together with the other sources of that step.
    """

    def __init__(self, decoder: Decoder, encoder: Plan | None = None, config: ModelConfig | None = None):
        """Take a decoder's plan and, for a decoder that reads a source, an encoder's plan and configuration."""
        self._decoder, self._encoder, self._config = decoder, encoder, config
        self._open: set[int] = set()        # the open requests without those of a `KeptSource`
        self.reset()

    def reset(self) -> None:
        """End all requests, also one that the decoder had opened when an interrupt came before `open` noted it."""
        for request in self._open:      # in a forked child, the frame of a lost thread may keep the old era alive
            self._decoder.close(request)
        self._open = set()
        self._era = _Era()      # the old era dies here, which ends its requests
        self._waiting: dict[int, Batch | KeptSource] = {}       # the sources that are not encoded yet, by request

    @property
    def vocab_size(self) -> int:
        """V, the number of logits of a row."""
        return self._decoder.vocab_size

    @property
    def longest(self) -> int | None:
        """The most tokens of a hypothesis; None if there is no limit."""
        return self._decoder.longest

    @property
    def exp(self) -> Exp:
        """The function e^x for scores, with the bits that the decoder computes."""
        return exp if self._decoder.portable else np.exp

    def packed(self, source: NDArray[np.int64] | None) -> Batch | None:
        """Return a source [S] packed for the encoder, for `open`; raises an error if the model cannot read it."""
        if self._encoder is None and source is not None:
            raise UnsupportedError("this model has no encoder, so a request has a prompt and no source")
        if self._encoder is not None and (source is None or not len(source)):
            raise InputError("this model has an encoder, so a request needs a source of at least one token")
        return None if self._config is None or source is None else pack(self._config, [source])[0]

    def open(self, source: Source) -> int:
        """Begin a request and return its number; for a `KeptSource` with an open request, return the number of that."""
        if isinstance(source, KeptSource):
            if source.era is not self._era:     # it has no request, or one from before a reset
                source.close()
                source.request = self._decoder.open(source)
                source.close, source.era = partial(self._decoder.close, source.request), self._era
                self._waiting[source.request] = source
            return source.request
        request = self._decoder.open(self._era)
        self._open.add(request)
        if source is not None:
            self._waiting[request] = source
        return request

    @property
    def held(self) -> int:
        """The number of tokens that the cells in use have room for."""
        return self._decoder.held

    def cut(self, hypothesis: int, length: int, request: int) -> int:
        """Return a new hypothesis of a request: the first `length` tokens of another one, which are not copied."""
        return self._decoder.cut(hypothesis, length, request)

    def step(self, rows: Sequence[Row], stop: Stop = NEVER) -> Scores:
        """Encode the sources that these rows need, compute the decoder's step, and return the scores of the rows."""
        if self._waiting:
            self.encode([row.request for row in rows], stop)
        return self._decoder.step(rows, stop)

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[AttentionHead],
                          stop: Stop = NEVER) -> NDArray[np.float32]:
        """Return the weights of cross-attention of some heads, [heads, tokens, S], in a pass over all these tokens."""
        if self._waiting:
            self.encode([request], stop)
        return self._decoder.attention_weights(request, tokens, heads, stop)

    def release(self, hypotheses: Iterable[int]) -> None:
        """Tell the decoder that no later row continues these hypotheses, so that their cells can be freed."""
        self._decoder.release(hypotheses)

    def close(self, request: int) -> None:
        """End a request; that of a `KeptSource` stays open, with its keys and values."""
        if request in self._open:
            self._open.discard(request)
            self._waiting.pop(request, None)
            self._decoder.close(request)

    def encode(self, requests: Iterable[int], stop: Stop) -> None:
        """Encode the sources of these requests that were not encoded yet, all texts in one batch; the decoder keeps
        their keys and values."""
        needed = {request: self._waiting[request] for request in requests if request in self._waiting}
        texts = {request: source for request, source in needed.items() if isinstance(source, Batch)}
        if texts:
            assert self._encoder is not None
            batch = join_batches([*texts.values()])
            self._decoder.cache_sources([*texts], self._encoder.forward(batch, stop), batch.cu_seqlens, stop)
        for request, source in needed.items():
            if isinstance(source, KeptSource):
                vectors = source.vectors(stop)
                self._decoder.cache_sources([request], vectors, np.array([0, len(vectors)], np.int32), stop)
        for request in needed:      # only now, so that an interrupted call can be repeated
            del self._waiting[request]
