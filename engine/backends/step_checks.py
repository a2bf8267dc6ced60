"""Checks of a step's rows and logits that every decoder makes, and the cap of logits."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, shown
from ..base.functions import tanh
from ..model.config import ModelConfig
from ..programs.observe import AttentionHead
from .steps import Row


def check_vectors(vectors: np.ndarray, width: int) -> None:
    """Raise `InputError` unless vectors are [N, width] of an encoder; width: the decoder's memory_size, 0 for none."""
    if not width:
        raise InputError("this decoder reads no encoder, so its requests have no source")
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise InputError(f"the vectors of sources must be [N, {width}], not {list(vectors.shape)}")


def check_sources(rows: Sequence[Row], known: Container[int]) -> None:
    """Raise `InputError` if the request of a row is not among `known`, the requests with a source."""
    for row in rows:
        if row.request not in known:
            raise InputError(f"request {row.request} has no source; give its vectors to cache_sources first")


def check_attention_heads(heads: Sequence[AttentionHead], config: ModelConfig | None) -> None:
    """Raise `InputError` unless these are heads of a decoder's cross-attention; config: None if it has none."""
    if config is None:
        raise InputError("this decoder has no cross-attention, so it gives no weights of it")
    for layer, head in heads:
        if not (0 <= layer < config.num_layers and 0 <= head < config.num_heads):
            raise InputError(f"cross-attention has {config.num_layers} layers with {config.num_heads} heads; "
                             f"{shown((layer, head))} is no pair (layer, head) of them")


def check_scored(rows: Sequence[Row]) -> None:
    """Raise `InputError` unless each row scores no more tokens than it has, and says what it wants after each."""
    for row in rows:
        if not 0 <= row.scored <= len(row.tokens):
            raise InputError(f"a row of {len(row.tokens)} tokens has no scores of its last {shown(row.scored)}")
        if len(row.wants) not in (1, row.scored) or any(want.logits != row.wants_logits for want in row.wants[1:]):
            raise InputError(f"a row of {row.scored} scored tokens has one want, or one for each; all logits of each, "
                             f"or of none, not {shown(row.wants)}")


def finite_rows(rows: Sequence[Row], logits: np.ndarray, log_sum_exp: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return for each row of a step whether all its lines have finite logits, apart from -inf: bool [R].

    logits: [M, V], of the lines that want all logits. log_sum_exp: [L], of the other lines.
    """
    finite = np.ones(len(rows), bool)
    lines = [np.ones(0, bool), np.isfinite(log_sum_exp)]        # whether each line of the two kinds is finite
    if len(logits):
        with np.errstate(invalid="ignore"):
            lines[0] = np.isfinite(logits.max(axis=1))
    if lines[0].all() and lines[1].all():       # nearly always
        return finite
    ends = [0, 0]
    for i, row in enumerate(rows):
        kind = int(not row.wants_logits)        # the index in `lines` and `ends`
        begin, ends[kind] = ends[kind], ends[kind] + row.scored
        finite[i] = lines[kind][begin : ends[kind]].all()
    return finite


def cap_logits(logits: np.ndarray, softcap: float) -> np.ndarray:
    """Replace each logit x of [lines, V] by c tanh(x/c), in place, and return them; a softcap c of 0 changes nothing.

    The tangent is computed in float64, for one line at a time, to save memory.
    """
    if softcap:
        cap = logits.dtype.type(softcap)
        for line in logits:
            line[:] = cap * tanh(line / cap)
    return logits
