"""Measure which inputs of a model's linear maps are large, so that 4-bit weights round less where they matter more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends import get_backend
from ..backends.batch import Batch
from ..backends.ops_interface import Ops
from ..backends.reference.decoder import ReferenceDecoder
from ..backends.reference.plan import ReferencePlan
from ..backends.steps import Row
from ..base.arguments import positive_int
from ..base.cpus import choose_threads
from ..base.errors import InputError, UnsupportedError, listed, shown
from ..base.progress import progress
from ..model.config import ModelConfig
from ..text.tokenizer import Tokenizer
from ..weights.model import Model

LEAST_TOKENS = 512
"""The fewest tokens to measure on: fewer say too little about the inputs of a model."""
LEAST = 1e-4
"""The least importance of a column, where the mean of all columns is 1."""
CHARACTERS = 4
"""Characters of a piece of text for each token of a sequence, about as many as a token has; the rest is cut off."""


def measure_importance(model: Model, texts: str | Sequence[str], *, max_tokens: int = 8192, sequence_length: int = 512,
                       show_progress_bar: bool | None = None) -> dict[str, np.ndarray]:
    """Return how much an error of each column of each linear weight counts: float32 [K] by the weight's name.

    It is the mean square of the column's input over the tokens of the texts, divided by the mean of all columns, so
    that the sum over columns of importance times squared error is about the squared error of the map's results. Give
    the result to `convert_model`. The model runs in float32, one operation at a time.

    model: a language model or an encoder, with a tokenizer. texts: what it will read in use, or like that; a long text
    is cut into sequences. max_tokens: no more tokens than these are read. sequence_length: tokens of a sequence at
    most. Raises `InputError` for fewer than `LEAST_TOKENS` tokens in all, and `UnsupportedError` for a model with an
    encoder and a decoder, and for one without a tokenizer.

    The weighting is that of the diagonal of the Hessian in Frantar et al., "GPTQ" (2022), equation 1.
    """
    if not isinstance(model, Model):
        raise InputError(f"measure_importance takes a Model, not {shown(model)}; load_model returns one")
    max_tokens, length = positive_int("max_tokens", max_tokens), positive_int("sequence_length", sequence_length)
    parts = [part for part in model.parts.values() if part is not model.images]
    if len(parts) != 1:
        raise UnsupportedError("importance is measured for a language model or an encoder, and this model has the "
                               f"parts {listed([*model.parts])}; convert it without a calibration text")
    [part] = parts
    if part.text is None:
        raise UnsupportedError("importance is measured on texts, and this model has no tokenizer")
    if part.layout is not None:
        raise UnsupportedError("the model is packed for kernels; measure the original model")
    tokenizer = Tokenizer(part.text, max_tokens=None, threads=1)
    if part.config.longest_sequence:
        length = min(length, part.config.longest_sequence)
    ops = get_backend("auto").ops(choose_threads(None))
    squares, read = _InputSquares(part.config, part.weights, ops), 0
    with progress(max_tokens, show_progress_bar, "Calibration", " tokens") as advance:
        for ids in _sequences(tokenizer, [texts] if isinstance(texts, str) else texts, length):
            sequence = ids[: max_tokens - read]
            squares.read(sequence)
            read += len(sequence)
            advance(len(sequence))
            if read == max_tokens:
                break
    if read < LEAST_TOKENS:
        raise InputError(f"the calibration texts have {read} tokens; give {LEAST_TOKENS} at least, better {max_tokens}")
    return {name: _divided_by_mean(means) for name, means in squares.means().items()}


def _sequences(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> Iterator[list[int]]:
    """Yield the token ids of each piece of the texts, at most `length` of them and at least one."""
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"texts must be a text or several, and one of them is {shown(text)}")
        for first in range(0, len(text), CHARACTERS * length):
            ids = tokenizer.encode(text[first : first + CHARACTERS * length])
            if ids:
                yield ids[:length]


def _divided_by_mean(means: np.ndarray) -> np.ndarray:
    """Return mean squares [K] divided by their mean, and at least `LEAST`, in float32; ones if all are 0."""
    mean = float(means.mean())
    return np.maximum(means / mean if mean > 0 else np.ones_like(means), LEAST).astype(np.float32)


class _RecordingOps:
    """The single operations of a backend, whose `linear` also adds up the squares of the inputs of each weight."""

    def __init__(self, ops: Ops):
        """squares: sums, float64 [K], by id() of the weight's array. rows: the number of inputs added up in each."""
        self._ops = ops
        self.squares: dict[int, np.ndarray] = {}
        self.rows: dict[int, int] = {}

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        """Return the backend's result for x [M, K] and a weight [N, K], after adding up the squares of x."""
        key = id(weight)        # the plan keeps the weights, so that no other array gets the same id
        squares = np.einsum("mk,mk->k", x, x, dtype=np.float64)
        self.squares[key] = self.squares.get(key, 0) + squares
        self.rows[key] = self.rows.get(key, 0) + len(x)
        return self._ops.linear(x, weight, bias, activation, residual)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def means(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the mean squares, float64 [K], of the inputs of each weight that was used, by its name."""
        return {name: self.squares[id(weight)] / self.rows[id(weight)] for name, weight in weights.items()
                if id(weight) in self.rows}


class _InputSquares:
    """Runs sequences of token ids in float32, one operation after the other, and measures the inputs of linear maps."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, np.ndarray], ops: Ops):
        """ops: the single operations of a backend, which the plans of the reference call on whole arrays."""
        self._ops, self._offset = _RecordingOps(ops), config.position_offset
        self._plan: ReferenceDecoder | ReferencePlan
        if config.decodes:
            self._plan = ReferenceDecoder(config, weights, np.float32, self._ops)
        else:
            self._plan = ReferencePlan(config, weights, np.float32, self._ops)

    def read(self, ids: Sequence[int]) -> None:
        """Run one sequence of at least one token id, and add its inputs to the measures."""
        tokens: NDArray[np.int64] = np.asarray(ids, np.int64)
        if isinstance(self._plan, ReferenceDecoder):
            request = self._plan.open()
            assert request is not None
            try:
                self._plan.step([Row(request, parent=None, tokens=tokens)])
            finally:
                self._plan.close(request)
            return
        positions = np.arange(self._offset, self._offset + len(tokens), dtype=np.int32)
        self._plan.forward(Batch(np.array([0, len(tokens)], np.int32), tokens.astype(np.int32), inputs_embeds=None,
                                 position_ids=positions, token_type_ids=np.zeros_like(positions)))

    def means(self) -> dict[str, np.ndarray]:
        """Return the mean squares, float64 [K], of the inputs of each weight, by its name."""
        return self._ops.means(self._plan.weights)
