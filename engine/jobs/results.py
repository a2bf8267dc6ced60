"""Compute the results of a job's texts or images, of which the model refuses some, and turn them into columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..base.errors import InputError
from ..images.inputs import TOGETHER
from ..methods.table import STREAMED
from ..text.tokens import counting_tokens

TEXTS_AT_ONCE = 1024
"""How many texts are tokenized and computed by one call. Two calls run at a time: one tokenizes, the other computes."""


class StreamEncoder(Protocol):
    """An object that computes results: an `Engine`, or anything with its `encode_stream`."""

    def encode_stream(self, sentences: Iterable[Any], *, rows: int = 4096, result: str = "vectors",
                      **options: Any) -> Iterator[Any]:
        """Yield the results of texts, in their order, each for at most `rows` texts."""


@dataclass(frozen=True, eq=False)
class Computed:
    """The results of a list of texts, in its order."""

    results: Sequence[Any]
    """One row for each text that could be encoded: an array [n, D], or a list."""
    tokens: list[int]
    """The number of tokens of each text that could be encoded."""
    reasons: dict[int, str]
    """Why each of the other texts could not be encoded, by its index in the list."""


@dataclass(frozen=True)
class Recipe:
    """A kind of result, and the options of `Engine.encode_stream` that compute it."""

    result: str
    options: dict[str, Any]
    dtype: str = "float32"
    """"float16" to round vectors to it, otherwise "float32"."""
    images: bool = False
    """Whether the texts are images."""

    @property
    def at_once(self) -> int:
        """How many texts one call computes. Images: as many as are read together, as one broken file fails a call."""
        return TOGETHER if self.images else TEXTS_AT_ONCE

    @property
    def sample(self) -> Any:
        """A text, or an image [64, 64, 3], that every model can read."""
        return np.zeros((64, 64, 3), np.uint8) if self.images else "a"

    def check(self, encoder: StreamEncoder) -> None:
        """Raise the errors of wrong options before anything is computed."""
        if self.options.get("precision") in ("int8", "uint8") and self.options.get("ranges") is None:
            raise InputError(f"vectors in {self.options['precision']} need the ranges of their dimensions, which must "
                             "not depend on the part of the job; write np.stack([v.min(axis=0), v.max(axis=0)]) of "
                             "many float32 vectors v with np.save, and pass the file as --ranges")
        self._stream(encoder, [])       # checks the options that it passes on, and computes nothing

    def compute(self, encoder: StreamEncoder, texts: list[Any]) -> Computed:
        """Encode texts or images. A refused one is found by halving the list, so that the others are still encoded.

        A message about an image begins with "image 0", its index in the last call; the job's reason leaves that out.
        """
        if not texts:
            return Computed(results=[], tokens=[], reasons={})
        try:
            with counting_tokens() as lengths:
                [results] = self._stream(encoder, texts)
            return Computed(self._rows(results), tokens=lengths, reasons={})
        except InputError as error:
            if len(texts) == 1:
                return Computed(results=[], tokens=[], reasons={0: str(error).removeprefix("image 0").lstrip(": ")})
        half = len(texts) // 2
        halves = texts[:half], texts[half:]
        return joined([self.compute(encoder, part) for part in halves], sizes=[len(part) for part in halves])

    def _stream(self, encoder: StreamEncoder, texts: list[Any]) -> Iterator[Any]:
        return encoder.encode_stream(texts, rows=max(1, len(texts)), result=self.result,
                                     **{"truncation": True} | self.options)

    def _rows(self, results: Any) -> Sequence[Any]:
        """Return the results of a call as `Computed.results`: pairs of sparse indices and values, or arrays."""
        if self.result == "sparse":
            return [(row.indices, row.values) for row in results]
        return results.astype(np.float16) if self.dtype == "float16" else results

    def columns(self, results: Any) -> dict[str, Any]:
        """Return the output columns of a part, as arrays of Arrow by name, from `Computed.results`."""
        columns = STREAMED[self.result].columns
        assert columns is not None
        return columns(results)


def joined(parts: Sequence[Computed], sizes: Sequence[int]) -> Computed:
    """Return the results of consecutive lists of texts as those of one list.

    sizes: how many texts each part had, refused ones included; the last number is not read, as no part follows it.
    """
    reasons: dict[int, str] = {}
    start = 0
    for part, size in zip(parts, [*sizes, 0], strict=False):        # `sizes` may leave out the last one
        reasons |= {start + i: reason for i, reason in part.reasons.items()}
        start += size
    arrays = [part.results for part in parts if len(part.results)]
    results: Sequence[Any] = [row for array in arrays for row in array]
    if arrays and all(isinstance(array, np.ndarray) for array in arrays):
        results = np.concatenate(arrays)  # type: ignore[assignment]
    return Computed(results, [length for part in parts for length in part.tokens], reasons)
