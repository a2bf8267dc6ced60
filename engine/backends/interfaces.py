"""The interfaces of a backend, and of the plans that it makes from encoders and decoders.

A backend turns a configuration and weights into a `Plan`; a plan turns a packed `Batch` into token vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..base.errors import UnsupportedError
from ..base.stop import NEVER, Stop
from ..model.config import ModelConfig
from ..model.run_config import RunConfig
from ..programs.observe import AttentionHead, Observed
from ..weights.packed import PackedFormat
from .batch import Batch
from .ops_interface import Ops
from .steps import CacheStatistics, Row, Scores


class Plan(Protocol):
    """A model that is ready to run: it holds the weights, laid out for the kernels, and a workspace.

    Any thread may call it.
    """

    @property
    def longest(self) -> int | None:
        """The most tokens of a sequence that the workspace holds; None if there is no limit."""

    def forward(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return the token vectors, float32 [N, D], of the N real tokens of a batch.

        stop: when to stop, with `TimedOut` or `Cancelled`; the plan looks at it while it waits for its turn, and
        between two instructions of the pass.
        """


@runtime_checkable
class PoolingPlan(Plan, Protocol):
    """A plan that also pools token vectors on its device, so that `Engine.encode` need not copy them from there."""

    def pool(self, batch: Batch, modes: Sequence[str], skip: int | np.ndarray = 0, stop: Stop = NEVER) -> np.ndarray:
        """Return one vector for each sequence, float32 [B, len(modes)*D].

        modes: any of `engine.model.text_config.POOLINGS`; their results lie side by side. skip: number of tokens at the
        start of each sequence that are not pooled, int [B] or one for all. stop: ends the call.
        """


@runtime_checkable
class ObservingPlan(Plan, Protocol):
    """A plan that also gives hidden states, attention weights, and the entropy of attention weights."""

    def observe(self, batch: Batch, observed: Observed, stop: Stop = NEVER) -> list[np.ndarray]:
        """Return the token vectors, float32 [N, D], and then the arrays that `observed` describes, float32.

        The token vectors have the bits of `forward`, and `stop` is that of `forward`.
        """


class Decoder(Protocol):
    """A decoder that is ready to run. It computes steps for rows of many requests, and keeps their keys and values.

    A hypothesis is one path of tokens from the beginning of a request, whose keys and values are cached, and has a
    number; steps.py has the picture. Any thread may call a decoder.
    """

    @property
    def vocab_size(self) -> int:
        """V, the number of logits of a row."""

    @property
    def longest(self) -> int | None:
        """The most tokens that a hypothesis may have, prompt included; None if there is no limit."""

    @property
    def portable(self) -> bool:
        """Whether its scores have portable bits, so that those of beams with changed scores have to have them, too."""

    def open(self, owner: object = None) -> int:
        """Begin a request and return its number.

        owner: the request ends when this object dies; None for a request that only `close` ends.
        """

    def statistics(self) -> CacheStatistics:
        """Return how many tokens and bytes the cache holds."""

    def cache_sources(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32],
                      stop: Stop = NEVER) -> None:
        """Compute the keys and values of the sources of requests, from the vectors [N, memory_size] of an encoder.

        cu_seqlens: the source of request i has the rows cu_seqlens[i] to cu_seqlens[i+1] - 1.
        """

    def step(self, rows: Sequence[Row], stop: Stop = NEVER) -> Scores:
        """Cache the new tokens of each row as a new hypothesis below its parent, and compute the scores that it wants.

        The result has the numbers of the new hypotheses, in the order of the rows.
        stop: when to stop, with `TimedOut` or `Cancelled`; then none is added. Raises `InputError` for an invalid row.
        """

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[AttentionHead],
                          stop: Stop = NEVER) -> NDArray[np.float32]:
        """Return the weights of cross-attention [heads, n, S] for the first n tokens of a request; add no hypothesis.

        The source of the request must be known. heads: pairs (layer, head), both from 0. Raises `InputError` for a
        model without cross-attention, or without one of the heads.
        """

    def cut(self, hypothesis: int, length: int, request: int) -> int:
        """Add the first `length` tokens of a hypothesis to a request as a new hypothesis, and return its number.

        The hypothesis may be of any open request, and ends without the new one. Raises `InputError` for one that has
        ended, and for a length behind its end. A request with a source must not have a hypothesis of another source.
        """

    @property
    def held(self) -> int:
        """The tokens that the cells in use have room for, without a walk through the hypotheses."""

    def release(self, hypotheses: Iterable[int]) -> None:
        """Promise that no later row has these parents. A cache row is freed when no other hypothesis needs it.

        It never fails, also in a finalizer or a signal handler; `close` neither.
        """

    def close(self, request: int) -> None:
        """End a request: release all its hypotheses, and its source."""


class Backend(Protocol):
    """One way to run a model."""

    name: str
    batch_invariant: bool
    """Whether a sequence has the same bits in every batch, so that works of several callers may share one."""

    def unavailable(self) -> str | None:
        """Return the reason, in words for the user, why this backend cannot run here; None when it can."""

    def tuned(self) -> bool:
        """Return whether its kernels are made for this CPU, rather than for any CPU; called only where it can run."""

    def describe(self) -> str:
        """Describe the instruction set, the device and the versions that it uses, in lines for `engine info`."""

    def layout(self, precision: str, decodes: bool = False, portable: bool = False) -> PackedFormat | None:
        """Return the layout of the packed linear maps that it reads in a precision; None if it reads none.

        decodes: whether they are those of a decoder. portable: for results with portable bits.
        """

    def no_portable_bits(self) -> str | None:
        """Return why it has no portable bits here, in words for the user; None if it has them."""

    def prepare(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Plan:
        """Lay the weights out and return a plan; raises `UnsupportedError` if the backend cannot run the model."""

    def ops(self, threads: int, portable: bool = False) -> Ops:
        """Return the single operations of this backend, which run on up to `threads` threads.

        portable: whether results have portable bits, which the backend must have.
        """


@runtime_checkable
class DecodingBackend(Backend, Protocol):
    """A backend that also runs decoders."""

    def prepare_decoder(self, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig) -> Decoder:
        """Lay the weights of a decoder out; raises `UnsupportedError` if the backend cannot run the model."""


def refuse_decoder(config: ModelConfig) -> None:
    """Raise `UnsupportedError` for a decoder, where an encoder is expected."""
    if config.decodes:
        raise UnsupportedError("this model is a decoder, which gives scores of the next token and no token vectors; "
                               "load it with Generator")
