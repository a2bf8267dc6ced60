"""Compute the results of texts, each different text once, and turn them into columns."""

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
    """What computes: an `Engine`, or anything with its `encode_stream`."""

    def encode_stream(self, sentences: Iterable[Any], *, rows: int = 4096, result: str = "vectors",
                      **options: Any) -> Iterator[Any]:
        """Yield the results of texts, in their order, each for at most `rows` texts."""


@dataclass(frozen=True, eq=False)
class Computed:
    """The results of some texts."""

    results: Sequence[Any]
    """One row for each text that could be encoded."""
    tokens: list[int]
    """How many tokens each of these texts has."""
    reasons: dict[int, str]
    """Why each of the other texts could not be encoded, by its index among all texts of this object."""


@dataclass(frozen=True)
class Recipe:
    """What to compute: a kind of result, the options of `Engine.encode_stream`, and the type of the numbers."""

    result: str
    options: dict[str, Any]
    dtype: str = "float32"
    images: bool = False
    """Whether the texts are images."""

    @property
    def at_once(self) -> int:
        """How many texts one call gets; of images as few as are read before any is computed, and one may be broken."""
        return TOGETHER if self.images else TEXTS_AT_ONCE

    @property
    def sample(self) -> Any:
        """An input that every model can read."""
        return np.zeros((64, 64, 3), np.uint8) if self.images else "a"

    def check(self, encoder: StreamEncoder) -> None:
        """Raise the errors of the options now."""
        if self.options.get("precision") in ("int8", "uint8") and self.options.get("ranges") is None:
            raise InputError(f"vectors in {self.options['precision']} need the ranges of their dimensions, which must "
                             "not depend on the part of the job; write np.stack([v.min(axis=0), v.max(axis=0)]) of "
                             "many float32 vectors v with np.save, and pass the file as --ranges")
        self._stream(encoder, [])

    def compute(self, encoder: StreamEncoder, texts: list[Any]) -> Computed:
        """Encode texts or images. One that the model refuses is found by halving, so that it does not stop the others.

        The reason of an image does not begin with "image 0", its number in a call of its own: that is none in the job.
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
        if self.result == "sparse":
            return [(row.indices, row.values) for row in results]
        return results.astype(np.float16) if self.dtype == "float16" else results

    def columns(self, results: Any) -> dict[str, Any]:
        """Return the columns of results, as arrays of Arrow."""
        columns = STREAMED[self.result].columns
        assert columns is not None
        return columns(results)


def joined(parts: Sequence[Computed], sizes: Sequence[int]) -> Computed:
    """Return the results of consecutive texts together.

    sizes: how many texts each part had; those of the last part need not be right, as no part follows it.
    """
    reasons: dict[int, str] = {}
    start = 0
    for part, size in zip(parts, [*sizes, 0], strict=False):        # no part follows the last one, whatever its size
        reasons |= {start + i: reason for i, reason in part.reasons.items()}
        start += size
    arrays = [part.results for part in parts if len(part.results)]
    results: Sequence[Any] = [row for array in arrays for row in array]
    if arrays and all(isinstance(array, np.ndarray) for array in arrays):
        results = np.concatenate(arrays)  # type: ignore[assignment]
    return Computed(results, [length for part in parts for length in part.tokens], reasons)
