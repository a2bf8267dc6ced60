"""Compare the vectors of another precision with float32's, and how well both rank scored pairs: `engine compare`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.errors import InputError
from ..interface.engine import Engine
from ..loading.load import load_model
from ..model.bits import FASTEST
from ..model.precision import WAYS, canonical_name, stored_format
from ..weights.modules import normalize
from ..weights.quantize import convert_model


@dataclass(frozen=True, eq=False)
class Data:
    """The sentences to compare on, and their scores."""

    rows: list[list[str]]
    """n rows of one sentence each, or n rows of two."""
    scores: np.ndarray | None
    """float64 [n]: how similar people rated the two sentences of a row; None when the file has no scores."""


@dataclass(frozen=True)
class Comparison:
    """The differences between one precision and float32 over all sentences."""

    cosine_mean: float
    """Mean over sentences of the cosine between the float32 vector and the other vector."""
    cosine_min: float
    """Minimum of the same cosines."""
    spearman: tuple[float, float] | None
    """Spearman's correlation, times 100, of the scores with the cosines of the pairs.

    The two values are for float32 and for the other precision.
    """


def parse_data(lines: Sequence[str], source: str) -> Data:
    """Return the data on tab-separated lines, all with the same columns: one or two sentences, or a score and two.

    Raises an `InputError` that names `source`, such as the file, and the number of the line.
    """
    table = [line.split("\t") for line in lines]
    if not table:
        raise InputError(f"{source} is empty; expected lines of a score and two sentences, tab-separated")
    columns = len(table[0])
    scores = []
    for number, row in enumerate(table, 1):
        if len(row) != columns or columns > 3:
            expected = "1 to 3" if columns > 3 else f"{columns}, as in line 1"
            raise InputError(f"{source}, line {number}: {len(row)} tab-separated columns, expected {expected}")
        if columns == 3:
            scores.append(_score(row.pop(0), f"{source}, line {number}"))
    if columns == 3 and len(set(scores)) == 1:
        raise InputError(f"{source}: all scores are {scores[0]:g}; expected different ones, or no column of scores")
    return Data(table, np.array(scores) if columns == 3 else None)


def compare_precision(path: str | os.PathLike[str], precision: str, data: Data, *, backend: str = "auto",
                      threads: int | None = None, bits: str = FASTEST, show_progress_bar: bool | None = None,
                      revision: str | None = None) -> Comparison:
    """Encode the data in float32 and in `precision`, and compare the vectors.

    The second model is the result of `convert_model`, as `engine convert` writes it. Raises the errors of `Engine.load`
    and `Engine.encode`.
    """
    sentences = [sentence for row in data.rows for sentence in row]
    engines = load_in(("float32", precision), path, backend=backend, threads=threads, bits=bits, revision=revision)
    # The cosines are computed in float64, so that their rounding is far smaller than what they are to measure.
    vectors = [normalize(engine.encode(sentences, show_progress_bar=show_progress_bar).astype(np.float64))
               for engine in engines]
    cosines = np.einsum("nd,nd->n", *vectors)
    ranking = None
    if data.scores is not None:
        cosines_of_pairs = (np.einsum("nd,nd->n", each[::2], each[1::2]) for each in vectors)
        before, after = (100 * spearman(each, data.scores) for each in cosines_of_pairs)
        ranking = before, after
    return Comparison(float(cosines.mean()), float(cosines.min()), ranking)


def load_in(precisions: Sequence[str], path: str | os.PathLike[str], *, backend: str, threads: int | None, bits: str,
            revision: str | None) -> list[Engine]:
    """Return an engine of a model in each precision, whose weights are converted as `engine convert` does it.

    All engines are created before any of them runs, so that an unsupported precision fails at once. Raises the errors
    of `load_model`, `convert_model` and `Engine`.
    """
    model = load_model(path, kind="encode", revision=revision)
    # A static model multiplies nothing, and only stores its table in a precision, so the Engine is told none; a way to
    # multiply (`WAYS`) is passed on all the same, so that the Engine refuses it.
    computes = any(part.config.num_layers for part in model.parts.values())
    return [Engine(convert_model(model, stored_format(name)), backend=backend, threads=threads, bits=bits,
                   precision=name if computes or name in WAYS else None)
            for name in map(canonical_name, precisions)]


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's rank correlation of a [n] and b [n]: Pearson's correlation of their ranks.

    Equal values share their mean rank. The result is NaN when a or b is constant. (Spearman, "The proof and measurement
    of association between two things", 1904.)
    """
    x, y = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    norm = math.sqrt((x @ x) * (y @ y))
    return float(x @ y) / norm if norm else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value [n], from 1 on; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _score(text: str, where: str) -> float:
    """Return the score in a field of a file; raises an `InputError` that begins with `where` if it is no number."""
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{where}: expected a score, a number, in the first of 3 columns, not {text[:60]!r}")
    return score
