"""`engine compare`: how far vectors in another precision are from float32's, and how well both rank pairs."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .engine import Engine
from .errors import InputError
from .model import load_model
from .pooling import normalize
from .quantize import convert_model


@dataclass(frozen=True, eq=False)
class Data:
    """Sentences to compare on."""

    rows: list[list[str]]
    """n sentences or n pairs of them."""
    scores: np.ndarray | None
    """float64 [n]: how alike people find the two of a pair; None when nobody was asked."""


@dataclass(frozen=True)
class Comparison:
    """One precision against float32, over all sentences."""

    cosine_mean: float
    """Of the cosine between the two vectors of a sentence."""
    cosine_min: float
    spearman: tuple[float, float] | None
    """Rank correlation, times 100, of the scores with the cosine of a pair: in float32, and in the other precision."""


def parse_data(lines: Sequence[str], source: str) -> Data:
    """Tab-separated lines: a sentence, or two, or a score and two sentences; all of one kind.

    Raises `InputError` that names `source` and the number of the line.
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


def compare_precision(
    path: str | os.PathLike[str],
    precision: str,
    data: Data,
    *,
    backend: str = "auto",
    threads: int | None = None,
    show_progress_bar: bool | None = None,
) -> Comparison:
    """Encode the data with a float32 model, and with what `engine convert` makes of it in `precision`, and compare.

    Raises what `Engine.load` and `Engine.encode` raise.
    """
    sentences = [sentence for row in data.rows for sentence in row]
    # Both are loaded before either works, so that what cannot run is told at once.
    model = load_model(path)
    engines = [
        Engine(convert_model(model, name), backend=backend, threads=threads, precision=name)
        for name in ("float32", precision)
    ]
    vectors = [_unit_vectors(engine, sentences, show_progress_bar) for engine in engines]
    cosines = np.einsum("nd,nd->n", *vectors)
    ranking = None
    if data.scores is not None:
        before, after = (100 * spearman(_pair_cosines(each), data.scores) for each in vectors)
        ranking = before, after
    return Comparison(float(cosines.mean()), float(cosines.min()), ranking)


def _unit_vectors(engine: Engine, sentences: list[str], show_progress_bar: bool | None) -> np.ndarray:
    """float64 [n, D]: rounding in what follows is far below that of either precision."""
    return normalize(engine.encode(sentences, show_progress_bar=show_progress_bar).astype(np.float64))


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation of a [n] and b [n]: Pearson's of their ranks, equal values sharing their mean rank.

    NaN when one of them is constant. (Spearman, "The proof and measurement of association between two things", 1904.)
    """
    x, y = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    norm = math.sqrt((x @ x) * (y @ y))
    return float(x @ y) / norm if norm else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _pair_cosines(vectors: np.ndarray) -> np.ndarray:
    """Of unit vectors [2n, D], the cosine [n] of each with its neighbour."""
    return np.einsum("nd,nd->n", vectors[::2], vectors[1::2])


def _score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{where}: expected a score, a number, in the first of 3 columns, not {text[:60]!r}")
    return score
